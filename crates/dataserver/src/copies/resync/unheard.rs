//! A target has lost its gap log, and with it what it knew that it lacked. The other copies are
//! asked what they had noted of it ([`UNHEARD`]).
//!
//! If another copy of a column is online, this one is in doubt about all of it, and is brought what
//! that one has. What that one lacks itself may be on a third copy which is not online, and this
//! one may have been told that it lacks it: so what it has does not count there until all others
//! have said that they had noted nothing of it.
//!
//! If none is online, nobody who is there knows what it lacked. All of the column counts as
//! lacking, known to be elsewhere ([`ELSEWHERE`]), until the others have said. What they noted
//! stays lacking, here and there: it may have been changed here since, and which of the two is
//! newer nobody knows. An administrator accepts what is here.
//!
//! If the object is gone too (a disk that was restored by half), nothing here can count: all of it stays
//! elsewhere, and is taken from another copy that has an object.
//!
//! Invariants
//! - Until all others were heard no bytes of the object are sent to them, and none are taken from
//!   them.
//! - What was written since all of it became elsewhere stays here ([`HELD`]).
//! - A gap is dropped only if all of them have said that there is none.
//! - A missing object never counts as an empty one while another copy has bytes.

use super::Resync;
use super::tell::Answers;
use crate::copies::lacking::{FIRST, WHOLE};
use crate::copies::mend::Mender;
use crate::peers::pull::Pull;
use std::ops::Range;
use weir_store::{ELSEWHERE, Gap, HELD, Note, RangeSet, UNHEARD};
use weir_types::{ErrorKind, ObjectId, Result, TargetId};
use weir_wire::data::{Access, CopyAccess};
use weir_wire::peer::Copies as Column;

impl Resync {
    /// Gaps to note for an object whose gaps this target has lost.
    pub(super) fn suspect(&self, object: ObjectId, column: Option<&Column>) -> Vec<Note> {
        let standings = &self.shared.copies.standings;
        let note = |behind| Note { object, behind, copy: object.copy, bytes: WHOLE };
        // Nothing is ordered here yet, and what others order notes it first: an object that is not
        // here now is gone, or was never written.
        let unheard = match self.disk.store.object(object) {
            Ok(None) => Note { bytes: FIRST, ..note(UNHEARD) },
            Ok(Some(_)) | Err(_) => note(UNHEARD),
        };
        // Whether there was one is known from before, and so is what was written since.
        if self.disk.store.gaps().of(object, UNHEARD).is_some() {
            return vec![note(self.own())];
        }
        let others: Vec<TargetId> =
            column.into_iter().flat_map(|column| self.others(column)).map(|(_, t)| t).collect();
        let knows = |target: &TargetId| standings.is_online(*target);
        let waits = column.is_some_and(|c| standings.comes_later(self.own(), &c.copies));
        match others.is_empty() || others.iter().any(knows) || waits {
            // Another copy brings what it has.
            true => vec![note(self.own()), unheard],
            false => vec![note(ELSEWHERE), unheard, Note { bytes: HELD, ..note(UNHEARD) }],
        }
    }

    /// Whether it is unknown what this copy lacks.
    pub(super) fn is_unheard(&self, object: ObjectId) -> bool {
        let gaps = self.disk.store.gaps();
        gaps.lost_others() || gaps.of(object, UNHEARD).is_some()
    }

