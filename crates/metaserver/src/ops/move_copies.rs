//! Changes where the copies of a file are, a page of its segments at a time. [`crate::mover::plan`]
//! decides what to do.

use crate::mover::coding::Coding;
use crate::mover::even::Uneven;
use crate::mover::plan::{Change, Place, Verdict, Wish, improve_with, lacks_room};
use crate::mover::sites::{Fit, Sites};
use crate::ops::parities::{self, Writers};
use crate::ops::{Context, Outcome, deletion, inodes, layouts};
use crate::schema::{self, Inode, RegularFile, key};
use std::collections::BTreeSet;
use weir_layout::{Apart, object_len};
use weir_metastore::Tx;
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{
    Column, ColumnIndex, CopyIndex, Epoch, FileId, Filling, Generation, ObjectId, Placement,
    Segment, SegmentIndex, SegmentState, TargetId,
};
use weir_wire::lease::TO_THE_END;
use weir_wire::meta::PendingTruncate;

/// Pages of segments in one transaction.
const MAX_PAGES: usize = 32;
/// The most copies of a file that are asked at a time whether they have everything.
const MAX_UNSETTLED: usize = 64;

/// Copies to move because their targets have too much.
pub type Relieved = BTreeSet<ObjectId>;

/// Conditions of a change besides the file.
pub struct Means<'a> {
    /// The targets.
    pub sites: &'a mut Sites,
    /// See [`Relieved`].
    pub relieved: &'a Relieved,
    /// After this many copies were begun or dropped the rest is left for later.
    pub most: usize,
    /// The most copies to begin.
    pub room: usize,
    /// Copies that are filled, or are whole and have everything, as their servers have said while
    /// no session wrote.
    pub filled: &'a [Filled],
    /// Who writes the file, or waits to.
    pub writers: Writers<'a>,
}

/// A copy that is being filled, or that should be confirmed to have everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Its object.
    pub object: ObjectId,
    /// Target of the copy.
    pub to: TargetId,
    /// Targets of the whole copies, in order.
    pub sources: Vec<TargetId>,
    /// First byte of its segment in the file.
    pub segment_start: u64,
    /// Approximate bytes to copy.
    pub bytes: u64,
    /// Whether it is whole itself, and another one is to be dropped.
    pub is_whole: bool,
    /// How to compute it from others of its segment, if there is no source.
    pub computed: Option<Computed>,
}

/// How a column or a parity is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computed {
    /// Columns of the segment.
    pub columns: u16,
    /// Its parities.
    pub parities: u8,
    /// Whether those count that are not being made.
    pub coded: bool,
    /// The most bytes that it may have.
    pub len: u64,
    /// The others of the segment that count, with the targets of their whole copies. If parities do
    /// not count yet these are its columns, which have to be fenced before.
    pub others: Vec<(ObjectId, Vec<TargetId>)>,
}

impl Computed {
    /// Whether there are enough of the others.
    pub fn is_possible(&self, is_online: impl Fn(TargetId) -> bool) -> bool {
        let is_there = |(_, targets): &&(ObjectId, Vec<TargetId>)| {
            targets.iter().any(|target| is_online(*target))
        };
        self.others.iter().filter(is_there).count() >= usize::from(self.columns)
    }

    /// The columns that have to be fenced.
    pub fn fences(&self) -> &[(ObjectId, Vec<TargetId>)] {
        if self.coded { &[] } else { &self.others }
    }
}

/// Work for a file, from some byte on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// First byte of the first segment to change.
    pub change_at: Option<u64>,
    /// Number of copies to make that were not begun, and their bytes.
    pub missing: (u64, u64),
    /// Copies that are being filled.
    pub filling: Vec<Filled>,
    /// Some of the copies that need everything before others are dropped.
    pub unsettled: Vec<Filled>,
    /// Number of segments for which nothing can be done now.
    pub stuck: u64,
    /// Whether places of new copies have objects that are still to be removed.
    pub waits_for_removal: bool,
    /// Whether copies of a segment with parities cannot be made for lack of room.
    pub no_room: bool,
    /// Whether copies are, or are going to be, nearer to each other than necessary once other
    /// targets take copies again.
    pub makeshift: bool,
    /// Whether two copies of a column are on one server.
    pub on_one_server: bool,
    /// Lost targets with copies.
    pub lost: BTreeSet<TargetId>,
    /// After how many milliseconds it may get parities.
    pub due_in_ms: Option<u64>,
    /// Whether it has parities.
    pub sealed: bool,
    /// Its segments, if they get parities.
    pub coding: Coding,
    /// First byte of the rest of the file.
    pub next: Option<u64>,
    /// Generation of the file.
    pub generation: Generation,
}

