//! Fetches bytes that the ordering copy lacks. A copy that certainly had them is away now, so they
//! are taken from a copy behind it which has them too. A postponed write may have reached one of
//! two others, or only one of them may have been told of its gap.
//!
//! Invariants
//! - No byte is taken from a copy that lacks it, by its own word or according to the notes here.
//! - Fetched bytes are durable before their gap is cleared. It is cleared only while this copy
//!   orders: a later ordering copy may note it again.

use super::Resync;
use crate::copies::mend::{Mender, cannot};
use crate::copies::push::STEP_BYTES;
use crate::peers::pull::Pull;
use crate::standing::roles::not_current;
use std::ops::Range;
use std::sync::Arc;
use weir_store::{ELSEWHERE, Gap, Object};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{Error, ErrorKind, Generation, ObjectId, Result};
use weir_wire::peer::Copies as Column;

/// Result of a step.
struct Step {
    /// Length of the other copy, bytes.
    got: u64,
    /// Whether the bytes may be the beginning of a hole.
    only_zeros: bool,
}

impl Resync {
    /// Fetches all that this copy lacks of an object.
    ///
    /// # Errors
    /// `NotCurrent`: no online copy has it.
    pub(super) fn take(&self, gap: &Gap, column: &Column) -> Result<()> {
        for range in gap.bytes.iter() {
            self.take_range(gap.object, column, range)?;
        }
        Ok(())
    }

    fn take_range(&self, id: ObjectId, column: &Column, range: Range<u64>) -> Result<()> {
        let (mut at, end) = (range.start, range.end.min(MAX_FILE_BYTES));
        while at < end {
            let next = (at - at % STEP_BYTES + STEP_BYTES).min(end);
            self.pacer.pace(next - at)?;
            let Step { got, only_zeros } = self.step(id, column, at..next)?;
            at += got;
            if at < next {
                self.tail(id, column, at..end)?;
                break;
            }
            if only_zeros {
                at = self.skip(id, column, at..end)?;
            }
        }
        if let Some(object) = self.disk.store.object(id)? {
            object.sync()?;
        }
        self.apply(column, || self.disk.store.gaps().clear(id, ELSEWHERE, &range))
    }

    /// Fetches a part.
    fn step(&self, id: ObjectId, column: &Column, range: Range<u64>) -> Result<Step> {
        let _lock = self.shared.copies.locks.lock(self.own(), id, range.clone());
        let (mut bytes, mut checks) = (vec![0; (range.end - range.start) as usize], Vec::new());
        let got = self.ask(id, column, &range, |pull| {
            checks.clear();
            pull.read(range.start, &mut bytes, &mut checks, true)
        })?;
        let only_zeros = bytes[..got].iter().all(|&byte| byte == 0);
        if only_zeros && got > 0 {
            self.clear(id, column, range.start..range.start + got as u64)?;
        } else if got > 0 {
            let pieces = [(range.start, got as u64)];
            let object = self.made(id)?;
            self.apply(column, || {
                object.write_pieces(&pieces, &bytes[..got], &checks, object.generation()).map(drop)
            })?;
        }
        Ok(Step { got: got as u64, only_zeros })
    }

    /// Takes over a hole of the other copy at once, in whole parts, and returns its end. If the
    /// other copy cannot tell where its holes are, they are found part by part.
    fn skip(&self, id: ObjectId, column: &Column, range: Range<u64>) -> Result<u64> {
        let look = |range: &Range<u64>| {
            let found = self.ask(id, column, range, |pull| {
                let data = pull.seek(range.start, false)?;
                Ok(data.unwrap_or(pull.stat()?.len))
            });
            let end = found.unwrap_or(0).min(range.end);
            (end - end % STEP_BYTES).max(range.start)
        };
        let end = look(&range);
        if end == range.start {
            return Ok(end);
        }
        let hole = range.start..end;
        let _lock = self.shared.copies.locks.lock(self.own(), id, hole.clone());
        // It may have been written to before that.
        let hole = hole.start..look(&hole);
        if !hole.is_empty() {
            self.clear(id, column, hole.clone())?;
        }
        Ok(hole.end)
    }

    /// Makes a range zeros here.
    fn clear(&self, id: ObjectId, column: &Column, range: Range<u64>) -> Result<()> {
        let object = self.made(id)?;
        self.apply(column, || {
            object.punch(range.start, range.end - range.start, object.generation())?;
            match object.len() < range.end {
                true => object.align(range.end, object.generation()).map(drop),
                false => Ok(()),
            }
        })
    }

    /// Handles the end of the other copy, which has no bytes from here on.
    fn tail(&self, id: ObjectId, column: &Column, range: Range<u64>) -> Result<()> {
        let _lock = self.shared.copies.locks.lock(self.own(), id, range.start..MAX_FILE_BYTES);
        // That of one that lacks nothing at all.
        let there = self.ask(id, column, &range, |pull| {
            pull.seek(0, false)?;
            pull.stat()
        })?;
        let here = self.disk.store.object(id)?;
        let (len, own) =
            here.as_ref().map_or((0, Generation(0)), |here| (here.len(), here.generation()));
        if there.len > range.start || len > range.end {
            return Err(Error::new(ErrorKind::Busy, "the other copy has changed meanwhile"));
        }
        // A fence is lacking as far as there can be bytes.
        let generation = if range.end < MAX_FILE_BYTES { own } else { there.generation };
        if (len, own) != (there.len, generation) {
            let object = self.made(id)?;
            self.apply(column, || object.align(there.len, generation).map(drop))?;
        }
        Ok(())
    }

    /// The object here, unless it was removed meanwhile.
    fn made(&self, id: ObjectId) -> Result<Arc<Object>> {
        self.shared.copies.removed.look(&self.disk, id)?;
        self.disk.store.object_or_create(id)
    }

    /// Asks other copies that have all of a range until one replies.
    fn ask<T>(
        &self,
        id: ObjectId,
        column: &Column,
        range: &Range<u64>,
        mut ask: impl FnMut(&mut Pull<'_>) -> Result<T>,
    ) -> Result<T> {
        let mender = Mender { shared: &self.shared, disk: &self.disk, object: id };
        let mut failure = not_current(self.own(), "no other copy has what it lacks");
        for target in mender.current(column, range, None)? {
            let access = mender.access(column, target)?;
            let mut pull = Pull::new(self.shared.copies.lines.peers(), &access);
            match ask(&mut pull) {
                Ok(answer) => {
                    pull.end();
                    return Ok(answer);
                }
                Err(error) => failure = cannot(error.context(format!("target {target}"))),
            }
        }
        Err(failure)
    }

    /// Applies a change here as long as this copy orders.
    fn apply(&self, column: &Column, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let copies = &self.shared.copies;
        let may = || copies.standings.orders(self.own(), &column.copies).map(|orders| orders.epoch);
        copies.turns.apply(self.own(), may, change)
    }
}
