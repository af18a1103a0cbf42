//! When a file has parities in place of copies.
//!
//! Nobody may write a segment that has parities, or gets them: see
//! [`waits_to_write`]. So no session has such a file open for writing, and none that has it open for
//! writing learns of a generation that the fence of its objects lets pass.

use crate::mover::plan::{Parities, mirrored};
use crate::open_files::OpenFiles;
use crate::ops::{Context, Outcome, inodes, layouts};
use crate::schema::{Inode, RegularFile};
use std::collections::{BTreeMap, BTreeSet};
use weir_layout::{Home, Spread, object_len};
use weir_metastore::Tx;
use weir_types::limits::{MAX_CODED_COLUMNS, MAX_PARITIES, MIN_CODED_COLUMNS, NEVER_S};
use weir_types::{
    ColumnIndex, Error, ErrorKind, FileId, LayoutKind, LayoutSpec, Segment, SegmentState, ServerId,
    TargetId, Timestamp,
};

/// The most bytes of a column of a segment that gets parities, holes among them: those are computed
/// like other bytes.
const MAX_COLUMN_BYTES: u64 = 64 << 30;
/// A file that is open for writing is looked at again after this time, milliseconds.
const LOOK_MS: u64 = 2_000;
/// Where room is short a file gets parities when nobody has changed it for this time, milliseconds:
/// whoever writes it again soon would wait for its copies each time.
const SHORT_AFTER_MS: u64 = 600_000;

/// Who writes and who waits to, and where room is short.
#[derive(Clone, Copy)]
pub struct Writers<'a> {
    /// Who has files open.
    pub opens: &'a OpenFiles,
    /// Files with parities that somebody waits to write.
    pub awaited: &'a BTreeMap<FileId, u64>,
    /// Targets that are short of room.
    pub short: &'a BTreeSet<TargetId>,
    /// The time.
    pub now: Timestamp,
}

/// Whether new parities are wished for a file with this layout.
pub(crate) fn are_wished(spec: &LayoutSpec) -> bool {
    spec.parities > 0 && spec.encode_after_s != NEVER_S
}

/// The wish for a segment of a file. Once it is sealed only who writes, or wants to, changes that.
pub(crate) fn wish(
    file: FileId,
    inode: &Inode,
    body: &RegularFile,
    segment: &Segment,
    writers: &Writers<'_>,
) -> Parities {
    let awaited = writers.awaited.contains_key(&file) || writers.opens.has_writers(file);
    let begins = || {
        let is_due = since_change_ms(inode, writers) >= after_ms(inode, body, segment, writers);
        can_get_some(inode, body, segment)
            && is_due
            && !writers.opens.is_settling()
            && body.pending_truncate.is_none()
    };
    match are_wished(&body.spec) && !awaited && (segment.state == SegmentState::Sealed || begins())
    {
        true if body.spec.mirrors => Parities::Mirrored,
        true => Parities::Wished(body.spec.parities),
        false => Parities::None,
    }
}

/// Whether a segment has parities, or gets some in time.
pub(crate) fn has_or_gets_some(inode: &Inode, body: &RegularFile, segment: &Segment) -> bool {
    let gets = are_wished(&body.spec) && can_get_some(inode, body, segment);
    gets || segment.state == SegmentState::Sealed
}

/// Whether a segment may get parities, as it is now.
fn can_get_some(inode: &Inode, body: &RegularFile, segment: &Segment) -> bool {
    let within = inode.size.clamp(segment.start, segment.end()) - segment.start;
    let len = object_len(segment.stripe(), ColumnIndex(0), within);
    body.spec.kind == LayoutKind::Striped && (1..=MAX_COLUMN_BYTES).contains(&len)
}

/// After how many milliseconds an open segment may get parities; `None`: now, or never as it is.
pub(crate) fn due_in_ms(
    file: FileId,
    inode: &Inode,
    body: &RegularFile,
    segment: &Segment,
    writers: &Writers<'_>,
) -> Option<u64> {
    let now = || wish(file, inode, body, segment, writers) != Parities::None;
    // Who writes may yet write into a segment that is empty so far.
    let is_final = inode.size > 0 && !writers.opens.has_writers(file);
    let never = is_final && !can_get_some(inode, body, segment);
    if !are_wished(&body.spec) || never || now() {
        return None;
    }
    let after_ms = after_ms(inode, body, segment, writers);
    Some(after_ms.saturating_sub(since_change_ms(inode, writers)).max(LOOK_MS))
}

