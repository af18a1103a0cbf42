//! Compares parities with the columns that they are of.
//!
//! Nobody writes a segment while its parities count. So what was read at different times belongs
//! together if the segment was the same before and after, as the metadata server says.

use super::decode::{UNIT, Undecoded, has_whole, is_current, plan_part};
use crate::core::plan::Plan;
use crate::state::{Call, ReadOp};
use std::ops::Range;
use std::time::Duration;
use weir_erasure::Code;
use weir_layout::object_len;
use weir_net::Wait;
use weir_types::{
    ColumnIndex, CopyIndex, Error, ErrorKind, ObjectId, Result, Segment, SegmentIndex,
};

/// Bytes of each object that are compared at a time.
const STEP_BYTES: u64 = 256 << 10;
/// How often what a server does not give is asked for again, each time with twice the patience, and
/// the pause before the first time.
const MAX_ROUNDS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The most ranges that are named of one file.
const MAX_UNEQUAL: usize = 1000;

/// A range of a parity that is not what follows from the columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unequal {
    /// The segment of the file.
    pub segment: SegmentIndex,
    /// Which parity, from 0.
    pub parity: usize,
    /// The bytes of the parity's object.
    pub range: Range<u64>,
}

/// What a comparison of one file has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Segments with parities that were compared to their ends.
    pub segments: u64,
    /// Bytes that were read, of columns and parities.
    pub bytes: u64,
    /// What differs; at most 1000 ranges.
    pub unequal: Vec<Unequal>,
}

/// Compares the parities of a segment. `told` is called with the bytes that were read of each object
/// and the number of objects. Returns `false`, and adds nothing, if the segment has changed meanwhile.
///
/// # Errors
/// `Unreachable`: a server does not give its part.
pub(crate) fn compare(
    call: Call<'_>,
    segment: &Segment,
    found: &mut Compared,
    told: &mut dyn FnMut(u64, usize),
) -> Result<bool> {
    let object = ObjectId {
        file: call.file.id,
        segment: segment.index,
        column: ColumnIndex(0),
        copy: CopyIndex(0),
    };
    let code = Code::new(segment.columns.len(), segment.parities.len());
    let code = code.map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
    if let Some(part) = (0..code.blocks()).find(|number| !has_whole(segment, *number)) {
        let text =
            format!("part {part} of segment {} is being made: compare again later", segment.index);
        return Err(Error::new(ErrorKind::Unreachable, text));
    }
    // A parity is as long as the longest column, which is the first one.
    let within = call.file.size().clamp(segment.start, segment.end()) - segment.start;
    let len = object_len(segment.stripe(), object.column, within);
    let (mut unequal, mut bytes, mut at) = (Vec::new(), 0, 0);
    while at < len {
        // Within one unit of the widest stripe, as one request may have it.
        let end = len.min(at + STEP_BYTES).min(at - at % UNIT + UNIT);
        let read = read_all(call, (segment, object), code.blocks(), &(at..end));
        match read {
            Ok(read) => differing(&code, &read, (segment.index, at), &mut unequal)?,
            // It may not be there any more.
            Err(error) => match is_current(call, &[(object, segment.clone())]) {
                Err(Undecoded::Changed) => return Ok(false),
                current => return Err(current.err().map_or(error, Error::from)),
            },
        }
        bytes += (end - at) * code.blocks() as u64;
        told(end - at, code.blocks());
        at = end;
    }
    match is_current(call, &[(object, segment.clone())]) {
        Err(Undecoded::Changed) => return Ok(false),
        current => current?,
    }
    (found.segments, found.bytes) = (found.segments + 1, found.bytes + bytes);
    let room = MAX_UNEQUAL.saturating_sub(found.unequal.len());
    found.unequal.extend(unequal.into_iter().take(room));
    Ok(true)
}

/// A range of all objects of a set.
fn read_all(
    call: Call<'_>,
    of: (&Segment, ObjectId),
    blocks: usize,
    range: &Range<u64>,
) -> Result<Vec<Vec<u8>>> {
    let len = (range.end - range.start) as usize;
    let mut plan = Plan::default();
    for number in 0..blocks {
        plan_part(&mut plan, of, number, range, number * len)?;
    }
    let mut bytes = vec![0; len * blocks];
    let wait = Wait::for_ms(call.inner.config.request_timeout_ms).interruptible(call.ctx.interrupt);
    let mut rounds = 0;
    loop {
        let mut read = ReadOp::start(call, plan.clone(), bytes.len(), (false, false));
        read.set_rounds(rounds);
        let lacking = read.take(call, &mut bytes)?;
        let Some(part) = lacking.first() else { break };
        // Its disk may only be busy, or its server be started again.
        if rounds == MAX_ROUNDS {
            let text = format!(
                "part {part} of segment {} cannot be read: compare again when its server is back",
                of.1.segment
            );
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        wait.sleep(FIRST_PAUSE * 2_u32.pow(rounds))?;
        rounds += 1;
    }
    Ok(bytes.chunks(len).map(<[u8]>::to_vec).collect())
}

/// Adds the ranges in which parities differ from what follows from the columns, joined with those
/// before.
fn differing(
    code: &Code,
    read: &[Vec<u8>],
    (segment, at): (SegmentIndex, u64),
    unequal: &mut Vec<Unequal>,
) -> Result<()> {
    let (columns, parities) = read.split_at(code.members());
    let columns: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
    let mut wanted: Vec<Vec<u8>> = parities.iter().map(|bytes| vec![0; bytes.len()]).collect();
    let mut outputs: Vec<&mut [u8]> = wanted.iter_mut().map(Vec::as_mut_slice).collect();
    let encoded = code.encode(&columns, &mut outputs);
    encoded.map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
    for (parity, (wanted, has)) in wanted.iter().zip(parities).enumerate() {
        let differ = |(a, b): &(&u8, &u8)| a != b;
        let Some(first) = wanted.iter().zip(has).position(|pair| differ(&pair)) else { continue };
        let last = wanted.iter().zip(has).rposition(|pair| differ(&pair)).unwrap_or(first);
        let range = at + first as u64..at + last as u64 + 1;
        let has_room = unequal.len() < MAX_UNEQUAL;
        let before = unequal.iter_mut().rev().find(|before| before.parity == parity);
        match before.filter(|before| before.range.end == range.start) {
            Some(before) => before.range.end = range.end,
            None if has_room => {
                unequal.push(Unequal { segment, parity, range });
            }
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_from_the_first_to_the_last_byte_that_differs_and_joined() {
        let code = Code::raid6(2).expect("two columns");
        let columns = [vec![1; 100], vec![7; 100]];
        let parities = |wrong: &[(usize, usize)]| {
            let mut made = [vec![0; 100], vec![0; 100]];
            let [p, q] = &mut made;
            code.encode(&[&columns[0], &columns[1]], &mut [p, q]).expect("fits");
            wrong.iter().for_each(|(parity, at)| made[*parity][*at] ^= 1);
            made
        };
        let mut unequal = Vec::new();
        let mut look = |at: u64, wrong: &[(usize, usize)]| {
            let read: Vec<_> = columns.iter().cloned().chain(parities(wrong)).collect();
            differing(&code, &read, (SegmentIndex(3), at), &mut unequal).expect("fits");
        };
        look(0, &[]);
        look(100, &[(1, 20), (1, 99)]);
        look(200, &[(1, 0), (0, 5)]);
        let of = |parity, range| Unequal { segment: SegmentIndex(3), parity, range };
        assert_eq!(unequal, [of(1, 120..201), of(0, 205..206)]);
    }
}
