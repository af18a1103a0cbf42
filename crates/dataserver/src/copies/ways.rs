//! The ways that changes take along the chain. Who orders numbers them: whenever it goes
//! on without a copy that was sent something and has not answered, its changes go another
//! way from then on. What is still on the old one may come late, over what is newer: whoever
//! has seen the new way refuses it.
//!
//! What comes from the one that orders itself comes in time: see [`super::lines`].

use super::roles::not_current;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_host::plant::{Bug, planted};
use weir_host::sync::Mutex;
use weir_types::{Result, TargetId};

/// The number of a way is that of a life of its server, at random, and behind that one that
/// grows, of so many bits.
const GROWS: u32 = 24;

/// See the top of the file.
#[derive(Debug)]
pub(crate) struct Ways {
    /// That of the changes that this server orders.
    own: AtomicU64,
    /// The newest of each that orders. Bounded by the targets on the map.
    seen: Mutex<BTreeMap<TargetId, u64>>,
}

impl Ways {
    /// `life`: random, so that nobody takes this process for the one before.
    pub(crate) fn new(life: u64) -> Self {
        Self { own: AtomicU64::new(life << GROWS), seen: Mutex::default() }
    }

    /// The way of changes that are ordered now.
    pub(crate) fn now(&self) -> u64 {
        self.own.load(Ordering::Acquire)
    }

    /// Something was sent on the present way, and nobody knows where it is.
    pub(crate) fn leave(&self) {
        self.own.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether `own` takes a change that came this way, ordered by that target. `directly`:
    /// from that one itself. Of what one that was away ordered before nothing is taken
    /// anyway, and one that ended in good order has left nothing on its way.
    ///
    /// # Errors
    /// `NotCurrent`.
    pub(crate) fn check(
        &self,
        own: TargetId,
        by: TargetId,
        way: u64,
        directly: bool,
    ) -> Result<()> {
        let mut seen = self.seen.lock();
        let newest = seen.entry(by).or_insert(way);
        if *newest >> GROWS != way >> GROWS {
            *newest = way;
        }
        if way < *newest && !directly && !planted(Bug::ApplyOldEpoch) {
            return Err(not_current(own, &format!("target {by} goes on another way since")));
        }
        *newest = way.max(*newest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_handed_on_is_refused_when_its_way_was_left() {
        let (own, x, y) = (TargetId(3), TargetId(1), TargetId(2));
        let (ways, sender) = (Ways::new(1), Ways::new(u64::MAX / 3));
        let old = sender.now();
        ways.check(own, x, old, false).unwrap();
        sender.leave();
        ways.check(own, x, sender.now(), true).unwrap();
        assert!(ways.check(own, x, old, false).is_err());
        ways.check(own, x, old, true).unwrap();
        assert!(ways.check(own, x, old, false).is_err(), "that was another change");
        ways.check(own, y, old, false).unwrap();
        // In its next life it begins anew.
        ways.check(own, x, Ways::new(5).now(), false).unwrap();
    }
}
