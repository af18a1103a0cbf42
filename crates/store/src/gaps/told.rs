//! Gaps that the copy behind has noted itself. Such a copy does not serve the missing bytes, so
//! these gaps do not keep its target from being online.

use super::ranges::RangeSet;
use super::{Gaps, Note, State, gap_parts, parts_in};
use std::ops::Range;
use weir_types::{CopyIndex, ObjectId, Result, TargetId};

impl Gaps {
    /// As [`Gaps::note`], for a gap that the copy behind has noted too, so that it does not serve
    /// the missing bytes. That the copy knows is not remembered beyond a restart.
    pub fn note_told(
        &self,
        object: ObjectId,
        behind: TargetId,
        copy: CopyIndex,
        bytes: &Range<u64>,
    ) -> Result<()> {
        self.note_all_told(&[Note { object, behind, copy, bytes: bytes.clone() }])
    }

    /// As [`Gaps::note_told`], for several gaps with one sync.
    pub fn note_all_told(&self, notes: &[Note]) -> Result<()> {
        self.write_notes(notes, true)?;
        let mut state = self.state.lock();
        notes.iter().for_each(|note| state.tells((note.behind, note.object), &note.bytes));
        Ok(())
    }

    /// Notes a gap that the copy behind has reported itself. It counts as told, with one exception:
    /// another gap of the object is noted, or being noted, without that copy's knowledge. Otherwise
    /// the target would come online without knowing that gap.
    pub fn note_said(
        &self,
        object: ObjectId,
        behind: TargetId,
        copy: CopyIndex,
        bytes: &Range<u64>,
    ) -> Result<()> {
        let (note, key) = (Note { object, behind, copy, bytes: bytes.clone() }, (behind, object));
        let mut state = self.state.lock();
        if state.is_untold(key) {
            drop(state);
            return self.note_all(&[note]);
        }
        // Told from this moment on: a note for another reason that begins meanwhile revokes it.
        let parts = gap_parts(bytes);
        let begun = state.begun.get(&key).is_some_and(|begun| begun.touches(&parts));
        state.tells(key, bytes);
        state.said.entry(key).or_default().insert(parts.clone());
        if begun && parts != *bytes {
            // In the rest of its parts the copy has cleared what it has received.
            state.begun.entry(key).or_default().insert(parts);
        }
        state.left.remove(&key);
        state.notes += 1;
        let noted = self.note_records(state, &[note]);
        let mut state = self.state.lock();
        state.notes -= 1;
        if noted.is_err() {
            state.told.remove(&key);
        }
        noted
    }

    /// Whether a whole range is noted as lacking here and by the copy behind, and nothing of it has
    /// been sent there.
    pub fn is_told(&self, object: ObjectId, of: TargetId, range: &Range<u64>) -> bool {
        let (state, key) = (self.state.lock(), (of, object));
        state.table.get(of, object).is_some_and(|(_, set)| set.covers(range))
            && state.told.get(&key).is_some_and(|told| told.covers(range))
            && !state.begun.get(&key).is_some_and(|begun| begun.touches(range))
            && !state.sent.get(&key).is_some_and(|sent| sent.touches(range))
    }

    /// Targets with gaps that they have not noted themselves. Each comes with the number of parts
    /// of 1 MiB that were not sent to it, and with at least one part for an object until everything
    /// sent is durable there.
    pub fn untold(&self) -> Vec<(TargetId, u64)> {
        let state = self.state.lock();
        state.table.sum(|behind, object, set| {
            let key = (behind, object);
            let told = state.told.get(&key);
            if told.is_some_and(|told| set.iter().all(|range| told.covers(&range))) {
                return 0;
            }
            let Some(sent) = state.sent.get(&key) else { return parts_in(set) };
            let mut left = set.clone();
            sent.iter().for_each(|range| left.remove(&range));
            parts_in(&left).max(1)
        })
    }
}

impl State {
    /// Records that the copy behind has noted the parts around these bytes itself.
    pub(super) fn tells(&mut self, key: (TargetId, ObjectId), bytes: &Range<u64>) {
        let bytes = gap_parts(bytes);
        for of_told in [&mut self.begun, &mut self.said] {
            if let Some(parts) = of_told.get_mut(&key) {
                parts.remove(&bytes);
            }
        }
        self.told.entry(key).or_default().insert_if_room(bytes);
    }

    /// Whether an object has a gap, noted or being noted, that the copy behind may not have noted.
    fn is_untold(&self, key: (TargetId, ObjectId)) -> bool {
        let told = self.told.get(&key);
        let is_told =
            |set: &RangeSet| told.is_some_and(|told| set.iter().all(|range| told.covers(&range)));
        let lacking = self.table.get(key.0, key.1);
        self.untold_notes.contains_key(&key) || lacking.is_some_and(|(_, set)| !is_told(set))
    }

    /// Ends the count of an untold note, which is in the table now or has failed.
    pub(super) fn untold_is_noted(&mut self, key: (TargetId, ObjectId)) {
        if let Some(count) = self.untold_notes.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.untold_notes.remove(&key);
            }
        }
    }
}
