//! What copies that lack something have noted themselves: those do not keep their target
//! from being online, since they do not serve what they lack.

use super::ranges::RangeSet;
use super::{Gaps, Note, State, gap_parts, parts_in};
use std::ops::Range;
use weir_types::{CopyIndex, ObjectId, Result, TargetId};

impl Gaps {
    /// As [`Gaps::note`], of a copy that has noted it too: it does not serve what it
    /// lacks. That it has is not remembered beyond a restart.
    pub fn note_told(
        &self,
        object: ObjectId,
        behind: TargetId,
        copy: CopyIndex,
        bytes: &Range<u64>,
    ) -> Result<()> {
        self.note_all_told(&[Note { object, behind, copy, bytes: bytes.clone() }])
    }

    /// As [`Gaps::note_told`], several with one sync.
    pub fn note_all_told(&self, notes: &[Note]) -> Result<()> {
        self.write_notes(notes, true)?;
        let mut state = self.state.lock();
        notes.iter().for_each(|note| state.tells((note.behind, note.object), &note.bytes));
        Ok(())
    }

    /// Notes what the copy that lacks it says itself. It counts as told unless something else
    /// is noted of that object, or being noted, of which that copy has not heard: it would be
    /// online without that.
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
        // From here on: a note of something else that begins meanwhile takes it back.
        let parts = gap_parts(bytes);
        let begun = state.begun.get(&key).is_some_and(|begun| begun.touches(&parts));
        state.tells(key, bytes);
        state.said.entry(key).or_default().insert(parts.clone());
        if begun && parts != *bytes {
            // Of the rest of its parts it has struck out what it has been sent.
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

    /// Whether a whole range is noted as lacking, here and by the copy that lacks it,
    /// and nothing of it has been sent there.
    pub fn is_told(&self, object: ObjectId, of: TargetId, range: &Range<u64>) -> bool {
        let (state, key) = (self.state.lock(), (of, object));
        state.table.get(of, object).is_some_and(|(_, set)| set.covers(range))
            && state.told.get(&key).is_some_and(|told| told.covers(range))
            && !state.begun.get(&key).is_some_and(|begun| begun.touches(range))
            && !state.sent.get(&key).is_some_and(|sent| sent.touches(range))
    }

    /// Targets that lack something and have not noted it themselves, each with the number of
    /// parts of 1 MiB that have not been sent to it; one at least as long as something of an
    /// object is not durable there.
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
    /// A copy has noted these bytes, and all of their parts, itself.
    pub(super) fn tells(&mut self, key: (TargetId, ObjectId), bytes: &Range<u64>) {
        let bytes = gap_parts(bytes);
        for of_told in [&mut self.begun, &mut self.said] {
            if let Some(parts) = of_told.get_mut(&key) {
                parts.remove(&bytes);
            }
        }
        self.told.entry(key).or_default().insert_if_room(bytes);
    }

    /// Whether anything is noted as lacking, or being noted, that the copy which lacks it may
    /// not have noted.
    fn is_untold(&self, key: (TargetId, ObjectId)) -> bool {
        let told = self.told.get(&key);
        let is_told =
            |set: &RangeSet| told.is_some_and(|told| set.iter().all(|range| told.covers(&range)));
        let lacking = self.table.get(key.0, key.1);
        self.untold_notes.contains_key(&key) || lacking.is_some_and(|(_, set)| !is_told(set))
    }

    /// One that is not told is in the table, or has failed.
    pub(super) fn untold_is_noted(&mut self, key: (TargetId, ObjectId)) {
        if let Some(count) = self.untold_notes.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.untold_notes.remove(&key);
            }
        }
    }
}