/// Result of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// All copies of the changed segments that are being filled.
    pub filling: Vec<Filled>,
    /// Number of copies begun.
    pub added: usize,
    /// Dropped copies.
    pub dropped: Vec<ObjectId>,
    /// Copies that are whole from now on.
    pub filled: Vec<ObjectId>,
    /// Changed segments that get parities, before and after.
    pub coding: (Coding, Coding),
    /// First byte of the changed page; there may be more to change.
    pub changed_at: Option<u64>,
    /// Generation of the file.
    pub generation: Generation,
}

/// Looks at a file from `from` on; `None` if it has no segments. Possible new copies are counted in
/// the given sites.
pub fn look(
    tx: &mut Tx<'_>,
    file: FileId,
    from: u64,
    means: &mut Means<'_>,
) -> Outcome<Option<Look>> {
    let Some(inode) = inodes::find(tx, file)? else { return Ok(None) };
    let Ok(body) = inodes::regular(&inode) else { return Ok(None) };
    let mut look = Look { generation: inode.generation, ..Look::default() };
    let mut from = from;
    for _ in 0..MAX_PAGES {
        let (page, more) = layouts::segments_from(tx, file, body.list, from)?;
        for segment in &page {
            look_at(tx, (file, &inode, body), segment, means, &mut look)?;
        }
        match page.last() {
            Some(last) if more => from = last.end(),
            _ => return Ok(Some(look)),
        }
    }
    look.next = Some(from);
    Ok(Some(look))
}

fn look_at(
    tx: &mut Tx<'_>,
    (file, inode, body): (FileId, &Inode, &RegularFile),
    segment: &Segment,
    means: &mut Means<'_>,
    look: &mut Look,
) -> Outcome<()> {
    look.filling.extend(filling(file, inode, segment));
    look.note_targets(segment, means.sites);
    look.coding.add(&coding(inode, body, segment));
    look.sealed |= segment.state == SegmentState::Sealed;
    if segment.state == SegmentState::Open {
        let due_in_ms = parities::due_in_ms(file, inode, body, segment, &means.writers);
        look.due_in_ms = look.due_in_ms.into_iter().chain(due_in_ms).min();
    }
    let (verdict, is_barred) =
        verdict(tx, (file, inode, body), segment, (means, usize::MAX, usize::MAX))?;
    look.waits_for_removal |= is_barred;
    let then = match &verdict {
        Verdict::Change(change) => &change.segment,
        _ => segment,
    };
    look.makeshift = look.makeshift || is_makeshift(then, body, means.sites);
    let waits = matches!(verdict, Verdict::Filling | Verdict::Stuck);
    look.no_room = look.no_room || waits && lacks_room(segment, means.sites);
    match verdict {
        Verdict::Fine | Verdict::Filling => {}
        Verdict::Stuck => look.stuck += 1,
        Verdict::Unsettled(places) => look.ask(file, segment, &places),
        Verdict::Change(change) => {
            look.ask(file, segment, &change.unsettled);
            look.change_at.get_or_insert(segment.start);
            let bytes = |place: &Place| bytes_of(inode, segment, place.column);
            look.missing.0 += change.added.len() as u64;
            look.missing.1 += change.added.iter().map(bytes).sum::<u64>();
        }
    }
    Ok(())
}

/// How a segment counts among those that get parities.
fn coding(inode: &Inode, body: &RegularFile, segment: &Segment) -> Coding {
    match parities::has_or_gets_some(inode, body, segment) {
        true => {
            Coding::of(segment, (body.spec.parities, parities::kept_copies(&body.spec)), |number| {
                bytes_of(inode, segment, ColumnIndex(number as u16))
            })
        }
        false => Coding::default(),
    }
}

/// Whether remaining copies are nearer to each other than necessary.
fn is_makeshift(segment: &Segment, body: &RegularFile, sites: &Sites) -> bool {
    if segment.state == SegmentState::Sealed {
        return false;
    }
    let in_groups = body.spec.placement == Placement::Groups;
    let stays = |target: &TargetId| matches!(sites.fit(*target), Fit::Takes | Fit::Keeps);
    segment.columns.iter().any(|column| {
        let stay = column.copies().map(|(_, target)| target).filter(stays).collect();
        sites.are_makeshift(&stay, in_groups)
    })
}