/// How long nobody has changed a segment that gets parities.
fn after_ms(inode: &Inode, body: &RegularFile, segment: &Segment, writers: &Writers<'_>) -> u64 {
    let after_ms = u64::from(body.spec.encode_after_s) * 1_000;
    let mut targets = segment.members().flat_map(|(_, member)| member.copies());
    let is_short = targets.any(|(_, target)| writers.short.contains(&target));
    match is_short && saves_room(&body.spec, inode, segment) {
        true => after_ms.min(SHORT_AFTER_MS),
        false => after_ms,
    }
}

/// Whether parities take less room than the copies in whose place they are.
fn saves_room(spec: &LayoutSpec, inode: &Inode, segment: &Segment) -> bool {
    let within = inode.size.clamp(segment.start, segment.end()) - segment.start;
    let column = |number| object_len(segment.stripe(), ColumnIndex(number), within);
    let one_copy: u64 = (0..segment.columns.len() as u16).map(column).sum();
    // A parity is as long as the longest column, which is the first.
    u64::from(spec.copies.saturating_sub(kept_copies(spec))) * one_copy
        > u64::from(spec.parities) * column(0)
}

/// Copies of each column that stay beside parities.
pub(crate) fn kept_copies(spec: &LayoutSpec) -> u8 {
    if spec.mirrors { mirrored::COPIES as u8 } else { 1 }
}

fn since_change_ms(inode: &Inode, writers: &Writers<'_>) -> u64 {
    writers.now.0.saturating_sub(inode.ctime.0).max(0) as u64 / 1_000_000
}

/// Whether a request to write has to wait until a file has copies again.
pub(crate) fn waits_to_write(tx: &mut Tx<'_>, file: FileId) -> Outcome<bool> {
    let Some(inode) = inodes::find(tx, file)? else { return Ok(false) };
    let Ok(body) = inodes::regular(&inode) else { return Ok(false) };
    if body.spec.parities == 0 {
        return Ok(false);
    }
    let page = layouts::first_page(tx, file, body.list)?;
    Ok(page.iter().any(|segment| segment.state == SegmentState::Sealed))
}

/// The layout with so few columns that the parities have targets, if it says "all".
pub(crate) fn with_room(ctx: &Context<'_>, spec: &LayoutSpec) -> LayoutSpec {
    let mut spec = spec.clone();
    if spec.mirrors && spec.count == 0 {
        let homes = ctx.cluster.targets.iter().map(|info| info.home);
        spec.count = Mirrors::of(homes).usual().min(MAX_CODED_COLUMNS) as u16;
    } else if spec.parities > 0 && spec.count == 0 {
        let room = room(ctx, spec.parities).saturating_sub(usize::from(spec.parities));
        spec.count = room.min(MAX_CODED_COLUMNS) as u16;
    }
    spec
}

/// The most columns and parities of a set: no part of the cluster, see [`Spread::part`], has more of
/// them than there are parities, so that it may die.
fn room(ctx: &Context<'_>, parities: u8) -> usize {
    most_members(ctx.cluster.targets.iter().map(|info| info.home), parities)
}

fn most_members(homes: impl Iterator<Item = Home> + Clone, parities: u8) -> usize {
    let all = Spread::of(homes.clone());
    let mut of_parts = BTreeMap::<_, usize>::new();
    homes.for_each(|home| *of_parts.entry(all.part(home)).or_default() += 1);
    let most = |(part, targets): (&Option<ServerId>, &usize)| match part {
        Some(_) => usize::from(parities).min(*targets),
        None => *targets,
    };
    of_parts.iter().map(most).sum()
}

/// Refuses parities that no file could get.
///
/// # Errors
/// `InvalidArgument`, with what to change.
pub(crate) fn check_spec(ctx: &Context<'_>, spec: &LayoutSpec) -> Outcome<()> {
    let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message).into());
    if spec.parities == 0 {
        return Ok(());
    }
    if spec.kind != LayoutKind::Striped {
        return refuse("only striped files get parities: leave --layout or --reduce out".into());
    }
    let targets = ctx.cluster.targets.len();
    let columns = usize::from(with_room(ctx, spec).count);
    let parities = usize::from(spec.parities);
    if parities > MAX_PARITIES || !(MIN_CODED_COLUMNS..=MAX_CODED_COLUMNS).contains(&columns) {
        return refuse(format!(
            "{columns} columns and {parities} parities: a set has {MIN_CODED_COLUMNS} to \
             {MAX_CODED_COLUMNS} columns and at most {MAX_PARITIES} parities; say how many with \
             --reduce rs:K+M"
        ));
    }
    if spec.mirrors {
        return check_mirrors(ctx, spec, columns);
    }
    if columns + parities > targets {
        return refuse(format!(
            "{columns} columns and {parities} parities need as many targets, and the cluster has \
             {targets}: add targets, or say fewer with --reduce rs:K+M"
        ));
    }
    let room = room(ctx, spec.parities);
    if columns + parities > room {
        return refuse(format!(
            "{columns} columns and {parities} parities: no server, nor failure domain if there are \
             several, may have more than {parities} of them, or its death would be too much, and \
             then the cluster has room for {room}: add servers, say fewer columns, or more parities, \
             with --reduce rs:K+M"
        ));
    }
    Ok(())
}

