//! Reads of whole stripes that go around slow disks: a parity is read instead of the column there, and
//! the column is computed from it and from the rest, which the call reads anyway.
//!
//! It is done only where any copy may be read, so under a lease, and only if that holds until the
//! end. Nobody writes the file meanwhile, and its layout stays: both need the lease given up first. So
//! what is read belongs together.

use super::decode::{UNIT, has_whole, plan_part};
use crate::core::around::{Asked, Found, Instead, Seen, around, refusal};
use crate::core::choices::goes_by_speed;
use crate::core::plan::{Chunk, Part, Place, Plan};
use crate::counters::add;
use crate::state::{Around, Buffer, Call, ReadOp};
use std::ops::{Deref, Range};
use weir_erasure::Code;
use weir_layout::{RegionList, columns_touched};
use weir_policy::SOON_US;
use weir_types::{ColumnIndex, Error, ErrorKind, ObjectId, Result, Segment, TargetId};

/// The longest wait for parities. After it the columns are read, from their slow disks.
pub(super) const PATIENCE_MS: u64 = 2_500;

/// Columns of a chunk of whole stripes that are to be computed.
pub(super) struct Choice {
    chunk: usize,
    /// The parts that are not asked for, each with what is read instead.
    pub(super) skipped: Vec<usize>,
    instead: Vec<Instead>,
    segment: Segment,
    object: ObjectId,
    /// Number of losses of leases before.
    losses: u64,
}

/// Chooses the slow columns of a plan, and cuts chunks into whole stripes and the rest where there are
/// any.
pub(super) fn choose(call: Call<'_>, plan: &mut Plan) -> Vec<Choice> {
    let mut choices = Vec::new();
    let config = &call.inner.config;
    // Who verifies nothing would spread rot.
    if !goes_by_speed(config.read_policy) || !config.verify || call.file.is_behind() {
        return choices;
    }
    let losses = call.file.losses();
    let mut chunk = 0;
    while chunk < plan.chunks.len() {
        if let Some((instead, whole)) = slow_columns(call, plan, chunk) {
            chunk = cut(plan, chunk, &whole);
            choices.extend(skip(call, plan, (chunk, losses), instead));
        }
        chunk += 1;
    }
    choices
}

fn slow_columns(call: Call<'_>, plan: &Plan, number: usize) -> Option<(Vec<Instead>, Range<u64>)> {
    let chunk = &plan.chunks[number];
    let whole = whole_stripes(chunk)?;
    let object = plan.parts.iter().find(|part| part.chunk == number)?.place.object;
    let columns = u64::from(chunk.stripe.columns);
    let of_column = whole.start / columns..whole.end / columns;
    // A parity is asked for in one unit of the widest stripe.
    if !is_in_one_unit(&of_column) {
        return None;
    }
    let targets = |segment: &Segment| {
        if !segment.is_coded() || segment.stripe() != chunk.stripe {
            return None;
        }
        let place = |number: usize| Place::of(object.file, segment, ColumnIndex(number as u16));
        let all = (0..segment.columns.len() + segment.parities.len()).map(place);
        let all = all.collect::<Option<Vec<Place>>>()?;
        let is_whole = |(number, _): &(usize, Place)| has_whole(segment, *number);
        let target = |place: (usize, Place)| Some(place).filter(is_whole).map(|(_, p)| p.target);
        // One with two copies is on its way to another place.
        let is_plain = all.iter().all(|place| !place.mirrored);
        is_plain.then(|| all.into_iter().enumerate().map(target).collect())
    };
    let targets: Vec<Option<TargetId>> = call.file.with_segment(object, targets)??;
    let end = chunk.segment_start.saturating_add(whole.end);
    if call.file.lease().reach(chunk.segment_start + whole.start) < end {
        return None;
    }
    let len = of_column.end - of_column.start;
    let seen = call.inner.servers.seen(&targets, columns as usize, len);
    let (of_columns, parities) = seen.split_at_checked(columns as usize)?;
    let of_columns: Vec<Seen> =
        of_columns.iter().map(|seen| seen.unwrap_or(Seen::NOTHING)).collect();
    let instead = around(&of_columns, parities, SOON_US);
    (!instead.is_empty()).then_some((instead, whole))
}

