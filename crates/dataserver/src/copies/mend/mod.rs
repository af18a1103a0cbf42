//! Repairs bytes that have rotted in the copy here from another copy; without one, or where that has
//! rotted too, or is away, from its set ([`of_set`]).
//!
//! Blocks are replaced in place. The copy that orders changes sends them again to another copy, or
//! fetches its own from a copy that has all changes. Both happen under the lock of the range, so
//! that no change comes in between. An object with a damaged header is not trusted at all: it is
//! noted as lacking everything, removed, and sent again like any gap. Only the ordering copy, and
//! one that was open before, get their header back ([`header`]).
//!
//! Invariants
//! - Nothing is removed, and no gap noted, unless another copy says that it has all of the object.
//! - All written bytes were verified by the sender and again here.
//! - From a copy that lacks changes only bytes are taken that match the checksum stored here. A
//!   copy for which more is noted than it lacks is told so first.

mod count;
mod header;
mod of_set;
pub(crate) mod repair;

use super::push::{Push, column_of};
use crate::disk::Disk;
use crate::machine::change::{Asked, Change, copy_of, others};
use crate::machine::{Outcome, RepairWork, Work};
use crate::peers::pull::Pull;
use crate::standing::roles::not_current;
use crate::state::Shared;
use crate::state::suspects::Suspect;
use std::ops::Range;
use std::sync::Arc;
use weir_store::{ELSEWHERE, Object, ReadMode};
use weir_types::checksum::crc32c;
use weir_types::limits::{BLOCK_BYTES, MAX_FILE_BYTES, MAX_REPAIR_BYTES};
use weir_types::{CopyIndex, Error, ErrorKind, Generation, ObjectId, Result, TargetId};
use weir_wire::data::{Access, CopyAccess, RepairRequest};
use weir_wire::peer::{Copies as Column, FindCopiesRequest};

/// Timeout of the metadata server's reply, milliseconds.
const FIND_MS: u64 = 4_000;
/// Timeout of a repair by the ordering copy, milliseconds.
const REPAIR_MS: u64 = 10_000;

/// Result of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mend {
    /// There is no other copy nor set, or no file has the object any more.
    Alone,
    /// Nothing was damaged.
    Sound,
    /// This many blocks were repaired.
    Blocks(u64),
    /// The header was repaired.
    Header,
    /// The object will be sent again.
    Anew,
}

/// The repair of one object whose copy here is damaged.
pub(crate) struct Mender<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) disk: &'a Disk,
    pub(crate) object: ObjectId,
}

