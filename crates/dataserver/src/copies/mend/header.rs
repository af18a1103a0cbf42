//! Repair of the header of the ordering copy, which has rotted so that the object cannot be opened.
//! Its blocks have checksums of their own, and its file has a name. Only the header has the fence,
//! which decides which changes are too old. Another copy that has applied all fences has the same
//! one.
//!
//! Invariant: the restored fence is never lower than before, so that what was fenced off stays so.
//! It is never higher, so that a future truncation is not taken for one that was done.

use super::{Mend, Mender, cannot};
use crate::peers::pull::Pull;
use weir_layout::object_len;
use weir_types::limits::{MAX_FILE_BYTES, MAX_STRIPE_UNIT_BYTES};
use weir_types::{Error, ErrorKind, Generation, Result, StripeMap, TargetId};
use weir_wire::data::Access;
use weir_wire::peer::Copies as Column;

impl Mender<'_> {
    /// Restores the header of the object, while no copy is being changed.
    ///
    /// # Errors
    /// `NotCurrent`: not possible now; `Corrupt`: the fence is unknown, or the file may be another
    /// object.
    pub(super) fn restore_header(&self, column: &Column) -> Result<Mend> {
        let copies = &self.shared.copies;
        let _lock = copies.locks.lock(self.own(), self.object, 0..MAX_FILE_BYTES);
        let mut failure = Error::new(ErrorKind::Corrupt, "no other copy knows its fence");
        let last = self.last_byte();
        for target in self.current(column, &(last..last + 1), None)? {
            match self.fence_of(column, target, last) {
                Ok(generation) => {
                    let standings = &copies.standings;
                    let may =
                        || standings.orders(self.own(), &column.copies).map(|orders| orders.epoch);
                    let restore = || self.disk.store.restore_header(self.object, generation);
                    return copies.turns.apply(self.own(), may, restore).map(|()| Mend::Header);
                }
                Err(error) => failure = cannot(error.context(format!("target {target}"))),
            }
        }
        Err(failure)
    }

    /// The last byte that an object of the column can have. A copy that lacks a fence or a
    /// truncation lacks it too, since such gaps extend to the end.
    fn last_byte(&self) -> u64 {
        let column = self.object.column;
        let stripe = StripeMap { unit_bytes: MAX_STRIPE_UNIT_BYTES, columns: column.0 + 1 };
        object_len(stripe, column, MAX_FILE_BYTES) - 1
    }

    /// The fence of another copy that reports no gap at the last byte. Its other gaps do not
    /// matter.
    fn fence_of(&self, column: &Column, target: TargetId, last: u64) -> Result<Generation> {
        let access = self.access(column, target)?;
        let mut pull = Pull::new(self.shared.copies.lines.peers(), &access);
        pull.read(last, &mut [0], &mut Vec::new(), false)?;
        pull.end();
        let access = Access { copies: Vec::new(), ..access };
        let mut pull = Pull::new(self.shared.copies.lines.peers(), &access);
        let stat = pull.stat()?;
        pull.end();
        Ok(stat.generation)
    }
}
