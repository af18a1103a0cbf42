//! The remaining knowledge after a gap log is lost: files whose gaps are unknown, and objects for
//! which the other copies have not reported their notes yet ([`UNHEARD`]).
//!
//! Invariants
//! - What the other copies reported is durable here before they may forget it.
//! - In a held object, bytes that were changed here since do not become [`ELSEWHERE`] again.

use super::record::Record;
use super::table::ALL_FILES;
use super::{ELSEWHERE, Gaps, HELD, RangeSet, UNHEARD};
use std::ops::Range;
use std::sync::atomic::Ordering;
use weir_types::{CopyIndex, ObjectId, Result, TargetId};

impl Gaps {
    /// Whether this target does not know what its own copies lack, because its gap log was lost or
    /// its machine has lost new objects. All its copies of [`Gaps::lost_files`] have to be compared
    /// with others.
    pub fn lost(&self) -> bool {
        self.any.load(Ordering::Acquire) && !self.state.lock().table.lost().is_empty()
    }

    /// Whether this target does not know what copies on other targets lack: its gap log was lost.
    pub fn lost_others(&self) -> bool {
        self.any.load(Ordering::Acquire) && self.state.lock().table.lost().covers(&ALL_FILES)
    }

    /// Ranges of file ids whose copies on this target have to be compared.
    pub fn lost_files(&self) -> Vec<Range<u64>> {
        self.state.lock().table.lost().iter().collect()
    }

    /// Whether an object is of a file of [`Gaps::lost_files`].
    pub fn is_unknown(&self, object: ObjectId) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let file = object.file.0;
        self.state.lock().table.lost().touches(&(file..file.saturating_add(1)))
    }

    /// Ends the state of [`Gaps::lost`], after gaps were noted for everything that differs.
    /// Durable: later writes must not be noted as lacking again.
    pub fn found(&self) -> Result<()> {
        if self.lost() {
            let mut state = self.state.lock();
            state.batch.durable = true;
            self.submit(state, vec![Record::Found], false)
        } else {
            Ok(())
        }
    }

    /// Whether an object is held: see [`HELD`].
    pub fn is_held(&self, object: ObjectId) -> bool {
        self.of(object, UNHEARD).is_some_and(|noted| noted.covers(&HELD))
    }

    /// Holds an object for which the other copies have not reported yet: the bytes in doubt become
    /// [`ELSEWHERE`], exactly. Does nothing if the object is held. Durable.
    pub fn hold(&self, object: ObjectId, copy: CopyIndex) -> Result<()> {
        let own = self.identity.target;
        self.turn(object, copy, (own, ELSEWHERE), true)
    }

    /// Reverses [`Gaps::hold`]: the whole object is in doubt again. Durable.
    pub fn release(&self, object: ObjectId, copy: CopyIndex) -> Result<()> {
        let own = self.identity.target;
        self.turn(object, copy, (ELSEWHERE, own), false)
    }

    /// Moves an object's notes to another name, and records whether it is held. One call at a time.
    fn turn(
        &self,
        object: ObjectId,
        copy: CopyIndex,
        (from, to): (TargetId, TargetId),
        holds: bool,
    ) -> Result<()> {
        let mut state = self.state.lock();
        while state.turning {
            state = self.written.wait(state);
        }
        let noted = |behind| state.table.get(behind, object).map(|(_, set)| set.clone());
        let bytes: Vec<Range<u64>> = noted(from).iter().flat_map(RangeSet::iter).collect();
        let is_done = match noted(UNHEARD) {
            Some(unheard) if unheard.covers(&HELD) => holds,
            Some(_) => !holds && bytes.is_empty(),
            // The other copies have reported meanwhile.
            None => true,
        };
        if is_done {
            return Ok(());
        }
        let note = |behind, bytes| Record::Note { object, behind, copy, bytes };
        let clear = |behind, bytes| Record::Clear { object, behind, copy, bytes };
        let mut notes: Vec<Record> = bytes.iter().map(|range| note(to, range.clone())).collect();
        let mut clears: Vec<Record> =
            bytes.iter().map(|range| clear(from, range.clone())).collect();
        match holds {
            true => clears.push(note(UNHEARD, HELD)),
            false => notes.push(clear(UNHEARD, HELD)),
        }
        state.turning = true;
        state.batch.durable = true;
        // After a crash at any point, the notes exist under at least one of the names.
        let done = self.submit(state, notes, false).and_then(|()| {
            let mut state = self.state.lock();
            state.batch.durable = true;
            self.submit(state, clears, false)
        });
        self.state.lock().turning = false;
        self.written.notify_all();
        done
    }

    /// Records that the other copies have reported for an object. Durable: they may forget their
    /// notes.
    pub fn heard(&self, object: ObjectId) -> Result<()> {
        self.clear_durably(object, UNHEARD, &(0..u64::MAX))
    }

    /// Accepts the loss of bytes that this copy lacks and that only a lost copy had. From now on
    /// the bytes of this copy count. Durable.
    pub fn accept(&self, object: ObjectId, bytes: &Range<u64>) -> Result<()> {
        self.clear_durably(object, ELSEWHERE, bytes)
    }

    fn clear_durably(&self, object: ObjectId, behind: TargetId, bytes: &Range<u64>) -> Result<()> {
        let mut state = self.state.lock();
        let Some(&(copy, _)) = state.table.get(behind, object) else { return Ok(()) };
        state.batch.durable = true;
        let bytes = bytes.clone();
        self.submit(state, vec![Record::Clear { object, behind, copy, bytes }], false)
    }
}