    /// Asks the other copies for their notes. Returns whether to wait for that.
    pub(super) fn hear(&self, gap: &Gap, column: &Column, here: usize) -> Result<bool> {
        let (gaps, standings) = (self.disk.store.gaps(), &self.shared.copies.standings);
        let all = 0..u64::MAX;
        let in_doubt = gaps.of(gap.object, self.own()).is_some();
        // Not all of it any more, if whole blocks were written since. What it has come to be in doubt
        // about since stays so, and what is there counts then, unless it is elsewhere.
        let is_elsewhere = gaps.of(gap.object, ELSEWHERE).is_some();
        let is_held = gaps.is_held(gap.object);
        if !is_elsewhere && (is_held || !in_doubt) {
            // It has been brought all, or others have said what it lacks, or that was accepted.
            gaps.clear(gap.object, UNHEARD, &all)?;
            return Ok(false);
        }
        // Who went later has all that this one had, and is not to be told otherwise. (In this
        // order: it may order meanwhile.)
        let waits = standings.comes_later(self.own(), &column.copies);
        let orders = standings.who_orders(&column.copies);
        if orders.map_or(waits, |orders| orders != self.own()) {
            if is_held || !in_doubt {
                gaps.release(gap.object, gap.copy)?;
            }
            return Ok(true);
        }
        // It orders now, or is to: what it has does not count for that.
        gaps.hold(gap.object, gap.copy)?;
        let others: Vec<(usize, TargetId)> = self.others(column).collect();
        if others.iter().any(|(_, target)| standings.is_away(*target)) {
            return Ok(false);
        }
        if self.is_gone(gap.object, &others, column)? {
            gaps.heard(gap.object)?;
            tracing::error!(
                "{}: object {} is gone, and the gap log with it: what another copy has is taken, \
                 which may lack the last changes: compare that file with a backup",
                self.disk.store.name(),
                gap.object
            );
            return Ok(true);
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
        gaps.heard(gap.object)?;
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

    /// Of ranges that this copy is in doubt about, and the one that orders lacks, those of which no
    /// other had noted that this one lacks them; the rest is noted as elsewhere. `None`: not all
    /// others can be asked.
    pub(super) fn heard_of(
        &self,
        object: ObjectId,
        ranges: &[Range<u64>],
        column: &Column,
    ) -> Result<Option<Vec<Range<u64>>>> {
        let (gaps, standings) = (self.disk.store.gaps(), &self.shared.copies.standings);
        let others: Vec<(usize, TargetId)> = self.others(column).collect();
        if others.iter().any(|(_, target)| standings.is_away(*target)) {
            return Ok(None);
        }
        let (own, here) = (self.own(), usize::from(object.copy.0));
        let mut left = RangeSet::default();
        ranges.iter().for_each(|range| left.insert(range.clone()));
        let is_gone = self.is_gone(object, &others, column)?;
        for (_, target) in others {
            let said = match standings.is_known(target) && !is_gone {
                true => self.note_there(target, object, (own, here), column, ranges, true)?,
                // It has been removed, and what it knew with it; or nothing is here that could count.
                false => Answers { refused: ranges.to_vec(), left: Vec::new() },
            };
            for range in said.refused.iter().chain(&said.left) {
                gaps.note(object, ELSEWHERE, object.copy, range)?;
                gaps.clear(object, own, range)?;
                left.remove(range);
            }
        }
        if gaps.of(object, own).is_none() {
            gaps.heard(object)?;
        }
        Ok(Some(left.iter().collect()))
    }

    /// Whether there was no object here when the log was lost, while another copy has bytes.
    fn is_gone(
        &self,
        object: ObjectId,
        others: &[(usize, TargetId)],
        column: &Column,
    ) -> Result<bool> {
        let unheard = self.disk.store.gaps().of(object, UNHEARD);
        if unheard.is_none_or(|noted| noted.covers(&WHOLE) || !noted.touches(&FIRST)) {
            return Ok(false);
        }
        let (shared, standings) = (&*self.shared, &self.shared.copies.standings);
        let mender = Mender { shared, disk: &self.disk, object };
        for (_, target) in others.iter().filter(|(_, target)| standings.is_known(*target)) {
            // Without other copies: it need not be current to say what it has.
            let access = Access { copies: Vec::new(), ..mender.access(column, *target)? };
            let mut pull = Pull::new(shared.copies.lines.peers(), &access);
            match pull.stat() {
                Ok(stat) => {
                    pull.end();
                    if stat.len > 0 {
                        return Ok(true);
                    }
                }
                // One whose header is damaged is there.
                Err(error) if error.kind == ErrorKind::Corrupt => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// The other copies of a column that are whole, each with its place.
    fn others<'a>(&self, column: &'a Column) -> impl Iterator<Item = (usize, TargetId)> + use<'a> {
        let own = self.own();
        let is_other =
            move |copy: &CopyAccess| ![own, TargetId::NONE].contains(&copy.target) && !copy.filling;
        let copies = column.copies.iter().enumerate();
        copies.filter(move |(_, copy)| is_other(copy)).map(|(at, copy)| (at, copy.target))
    }
}