impl Mender<'_> {
    pub(super) fn own(&self) -> TargetId {
        self.disk.served.id
    }

    /// Finds the damage, and repairs it.
    ///
    /// # Errors
    /// `Corrupt` if no other copy can help; otherwise the reason why a repair is impossible now.
    pub(crate) fn mend(&self, suspect: &Suspect) -> Result<Mend> {
        let Some(column) = self.find()? else { return Ok(Mend::Alone) };
        let object = match self.disk.store.object(self.object) {
            Ok(None) => return Ok(Mend::Sound),
            Ok(Some(object)) => object,
            Err(error) if error.kind == ErrorKind::Corrupt && self.is_alone(&column) => {
                return self.header_of_set(&column);
            }
            Err(error) if error.kind == ErrorKind::Corrupt => return self.anew(&column),
            Err(error) => return Err(error),
        };
        match suspect {
            Suspect::Header => match object.check() {
                Ok(()) => Ok(Mend::Sound),
                // It was sound when it was opened.
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    object.rewrite_header().map(|()| Mend::Header)
                }
                Err(error) => Err(error),
            },
            Suspect::Bytes(range) if self.is_alone(&column) => {
                self.blocks_of_set(&column, &object, range)
            }
            Suspect::Bytes(range) => match self.blocks(&column, &object, range) {
                // The other copy has rotted there, too, or is away.
                Err(error)
                    if column.parities > 0
                        && matches!(error.kind, ErrorKind::Corrupt | ErrorKind::NotCurrent) =>
                {
                    self.blocks_of_set(&column, &object, range)
                }
                mended => mended,
            },
        }
    }

    /// Whether the column has no other whole copy.
    fn is_alone(&self, column: &Column) -> bool {
        let is_other = |copy: &CopyAccess| {
            !copy.filling && ![self.own(), TargetId::NONE].contains(&copy.target)
        };
        !column.copies.iter().any(is_other)
    }

    /// The column, if it has other copies or is one of a set.
    pub(super) fn find(&self) -> Result<Option<Column>> {
        let lines = &self.shared.copies.lines;
        let request = FindCopiesRequest { objects: vec![self.object] };
        let mut found = lines.peers().ask_metadata(&request, &lines.wait(FIND_MS))?;
        let helps = |column: &Column| column.parities > 0 || !self.is_alone(column);
        let column = found.pop().flatten().filter(helps);
        // It may have been taken away from here.
        let here = usize::from(self.object.copy.0);
        let is_here =
            |column: &Column| column.copies.get(here).is_some_and(|copy| copy.target == self.own());
        Ok(column.filter(is_here))
    }

    fn blocks(&self, column: &Column, object: &Arc<Object>, range: &Range<u64>) -> Result<Mend> {
        let found = object.damaged(range);
        let mut result = Ok(());
        for part in together(&found) {
            match self.part(column, object, &part) {
                Ok(()) => {}
                // Others may have one of them and not the other.
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    for block in object.damaged(&part) {
                        result = result.and(self.part(column, object, &block));
                    }
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let done = (found.len() - object.damaged(range).len().min(found.len())) as u64;
        match (result, done) {
            (Ok(()), 0) => Ok(Mend::Sound),
            (Ok(()), done) => Ok(Mend::Blocks(done)),
            (Err(error), 0) => Err(error),
            (Err(error), done) => {
                self.count(&Suspect::Bytes(range.clone()), &Ok(Mend::Blocks(done)));
                Err(error)
            }
        }
    }

    /// Replaces consecutive blocks.
    fn part(&self, column: &Column, object: &Arc<Object>, range: &Range<u64>) -> Result<()> {
        let standings = &self.shared.copies.standings;
        match standings.who_orders(&column.copies) {
            Some(orders) if orders == self.own() => match self.fetch(column, range, None) {
                Err(error) if !self.fetch_proven(column, object, range)? => {
                    match error.kind == ErrorKind::Corrupt && self.is_there(column, range)? {
                        true => self.fetch(column, range, None)?,
                        false => return Err(error),
                    }
                }
                _ => {}
            },
            Some(orders) => self.ask_for(column, orders, range)?,
            None => return Err(not_current(self.own(), "no copy is known to be online")),
        }
        match object.damaged(range).first() {
            None => Ok(()),
            Some(block) => {
                let what = format!("block at offset {} is still damaged", block.start);
                Err(Error::new(ErrorKind::Corrupt, what).at(block.start))
            }
        }
    }

    /// Asks the ordering copy to send blocks again.
    fn ask_for(&self, column: &Column, orders: TargetId, range: &Range<u64>) -> Result<()> {
        let lines = &self.shared.copies.lines;
        let wait = lines.wait(REPAIR_MS);
        let access = self.access(column, orders)?;
        let (copy, Range { start, end }) = (self.object.copy, range.clone());
        let request = RepairRequest { access, copy, start, end };
        lines.take(orders, &wait)?.ask(&wait, (&[], &[]), |parcel| parcel.send(&request))
    }

    /// Fetches blocks from a copy that has all changes, because this copy orders. `but` is
    /// excluded, because it has damage of its own there.
    pub(super) fn fetch(
        &self,
        column: &Column,
        range: &Range<u64>,
        but: Option<CopyIndex>,
    ) -> Result<()> {
        let copies = &self.shared.copies;
        let _lock = copies.locks.lock(self.own(), self.object, range.clone());
        let mut failure = Error::new(ErrorKind::Corrupt, "no other copy can replace it");
        for target in self.current(column, range, but)? {
            let access = self.access(column, target)?;
            match self.fetch_from(column, access, range) {
                Ok(()) => return Ok(()),
                Err(error) => failure = cannot(error.context(format!("target {target}"))),
            }
        }
        Err(failure)
    }

    /// Other copies that have all changes of a range, when this copy orders.
    ///
    /// # Errors
    /// `NotCurrent` if this copy does not order, or if a copy that may have them is away or not
    /// known to be current yet; `Corrupt`: all others are online, and lack them.
    pub(super) fn current(
        &self,
        column: &Column,
        range: &Range<u64>,
        but: Option<CopyIndex>,
    ) -> Result<Vec<TargetId>> {
        let orders = self.shared.copies.standings.orders(self.own(), &column.copies)?;
        let gaps = self.disk.store.gaps();
        let (mut now, mut later, mut behind) = (Vec::new(), None, None);
        for (at, target) in others(&column.copies, self.own(), &[]) {
            if but == Some(CopyIndex(at as u8)) || column.copies[at].filling {
                continue;
            }
            let away = orders.lacking.contains(&target) || orders.dispensable.contains(&target);
            match (gaps.lacks(self.object, target, range), away) {
                (true, _) => behind = Some(target),
                (false, true) => later = Some(target),
                (false, false) => now.push(target),
            }
        }
        match (now.is_empty(), later, behind) {
            (true, Some(target), _) => Err(not_current(target, "it is not up to date yet")),
            (true, None, Some(target)) => {
                let what = format!("the copy on target {target} lacks its last changes");
                Err(Error::new(ErrorKind::Corrupt, what))
            }
            _ => Ok(now),
        }
    }

    /// Fetches bytes from copies that are not current, because this copy orders and no other is
    /// current. Only bytes are taken that match the checksums stored here, so that they did not
    /// change since. Returns whether that is all of the range.
    ///
    /// # Errors
    /// `NotCurrent` if this copy does not order any more; otherwise the failure to write.
    fn fetch_proven(&self, column: &Column, object: &Object, range: &Range<u64>) -> Result<bool> {
        let standings = &self.shared.copies.standings;
        let _lock = self.shared.copies.locks.lock(self.own(), self.object, range.clone());
        let orders = standings.orders(self.own(), &column.copies)?;
        for (_, target) in others(&column.copies, self.own(), &orders.lacking) {
            for block in object.damaged(range) {
                let mut bytes = vec![0; (block.end - block.start) as usize];
                let access = Access { copies: Vec::new(), ..self.access(column, target)? };
                let mut pull = Pull::as_is(self.shared.copies.lines.peers(), &access);
                // What it does not have is zeros.
                if pull.read(block.start, &mut bytes, &mut Vec::new(), true).is_err() {
                    continue;
                }
                pull.end();
                if object.vouches_for(block.start, &bytes)? {
                    self.put(column, object, block.start, &bytes, &[crc32c(&bytes)])?;
                }
            }
        }
        Ok(object.damaged(range).is_empty())
    }

    /// Tells other copies that have received all of a postponed range that they lack nothing of it,
    /// so that they are current there. Whole parts around postponed changes are noted as lacking.
    /// Returns whether there are such copies. (If a block was cut after it has rotted, no checksum
    /// remains that could prove the others' bytes.)
    ///
    /// # Errors
    /// `NotCurrent` if this copy does not order any more, or if such a copy cannot be told now.
    fn is_there(&self, column: &Column, range: &Range<u64>) -> Result<bool> {
        let Self { shared, disk, object } = *self;
        let orders = shared.copies.standings.orders(self.own(), &column.copies)?;
        let away: Vec<TargetId> =
            orders.lacking.iter().chain(&orders.dispensable).copied().collect();
        let mut is_there = Ok(false);
        for (to, _) in others(&column.copies, self.own(), &away) {
            if column.copies[to].filling {
                continue;
            }
            let push = Push { shared, disk, object, column, to, pace: &|_| Ok(()) };
            match push.has_got(range) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => is_there = Err(cannot(error)),
            }
        }
        is_there
    }

    /// Writes the fetched bytes.
    fn put(
        &self,
        column: &Column,
        object: &Object,
        start: u64,
        bytes: &[u8],
        checks: &[u32],
    ) -> Result<()> {
        let standings = &self.shared.copies.standings;
        let may = || standings.orders(self.own(), &column.copies).map(|orders| orders.epoch);
        self.shared.copies.turns.apply(self.own(), may, || {
            let pieces = [(start, bytes.len() as u64)];
            object.write_pieces(&pieces, bytes, checks, object.generation()).map(drop)
        })
    }

    fn fetch_from(&self, column: &Column, access: Access, range: &Range<u64>) -> Result<()> {
        let Some(object) = self.disk.store.object(self.object)? else { return Ok(()) };
        // It may have been cut since.
        let len = object.len().min(range.end).saturating_sub(range.start) as usize;
        if len == 0 {
            return Ok(());
        }
        let (mut bytes, mut checks) = (vec![0; len], Vec::new());
        let mut pull = Pull::new(self.shared.copies.lines.peers(), &access);
        let got = pull.read(range.start, &mut bytes, &mut checks, true)?;
        pull.end();
        let sums = |bytes: &[u8]| bytes.chunks(BLOCK_BYTES).map(crc32c).collect::<Vec<u32>>();
        if sums(&bytes[..got]) != checks {
            return Err(ErrorKind::ChecksumMismatch.into());
        }
        // What it does not have is zeros: this one is longer by what follows.
        bytes[got..].fill(0);
        let checks = if got == len { checks } else { sums(&bytes) };
        self.put(column, &object, range.start, &bytes, &checks)
    }

    /// Removes an object that cannot be opened, so that it is sent again.
    fn anew(&self, column: &Column) -> Result<Mend> {
        let (own, copies) = (self.own(), &self.shared.copies);
        match copies.standings.who_orders(&column.copies) {
            // While it is brought anew another would have to order.
            Some(orders) if orders == own => self.restore_header(column),
            Some(orders) => {
                copies.standings.follows(
                    own,
                    (orders, copies.standings.acting()),
                    &[],
                    &column.copies,
                )?;
                self.has_all(column, orders)?;
                self.discard()
            }
            None => Err(not_current(own, "no copy is known to be online")),
        }
    }

    /// Checks that another copy has all of the object, from end to end.
    fn has_all(&self, column: &Column, target: TargetId) -> Result<()> {
        let access = self.access(column, target)?;
        let mut pull = Pull::new(self.shared.copies.lines.peers(), &access);
        pull.seek(0, false)?;
        pull.end();
        Ok(())
    }

    fn discard(&self) -> Result<Mend> {
        let store = &self.disk.store;
        store.gaps().note(self.object, ELSEWHERE, self.object.copy, &(0..MAX_FILE_BYTES))?;
        match store.discard(self.object) {
            // Somebody was faster.
            Err(error) if error.kind == ErrorKind::Exists => Ok(Mend::Anew),
            other => other.map(|()| Mend::Anew),
        }
    }

    pub(super) fn access(&self, column: &Column, target: TargetId) -> Result<Access> {
        let at = column.copies.iter().position(|copy| copy.target == target);
        let at = at.ok_or(ErrorKind::TargetMissing)?;
        Ok(Access {
            target,
            object: copy_of(self.object, at),
            generation: Generation(u64::MAX),
            capability: column.capability.clone(),
            mac: column.copies[at].mac,
            copies: column.copies.clone(),
            relay: None,
        })
    }
}

