//! Tells the ordering copy which gaps one copy knows, its own or those of others.

use super::{Resync, Told};
use crate::copies::push::STEP_BYTES;
use crate::machine::change::copy_of;
use std::ops::Range;
use std::time::Duration;
use weir_host::clock;
use weir_store::{ELSEWHERE, Gap, RangeSet, UNHEARD, gap_parts};
use weir_types::limits::MAX_FIND_COPIES;
use weir_types::{CopyIndex, ErrorKind, ObjectId, Result, TargetId};
use weir_wire::data::NoteGapRequest;
use weir_wire::peer::Copies as Column;

/// A gap that was not filled for this long after it was told is told again: the other copy could
/// not vouch for its bytes, or took the gap for void. A gap that the other copy has reported itself
/// under the present map is told only after that copy had as much time to fill it.
const TELL_AGAIN: Duration = Duration::from_secs(2);
/// Bytes that no other copy had are asked for again after this time, or under another map.
const TAKE_AGAIN: Duration = Duration::from_secs(10);
/// The most questions to another server about one object at a time.
const MAX_ASKED: usize = 1024;
/// Timeout for another server to note a gap, milliseconds.
const NOTE_MS: u64 = 4_000;

/// Replies of another copy about ranges.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Ranges of which the other copy lacks some itself, or has noted otherwise.
    pub(super) refused: Vec<Range<u64>>,
    /// Ranges that it was not asked about, because it had refused too many.
    pub(super) left: Vec<Range<u64>>,
}

impl Resync {
    /// Tells the ordering copy of gaps; returns what that copy lacks itself. Gaps of other copies
    /// are its business then. Gaps of this copy stay noted here until they are filled.
    pub(super) fn tell(
        &mut self,
        orders: TargetId,
        (of, behind): (TargetId, TargetId),
        gap: &Gap,
        column: &Column,
        there: usize,
    ) -> Result<Vec<Range<u64>>> {
        let (own, acting) = (self.own(), self.shared.copies.standings.acting());
        let mut bytes = gap.bytes.clone();
        if of != ELSEWHERE {
            let elsewhere = self.disk.store.gaps().of(gap.object, ELSEWHERE);
            for lacking in elsewhere.iter().flat_map(RangeSet::iter) {
                // What it lacks itself it can say nothing about, and is not in doubt about: it
                // must not count as it is here.
                bytes.remove(&lacking);
                if behind == own {
                    self.disk.store.gaps().clear(gap.object, own, &lacking)?;
                }
            }
        }
        let ranges: Vec<Range<u64>> = bytes.iter().collect();
        let told = (orders, acting, ranges.clone());
        if behind == own && self.was_told(gap.object, &told, TELL_AGAIN) {
            return Ok(Vec::new());
        }
        let is_new = self.told.get(&gap.object).is_none_or(|(before, _)| *before != told);
        if of == ELSEWHERE && is_new && self.confirmed == acting {
            self.remember(gap.object, told);
            return Ok(Vec::new());
        }
        let gaps = self.disk.store.gaps();
        let is_of_another = behind != own;
        if is_of_another {
            // What is noted anew from here on is told anew.
            gap.bytes.iter().for_each(|range| gaps.sent(gap.object, behind, &range));
        }
        let behind_at = (behind, there);
        let said = self.note_there(orders, gap.object, behind_at, column, &ranges, false);
        if is_of_another {
            // Told again and again, also when it has brought it, it would keep that one from
            // coming back.
            match &said {
                Ok(Answers { refused, left }) => {
                    let not = refused.iter().chain(left);
                    not.for_each(|range| gaps.not_sent(gap.object, behind, range));
                    self.disk.progress.is_not_ours(gap.object, behind);
                    gaps.clear_sent(gap.object, behind)?;
                }
                Err(_) => gaps.not_sent(gap.object, behind, &(0..u64::MAX)),
            }
        }
        let refused = said?.refused;
        // Who may have to count itself asks again soon.
        if behind == own && (refused.is_empty() || of == ELSEWHERE) {
            self.remember(gap.object, told);
        }
        Ok(refused)
    }

    /// Whether bytes that this ordering copy lacks are to be asked for now.
    pub(super) fn is_to_be_taken(&mut self, gap: &Gap, own: TargetId) -> bool {
        let acting = self.shared.copies.standings.acting();
        let asked = (own, acting, gap.bytes.iter().collect());
        let is_due = !self.was_told(gap.object, &asked, TAKE_AGAIN);
        if is_due {
            self.remember(gap.object, asked);
        }
        is_due
    }

