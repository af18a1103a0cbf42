//! Placement: which targets hold the columns of new segments.
//!
//! The candidates come in target order, which must be the same at every call, because `base` counts
//! in it (PVFS's ordered set of iods). Offline targets are skipped. Full targets, and for files
//! with one copy slow ones, are skipped while enough others are left. If too few targets are online
//! for all copies, further copies are assigned to targets that are away, which get them when they
//! are back. Pure: the caller supplies the randomness as a seed.

mod domains;
mod groups;
mod pairs;

pub use domains::{Apart, Domain, Home, Host, Spread, Whereabouts, homes};
pub use groups::Groups;
pub use pairs::Pairs;
use pairs::Together;

use crate::file::covered_bytes;
use std::collections::HashMap;
use weir_types::limits::{
    BLOCK_BYTES, MAX_COLUMNS, MAX_FILE_BYTES, MAX_SEGMENTS, MAX_STRIPE_UNIT_BYTES,
    MIN_STRIPE_UNIT_BYTES, SEGMENT_PAGE,
};
use weir_types::{
    Column, Epoch, Error, ErrorKind, FileLayout, LayoutKind, LayoutSpec, Placement, Result, Scheme,
    Segment, SegmentIndex, SegmentState, StripeMap, TargetId,
};

/// The stripe unit if the spec names none (as in PVFS).
pub const DEFAULT_STRIPE_UNIT_BYTES: u32 = 64 << 10;
/// The size of chunks and fragments if the spec names none (as in HDFS).
pub const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;
/// The size of graduated chunks if the spec names none.
pub const DEFAULT_GRADUATED_BYTES: u64 = 1 << 20;
/// Maximum number of fragments of a file: one on each target of a widest stripe.
pub const MAX_FRAGMENTS: usize = MAX_COLUMNS;
/// Maximum number of copies of a column.
pub const MAX_COPIES: u8 = 8;
/// Maximum number of places in a column: the copies, and as many replacements under construction.
pub const MAX_PLACES: usize = 2 * MAX_COPIES as usize;
/// Maximum number of segments that one [`grant`] makes.
pub const GRANT_BATCH: usize = SEGMENT_PAGE;
/// A target with less free space takes new data only if there are not enough others.
pub const FULL_BELOW_BYTES: u64 = 16 << 20;

const _: () = {
    assert!(MAX_FRAGMENTS <= MAX_SEGMENTS);
    assert!(DEFAULT_SEGMENT_BYTES.is_multiple_of(BLOCK_BYTES as u64));
};

/// A candidate for new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetInfo {
    /// The target.
    pub target: TargetId,
    /// The server of the target, with its machine and failure domain.
    pub home: Home,
    /// Free space in bytes; if several targets share a disk, this target's part of it. `u64::MAX`:
    /// unknown.
    pub free_bytes: u64,
    /// Whether the target can be written at present.
    pub online: bool,
    /// Whether an offline target is expected back with all of its data.
    pub returns: bool,
    /// Whether the target is much slower than others. It then takes less new data, and takes files
    /// with one copy only if there are not enough others. Files with several copies may use it,
    /// because they can be read elsewhere.
    pub slow: bool,
    /// Whether the target is on the writer's node.
    pub local: bool,
    /// Recently assigned first copies of files in two groups.
    pub primaries: u64,
    /// Predicted time for the next chunk on this target, microseconds, by its writer; 0: unknown.
    pub wait_us: u64,
}

impl TargetInfo {
    fn has_room(&self) -> bool {
        self.free_bytes >= FULL_BELOW_BYTES
    }
}

