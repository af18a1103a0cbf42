//! Segments of files: placement, paging, grants, and their form for clients.

use crate::ops::{ClusterView, Context, Outcome, hints, inodes, parities, quotas};
use crate::schema::{self, Body, Inode, RegularFile, SegmentPage, ServerRecord, WrittenPage, key};
use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use weir_layout::place::segment_bytes;
use weir_layout::{Groups, Spread, TargetInfo, grant, place};
use weir_metastore::Tx;
use weir_types::limits::{MAX_FILE_BYTES, MAX_LOADS, MAX_SEGMENTS, SEGMENT_PAGE};
use weir_types::{
    Column, Encode, Epoch, Error, ErrorKind, FileId, FileLayout, LayoutKind, LayoutSpec, Placement,
    Segment, SegmentIndex, ServerId, TargetId,
};
use weir_wire::Rights;
use weir_wire::lease::TO_THE_END;
use weir_wire::meta::{OpenFile, TargetLoad};

/// The most segments granted in one transaction.
const MAX_GRANT: usize = 16 * SEGMENT_PAGE;

/// Lays out an empty file according to its spec, with unused segment indexes, in the list that
/// `body` names. Returns the first page.
pub(crate) fn lay_out(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    body: &mut RegularFile,
) -> Outcome<FileLayout> {
    let targets = candidates(ctx, &body.spec);
    let mut spec = parities::with_room(ctx, &body.spec);
    let in_groups = spec.placement == Placement::Groups;
    if spec.base.is_none() && !in_groups {
        spec.base = base_of(file, &targets);
    }
    let mut layout =
        place(&spec, &targets, &ctx.cluster.pairs, file.0).map_err(|e| explain(ctx, e))?;
    if in_groups {
        let columns = layout.segments.iter().flat_map(|segment| &segment.columns);
        ctx.effects.primaries = columns.filter_map(|c| c.targets.first().copied()).collect();
    }
    let next = u32::try_from(layout.segments.len())
        .ok()
        .and_then(|count| body.next_segment.checked_add(count))
        .ok_or(ErrorKind::FileTooLarge)?;
    if (spec.copies > 1 || spec.parities > 0) && !ctx.cluster.mirrored {
        // From now on a target that was away may have missed something.
        tx.put(key::MIRRORED, &schema::encode(&Epoch(1)))?;
        ctx.effects.mirrored = true;
    }
    ctx.effects.makeshift |= is_makeshift(&layout.segments, ctx.cluster, in_groups);
    note_places(ctx, &layout.segments);
    body.epoch = Epoch(body.epoch.0 + 1);
    layout.epoch = body.epoch;
    for segment in &mut layout.segments {
        segment.index = SegmentIndex(body.next_segment + segment.index.0);
        segment.epoch = body.epoch;
    }
    body.next_segment = next;
    body.adopt(&layout);
    for page in layout.segments.chunks(SEGMENT_PAGE) {
        put_page(tx, file, body.list, page)?;
    }
    layout.segments.truncate(SEGMENT_PAGE);
    Ok(layout)
}

/// Possible targets of new segments. Chunks have their first copy on the machine of their writer
/// (HDFS), so for those the targets there are marked.
fn candidates<'a>(ctx: &Context<'a>, spec: &LayoutSpec) -> Cow<'a, [TargetInfo]> {
    let is_here = |server: &ServerRecord| !ctx.host.is_empty() && server.host == ctx.host;
    if spec.kind != LayoutKind::Chunked || !ctx.servers.values().any(is_here) {
        return Cow::Borrowed(&ctx.cluster.targets);
    }
    let mut targets = ctx.cluster.targets.clone();
    for target in &mut targets {
        target.local = ctx.servers.get(&target.home.server).is_some_and(is_here);
    }
    Cow::Owned(targets)
}

/// First target of a file, such that files on few targets have a local one among them. File ids are
/// consecutive, so the bases of new files go round.
fn base_of(file: FileId, targets: &[TargetInfo]) -> Option<u32> {
    let local = || (0..targets.len()).filter(|&at| targets[at].local);
    let among = match local().count() {
        0 => return Some(file.0.checked_rem(targets.len() as u64)? as u32),
        among => among as u64,
    };
    local().nth((file.0 % among) as usize).map(|at| at as u32)
}