    /// Settles ranges that are in doubt on this copy and that the ordering copy lacks. Returns
    /// whether they are settled. The bytes here count if no copy went away later, and no online
    /// copy has them: the others then receive all of them from here. But a copy that postponed
    /// changes of a part had all of the part: where this copy lacks some of it, that one has the
    /// rest, too.
    pub(super) fn counts(
        &self,
        object: ObjectId,
        ranges: &[Range<u64>],
        column: &Column,
        orders: TargetId,
    ) -> Result<bool> {
        let (own, standings) = (self.own(), &self.shared.copies.standings);
        if !standings.may_count(own, &column.copies) {
            return Ok(false);
        }
        // One whose header is damaged does not.
        self.disk.store.object(object)?;
        let gaps = self.disk.store.gaps();
        let elsewhere = gaps.of(object, ELSEWHERE).unwrap_or_default();
        let is_elsewhere = |range: &&Range<u64>| elsewhere.touches(&gap_parts(range));
        for range in ranges.iter().filter(is_elsewhere) {
            gaps.note(object, ELSEWHERE, object.copy, range)?;
            gaps.clear(object, own, range)?;
        }
        let mut ranges: Vec<Range<u64>> =
            ranges.iter().filter(|range| !is_elsewhere(range)).cloned().collect();
        // What it knew that it lacks may be lost.
        if self.is_unheard(object) {
            if gaps.of(object, UNHEARD).is_none() {
                // That is to be noted first.
                return Ok(false);
            }
            match self.heard_of(object, &ranges, column)? {
                Some(heard) => ranges = heard,
                None => return Ok(false),
            }
        }
        let others = || {
            let copies = column.copies.iter().enumerate();
            let is_other = |target| ![own, TargetId::NONE].contains(&target);
            copies.filter(move |(_, copy)| is_other(copy.target) && !copy.filling)
        };
        let here = usize::from(object.copy.0);
        for (_, copy) in others().filter(|(_, copy)| copy.target != orders) {
            if standings.is_online(copy.target) {
                let said =
                    self.note_there(copy.target, object, (own, here), column, &ranges, false)?;
                // The one that orders takes it from there.
                if said.refused != ranges {
                    return Ok(false);
                }
            }
        }
        for (at, copy) in others() {
            for range in &ranges {
                gaps.note(object, copy.target, CopyIndex(at as u8), range)?;
            }
        }
        ranges.iter().try_for_each(|range| gaps.clear(object, own, range))?;
        Ok(true)
    }

    fn was_told(&self, object: ObjectId, told: &Told, within: Duration) -> bool {
        let known = self.told.get(&object).filter(|(before, _)| before == told);
        known.is_some_and(|(_, at)| clock::elapsed(*at) < within)
    }

    fn remember(&mut self, object: ObjectId, told: Told) {
        if self.told.len() > MAX_FIND_COPIES * 64 {
            self.told.clear();
        }
        self.told.insert(object, (told, clock::now()));
    }

    /// Lets another copy note what one of them lacks; refused are ranges that it lacks itself. With
    /// `filled` it notes that this copy lacks nothing; refused are ranges that it has noted
    /// otherwise.
    pub(super) fn note_there(
        &self,
        target: TargetId,
        object: ObjectId,
        (behind, copy): (TargetId, usize),
        column: &Column,
        ranges: &[Range<u64>],
        filled: bool,
    ) -> Result<Answers> {
        let len = match self.disk.store.object(object) {
            // It can be brought anew all the same.
            Err(error) if error.kind == ErrorKind::Corrupt => 0,
            found => found?.map_or(0, |object| object.len()),
        };
        let at = column.copies.iter().position(|copy| copy.target == target);
        let object = copy_of(object, at.unwrap_or_default());
        let copy = CopyIndex(copy as u8);
        let told = behind == target || behind == self.own();
        let epoch = self.shared.copies.standings.acting();
        // After that: under an epoch of now it has nothing to say any more.
        self.shared.copies.standings.is_kept(self.own())?;
        let lines = &self.shared.copies.lines;
        let (mut refused, mut asked) = (Vec::new(), 0);
        let mut left: Vec<Range<u64>> = ranges.iter().rev().cloned().collect();
        while asked <= MAX_ASKED
            && let Some(range) = left.pop()
        {
            let Range { start, end } = range;
            let note = NoteGapRequest {
                target,
                object,
                behind,
                copy,
                start,
                end,
                told,
                first: false,
                filled,
                epoch,
            };
            let wait = lines.wait(NOTE_MS);
            let noted = lines.take(target, &wait)?.ask(&wait, (&[], &[]), |p| p.send(&note));
            asked += 1;
            match noted {
                Err(error) if error.kind == ErrorKind::NotCurrent => match halves(&range, len) {
                    Some([first, second]) => left.extend([second, first]),
                    None => refused.push(range),
                },
                Err(error) => return Err(error),
                Ok(()) => {}
            }
        }
        Ok(Answers { refused, left })
    }
}

/// Halves of a range of which another copy lacks some, in whole parts. What lies behind the end
/// counts as one part.
fn halves(range: &Range<u64>, len: u64) -> Option<[Range<u64>; 2]> {
    let end = len.next_multiple_of(STEP_BYTES).max(STEP_BYTES);
    let middle = match (range.start < end, range.end > end) {
        (false, _) => return None,
        (true, true) => end,
        (true, false) => {
            let (first, last) = (range.start / STEP_BYTES, (range.end - 1) / STEP_BYTES);
            (first + (last - first).div_ceil(2)) * STEP_BYTES
        }
    };
    let inside = range.start < middle && middle < range.end;
    inside.then_some([range.start..middle, middle..range.end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_halved_down_to_parts_and_not_behind_the_end() {
        const P: u64 = STEP_BYTES;
        assert_eq!(halves(&(0..4 * P), 9 * P), Some([0..2 * P, 2 * P..4 * P]));
        assert_eq!(halves(&(P..3 * P + 1), 9 * P), Some([P..2 * P, 2 * P..3 * P + 1]));
        assert_eq!(halves(&(5..P), 9 * P), None);
        assert_eq!(halves(&(0..u64::MAX), P + 1), Some([0..2 * P, 2 * P..u64::MAX]));
        assert_eq!(halves(&(2 * P..u64::MAX), P + 1), None);
        assert_eq!(halves(&(0..u64::MAX), 0), Some([0..P, P..u64::MAX]));
    }
}