/// Refuses a spec that no set of targets could satisfy.
///
/// # Errors
/// `InvalidArgument`, with what to change.
pub fn check_spec(spec: &LayoutSpec) -> Result<()> {
    let stripe = StripeMap { unit_bytes: stripe_unit(spec), columns: 1 };
    if stripe.check().is_err() {
        return Err(invalid(format!(
            "a stripe unit of {} bytes: use a multiple of {MIN_STRIPE_UNIT_BYTES}, at most \
             {MAX_STRIPE_UNIT_BYTES}",
            spec.stripe_unit_bytes
        )));
    }
    if usize::from(spec.count) > MAX_COLUMNS {
        return Err(invalid(format!("{} targets: use at most {MAX_COLUMNS}", spec.count)));
    }
    if spec.copies > MAX_COPIES {
        return Err(invalid(format!("{} copies: use at most {MAX_COPIES}", spec.copies)));
    }
    match spec.placement {
        Placement::Groups => check_groups(spec)?,
        Placement::Graduated if spec.kind != LayoutKind::Chunked => {
            return Err(invalid(
                "only chunks go wherever they are taken: choose the chunked layout",
            ));
        }
        _ => {}
    }
    check_sizes(spec)
}

fn check_groups(spec: &LayoutSpec) -> Result<()> {
    if spec.copies != 2 {
        return Err(invalid("two groups keep two copies: ask for 2"));
    }
    if spec.kind == LayoutKind::Chunked {
        return Err(invalid(
            "chunks go to random targets: choose the striped or the fragments layout for two groups",
        ));
    }
    Ok(())
}

fn check_sizes(spec: &LayoutSpec) -> Result<()> {
    if spec.kind == LayoutKind::Striped && spec.segment_bytes != 0 {
        return Err(invalid(
            "a striped file is one segment: leave the segment size 0, or choose the chunked or \
             the fragments layout",
        ));
    }
    if !spec.segment_bytes.is_multiple_of(BLOCK_BYTES as u64) || spec.segment_bytes > MAX_FILE_BYTES
    {
        return Err(invalid(format!(
            "a segment size of {} bytes: use a multiple of {BLOCK_BYTES}, at most {MAX_FILE_BYTES}",
            spec.segment_bytes
        )));
    }
    if spec.kind != LayoutKind::Fragments {
        if spec.fragment_bytes.is_empty() {
            return Ok(());
        }
        return Err(invalid("fragment sizes are for the fragments layout only"));
    }
    if spec.fragment_bytes.len() > MAX_FRAGMENTS {
        return Err(invalid(format!(
            "{} fragment sizes: give at most {MAX_FRAGMENTS}",
            spec.fragment_bytes.len()
        )));
    }
    if spec.fragment_bytes.contains(&0) {
        return Err(invalid("a fragment size of 0: leave the fragment out"));
    }
    let given = spec.fragment_bytes.iter().fold(0u64, |sum, &b| sum.saturating_add(b));
    let count = if spec.count == 0 { MAX_COLUMNS } else { usize::from(spec.count) };
    let rest = count.saturating_sub(spec.fragment_bytes.len()) as u64;
    if given.saturating_add(rest.saturating_mul(segment_bytes(spec))) > MAX_FILE_BYTES {
        return Err(invalid(format!(
            "the fragments could reach beyond the largest file ({MAX_FILE_BYTES} bytes): give \
             smaller sizes"
        )));
    }
    Ok(())
}

/// The layout of a new file. `targets` are all targets in target order; `seed` decides what the
/// spec leaves open. A random choice prefers targets that `pairs` has seldom put together.
///
/// Striped files have one open-ended segment. Files of fragments have one segment each, the last
/// one open-ended. Chunked files get their first chunk here and the others from [`grant`]. Epochs
/// begin at 1.
///
/// # Errors
/// Those of [`check_spec`]; `InvalidArgument` if the spec asks for more targets than there are;
/// `Unreachable` if too few of them are online.
pub fn place(
    spec: &LayoutSpec,
    targets: &[TargetInfo],
    pairs: &Pairs,
    seed: u64,
) -> Result<FileLayout> {
    check_spec(spec)?;
    let ring = match spec.placement {
        Placement::Groups => groups::ring(spec, targets, seed)?,
        _ => Ring::choose(spec, targets, spec.base, seed)?,
    };
    let mut layout = FileLayout {
        kind: spec.kind,
        base: ring.base,
        epoch: FIRST_EPOCH,
        duplication: spec.duplication.unwrap_or_default(),
        acting: spec.duplication.unwrap_or_default().acting(0, 1),
        placement: spec.placement.of(spec.kind),
        segments: Vec::new(),
    };
    layout.segments = match spec.kind {
        LayoutKind::Striped => {
            let columns = ring.columns(ring.primaries, pairs);
            vec![segment(spec, SegmentIndex(0), 0, None, columns)]
        }
        LayoutKind::Fragments => fragments(spec, &ring, pairs),
        LayoutKind::Chunked => grant(&layout, spec, (targets, pairs), 1, SegmentIndex(0), seed)?,
    };
    Ok(layout)
}

