//! Computes the bytes of columns that no server can give, from others of their segments.
//!
//! Nobody writes a segment while its parities count, and what they are of never changes. So what
//! was read belongs together if the segment was the same before and after, as the metadata server
//! says.

use crate::core::plan::{Chunk, Part, Place, Plan};
use crate::state::{Call, ReadOp};
use std::collections::BTreeSet;
use std::ops::Range;
use weir_erasure::{Code, Lost};
use weir_layout::{RegionList, Run, scatter, segment_offset};
use weir_types::limits::MAX_STRIPE_UNIT_BYTES;
use weir_types::{ColumnIndex, Error, ErrorKind, ObjectId, Result, Segment, StripeMap};

/// The most bytes of a column that are computed at a time.
const STEP_BYTES: u64 = 256 << 10;
/// What is asked of an object by itself lies within one unit of so many bytes.
pub(super) const UNIT: u64 = MAX_STRIPE_UNIT_BYTES as u64;

/// Why bytes could not be computed.
pub(super) enum Undecoded {
    /// The segment is another one since.
    Changed,
    /// Too many servers do not give what they have.
    TooFew(Error),
    /// Something else went wrong.
    Failed(Error),
}

impl From<Error> for Undecoded {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Undecoded> for Error {
    fn from(undecoded: Undecoded) -> Self {
        match undecoded {
            Undecoded::Changed => {
                Error::new(ErrorKind::TimedOut, "the layout of the file changes all the time")
            }
            Undecoded::TooFew(error) | Undecoded::Failed(error) => error,
        }
    }
}

/// Fills in the bytes of the parts of a read that are lacking. `rounds` says how often that was in
/// vain.
pub(super) fn all(
    call: Call<'_>,
    plan: &Plan,
    (lacking, rounds): (&[(usize, Error)], u32),
    dest: &mut [u8],
) -> Result<(), Undecoded> {
    let mut segments: Vec<(ObjectId, Segment)> = Vec::new();
    let mut lost = BTreeSet::new();
    for (part, error) in lacking {
        let object = plan.parts[*part].place.object;
        let segment = match segments.iter().find(|(of, _)| of.segment == object.segment) {
            Some((_, segment)) => segment.clone(),
            None => {
                let found = call.file.with_segment(object, Segment::clone);
                let segment = found.filter(Segment::is_coded).ok_or(Undecoded::Changed)?;
                segments.push((object, segment.clone()));
                segment
            }
        };
        lost.insert((object.segment, usize::from(object.column.0)));
        let of_segment = lost.iter().filter(|(index, _)| *index == object.segment);
        let mut lost_here: BTreeSet<usize> = of_segment.map(|(_, column)| *column).collect();
        let chunk = plan.chunk(*part);
        let mut runs = Vec::new();
        scatter(&chunk.regions, chunk.stripe, object.column, &mut runs)?;
        let at = usize::try_from(chunk.buffer_offset).unwrap_or(usize::MAX);
        let dest = dest.get_mut(at..).ok_or_else(|| Error::from(ErrorKind::Internal))?;
        for range in steps(&runs) {
            let bytes = compute(call, (&segment, object), (&range, rounds), &mut lost_here)?;
            let too_few = |lost: Lost| Error {
                message: format!("{}; {lost}", error.message),
                ..error.clone()
            };
            match bytes {
                Ok(bytes) => fill(dest, &runs, &range, &bytes),
                // What others have may be elsewhere by now.
                Err(lost) => {
                    is_current(call, &segments)?;
                    return Err(Undecoded::TooFew(too_few(lost)));
                }
            }
        }
    }
    // As it was when the last of it was read.
    is_current(call, &segments)
}

/// Asks the metadata server whether segments are still the same.
pub(super) fn is_current(
    call: Call<'_>,
    segments: &[(ObjectId, Segment)],
) -> Result<(), Undecoded> {
    call.file.refresh(call.inner, call.ctx)?;
    let stays = |(object, before): &(ObjectId, Segment)| {
        call.file.with_segment(*object, |now| now == before) == Some(true)
    };
    if segments.iter().all(stays) { Ok(()) } else { Err(Undecoded::Changed) }
}

/// Ranges of an object that have all runs and not much more, each in one unit of any stripe.
fn steps(runs: &[Run]) -> Vec<Range<u64>> {
    let mut pieces: Vec<Range<u64>> =
        runs.iter().map(|run| run.object_offset..run.object_offset + run.len).collect();
    pieces.sort_by_key(|piece| piece.start);
    let mut steps: Vec<Range<u64>> = Vec::new();
    for piece in pieces {
        let mut at = piece.start;
        while at < piece.end {
            let end = piece.end.min(at - at % UNIT + UNIT);
            match steps.last_mut() {
                Some(step) if step.start / UNIT == at / UNIT && at < step.start + STEP_BYTES => {
                    step.end = step.end.max(end.min(step.start + STEP_BYTES));
                    at = step.end.clamp(at, piece.end);
                }
                _ => {
                    let end = end.min(at + STEP_BYTES);
                    steps.push(at..end);
                    at = end;
                }
            }
        }
    }
    steps
}

/// Puts bytes of a range of an object where the runs have them.
fn fill(dest: &mut [u8], runs: &[Run], range: &Range<u64>, bytes: &[u8]) {
    for run in runs {
        let start = run.object_offset.max(range.start);
        let end = (run.object_offset + run.len).min(range.end);
        if start < end {
            let to = (run.buffer_offset + (start - run.object_offset)) as usize;
            let from = (start - range.start) as usize;
            let len = (end - start) as usize;
            dest[to..to + len].copy_from_slice(&bytes[from..from + len]);
        }
    }
}

/// A range of a column, from others. Those of them that cannot be read are added to `lost`.
fn compute(
    call: Call<'_>,
    (segment, object): (&Segment, ObjectId),
    (range, rounds): (&Range<u64>, u32),
    lost: &mut BTreeSet<usize>,
) -> Result<Result<Vec<u8>, Lost>> {
    let wanted = usize::from(object.column.0);
    let code = Code::new(segment.columns.len(), segment.parities.len());
    let code = code.map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
    let len = (range.end - range.start) as usize;
    loop {
        let is_there = |number: usize| !lost.contains(&number) && has_whole(segment, number);
        let present: Vec<bool> = (0..code.blocks()).map(is_there).collect();
        let repair = match code.repair(&present, &[wanted]) {
            Ok(repair) => repair,
            Err(lost) => return Ok(Err(lost)),
        };
        let mut plan = Plan::default();
        for (at, number) in repair.sources().iter().enumerate() {
            plan_part(&mut plan, (segment, object), *number, range, at * len)?;
        }
        let mut bytes = vec![0; len * repair.sources().len()];
        let mut read = ReadOp::start(call, plan, bytes.len(), (false, false));
        read.set_rounds(rounds);
        let lacking = read.take(call, &mut bytes)?;
        if lacking.is_empty() {
            let sources: Vec<&[u8]> = bytes.chunks(len).collect();
            let mut computed = vec![0; len];
            let run = repair.run(&sources, &mut [&mut computed]);
            run.map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
            return Ok(Ok(computed));
        }
        lost.extend(lacking.iter().map(|part| repair.sources()[*part]));
    }
}

/// Whether a column or parity has a copy that is not being made.
pub(super) fn has_whole(segment: &Segment, number: usize) -> bool {
    let column = ColumnIndex(number as u16);
    let copies = segment.member(number).into_iter().flat_map(|member| member.copies());
    copies.into_iter().any(|(copy, _)| !segment.is_filling(column, copy))
}

/// Adds the read of a range of one object, whichever stripes it has.
pub(super) fn plan_part(
    plan: &mut Plan,
    (segment, object): (&Segment, ObjectId),
    number: usize,
    range: &Range<u64>,
    buffer_offset: usize,
) -> Result<()> {
    let column = ColumnIndex(number as u16);
    let stripe = StripeMap { unit_bytes: MAX_STRIPE_UNIT_BYTES, columns: column.0 + 1 };
    let start = segment_offset(stripe, column, range.start).ok_or(ErrorKind::InvalidArgument)?;
    let place = Place::of(object.file, segment, column).ok_or(ErrorKind::Internal)?;
    plan.parts.push(Part { chunk: plan.chunks.len(), place });
    plan.chunks.push(Chunk {
        regions: RegionList::contiguous(start, range.end - range.start)?,
        stripe,
        segment_start: segment.start,
        buffer_offset: buffer_offset as u64,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(object_offset: u64, len: u64, buffer_offset: u64) -> Run {
        Run { object_offset, len, buffer_offset }
    }

    #[test]
    fn steps_have_all_bytes_of_the_runs_and_stay_in_one_unit() {
        let far = UNIT - 4096;
        let runs = [
            run(far, 8192, 0),
            run(0, 4096, 8192),
            run(8192, 4096, 12288),
            run(1 << 21, 1 << 19, 0),
        ];
        let steps = steps(&runs);
        for step in &steps {
            assert_eq!(step.start / UNIT, (step.end - 1) / UNIT, "{step:?}");
            assert!(step.end - step.start <= STEP_BYTES, "{step:?}");
        }
        for run in &runs {
            let mut at = run.object_offset;
            while at < run.object_offset + run.len {
                let step = steps.iter().find(|step| step.contains(&at)).expect("every byte");
                at = step.end;
            }
        }
    }

    #[test]
    fn computed_bytes_go_where_the_runs_have_them() {
        let runs = [run(10, 4, 0), run(20, 4, 8)];
        let bytes: Vec<u8> = (10..30).collect();
        let mut dest = [0; 12];
        fill(&mut dest, &runs, &(10..30), &bytes);
        assert_eq!(dest, [10, 11, 12, 13, 0, 0, 0, 0, 20, 21, 22, 23]);
    }
}