/// Whether one request gets a range of an object, whatever else the object has.
fn is_in_one_unit(of_column: &Range<u64>) -> bool {
    of_column.start / UNIT == of_column.end.saturating_sub(1) / UNIT
}

fn skip(
    call: Call<'_>,
    plan: &Plan,
    (chunk, losses): (usize, u64),
    instead: Vec<Instead>,
) -> Option<Choice> {
    let part = |instead: &Instead| {
        let column = ColumnIndex(instead.column as u16);
        let is_it = |part: &Part| part.chunk == chunk && part.place.object.column == column;
        plan.parts.iter().position(is_it)
    };
    let skipped: Vec<usize> = instead.iter().map(part).collect::<Option<_>>()?;
    let object = plan.parts[*skipped.first()?].place.object;
    let segment = call.file.with_segment(object, Segment::clone)?;
    Some(Choice { chunk, skipped, instead, segment, object, losses })
}

/// Asks for the parities of a choice. `None` if one of them cannot be asked for.
pub(super) fn ask(call: Call<'_>, plan: &Plan, choice: Choice, ahead: bool) -> Option<Around> {
    let Choice { chunk, skipped, instead, segment, object, losses } = choice;
    let whole = whole_stripes(&plan.chunks[chunk])?;
    let columns = segment.columns.len();
    let of_column = whole.start / columns as u64..whole.end / columns as u64;
    let len = (of_column.end - of_column.start) as usize;
    let mut parities = Vec::new();
    for Instead { parity, answer_us, .. } in instead {
        let mut of_parity = Plan::default();
        plan_part(&mut of_parity, (&segment, object), columns + parity, &of_column, 0).ok()?;
        let mut read = ReadOp::start(call, of_parity, len, (true, ahead));
        if !read.transfer.lacking().is_empty() {
            return None;
        }
        read.transfer.expect(0, (answer_us / 1e3) as u64);
        parities.push((columns + parity, read));
    }
    let asked = Asked { segment: (segment.index, segment.epoch), losses };
    Some(Around { chunk, asked, of: segment.parities.len(), skipped, parities })
}

/// The whole stripes of a contiguous chunk of several columns, relative to the segment.
fn whole_stripes(chunk: &Chunk) -> Option<Range<u64>> {
    let [region] = chunk.regions.regions() else { return None };
    if chunk.stripe.columns < 2
        || chunk.regions.total_bytes() != chunk.regions.end() - region.offset
    {
        return None;
    }
    let stripe = u64::from(chunk.stripe.unit_bytes) * u64::from(chunk.stripe.columns);
    let start = region.offset.checked_next_multiple_of(stripe)?;
    let end = chunk.regions.end() - chunk.regions.end() % stripe;
    (start < end).then_some(start..end)
}

/// Makes whole stripes a chunk of their own; its number.
fn cut(plan: &mut Plan, number: usize, whole: &Range<u64>) -> usize {
    let chunk = plan.chunks[number].clone();
    let (start, end) = (chunk.regions.regions()[0].offset, chunk.regions.end());
    if (start..end) == *whole {
        return number;
    }
    let of = |part: &Part| part.chunk == number;
    let places: Vec<Place> = plan.parts.iter().filter(|part| of(part)).map(|p| p.place).collect();
    let before = plan.parts.iter().position(of).unwrap_or(plan.parts.len());
    let mut later = plan.parts.split_off(before + places.len());
    plan.parts.truncate(before);
    let later_chunks = plan.chunks.split_off(number + 1);
    plan.chunks.truncate(number);
    let mut of_whole = number;
    for range in [start..whole.start, whole.clone(), whole.end..end] {
        if range.is_empty() {
            continue;
        }
        let Ok(regions) = RegionList::contiguous(range.start, range.end - range.start) else {
            continue;
        };
        let Ok(columns) = columns_touched(&regions, chunk.stripe) else { continue };
        let at = plan.chunks.len();
        if range == *whole {
            of_whole = at;
        }
        let touched = |place: &Place| columns.iter().any(|column| column == place.object.column);
        let parts = places.iter().filter(|place| touched(place));
        plan.parts.extend(parts.map(|place| Part { chunk: at, place: *place }));
        let buffer_offset = chunk.buffer_offset + (range.start - start);
        plan.chunks.push(Chunk { regions, buffer_offset, ..chunk.clone() });
    }
    let more = plan.chunks.len() - number - 1;
    later.iter_mut().for_each(|part| part.chunk += more);
    plan.parts.extend(later);
    plan.chunks.extend(later_chunks);
    of_whole
}