/// Whether copies share a server, or share a machine or a domain although there are enough, or a
/// group of nodes if they should be in two, or are where nothing new should be.
fn is_makeshift(segments: &[Segment], cluster: &ClusterView, in_groups: bool) -> bool {
    let homes = || cluster.targets.iter().map(|info| info.home);
    // Asked for where copies are near each other only: most are not.
    let all = LazyCell::new(|| Spread::of(homes()));
    let groups = LazyCell::new(|| Groups::of(homes()));
    segments.iter().flat_map(|segment| &segment.columns).any(|column| {
        let copies = column.copies().count();
        let on = || column.copies().filter_map(|(_, target)| cluster.target(target));
        // A target that is full, or is being drained, has nothing free.
        let fine = on().filter(|info| info.online && info.free_bytes > 0).count() == copies;
        let near = || {
            let are = Spread::of(on().map(|info| info.home));
            are.servers < copies || are.domains < copies && are != all.at_most(copies)
        };
        let in_one_group = || {
            let second = on().filter(|info| groups.is_second(info.home.server)).count();
            [0, copies].contains(&second)
        };
        !fine || copies > 1 && (near() || in_groups && in_one_group())
    })
}

/// Records unusual placements: see [`crate::mover::partners`].
pub(crate) fn note_places(ctx: &mut Context<'_>, segments: &[Segment]) {
    let (cluster, effects) = (ctx.cluster, &mut ctx.effects);
    let server = |target| cluster.target(target).map(|info| info.home.server);
    let away = |target: &TargetId| cluster.target(*target).is_some_and(|info| !info.online);
    for column in segments.iter().flat_map(|segment| &segment.columns) {
        effects.on_one_server = effects.on_one_server || on_one(column, server);
        let targets = column.copies().map(|(_, target)| target);
        effects.given_while_away.extend(targets.filter(away));
        if column.copies().count() > 1 {
            effects.placed.push(column.clone());
        }
    }
}

/// Whether two copies of a column are on one server. `server` gives the server of each target.
pub(crate) fn on_one(column: &Column, server: impl Fn(TargetId) -> Option<ServerId>) -> bool {
    let mut others = column.copies().filter_map(|(_, target)| server(target));
    // As many as there are places.
    while let Some(one) = others.next() {
        if others.clone().any(|other| other == one) {
            return true;
        }
    }
    false
}

pub(crate) fn put_page(
    tx: &mut Tx<'_>,
    file: FileId,
    list: u32,
    segments: &[Segment],
) -> Outcome<()> {
    let Some(first) = segments.first() else { return Ok(()) };
    let page = SegmentPage { segments: segments.to_vec() };
    Ok(tx.put(&key::segments(file, list, first.start), &schema::encode(&page))?)
}

/// The first page of a list of segments.
pub(crate) fn first_page(tx: &mut Tx<'_>, file: FileId, list: u32) -> Outcome<Vec<Segment>> {
    match tx.get(&key::segments(file, list, 0))? {
        Some(bytes) => Ok(decode_page(&bytes)?.segments),
        None => Err(inodes::corrupt(file, "its layout is missing")),
    }
}

/// The page that contains an offset, or the last one; empty if there is none.
pub(crate) fn page_at(
    tx: &mut Tx<'_>,
    file: FileId,
    list: u32,
    offset: u64,
) -> Outcome<Vec<Segment>> {
    let (_, end) = key::segments_of(file, list);
    let found = tx.range(&key::segments(file, list, offset), &end, 1)?;
    match found.first() {
        Some((_, bytes)) => Ok(decode_page(bytes)?.segments),
        None => Ok(Vec::new()),
    }
}

/// Records that columns of the segment at `offset` were written. Nothing is recorded if that
/// segment has another index. Only new columns are written.
pub(crate) fn note_written(
    tx: &mut Tx<'_>,
    (file, list): (FileId, u32),
    offset: u64,
    segment: SegmentIndex,
    columns: &[u8],
) -> Outcome<()> {
    let page = page_at(tx, file, list, offset)?;
    let Some(at) = page.iter().position(|s| s.index == segment) else { return Ok(()) };
    let key = key::written(file, list, page[0].start);
    let mut record: WrittenPage = match tx.get(&key)? {
        Some(bytes) => schema::decode(&bytes, "of written columns")?,
        None => WrittenPage::default(),
    };
    if record.add(at, columns, page[at].columns.len()) {
        tx.put(&key, &schema::encode(&record))?;
    }
    Ok(())
}

/// Records that columns of a page are empty again.
pub(crate) fn forget_written(
    tx: &mut Tx<'_>,
    (file, list): (FileId, u32),
    page: &[Segment],
    columns: &[(usize, usize)],
) -> Outcome<()> {
    let Some(first) = page.first() else { return Ok(()) };
    let key = key::written(file, list, first.start);
    let Some(bytes) = tx.get(&key)? else { return Ok(()) };
    let mut record: WrittenPage = schema::decode(&bytes, "of written columns")?;
    columns.iter().for_each(|&(position, column)| record.remove(position, column));
    Ok(tx.put(&key, &schema::encode(&record))?)
}