impl Look {
    /// Records where the copies of a segment are, whatever happens to them.
    fn note_targets(&mut self, segment: &Segment, sites: &Sites) {
        let server = |target| sites.server(target);
        for (_, column) in segment.members() {
            self.on_one_server = self.on_one_server || layouts::on_one(column, server);
            let targets = column.copies().map(|(_, target)| target);
            self.lost.extend(targets.filter(|target| sites.fit(*target) == Fit::Lost));
        }
    }

    /// Adds copies that need everything.
    fn ask(&mut self, file: FileId, segment: &Segment, places: &[Place]) {
        let room = MAX_UNSETTLED.saturating_sub(self.unsettled.len());
        let asked = places.iter().take(room).filter_map(|p| whole(file, segment, p.column, p.copy));
        self.unsettled.extend(asked);
    }
}

/// Changes the first page from `from` on that is not as wished. No session may have leases on the
/// file: writers under the old layout are fenced off.
pub fn change(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    from: u64,
    means: &mut Means<'_>,
) -> Outcome<Made> {
    let mut made = Made::default();
    let Some(mut inode) = inodes::find(tx, file)? else { return Ok(made) };
    let Ok(body) = inodes::regular(&inode).cloned() else { return Ok(made) };
    let epoch = Epoch(body.epoch.0 + 1);
    let mut page = layouts::page_at(tx, file, body.list, from)?;
    for position in 0..page.len() {
        let left = means.most.saturating_sub(made.added + made.dropped.len());
        if left == 0 {
            break;
        }
        let mut segment = page[position].clone();
        let before = made.filled.len();
        made.filled.extend(end_filling(file, &mut segment, means.filled));
        let room = means.room.saturating_sub(made.added);
        let (verdict, _) = verdict(tx, (file, &inode, &body), &segment, (means, left, room))?;
        if let Verdict::Change(change) = verdict {
            note_dropped(tx, ctx, file, &change)?;
            made.added += change.added.len();
            let gone = |p: &Place| object(file, segment.index, p.column, p.copy);
            made.dropped.extend(change.dropped.iter().map(gone));
            segment = change.segment;
        } else if made.filled.len() == before {
            continue;
        }
        made.coding.0.add(&coding(&inode, &body, &page[position]));
        page[position] = Segment { epoch, ..segment };
        made.coding.1.add(&coding(&inode, &body, &page[position]));
        layouts::note_places(ctx, &page[position..=position]);
        made.filling.extend(filling(file, &inode, &page[position]));
        made.changed_at = page.first().map(|first| first.start);
    }
    if made.changed_at.is_none() {
        return Ok(made);
    }
    // A target that was away may have missed something.
    if made.added > 0 && !ctx.cluster.mirrored {
        tx.put(key::MIRRORED, &schema::encode(&Epoch(1)))?;
        ctx.effects.mirrored = true;
    }
    layouts::put_page(tx, file, body.list, &page)?;
    raise(&mut inode, epoch)?;
    made.generation = inode.generation;
    inodes::store(tx, file, &inode)?;
    Ok(made)
}

/// Invalidates old layouts.
pub(crate) fn raise(inode: &mut Inode, epoch: Epoch) -> Outcome<()> {
    let generation = Generation(inode.generation.0 + 1);
    inode.generation = generation;
    let body = inodes::regular_mut(inode)?;
    body.epoch = epoch;
    // A truncation that nobody has finished cuts as before. It has a generation of its own:
    // where it is fenced off what went by the layout of before, it would count as done.
    let Some(PendingTruncate { size, .. }) = body.pending_truncate else { return Ok(()) };
    let generation = Generation(generation.0 + u64::from(size != TO_THE_END));
    body.pending_truncate = Some(PendingTruncate { generation, size });
    inode.generation = generation;
    Ok(())
}

/// Marks filled copies of a segment as whole. Returns them.
fn end_filling(file: FileId, segment: &mut Segment, filled: &[Filled]) -> Vec<ObjectId> {
    let is_it = |copy: &&Filled| {
        let ObjectId { column, copy: index, .. } = copy.object;
        copy.object.file == file
            && copy.object.segment == segment.index
            && segment.is_filling(column, index)
            && segment.target(usize::from(column.0), index) == Some(copy.to)
    };
    let done: Vec<ObjectId> = filled.iter().filter(is_it).map(|copy| copy.object).collect();
    let whole = |f: &Filling| done.iter().any(|o| (o.column, o.copy) == (f.column, f.copy));
    segment.filling.retain(|f| !whole(f));
    done
}