impl Around {
    /// Computes its columns, whose rest is in `dest`; `is_short` says that an object of these was.
    /// Whether that could be done: not if something else of it is lacking too, or if what came may
    /// not belong together ([`refusal`]).
    pub(super) fn fill(
        &mut self,
        call: Call<'_>,
        (plan, lacking, is_short): (&Plan, &[(usize, Error)], bool),
        (dest, deadline_ms): (&mut [u8], u64),
    ) -> Result<bool> {
        let is_ours = |part: &usize| plan.parts[*part].chunk == self.chunk;
        let mut parts = lacking.iter().map(|(part, _)| part).filter(|part| is_ours(part));
        if parts.any(|part| !self.skipped.contains(part)) {
            return Ok(false);
        }
        let object = plan.parts[self.skipped[0]].place.object;
        // Nobody waits for parities of which nothing is computed.
        if self.is_refused(call, object, is_short) {
            return Ok(false);
        }
        let (mut came, mut is_short) = (Vec::new(), is_short);
        for (number, read) in &mut self.parities {
            let mut bytes = Buffer::take(&call.inner.buffers, read.len);
            let to = bytes.get_mut(..read.len).ok_or_else(|| Error::from(ErrorKind::Internal))?;
            read.deadline_ms = deadline_ms;
            if !read.take(call, to)?.is_empty() {
                return Ok(false);
            }
            is_short |= read.is_short;
            came.push((*number, bytes));
        }
        let column = |part: &usize| plan.parts[*part].place.object.column.0.into();
        let wanted: Vec<usize> = self.skipped.iter().map(column).collect();
        if self.is_refused(call, object, is_short) {
            return Ok(false);
        }
        let Chunk { stripe, buffer_offset, regions, .. } = &plan.chunks[self.chunk];
        let (unit, columns) = (stripe.unit_bytes as usize, usize::from(stripe.columns));
        let at = *buffer_offset as usize;
        let bytes = dest.get_mut(at..at + regions.total_bytes() as usize);
        let bytes = bytes.ok_or_else(|| Error::from(ErrorKind::Internal))?;
        compute((columns, self.of, unit), &wanted, &came, bytes)?;
        add(&call.inner.counters.columns_computed, wanted.len() as u64);
        Ok(true)
    }

    /// Whether what has come may not belong together.
    fn is_refused(&self, call: Call<'_>, object: ObjectId, is_short: bool) -> bool {
        let key = |segment: &Segment| segment.is_coded().then_some((segment.index, segment.epoch));
        let found = Found {
            segment: call.file.with_segment(object, key).flatten(),
            // In this order: a loss is counted before the clock is good again.
            is_held: call.inner.holdings.clock.is_good(),
            losses: call.file.losses(),
            is_behind: call.file.is_behind(),
            is_changing: call.file.has_changes_under_way(),
            is_short,
        };
        let refusal = refusal(&self.asked, &found);
        if let Some(refusal) = refusal {
            tracing::debug!("file {}: a slow column is read: {refusal:?}", call.file.id);
        }
        refusal.is_some()
    }
}

