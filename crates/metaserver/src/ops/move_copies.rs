//! Changes where the copies of a file are, a page of its segments at a time: what is to
//! be done is decided in [`crate::mover::plan`].

use crate::mover::even::Uneven;
use crate::mover::plan::{Change, Place, Verdict, Wish, improve};
use crate::mover::sites::{Fit, Sites};
use crate::ops::{Context, Outcome, deletion, inodes, layouts};
use crate::schema::{self, Inode, RegularFile, key};
use std::collections::BTreeSet;
use weir_layout::{Apart, object_len};
use weir_metastore::Tx;
use weir_types::{
    Column, ColumnIndex, CopyIndex, Epoch, FileId, Filling, Generation, ObjectId, Placement,
    Segment, SegmentIndex, TargetId,
};
use weir_wire::lease::TO_THE_END;
use weir_wire::meta::PendingTruncate;

/// Pages of segments that are looked at in one transaction.
const MAX_PAGES: usize = 32;
/// Copies of a file that are asked at a time whether they have everything.
const MAX_UNSETTLED: usize = 64;

/// Copies that are to go elsewhere because their targets have too much.
pub type Relieved = BTreeSet<ObjectId>;

/// What plays a part in a change beside the file.
pub struct Means<'a> {
    /// The targets.
    pub sites: &'a mut Sites,
    /// See [`Relieved`].
    pub relieved: &'a Relieved,
    /// When so many copies have been begun or dropped the rest is left for later.
    pub most: usize,
    /// The most copies to begin.
    pub room: usize,
    /// Copies that have been filled, or are whole and have everything: as their servers have
    /// said while nobody wrote.
    pub filled: &'a [Filled],
}

/// A copy that is being filled, or that is to be known to have everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Its object.
    pub object: ObjectId,
    /// Where it is made.
    pub to: TargetId,
    /// Where the others are that are whole, in order.
    pub sources: Vec<TargetId>,
    /// Where its segment begins in the file.
    pub segment_start: u64,
    /// About so many bytes are to be copied.
    pub bytes: u64,
    /// It is one of the others: another one is to go.
    pub is_whole: bool,
}

/// What is to be done for a file, from some byte on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The first byte of the first segment in which something is to be changed.
    pub change_at: Option<u64>,
    /// Copies to be made that nobody makes yet, and their bytes.
    pub missing: (u64, u64),
    /// Copies that are being filled.
    pub filling: Vec<Filled>,
    /// Some of the copies that are to have everything before others go.
    pub unsettled: Vec<Filled>,
    /// Segments for which nothing can be done now.
    pub stuck: u64,
    /// Copies are, or are going to be, nearer to each other than they need be when others
    /// take some again.
    pub makeshift: bool,
    /// Two copies of a column are on one server.
    pub on_one_server: bool,
    /// Targets with copies that are given up.
    pub lost: BTreeSet<TargetId>,
    /// There is more of the file from this byte on.
    pub next: Option<u64>,
    /// The file's generation.
    pub generation: Generation,
}

/// What a change came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// All copies of the changed segments that are being filled.
    pub filling: Vec<Filled>,
    /// How many were begun.
    pub added: usize,
    /// Those that went.
    pub dropped: Vec<ObjectId>,
    /// Copies that are whole from now on.
    pub filled: Vec<ObjectId>,
    /// The first byte of the page in which something was changed; there may be more.
    pub changed_at: Option<u64>,
    /// The file's generation.
    pub generation: Generation,
}

/// Looks at a file from `from` on; `None`: it has no segments. Counts what it would
/// give in the sites that it is given.
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
    let verdict = verdict(tx, file, body, segment, (means, usize::MAX, usize::MAX))?;
    let then = match &verdict {
        Verdict::Change(change) => &change.segment,
        _ => segment,
    };
    look.makeshift = look.makeshift || is_makeshift(then, body, means.sites);
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

/// Whether copies that stay are nearer to each other than they need be.
fn is_makeshift(segment: &Segment, body: &RegularFile, sites: &Sites) -> bool {
    let in_groups = body.spec.placement == Placement::Groups;
    let stays = |target: &TargetId| matches!(sites.fit(*target), Fit::Takes | Fit::Keeps);
    segment.columns.iter().any(|column| {
        let stay = column.copies().map(|(_, target)| target).filter(stays).collect();
        sites.are_makeshift(&stay, in_groups)
    })
}