/// The parts of the cluster in which sets of RAID 5 and mirror have their copies.
struct Mirrors {
    targets: usize,
    parts: usize,
    /// Targets of the smallest part.
    smallest: usize,
}

impl Mirrors {
    fn of(homes: impl Iterator<Item = Home> + Clone) -> Self {
        let all = Spread::of(homes.clone());
        let mut of_parts = BTreeMap::<_, usize>::new();
        homes.clone().for_each(|home| *of_parts.entry(all.part(home)).or_default() += 1);
        let targets = homes.count();
        match of_parts.contains_key(&None) {
            true => Self { targets, parts: targets, smallest: targets.min(1) },
            false => {
                let smallest = of_parts.values().min().copied().unwrap_or_default();
                Self { targets, parts: of_parts.len(), smallest }
            }
        }
    }

    /// The most columns: each is in two parts, no two are in the same two, and one part is left for
    /// the parity.
    fn most(&self) -> usize {
        let parts = self.parts.saturating_sub(1);
        parts * parts.saturating_sub(1) / 2
    }

    /// The columns of a file that is on all targets: one target each, apart from the parity's part.
    fn usual(&self) -> usize {
        (self.targets - self.smallest).min(self.most())
    }
}

/// Refuses RAID 5 and mirror where no file could get it.
fn check_mirrors(ctx: &Context<'_>, spec: &LayoutSpec, columns: usize) -> Outcome<()> {
    let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message).into());
    if spec.copies < mirrored::COPIES as u8 {
        return refuse("raid5-mirror keeps two copies of each column: add --copies 2".into());
    }
    let targets = ctx.cluster.targets.len();
    if columns > targets {
        return refuse(format!(
            "{columns} columns need as many targets, and the cluster has {targets}: add targets, or \
             say fewer with --reduce raid5-mirror:K"
        ));
    }
    let parts = Mirrors::of(ctx.cluster.targets.iter().map(|info| info.home));
    if columns > parts.most() {
        return refuse(format!(
            "{columns} columns with two copies each and a parity: no two columns may be in the same \
             two servers (or failure domains), nor the parity beside any, and for that the {} that \
             there are have room for {}: add servers, or say fewer columns with --reduce \
             raid5-mirror:K",
            parts.parts,
            parts.most()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_layout::{Domain, Host};

    /// Targets on so many servers, of which so many make up a domain.
    fn homes(targets: u32, servers: u32, in_one_domain: u32) -> Vec<Home> {
        let home = |target: u32| {
            let server = ServerId(target % servers);
            let first = ServerId(server.0 / in_one_domain * in_one_domain);
            Home { server, host: Host(first), domain: Domain(first) }
        };
        (0..targets).map(home).collect()
    }

    #[test]
    fn six_servers_have_room_for_ten_pairs_of_copies_and_a_parity() {
        let of = |homes: &[Home]| {
            let mirrors = Mirrors::of(homes.iter().copied());
            (mirrors.most(), mirrors.usual())
        };
        assert_eq!(of(&homes(6, 6, 1)), (10, 5));
        assert_eq!(of(&homes(12, 6, 1)), (10, 10));
        assert_eq!(of(&homes(12, 6, 2)), (1, 1), "three domains: one pair, and the parity's");
        assert_eq!(of(&homes(4, 1, 1)), (3, 3), "the targets of the only server");
        assert_eq!(of(&homes(3, 3, 1)), (1, 1));
        assert_eq!(of(&[]), (0, 0));
    }

    #[test]
    fn a_set_has_no_more_in_one_place_than_there_are_parities() {
        let most = |homes: &[Home], parities| most_members(homes.iter().copied(), parities);
        assert_eq!(most(&homes(12, 3, 1), 2), 6, "three servers of four targets");
        assert_eq!(most(&homes(12, 3, 1), 4), 12);
        assert_eq!(most(&homes(12, 3, 1), 6), 12, "as many as there are targets");
        assert_eq!(most(&homes(12, 3, 3), 2), 6, "all on one machine");
        assert_eq!(most(&homes(12, 6, 2), 2), 6, "three domains");
        assert_eq!(most(&homes(10, 10, 1), 2), 10);
        assert_eq!(most(&homes(5, 1, 1), 2), 5, "one server may not die anyway");
    }
}