/// A page and its key.
pub(crate) type StoredPage = (weir_metastore::Key, Vec<Segment>);

/// The last page of a list.
pub(crate) fn last_page(tx: &mut Tx<'_>, file: FileId, list: u32) -> Outcome<Option<StoredPage>> {
    let (start, end) = key::segments_of(file, list);
    match tx.range(&start, &end, 1)?.pop() {
        Some((key, bytes)) => Ok(Some((key, decode_page(&bytes)?.segments))),
        None => Ok(None),
    }
}

fn decode_page(bytes: &[u8]) -> Outcome<SegmentPage> {
    Ok(schema::decode(bytes, "of segments")?)
}

/// Whether segments follow those of a page.
fn has_more(tx: &mut Tx<'_>, file: FileId, list: u32, page: &[Segment]) -> Outcome<bool> {
    match page.last() {
        Some(last) if last.len.is_some() => {
            Ok(tx.get(&key::segments(file, list, last.end()))?.is_some())
        }
        _ => Ok(false),
    }
}

/// The segments from the one at `offset` to the end of its page, and whether there are more.
pub(crate) fn segments_from(
    tx: &mut Tx<'_>,
    file: FileId,
    list: u32,
    offset: u64,
) -> Outcome<(Vec<Segment>, bool)> {
    let mut page = page_at(tx, file, list, offset)?;
    let more = has_more(tx, file, list, &page)?;
    page.retain(|segment| segment.end() > offset);
    Ok((page, more))
}

/// Grants segments to a chunked file until they cover the bytes below `up_to`, or as many as fit
/// into one transaction. Other layouts cover everything from the start. `waits` has the times at
/// which targets could take another chunk, if those count. The caller stores the changed inode.
pub(crate) fn extend(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    (file, body): (FileId, &mut RegularFile),
    up_to: u64,
    waits: &[(TargetId, u64)],
) -> Outcome<()> {
    if body.spec.kind != LayoutKind::Chunked {
        return Ok(());
    }
    let mut page = last_page(tx, file, body.list)?.map(|(_, page)| page).unwrap_or_default();
    let covered = page.last().map_or(0, Segment::end);
    if covered >= up_to {
        return Ok(());
    }
    let chunk = segment_bytes(&body.spec);
    if up_to.div_ceil(chunk) > MAX_SEGMENTS as u64 {
        let message = format!(
            "{up_to} bytes in chunks of {chunk} need more than {MAX_SEGMENTS} chunks: write the \
             file anew with larger ones"
        );
        return Err(Error::new(ErrorKind::FileTooLarge, message).into());
    }
    let up_to = up_to.min(covered.saturating_add(MAX_GRANT as u64 * chunk));
    let mut targets = candidates(ctx, &body.spec);
    if body.spec.placement == Placement::Graduated && !waits.is_empty() {
        let waits: BTreeMap<TargetId, u64> = waits.iter().copied().collect();
        let wait_us = |target| waits.get(&target).copied().unwrap_or_default();
        targets.to_mut().iter_mut().for_each(|info| info.wait_us = wait_us(info.target));
    }
    body.epoch = Epoch(body.epoch.0 + 1);
    loop {
        let known = body.layout(page.last().cloned().into_iter().collect());
        let next = SegmentIndex(body.next_segment);
        let at = (&targets[..], &ctx.cluster.pairs);
        let granted = grant(&known, &body.spec, at, up_to, next, file.0)?;
        if granted.is_empty() {
            return put_page(tx, file, body.list, &page);
        }
        body.next_segment += granted.len() as u32;
        ctx.effects.makeshift |= is_makeshift(&granted, ctx.cluster, false);
        note_places(ctx, &granted);
        for segment in granted {
            if page.len() == SEGMENT_PAGE {
                put_page(tx, file, body.list, &page)?;
                page.clear();
            }
            page.push(Segment { epoch: body.epoch, ..segment });
        }
    }
}