/// The reason why another copy cannot help: it has rotted too, or may be able to later.
pub(super) fn cannot(error: Error) -> Error {
    match error.kind {
        ErrorKind::Corrupt | ErrorKind::ChecksumMismatch => {
            Error { kind: ErrorKind::Corrupt, ..error }
        }
        _ => Error { kind: ErrorKind::NotCurrent, ..error },
    }
}

/// Merges consecutive blocks, up to the size of one replacement.
pub(super) fn together(blocks: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut parts: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        match parts.last_mut() {
            Some(last)
                if last.end == block.start
                    && block.start / MAX_REPAIR_BYTES == last.start / MAX_REPAIR_BYTES =>
            {
                last.end = block.end;
            }
            _ => parts.push(block.clone()),
        }
    }
    parts
}

/// Sends blocks again to another copy that has found them damaged, because this copy orders.
pub(super) fn serve_repair(shared: &Shared, disk: &Disk, work: &RepairWork) -> Result<Outcome> {
    let access = &work.access;
    let column = column_of(access);
    let (object, to) = (access.object, usize::from(work.copy.0));
    let push = Push { shared, disk, object, column: &column, to, pace: &|_| Ok(()) };
    let range = work.bytes.0..work.bytes.1;
    let sent = push.again(range.clone());
    match sent {
        // Here too: a third one may have it.
        Err(error) if error.kind == ErrorKind::Corrupt => {
            let mender = Mender { shared, disk, object };
            let Some(here) = disk.store.object(object)? else { return Err(error) };
            for block in here.damaged(&range) {
                mender.fetch(&column, &block, Some(work.copy))?;
            }
            push.again(range)?;
        }
        other => other?,
    }
    Ok(Outcome::Repaired)
}