/// More segments for a chunked file, to cover it up to the byte before `up_to_offset`. The caller
/// appends them to the layout. Empty if the file is covered already. At most [`GRANT_BATCH`]
/// segments: call again with the longer layout while [`covered_bytes`] is short.
///
/// The new segments are numbered from `next_index` on. The first copy goes to a local target if
/// there is one. The other copies go to random targets in proportion to their free space, in
/// domains, on machines and on servers of their own where possible.
///
/// # Errors
/// As [`place`]; `FileTooLarge` beyond the largest file or number of segments.
pub fn grant(
    layout: &FileLayout,
    spec: &LayoutSpec,
    (targets, pairs): (&[TargetInfo], &Pairs),
    up_to_offset: u64,
    next_index: SegmentIndex,
    seed: u64,
) -> Result<Vec<Segment>> {
    check_spec(spec)?;
    if layout.kind != LayoutKind::Chunked || spec.kind != LayoutKind::Chunked {
        return Err(invalid("only files of the chunked layout are granted segments"));
    }
    check_growth(layout, spec, up_to_offset, next_index)?;
    let mut start = covered_bytes(layout);
    let (mut granted, mut pairs): (Vec<Segment>, _) = (Vec::new(), Together::new(pairs));
    if start >= up_to_offset {
        return Ok(granted);
    }
    // Targets may have been removed since the file was created.
    let base = layout.base % targets.len().max(1) as u32;
    let ring = Ring::choose(spec, targets, Some(base), seed)?;
    while start < up_to_offset && granted.len() < GRANT_BATCH {
        let index = SegmentIndex(next_index.0 + granted.len() as u32);
        let len = segment_bytes(spec).min(MAX_FILE_BYTES - start);
        let mut random = Random::new(seed ^ (u64::from(index.0) << 32));
        let columns = vec![ring.chunk(&mut random, &pairs)];
        columns.iter().for_each(|column| pairs.given(column));
        granted.push(segment(spec, index, start, Some(len), columns));
        start += len;
    }
    Ok(granted)
}

fn check_growth(
    layout: &FileLayout,
    spec: &LayoutSpec,
    up_to_offset: u64,
    next_index: SegmentIndex,
) -> Result<()> {
    let missing = up_to_offset.saturating_sub(covered_bytes(layout));
    let wanted = missing.div_ceil(segment_bytes(spec));
    let segments = wanted.saturating_add(layout.segments.len() as u64);
    let numbers = wanted.saturating_add(u64::from(next_index.0));
    if up_to_offset > MAX_FILE_BYTES
        || segments > MAX_SEGMENTS as u64
        || numbers > u64::from(u32::MAX)
    {
        return Err(Error::new(
            ErrorKind::FileTooLarge,
            format!(
                "{up_to_offset} bytes need {segments} chunks, the most is {MAX_SEGMENTS}: write \
                 the file anew with larger chunks"
            ),
        ));
    }
    Ok(())
}

fn fragments(spec: &LayoutSpec, ring: &Ring, pairs: &Pairs) -> Vec<Segment> {
    let count = ring.primaries.max(spec.fragment_bytes.len());
    let mut start = 0;
    let columns = ring.columns(count, pairs);
    let mut segments = Vec::with_capacity(count);
    for (i, column) in columns.into_iter().enumerate() {
        let size = spec.fragment_bytes.get(i).copied().unwrap_or(segment_bytes(spec));
        let len = (i + 1 < count).then_some(size);
        segments.push(segment(spec, SegmentIndex(i as u32), start, len, vec![column]));
        start += size;
    }
    segments
}

