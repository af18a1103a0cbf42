//! Placement: which targets hold the columns of new segments.
//!
//! The candidates come in target order, which must be the same at every call:
//! it is what `base` counts in (PVFS's ordered set of iods). Offline targets
//! are passed over, and so are full ones, and for files with one copy slow ones, while enough
//! others are left. Where too
//! few are online for all copies, further copies go to targets that are away and
//! get them when they are back. Pure: the caller brings the randomness as a seed.

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

/// The stripe unit when the spec names none (PVFS's).
pub const DEFAULT_STRIPE_UNIT_BYTES: u32 = 64 << 10;
/// The size of chunks and fragments when the spec names none (HDFS's),
pub const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;
/// and of those that go wherever they are taken.
pub const DEFAULT_GRADUATED_BYTES: u64 = 1 << 20;
/// The most fragments of one file: one on each of as many targets as a stripe.
pub const MAX_FRAGMENTS: usize = MAX_COLUMNS;
/// The most copies of a column.
pub const MAX_COPIES: u8 = 8;
/// The most places for copies in a column: the most copies, and as many that are being
/// made in place of them.
pub const MAX_PLACES: usize = 2 * MAX_COPIES as usize;
/// The most segments that one [`grant`] makes.
pub const GRANT_BATCH: usize = SEGMENT_PAGE;
/// A target with less free space than this takes new data only when there are
/// not enough others.
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
    /// The server that serves it, and what fails with that.
    pub home: Home,
    /// Free space in bytes, of a disk that several targets are on its part of it; `u64::MAX` if
    /// it is not known.
    pub free_bytes: u64,
    /// Whether it can be written now.
    pub online: bool,
    /// It cannot, but is to come back with all that it had.
    pub returns: bool,
    /// It is much slower than others: it takes less new data, and of files with one copy some only
    /// when there are not enough others. (Several are read where it is not, and have to be
    /// apart.)
    pub slow: bool,
    /// Whether it is on the writer's node.
    pub local: bool,
    /// First copies that it was given of late, of files in two groups.
    pub primaries: u64,
    /// What the next chunk would take there, as its writer predicts, microseconds; 0: nobody
    /// knows.
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

/// The layout of a new file. `targets` are all targets in target order;
/// `seed` decides what the spec leaves open. What is left to chance goes rather where targets
/// have been put together seldom, as `pairs` says.
///
/// Striped files have one open-ended segment; files of fragments have one
/// segment each, the last open-ended; chunked files get their first chunk
/// here and the others from [`grant`]. Epochs begin at 1.
///
/// # Errors
/// Those of [`check_spec`]; `InvalidArgument` if the spec asks for more
/// targets than there are; `Unreachable` if too few of them are online.
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

/// More segments for a chunked file, so that it is covered up to the byte
/// before `up_to_offset`. The caller appends them to the layout. None if the
/// file is covered already; at most [`GRANT_BATCH`], so call again with the
/// longer layout if [`covered_bytes`] is still short.
///
/// The new segments are numbered from `next_index` on. The first copy goes to
/// a local target if there is one; the others (and the first otherwise) to
/// random targets in domains, on machines and on servers of their own, in proportion to
/// their free space.
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
    // Targets may have been taken away since the file was made.
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

/// The size of the chunks of a chunked layout, or of fragments for which none is named.
pub fn segment_bytes(spec: &LayoutSpec) -> u64 {
    match (spec.segment_bytes, spec.placement) {
        (0, Placement::Graduated) => DEFAULT_GRADUATED_BYTES,
        (0, _) => DEFAULT_SEGMENT_BYTES,
        (named, _) => named,
    }
}

/// The usable targets in target order, turned so that the base comes first.
struct Ring {
    /// Position of the first of them in target order.
    base: u32,
    /// The first `primaries` hold primary copies, unless chosen at random; the
    /// rest may hold further copies. Those that are away come last.
    targets: Vec<TargetInfo>,
    primaries: usize,
    /// So many after them are of the other group.
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
        // Who names the one target that he wants has it.
        let is_named = spec.base.is_some() && spec.count == 1;
        // Of those of which one is chosen for each chunk it gets what it can take.
        let is_graduated = spec.placement == Placement::Graduated;
        let spare_slow = copies == 1 && quick >= needed && !is_named && !is_graduated;
        let usable = |t: &TargetInfo| {
            t.online && (roomy < needed || t.has_room()) && !(spare_slow && t.slow)
        };
        let usable_positions: Vec<usize> =
            (0..targets.len()).filter(|&i| usable(&targets[i])).collect();
        check_base(base, targets)?;
        let first = match base {
            // The next usable one, around the end if need be.
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

    /// `count` columns, primaries round robin. Further copies go to the
    /// targets that follow, in domains, on machines and on servers not yet used by the
    /// column while there are any, and evenly: with one target per server, copy j of column i is
    /// on target i + j (chained declustering). In two groups they go to those of the
    /// other group, in the same way: copy 1 of column i is on its target i.
    fn columns(&self, count: usize, pairs: &Pairs) -> Vec<Column> {
        // How many columns have this copy (1, 2..) on this target.
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

    /// The best candidates for the next copy of a column whose primary is at
    /// `position`, nearest first: around the primaries, then the others. Only
    /// those of the other group, if there are two.
    fn after(&self, position: usize, chosen: &[TargetInfo]) -> Vec<TargetInfo> {
        let (n, m) = (self.primaries, self.mirrors);
        let mirrors = (0..m).map(|j| self.targets[n + (position + j) % m]);
        let mirrors = others(mirrors, chosen);
        if !mirrors.is_empty() {
            return mirrors;
        }
        // A chunk's primary may be on any of them.
        let around = if position < n { n } else { self.targets.len() };
        let order = (1..around).map(|j| (position + j) % around).chain(around..self.targets.len());
        others(order.map(|i| self.targets[i]), chosen)
    }

    /// The column of one chunk: on as many targets as the file is to be on, and on others
    /// where these share what may fail.
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
                    // Others only where that is better.
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

/// Those with room that are predicted to have the next chunk first; those of which nobody knows
/// it, so that it is found out; all, if none has room.
fn soonest(candidates: impl Iterator<Item = TargetInfo> + Clone) -> Vec<TargetInfo> {
    let roomy = || candidates.clone().filter(TargetInfo::has_room);
    match roomy().map(|t| t.wait_us).min() {
        Some(best) => roomy().filter(|t| t.wait_us == best).collect(),
        None => candidates.collect(),
    }
}

/// Of the candidates that are not chosen yet the best ones: online, then in other
/// domains than all that are chosen, then on other machines, then on other servers.
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

/// `wanted` primaries, and with further copies `needed` targets.
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

/// SplitMix64: enough to spread data, useless for secrets.
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

    /// One of the candidates in proportion to its free space (a slow one to a quarter of it), a
    /// full one only if all are; `None` if there are none.
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
    /// Of two that were drawn by their free space the one that has been put together with those
    /// that are chosen less often: that keeps chance, and evens out what it does.
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
        // Each for its share.
        let (a, b) = (
            together(&one) * u128::from(share(&other)),
            together(&other) * u128::from(share(&one)),
        );
        Some(if b < a { other } else { one })
    }
}

/// What a target takes beside others: its free space, in MiB, so that the sum over any number of
/// them fits.
fn share(t: &TargetInfo) -> u64 {
    (t.free_bytes >> if t.slow { 22 } else { 20 }).max(1)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests;