impl Look {
    /// Where the copies of a segment are, whatever is to become of them.
    fn note_targets(&mut self, segment: &Segment, sites: &Sites) {
        let server = |target| sites.server(target);
        for column in &segment.columns {
            self.on_one_server = self.on_one_server || layouts::on_one(column, server);
            let targets = column.copies().map(|(_, target)| target);
            self.lost.extend(targets.filter(|target| sites.fit(*target) == Fit::Lost));
        }
    }

    /// Copies that are to have everything.
    fn ask(&mut self, file: FileId, segment: &Segment, places: &[Place]) {
        let room = MAX_UNSETTLED.saturating_sub(self.unsettled.len());
        let asked = places.iter().take(room).filter_map(|p| whole(file, segment, p.column, p.copy));
        self.unsettled.extend(asked);
    }
}

/// Changes the first page from `from` on that is not as it is wished. Nobody may have
/// leases of the file: who has written under the old layout is fenced off.
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
        let verdict = verdict(tx, file, &body, &segment, (means, left, room))?;
        if let Verdict::Change(change) = verdict {
            note_dropped(tx, ctx, file, &change)?;
            made.added += change.added.len();
            let gone = |p: &Place| object(file, segment.index, p.column, p.copy);
            made.dropped.extend(change.dropped.iter().map(gone));
            segment = change.segment;
        } else if made.filled.len() == before {
            continue;
        }
        page[position] = Segment { epoch, ..segment };
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

/// Layouts of before are good no more.
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

/// Copies of a segment that have been filled are whole; returns which.
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

/// Whether a copy is still to be filled, or to have everything; `None`: it is not.
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

/// Copies of a file, from some byte on, that can go from targets with too much to others
/// with room; and from where on there is more of the file.
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
    for segment in page.iter().filter(|segment| segment.filling.is_empty()) {
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

fn verdict(
    tx: &mut Tx<'_>,
    file: FileId,
    body: &RegularFile,
    segment: &Segment,
    (means, most, room): (&mut Means<'_>, usize, usize),
) -> Outcome<Verdict> {
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
        };
        let verdict = improve(segment, &wish, means.sites);
        let Verdict::Change(change) = &verdict else { return Ok(verdict) };
        // An object that is still to be removed would take the new one with it.
        let mut more = Vec::new();
        for place in &change.added {
            let object = object(file, segment.index, place.column, place.copy);
            if tx.get(&key::garbage(place.target, object))?.is_some() {
                more.push(*place);
            }
        }
        if more.is_empty() {
            return Ok(verdict);
        }
        barred.extend(more);
    }
}

/// Objects of copies that went are removed when their targets are there. Of a target
/// that has been removed nothing is to be had any more.
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
        let column = segment.columns.get(usize::from(f.column.0))?;
        Some(Filled {
            object: object(file, segment.index, f.column, f.copy),
            to: segment.target(usize::from(f.column.0), f.copy)?,
            sources: sources(segment, f.column, column),
            segment_start: segment.start,
            bytes: bytes_of(inode, segment, f.column),
            is_whole: false,
        })
    })
}

/// A copy that is whole; `None`: there is none, or it is not.
fn whole(file: FileId, segment: &Segment, column: ColumnIndex, copy: CopyIndex) -> Option<Filled> {
    let number = usize::from(column.0);
    let to = segment.target(number, copy)?;
    let is_whole = to != TargetId::NONE && !segment.is_filling(column, copy);
    is_whole.then(|| Filled {
        object: object(file, segment.index, column, copy),
        to,
        sources: sources(segment, column, &segment.columns[number]),
        segment_start: segment.start,
        bytes: 0,
        is_whole: true,
    })
}

/// Where the copies of a column are that are whole, in order.
fn sources(segment: &Segment, column: ColumnIndex, placed: &Column) -> Vec<TargetId> {
    let whole = |(copy, _): &(CopyIndex, TargetId)| !segment.is_filling(column, *copy);
    placed.copies().filter(whole).map(|(_, target)| target).collect()
}

/// How much a column holds if it has no holes.
fn bytes_of(inode: &Inode, segment: &Segment, column: ColumnIndex) -> u64 {
    let within = inode.size.clamp(segment.start, segment.end()) - segment.start;
    object_len(segment.stripe(), column, within)
}