const FIRST_EPOCH: Epoch = Epoch(1);

fn segment(
    spec: &LayoutSpec,
    index: SegmentIndex,
    start: u64,
    len: Option<u64>,
    columns: Vec<Column>,
) -> Segment {
    Segment {
        index,
        start,
        len,
        stripe_unit_bytes: stripe_unit(spec),
        columns,
        filling: Vec::new(),
        parities: Vec::new(),
        scheme: Scheme::Copies,
        state: SegmentState::Open,
        epoch: FIRST_EPOCH,
    }
}

/// The stripe unit of a striped layout, bytes.
pub fn stripe_unit(spec: &LayoutSpec) -> u32 {
    if spec.stripe_unit_bytes == 0 { DEFAULT_STRIPE_UNIT_BYTES } else { spec.stripe_unit_bytes }
}

/// The size of chunks, or of fragments for which the spec names none, bytes.
pub fn segment_bytes(spec: &LayoutSpec) -> u64 {
    match (spec.segment_bytes, spec.placement) {
        (0, Placement::Graduated) => DEFAULT_GRADUATED_BYTES,
        (0, _) => DEFAULT_SEGMENT_BYTES,
        (named, _) => named,
    }
}

/// The usable targets in target order, rotated so that the base comes first.
struct Ring {
    /// Position of the first target of the ring in target order.
    base: u32,
    /// The first `primaries` hold primary copies, unless the choice is random; the others may hold
    /// further copies. Targets that are away come last.
    targets: Vec<TargetInfo>,
    primaries: usize,
    /// Number of targets after the primaries that belong to the other group.
    mirrors: usize,
    copies: usize,
    placement: Placement,
    seed: u64,
}

impl Ring {
    fn choose(
        spec: &LayoutSpec,
        targets: &[TargetInfo],
        base: Option<u32>,
        seed: u64,
    ) -> Result<Self> {
        let copies = usize::from(spec.copies.max(1));
        let wanted = usize::from(spec.count.max(1));
        let needed = wanted.max(copies);
        check_enough(spec, targets, wanted, needed)?;
        let roomy = targets.iter().filter(|t| t.online && t.has_room()).count();
        let quick = targets.iter().filter(|t| t.online && t.has_room() && !t.slow).count();
        // A request for one particular target is granted.
        let is_named = spec.base.is_some() && spec.count == 1;
        // Graduated placement chooses one target for each chunk, by what each can take.
        let is_graduated = spec.placement == Placement::Graduated;
        let spare_slow = copies == 1 && quick >= needed && !is_named && !is_graduated;
        let usable = |t: &TargetInfo| {
            t.online && (roomy < needed || t.has_room()) && !(spare_slow && t.slow)
        };
        let usable_positions: Vec<usize> =
            (0..targets.len()).filter(|&i| usable(&targets[i])).collect();
        check_base(base, targets)?;
        let first = match base {
            // The next usable target, wrapping around at the end.
            Some(base) => usable_positions.partition_point(|&i| i < base as usize),
            None => Random::new(seed).below(usable_positions.len() as u64) as usize,
        } % usable_positions.len();
        let count = match spec.count {
            0 => usable_positions.len().min(MAX_COLUMNS),
            count => usize::from(count),
        };
        let turned = (0..usable_positions.len())
            .map(|i| targets[usable_positions[(first + i) % usable_positions.len()]]);
        let away =
            targets.iter().filter(|t| copies > usable_positions.len() && !t.online && t.returns);
        Ok(Self {
            base: usable_positions[first] as u32,
            targets: turned.chain(away.copied()).collect(),
            primaries: count,
            mirrors: 0,
            copies,
            placement: spec.placement.of(spec.kind),
            seed,
        })
    }