/// Computes the wanted columns of whole stripes, one stripe after the other, from the other columns
/// and from the parities that came.
fn compute(
    (columns, parities, unit): (usize, usize, usize),
    wanted: &[usize],
    came: &[(usize, impl Deref<Target = [u8]>)],
    bytes: &mut [u8],
) -> Result<()> {
    let internal = |what: String| Error::new(ErrorKind::Internal, what);
    let code = Code::new(columns, parities).map_err(|e| internal(e.to_string()))?;
    let is_there = |member: usize| match member < columns {
        true => !wanted.contains(&member),
        false => came.iter().any(|(number, _)| *number == member),
    };
    let present: Vec<bool> = (0..code.blocks()).map(is_there).collect();
    let repair = code.repair(&present, wanted).map_err(|e| internal(e.to_string()))?;
    for (row, stripe) in bytes.chunks_mut(unit * columns).enumerate() {
        let mut cells: Vec<Option<&mut [u8]>> = stripe.chunks_mut(unit).map(Some).collect();
        let mut to: Vec<&mut [u8]> =
            wanted.iter().filter_map(|column| cells.get_mut(*column)?.take()).collect();
        let parity = |number: usize| {
            let (_, bytes) = came.iter().find(|(of, _)| *of == number)?;
            bytes.get(row * unit..(row + 1) * unit)
        };
        let source = |number: &usize| match *number < columns {
            true => cells.get(*number)?.as_deref(),
            false => parity(*number),
        };
        let sources: Option<Vec<&[u8]>> = repair.sources().iter().map(source).collect();
        let sources = sources.ok_or_else(|| internal("a source is lacking".into()))?;
        repair.run(&sources, &mut to).map_err(|e| internal(e.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_layout::scatter;
    use weir_types::{
        Column, CopyIndex, Epoch, FileId, Scheme, SegmentIndex, SegmentState, StripeMap, TargetId,
    };

    const STRIPE: StripeMap = StripeMap { unit_bytes: 4096, columns: 3 };
    /// An eighth of a unit.
    const EIGHTH: u64 = 512;

    fn plan(start: u64, len: u64) -> Plan {
        let mut plan = Plan::default();
        // Something before, and something behind.
        for (chunk, (start, len, stripe)) in [
            (0, 5, StripeMap { columns: 1, ..STRIPE }),
            (start * EIGHTH, len * EIGHTH, STRIPE),
            (0, 7, StripeMap { columns: 1, ..STRIPE }),
        ]
        .into_iter()
        .enumerate()
        {
            let regions = RegionList::contiguous(start, len).unwrap();
            for column in columns_touched(&regions, stripe).unwrap().iter() {
                let segment = SegmentIndex(chunk as u32);
                let object = ObjectId { file: FileId(9), segment, column, copy: CopyIndex(0) };
                let target = TargetId(u32::from(column.0));
                plan.parts.push(Part { chunk, place: Place { object, target, mirrored: false } });
            }
            let buffer_offset = [0, 5, 5 + plan.chunks.iter().map(bytes).sum::<u64>()][chunk];
            plan.chunks.push(Chunk { regions, stripe, segment_start: 100, buffer_offset });
        }
        plan
    }

    fn bytes(chunk: &Chunk) -> u64 {
        chunk.regions.total_bytes()
    }

    #[test]
    fn a_chunk_is_cut_into_whole_stripes_and_the_rest() {
        // Stripes of 24 eighths of a unit.
        for (start, len, whole, pieces) in [
            (0, 48, Some(0..48), vec![48]),
            (10, 60, Some(24..48), vec![14, 24, 22]),
            (24, 30, Some(24..48), vec![24, 6]),
            (3, 21 + 24, Some(24..48), vec![21, 24]),
            (1, 40, None, vec![40]),
        ] {
            let mut plan = plan(start, len);
            let whole = whole.map(|Range { start, end }| start * EIGHTH..end * EIGHTH);
            assert_eq!(whole_stripes(&plan.chunks[1]), whole, "{start} {len}");
            let Some(whole) = whole else { continue };
            let at = cut(&mut plan, 1, &whole);
            assert_eq!(whole_stripes(&plan.chunks[at]), Some(whole));
            let of_whole = |part: &&Part| part.chunk == at;
            assert_eq!(plan.parts.iter().filter(of_whole).count(), 3);
            let lens: Vec<u64> = plan.chunks.iter().map(bytes).collect();
            let pieces = pieces.into_iter().map(|len| len * EIGHTH).collect();
            assert_eq!(lens, [vec![5], pieces, vec![7]].concat());
            let mut offset = plan.chunks[1].buffer_offset;
            for (number, chunk) in plan.chunks.iter().enumerate().skip(1) {
                if number + 1 < plan.chunks.len() {
                    assert_eq!(chunk.buffer_offset, offset);
                }
                offset += bytes(chunk);
                let touched = columns_touched(&chunk.regions, chunk.stripe).unwrap();
                let parts = plan.parts.iter().filter(|part| part.chunk == number);
                let columns: Vec<_> = parts.map(|part| part.place.object.column).collect();
                assert_eq!(columns, touched.iter().collect::<Vec<_>>());
            }
            assert_eq!(plan.parts.last().unwrap().place.object.segment, SegmentIndex(2));
            assert!(plan.parts.is_sorted_by_key(|part| part.chunk));
        }
        let two = RegionList::new(vec![
            weir_layout::Region::contiguous(0, 24 * EIGHTH),
            weir_layout::Region::contiguous(0, 24 * EIGHTH),
        ]);
        let chunk =
            Chunk { regions: two.unwrap(), stripe: STRIPE, segment_start: 0, buffer_offset: 0 };
        assert_eq!(whole_stripes(&chunk), None, "it has two regions");
    }

    #[test]
    fn a_parity_is_asked_for_only_where_one_request_gets_all_of_it() {
        let segment = Segment {
            index: SegmentIndex(0),
            start: 0,
            len: None,
            stripe_unit_bytes: STRIPE.unit_bytes,
            columns: vec![Column { targets: vec![TargetId(1)] }; usize::from(STRIPE.columns)],
            parities: vec![Column { targets: vec![TargetId(9)] }],
            filling: Vec::new(),
            scheme: Scheme::Coded,
            state: SegmentState::Sealed,
            epoch: Epoch(1),
        };
        let column = ColumnIndex(STRIPE.columns);
        let object =
            ObjectId { file: FileId(9), segment: SegmentIndex(0), column, copy: CopyIndex(0) };
        let unit = u64::from(STRIPE.unit_bytes);
        for (range, is_one) in [
            (UNIT - unit..UNIT, true),
            (UNIT - unit..UNIT + 1, false),
            (UNIT - unit..UNIT + unit, false),
            (UNIT..UNIT + unit, true),
            (0..UNIT, true),
            (0..UNIT + unit, false),
            (2 * UNIT..3 * UNIT, true),
        ] {
            assert_eq!(is_in_one_unit(&range), is_one, "{range:?}");
            let mut plan = Plan::default();
            plan_part(&mut plan, (&segment, object), column.0.into(), &range, 0).unwrap();
            let chunk = &plan.chunks[0];
            let mut runs = Vec::new();
            scatter(&chunk.regions, chunk.stripe, column, &mut runs).unwrap();
            let got: Vec<_> =
                runs.iter().map(|run| run.object_offset..run.object_offset + run.len).collect();
            assert_eq!(got == std::slice::from_ref(&range), is_one, "{range:?}: {got:?}");
        }
    }

    #[test]
    fn columns_are_computed_from_any_parities() {
        const UNIT: usize = 16;
        let (columns, rows) = (4, 3);
        let bytes: Vec<u8> = (0..UNIT * columns * rows).map(|n| (n * 37 % 251) as u8).collect();
        let column = |number: usize| -> Vec<u8> {
            let cells = bytes.chunks(UNIT).skip(number).step_by(columns);
            cells.flatten().copied().collect()
        };
        let members: Vec<Vec<u8>> = (0..columns).map(column).collect();
        let members: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
        let mut parities = vec![vec![0; UNIT * rows]; 3];
        let mut to: Vec<&mut [u8]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
        Code::new(columns, 3).unwrap().encode(&members, &mut to).unwrap();
        for (wanted, by) in [
            (vec![2], vec![1]),
            (vec![0], vec![0]),
            (vec![3, 1], vec![2, 0]),
            (vec![0, 2, 3], vec![1, 0, 2]),
        ] {
            let mut read = bytes.clone();
            for (number, cell) in read.chunks_mut(UNIT).enumerate() {
                if wanted.contains(&(number % columns)) {
                    cell.fill(0xee);
                }
            }
            let came: Vec<(usize, Vec<u8>)> =
                by.iter().map(|parity| (columns + parity, parities[*parity].clone())).collect();
            compute((columns, 3, UNIT), &wanted, &came, &mut read).unwrap();
            assert_eq!(read, bytes, "{wanted:?} by {by:?}");
        }
    }
}