/// Everything needed to use a file whose first page of segments is known. A file without data has
/// neither segments nor rights to any.
pub(crate) fn open_file(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    (file, inode): (FileId, &Inode),
    rights: Rights,
    first: Option<FileLayout>,
) -> Outcome<OpenFile> {
    let attr = inode.attr(file);
    let Body::File(body) = &inode.body else {
        return Ok(without_data(ctx, file, inode));
    };
    let layout = match first {
        Some(layout) => layout,
        None => body.layout(first_page(tx, file, body.list)?),
    };
    if rights.allow(Rights::WRITE) && parities::are_wished(&body.spec) {
        ctx.effects.to_encode = Some(file);
    }
    let layout = acting_now(ctx, file, body, layout, rights);
    let more_segments = has_more(tx, file, body.list, &layout.segments)?;
    let capability = ctx.sign(file, rights, &layout.segments);
    // Who only reads need not, and may not, carry a truncation out: what lies
    // beyond the size is not read. But after a writer that died the size itself
    // is to be found.
    let pending_truncate = body.pending_truncate.clone().filter(|pending| {
        let hides = inode.size > pending.size || pending.size == TO_THE_END;
        rights.allow(Rights::WRITE) || hides
    });
    let consistency = if inode.xattrs > 0 { hints::of(tx, file)? } else { None };
    quotas::note(tx, ctx, file, inode, None)?;
    // Whoever is told of it carries it out.
    ctx.effects.objects_follow |= pending_truncate.is_some();
    let loads = Vec::new();
    Ok(OpenFile { attr, consistency, layout, more_segments, capability, pending_truncate, loads })
}

/// Speeds of the targets among which a reader may choose.
pub(crate) fn loads_of(cluster: &ClusterView, layout: &FileLayout) -> Vec<TargetLoad> {
    let columns = layout.segments.iter().flat_map(|segment| &segment.columns).take(MAX_LOADS);
    let mirrored = columns.filter(|column| column.targets.len() > 1);
    let targets: BTreeSet<TargetId> =
        mirrored.flat_map(|column| column.targets.iter().copied()).collect();
    let loads = targets.iter().filter_map(|target| cluster.loads.get(target));
    loads.copied().take(MAX_LOADS).collect()
}

/// The layout with the protocol by which this client and all others write its copies now.
pub(crate) fn acting_now(
    ctx: &Context<'_>,
    file: FileId,
    body: &RegularFile,
    layout: FileLayout,
    rights: Rights,
) -> FileLayout {
    let columns = match (body.spec.kind, body.spec.count) {
        (LayoutKind::Striped, _) => layout.segments.first().map_or(0, |s| s.columns.len()),
        // Segments on one server each: those that they go to.
        (_, 0) => ctx.cluster.targets.len(),
        (_, count) => usize::from(count),
    };
    let writers = ctx.opens.writers_with(ctx.session, file, rights);
    let acting = layout.duplication.acting(columns, writers as usize);
    FileLayout { acting, ..layout }
}

/// The attributes alone, as an [`OpenFile`].
pub(crate) fn without_data(ctx: &Context<'_>, file: FileId, inode: &Inode) -> OpenFile {
    let none = RegularFile::unplaced(LayoutSpec::default());
    OpenFile {
        attr: inode.attr(file),
        consistency: None,
        layout: none.layout(Vec::new()),
        more_segments: false,
        capability: ctx.sign(file, Rights::NONE, &[]),
        pending_truncate: None,
        loads: Vec::new(),
    }
}

/// Adds to an error whether waiting helps: it does if targets are only away, and does not if one is
/// out of service.
fn explain(ctx: &Context<'_>, error: Error) -> Error {
    match &ctx.cluster.trouble {
        Some(trouble) if error.kind == ErrorKind::Unreachable => Error::new(
            ErrorKind::Io,
            format!("no target takes new files: {trouble}; `weir status` says what to do"),
        ),
        _ => error,
    }
}

/// Refuses a layout that new files could not get.
///
/// # Errors
/// `InvalidArgument`, with what to change. Offline targets are no reason: they may come back.
pub(crate) fn check_spec(ctx: &Context<'_>, spec: &LayoutSpec) -> Outcome<()> {
    if spec.to_bytes().len() > weir_types::limits::MAX_XATTR_BYTES {
        return Err(ErrorKind::TooBig.into());
    }
    weir_layout::check_spec(spec)?;
    parities::check_spec(ctx, spec)?;
    match place(spec, &ctx.cluster.targets, &ctx.cluster.pairs, 0) {
        Err(error) if error.kind == ErrorKind::InvalidArgument => Err(error.into()),
        _ => Ok(()),
    }
}

/// Refuses sizes beyond the largest file.
///
/// # Errors
/// `FileTooLarge`.
pub(crate) fn check_size(size: u64) -> Outcome<()> {
    if size <= MAX_FILE_BYTES { Ok(()) } else { Err(ErrorKind::FileTooLarge.into()) }
}