    /// `count` columns, primaries round robin. Further copies go to the targets that follow, in
    /// domains, on machines and on servers that the column does not use yet while there are any,
    /// and evenly. With one target per server, copy j of column i is on target i + j (chained
    /// declustering). With two groups, further copies go to the other group in the same way: copy 1
    /// of column i is on its target i.
    fn columns(&self, count: usize, pairs: &Pairs) -> Vec<Column> {
        // Number of columns by copy (1, 2..) and target.
        let mut placed: HashMap<(usize, TargetId), usize> = HashMap::new();
        let (mut random, mut pairs) = (Random::new(self.seed), Together::new(pairs));
        let column = |i: usize| {
            let position = i % self.primaries;
            let mut chosen = vec![self.targets[position]];
            for copy in 1..self.copies {
                let load = |t: &TargetInfo| placed.get(&(copy, t.target)).copied().unwrap_or(0);
                let candidates = self.after(position, &chosen);
                let next = match self.placement {
                    Placement::Random => random.apart(&candidates, &chosen, &pairs),
                    _ => candidates.into_iter().min_by_key(load),
                };
                let Some(next) = next else { break };
                *placed.entry((copy, next.target)).or_default() += 1;
                chosen.push(next);
            }
            let column = Column { targets: chosen.iter().map(|t| t.target).collect() };
            pairs.given(&column);
            column
        };
        (0..count).map(column).collect()
    }

    /// The best candidates for the next copy of a column whose primary is at `position`, nearest
    /// first: first the targets with primaries, then the others. With two groups, only targets of
    /// the other group.
    fn after(&self, position: usize, chosen: &[TargetInfo]) -> Vec<TargetInfo> {
        let (n, m) = (self.primaries, self.mirrors);
        let mirrors = (0..m).map(|j| self.targets[n + (position + j) % m]);
        let mirrors = others(mirrors, chosen);
        if !mirrors.is_empty() {
            return mirrors;
        }
        // The primary of a chunk may be on any target.
        let around = if position < n { n } else { self.targets.len() };
        let order = (1..around).map(|j| (position + j) % around).chain(around..self.targets.len());
        others(order.map(|i| self.targets[i]), chosen)
    }

    /// The column of one chunk: on the file's number of targets, and on further ones if those would
    /// share a failure domain.
    fn chunk(&self, random: &mut Random, pairs: &Together<'_>) -> Column {
        let pool = &self.targets[..self.targets.len().min(self.primaries.max(self.copies))];
        let online = || pool.iter().filter(|t| t.online).copied();
        let first = match self.placement {
            Placement::Graduated => soonest(online()),
            _ => {
                let local: Vec<_> = online().filter(|t| t.local && t.has_room()).collect();
                if local.is_empty() { online().collect() } else { local }
            }
        };
        let mut chosen: Vec<TargetInfo> = random.by_free_space(&first).into_iter().collect();
        let at = |t: &TargetInfo| self.targets.iter().position(|other| other.target == t.target);
        let position = chosen.first().and_then(at).unwrap_or_default();
        while chosen.len() < self.copies {
            let next = match self.placement {
                Placement::Chained | Placement::Graduated => {
                    self.after(position, &chosen).first().copied()
                }
                _ => {
                    let mut next = others(self.targets.iter().copied(), &chosen);
                    // Further targets only if that is better.
                    if next.iter().any(|t| pool.contains(t)) {
                        next.retain(|t| pool.contains(t));
                    }
                    random.apart(&next, &chosen, pairs)
                }
            };
            let Some(next) = next else { break };
            chosen.push(next);
        }
        Column { targets: chosen.iter().map(|t| t.target).collect() }
    }
}

/// Of the targets with space, those that are predicted to take the next chunk first. Targets
/// without a prediction are included, so that one is made. All targets if none has space.
fn soonest(candidates: impl Iterator<Item = TargetInfo> + Clone) -> Vec<TargetInfo> {
    let roomy = || candidates.clone().filter(TargetInfo::has_room);
    match roomy().map(|t| t.wait_us).min() {
        Some(best) => roomy().filter(|t| t.wait_us == best).collect(),
        None => candidates.collect(),
    }
}

