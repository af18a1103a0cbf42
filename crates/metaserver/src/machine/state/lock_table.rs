//! Locks of programs, and requests that wait for them.

use crate::locks::{Locks, WaitId};
use crate::machine::answer::ParkedTicket;
use std::collections::BTreeMap;

/// Locks, and requests that wait for them.
#[derive(Debug, Default)]
pub struct LockTable {
    pub locks: Locks,
    /// Each with the time when its client is told to ask again.
    pub parked: BTreeMap<WaitId, (ParkedTicket, u64)>,
}

impl LockTable {
    /// Names and values for status messages.
    pub fn list(&self) -> Vec<(String, u64)> {
        let (held, waiting) = self.locks.totals();
        vec![("locks.held".into(), held as u64), ("locks.waiting".into(), waiting as u64)]
    }
}