/// A copy that still has to be filled, or to be confirmed; `None` if it does not.
pub fn still_filling(tx: &mut Tx<'_>, copy: &Filled) -> Outcome<Option<Filled>> {
    let file = copy.object.file;
    let Some(inode) = inodes::find(tx, file)? else { return Ok(None) };
    let Ok(body) = inodes::regular(&inode) else { return Ok(None) };
    let page = layouts::page_at(tx, file, body.list, copy.segment_start)?;
    let Some(segment) = page.iter().find(|s| s.index == copy.object.segment) else {
        return Ok(None);
    };
    let ObjectId { column, copy: index, .. } = copy.object;
    let mut filling = filling(file, &inode, segment);
    Ok(match copy.is_whole {
        true => whole(file, segment, column, index),
        false => filling.find(|f| f.object == copy.object),
    })
}

/// Copies of a file, from some byte on, that can be moved from targets with too much to others with
/// space, and the first byte of the rest of the file.
pub fn relieve(
    tx: &mut Tx<'_>,
    file: FileId,
    from: u64,
    sites: &Sites,
    uneven: &mut Uneven,
) -> Outcome<(Vec<ObjectId>, Option<u64>)> {
    let none = Ok((Vec::new(), None));
    let Some(inode) = inodes::find(tx, file)? else { return none };
    let Ok(body) = inodes::regular(&inode) else { return none };
    let in_groups = body.spec.placement == Placement::Groups;
    let (page, more) = layouts::segments_from(tx, file, body.list, from)?;
    let mut found = Vec::new();
    let is_plain =
        |segment: &&Segment| segment.filling.is_empty() && segment.state == SegmentState::Open;
    for segment in page.iter().filter(is_plain) {
        for (number, placed) in segment.columns.iter().enumerate() {
            let column = ColumnIndex(number as u16);
            let bytes = bytes_of(&inode, segment, column);
            let taken = placed.copies().map(|(_, target)| target).collect();
            let may_go = |(_, target): &(CopyIndex, TargetId)| {
                let all = placed.copies().map(|(_, target)| target);
                let others = all.filter(|other| other != target).collect();
                let mut candidates = sites.candidates(&taken, &others);
                if in_groups {
                    candidates.retain(|to| sites.is_in_other_group(*to, &others));
                }
                let Some(to) = candidates.first().copied() else { return false };
                let apart = sites.apart(*target, &others).max(Apart::Server);
                let keeps = sites.apart(to, &others) >= apart;
                keeps && sites.is_open(to) && uneven.take(*target, bytes)
            };
            let copy = placed.copies().find(may_go).map(|(copy, _)| copy);
            found.extend(copy.map(|copy| object(file, segment.index, column, copy)));
        }
    }
    let next = page.last().filter(|_| more).map(Segment::end);
    Ok((found, next))
}

