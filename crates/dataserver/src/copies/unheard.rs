//! A target that has lost its gap log while no other copy of a column was online: no online copy
//! knows what it lacked and others had. All of the column counts as lacking, with the bytes known
//! to be elsewhere ([`ELSEWHERE`]), until the other copies have reported their notes ([`UNHEARD`]).
//! Gaps in their notes stay on both sides: those bytes may have been changed here since, and
//! nothing says which are newer. An administrator has to accept the bytes here.
//!
//! Invariants
//! - Until all others were heard no bytes of the object are sent to them, and none are taken from
//!   them.
//! - A gap is dropped only if all of them have said that there is none.

use super::resync::Resync;
use std::ops::Range;
use weir_store::{ELSEWHERE, Gap, Note, RangeSet, UNHEARD};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{ObjectId, Result, TargetId};
use weir_wire::data::CopyAccess;
use weir_wire::peer::Copies as Column;

/// All of an object.
const WHOLE: Range<u64> = 0..MAX_FILE_BYTES;

impl Resync {
    /// Gaps to note for an object whose gaps this target has lost.
    pub(super) fn suspect(&self, object: ObjectId, column: Option<&Column>) -> Vec<Note> {
        let standings = &self.shared.copies.standings;
        let note = |behind| Note { object, behind, copy: object.copy, bytes: WHOLE };
        let others: Vec<TargetId> =
            column.into_iter().flat_map(|column| self.others(column)).map(|(_, t)| t).collect();
        let knows = |target: &TargetId| standings.is_online(*target);
        let waits = column.is_some_and(|c| standings.comes_later(self.own(), &c.copies));
        match others.is_empty() || others.iter().any(knows) || waits {
            // Another copy has all that counts, and brings it.
            true => vec![note(self.own())],
            false => vec![note(ELSEWHERE), note(UNHEARD)],
        }
    }

    /// Whether it is unknown what this copy lacks.
    pub(super) fn is_unheard(&self, object: ObjectId) -> bool {
        self.disk.store.gaps().of(object, UNHEARD).is_some()
    }

    /// Asks the other copies for their notes. Returns whether to wait for that.
    pub(super) fn hear(&self, gap: &Gap, column: &Column, here: usize) -> Result<bool> {
        let (gaps, standings) = (self.disk.store.gaps(), &self.shared.copies.standings);
        if standings.who_orders(&column.copies).is_some_and(|orders| orders != self.own()) {
            gaps.note(gap.object, self.own(), gap.copy, &WHOLE)?;
            gaps.clear(gap.object, ELSEWHERE, &(0..u64::MAX))?;
            gaps.clear(gap.object, UNHEARD, &(0..u64::MAX))?;
            return Ok(true);
        }
        let others: Vec<(usize, TargetId)> = self.others(column).collect();
        if others.iter().any(|(_, target)| standings.is_away(*target)) {
            return Ok(false);
        }
        let mut noted = RangeSet::default();
        for (_, target) in &others {
            match standings.is_known(*target) {
                true => {
                    let own = (self.own(), here);
                    let said = self.note_there(*target, gap.object, own, column, &[WHOLE], true)?;
                    let lacking = said.refused.into_iter().chain(said.left);
                    lacking.for_each(|range| noted.insert(range));
                }
                // It has been removed, and what it knew with it.
                false => noted.insert(WHOLE),
            }
        }
        let lacking: Vec<Range<u64>> = noted.iter().collect();
        for (at, target) in others.iter().filter(|(_, target)| standings.is_known(*target)) {
            // Of these two nobody knows which is newer.
            let (mut left, behind) = (lacking.clone(), (*target, *at));
            while !left.is_empty() {
                left = self.note_there(*target, gap.object, behind, column, &left, false)?.left;
            }
        }
        let mut known = RangeSet::default();
        known.insert(0..u64::MAX);
        lacking.iter().for_each(|range| known.remove(range));
        for range in known.iter() {
            gaps.clear(gap.object, ELSEWHERE, &range)?;
        }
        gaps.clear(gap.object, UNHEARD, &(0..u64::MAX))?;
        if !lacking.is_empty() {
            tracing::error!(
                "{}: of object {} another copy had changes that this one lacked, and it is not known \
                 any more which: what is here is served when somebody accepts the loss \
                 (`weir accept-loss`)",
                self.disk.store.name(),
                gap.object
            );
        }
        Ok(false)
    }

    /// The other whole copies of a column, each with its position.
    fn others<'a>(&self, column: &'a Column) -> impl Iterator<Item = (usize, TargetId)> + use<'a> {
        let own = self.own();
        let is_other =
            move |copy: &CopyAccess| ![own, TargetId::NONE].contains(&copy.target) && !copy.filling;
        let copies = column.copies.iter().enumerate();
        copies.filter(move |(_, copy)| is_other(copy)).map(|(at, copy)| (at, copy.target))
    }
}