/// The best candidates that are not chosen yet: online, then in other domains than the chosen ones,
/// then on other machines, then on other servers.
fn others(candidates: impl Iterator<Item = TargetInfo>, chosen: &[TargetInfo]) -> Vec<TargetInfo> {
    let mut free: Vec<TargetInfo> =
        candidates.filter(|t| chosen.iter().all(|c| c.target != t.target)).collect();
    let rank =
        |t: &TargetInfo| (t.online, Apart::of(t.home, chosen.iter().map(|chosen| chosen.home)));
    let best = free.iter().map(rank).max();
    free.retain(|t| Some(rank(t)) == best);
    free
}

fn check_base(base: Option<u32>, targets: &[TargetInfo]) -> Result<()> {
    match base {
        Some(base) if base as usize >= targets.len() => {
            Err(invalid(format!("base {base}, but the targets are 0 to {}", targets.len() - 1)))
        }
        _ => Ok(()),
    }
}

/// Checks that there are enough targets: `wanted` primaries, and `needed` targets for all copies.
fn check_enough(
    spec: &LayoutSpec,
    targets: &[TargetInfo],
    wanted: usize,
    needed: usize,
) -> Result<()> {
    let what = if usize::from(spec.count) >= usize::from(spec.copies) {
        format!("the layout asks for {needed} targets")
    } else {
        format!("{needed} copies need {needed} targets")
    };
    let online = targets.iter().filter(|t| t.online).count();
    if online == 0 {
        return Err(Error::new(
            ErrorKind::Unreachable,
            format!("none of the {} targets is online: start the data servers", targets.len()),
        ));
    }
    if targets.len() < needed {
        return Err(invalid(format!(
            "{what}, there are {}: ask for fewer or add targets",
            targets.len()
        )));
    }
    let returning = targets.iter().filter(|t| !t.online && t.returns).count();
    if online < wanted || online + returning < needed {
        return Err(Error::new(
            ErrorKind::Unreachable,
            format!(
                "{what}, {online} of {} are online: ask for fewer or start the other data servers",
                targets.len()
            ),
        ));
    }
    Ok(())
}

/// SplitMix64: enough to spread data, useless for cryptography.
struct Random {
    state: u64,
}

impl Random {
    fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// A random candidate in proportion to its free space, a slow one at a quarter of it. A full
    /// candidate only if all are full. `None` without candidates.
    fn by_free_space(&mut self, candidates: &[TargetInfo]) -> Option<TargetInfo> {
        let weight = |t: &TargetInfo| if t.has_room() { share(t) } else { 0 };
        let total: u64 = candidates.iter().map(weight).sum();
        if total == 0 {
            let any = self.below(candidates.len().max(1) as u64) as usize;
            return candidates.get(any).copied();
        }
        let mut ticket = self.below(total);
        candidates.iter().copied().find(|t| {
            let found = ticket < weight(t);
            ticket = ticket.saturating_sub(weight(t));
            found
        })
    }
}

impl Random {
    /// Draws two candidates by their free space, and takes the one that has been put together with
    /// the chosen targets less often. The choice stays random, and uneven counts even out.
    fn apart(
        &mut self,
        candidates: &[TargetInfo],
        chosen: &[TargetInfo],
        pairs: &Together<'_>,
    ) -> Option<TargetInfo> {
        let [one, other] = [self.by_free_space(candidates)?, self.by_free_space(candidates)?];
        let together = |t: &TargetInfo| {
            u128::from(pairs.of(t.target, chosen.iter().map(|chosen| chosen.target)))
        };
        // Relative to each target's share.
        let (a, b) = (
            together(&one) * u128::from(share(&other)),
            together(&other) * u128::from(share(&one)),
        );
        Some(if b < a { other } else { one })
    }
}

/// The weight of a target: its free space in MiB, so that sums do not overflow.
fn share(t: &TargetInfo) -> u64 {
    (t.free_bytes >> if t.slow { 22 } else { 20 }).max(1)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests;