/// What a segment needs, and whether some places are out of the question because objects there are
/// still to be removed.
fn verdict(
    tx: &mut Tx<'_>,
    (file, inode, body): (FileId, &Inode, &RegularFile),
    segment: &Segment,
    (means, most, room): (&mut Means<'_>, usize, usize),
) -> Outcome<(Verdict, bool)> {
    let of = |copy: u8| object(file, segment.index, ColumnIndex(0), CopyIndex(copy));
    let last = ObjectId { column: ColumnIndex(u16::MAX), ..of(u8::MAX) };
    let relieved = means.relieved.range(of(0)..=last).map(|o| (o.column, o.copy)).collect();
    let is_there = |f: &&Filled| {
        let ObjectId { column, copy, .. } = f.object;
        (of(0)..=last).contains(&f.object)
            && segment.target(usize::from(column.0), copy) == Some(f.to)
            && !segment.is_filling(column, copy)
    };
    let settled = means.filled.iter().filter(is_there);
    let settled = settled.map(|f| (f.object.column, f.object.copy)).collect();
    let mut barred = BTreeSet::new();
    let parities = parities::wish(file, inode, body, segment, &means.writers);
    loop {
        let copies = usize::from(body.spec.copies.max(1));
        let seed = file.0 ^ u64::from(segment.index.0) << 48;
        let in_groups = body.spec.placement == Placement::Groups;
        let wish = Wish {
            copies,
            in_groups,
            relieved: &relieved,
            barred: &barred,
            settled: &settled,
            seed,
            most,
            room,
            decodes: false,
        };
        let verdict = improve_with(parities, segment, &wish, means.sites);
        let Verdict::Change(change) = &verdict else {
            return Ok((verdict, !barred.is_empty()));
        };
        // An object that is still to be removed would take the new one with it.
        let mut more = Vec::new();
        for place in &change.added {
            let object = object(file, segment.index, place.column, place.copy);
            if tx.get(&key::garbage(place.target, object))?.is_some() {
                more.push(*place);
            }
        }
        if more.is_empty() {
            return Ok((verdict, !barred.is_empty()));
        }
        barred.extend(more);
    }
}

/// Records dropped copies for removal when their targets are online. For a removed target nothing
/// is recorded.
fn note_dropped(tx: &mut Tx<'_>, ctx: &Context<'_>, file: FileId, change: &Change) -> Outcome<()> {
    for place in &change.dropped {
        let object = object(file, change.segment.index, place.column, place.copy);
        deletion::note_garbage(tx, ctx.cluster, place.target, object)?;
    }
    Ok(())
}

fn object(file: FileId, segment: SegmentIndex, column: ColumnIndex, copy: CopyIndex) -> ObjectId {
    ObjectId { file, segment, column, copy }
}

fn filling<'a>(
    file: FileId,
    inode: &'a Inode,
    segment: &'a Segment,
) -> impl Iterator<Item = Filled> + 'a {
    segment.filling.iter().filter_map(move |f| {
        let column = segment.member(usize::from(f.column.0))?;
        Some(Filled {
            object: object(file, segment.index, f.column, f.copy),
            to: segment.target(usize::from(f.column.0), f.copy)?,
            sources: match usize::from(f.column.0) < segment.columns.len() {
                true => sources(segment, f.column, column),
                // There is one of each.
                false => Vec::new(),
            },
            segment_start: segment.start,
            bytes: bytes_of(inode, segment, f.column),
            is_whole: false,
            computed: computed(file, inode, segment, f.column),
        })
    })
}

/// How to compute a column or a parity; `None` if there are no parities.
fn computed(
    file: FileId,
    inode: &Inode,
    segment: &Segment,
    column: ColumnIndex,
) -> Option<Computed> {
    let is_parity = usize::from(column.0) >= segment.columns.len();
    if segment.parities.is_empty() || !is_parity && !segment.is_coded() {
        return None;
    }
    let counts = |(number, _): &(ColumnIndex, &Column)| match segment.is_coded() {
        true => *number != column,
        false => usize::from(number.0) < segment.columns.len(),
    };
    let other = |(number, member): (ColumnIndex, &Column)| {
        (object(file, segment.index, number, CopyIndex(0)), sources(segment, number, member))
    };
    Some(Computed {
        columns: segment.columns.len() as u16,
        parities: segment.parities.len() as u8,
        coded: segment.is_coded(),
        len: if is_parity { MAX_FILE_BYTES } else { bytes_of(inode, segment, column) },
        others: segment.members().filter(counts).map(other).collect(),
    })
}

/// A whole copy; `None` if there is none, or it is not whole.
fn whole(file: FileId, segment: &Segment, column: ColumnIndex, copy: CopyIndex) -> Option<Filled> {
    let number = usize::from(column.0);
    let to = segment.target(number, copy)?;
    let is_whole = to != TargetId::NONE && !segment.is_filling(column, copy);
    is_whole.then(|| Filled {
        object: object(file, segment.index, column, copy),
        to,
        sources: segment.member(number).map_or_else(Vec::new, |of| sources(segment, column, of)),
        segment_start: segment.start,
        bytes: 0,
        is_whole: true,
        computed: None,
    })
}

/// Targets of a column's whole copies, in order.
fn sources(segment: &Segment, column: ColumnIndex, placed: &Column) -> Vec<TargetId> {
    let whole = |(copy, _): &(CopyIndex, TargetId)| !segment.is_filling(column, *copy);
    placed.copies().filter(whole).map(|(_, target)| target).collect()
}

/// Bytes of a column if it has no holes; of a parity as many as the longest column has.
fn bytes_of(inode: &Inode, segment: &Segment, column: ColumnIndex) -> u64 {
    let column =
        if usize::from(column.0) < segment.columns.len() { column } else { ColumnIndex(0) };
    let within = inode.size.clamp(segment.start, segment.end()) - segment.start;
    object_len(segment.stripe(), column, within)
}