/// Repairs a damaged block, or an object that cannot be opened, before a change of it is ordered.
/// If that is impossible, nothing is changed anywhere.
///
/// # Errors
/// `Corrupt`; `NotCurrent` if the object is being sent here again.
pub(super) fn before_change(shared: &Shared, disk: &Disk, change: &Change) -> Result<()> {
    let object = change.access.object;
    let mend = |suspect| {
        // Whoever does not order leaves it to who does.
        shared.copies.standings.orders(disk.served.id, &change.access.copies)?;
        let mender = Mender { shared, disk, object };
        let mended = mender.mend(&suspect);
        mender.count(&suspect, &mended);
        mended
    };
    let opened = match disk.store.object(object) {
        Err(error) if error.kind == ErrorKind::Corrupt => match mend(Suspect::Header) {
            Ok(Mend::Anew) => return Err(not_current(disk.served.id, "it is brought anew")),
            Ok(Mend::Header) => disk.store.object(object)?,
            Err(other) if other.kind == ErrorKind::NotCurrent => return Err(other),
            _ => return Err(error),
        },
        other => other?,
    };
    let (Some(opened), Asked::Write { .. }, Work::Write { pieces, .. }) =
        (opened, &change.asked, &change.work)
    else {
        return Ok(());
    };
    // Each piece has two, and both may have rotted.
    for _ in 0..2 * pieces.len() {
        let Some(block) = opened.damaged_edge(pieces) else { break };
        match mend(Suspect::Bytes(block.clone())) {
            Err(error) if error.kind == ErrorKind::Corrupt => {
                return Err(unreadable(&opened, &block, error));
            }
            mended => drop(mended?),
        }
    }
    Ok(())
}

/// The error for a block that no other copy can replace: the disk itself may be failing.
fn unreadable(object: &Object, block: &Range<u64>, damaged: Error) -> Error {
    let pieces = [(block.start, block.end - block.start)];
    let mut bytes = vec![0; (block.end - block.start) as usize];
    match object.read_pieces(&pieces, &mut bytes, &mut Vec::new(), ReadMode::Locked) {
        Err(error) if error.kind == ErrorKind::Io => error,
        _ => damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_replaced_together_as_far_as_one_request_goes() {
        const B: u64 = BLOCK_BYTES as u64;
        let block = |n: u64| n * B..(n + 1) * B;
        let last = MAX_REPAIR_BYTES / B - 1;
        let blocks = [block(1), block(2), block(4), block(last), block(last + 1)];
        let parts = together(&blocks);
        assert_eq!(parts, [B..3 * B, block(4), block(last), block(last + 1)]);
        assert!(together(&[]).is_empty());
    }
}
