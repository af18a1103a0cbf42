//! Routes of changes along the chain. The ordering copy numbers them: whenever it goes on without a
//! copy that was sent a change and has not replied, its later changes take a new route. A change
//! still on the old route may arrive late, over newer bytes. A copy that has seen the new route
//! refuses it.
//!
//! Changes that come from the ordering copy itself arrive in time: see [`crate::peers::lines`].

use super::roles::not_current;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_host::plant::{Bug, planted};
use weir_host::sync::Mutex;
use weir_types::{Result, TargetId};

/// Number of low bits that grow. The high bits are a random number of the server's process.
const GROWS: u32 = 24;

/// The routes of a server; see the top of the file.
#[derive(Debug)]
pub(crate) struct Ways {
    /// Route of the changes that this server orders.
    own: AtomicU64,
    /// Newest route of each ordering target. Bounded by the targets on the map.
    seen: Mutex<BTreeMap<TargetId, u64>>,
}

impl Ways {
    /// `life` is random, so that this process is not taken for the one before.
    pub(crate) fn new(life: u64) -> Self {
        Self { own: AtomicU64::new(life << GROWS), seen: Mutex::default() }
    }

    /// The route of changes that are ordered now.
    pub(crate) fn now(&self) -> u64 {
        self.own.load(Ordering::Acquire)
    }

    /// Leaves the present route, because a change was sent on it without a reply.
    pub(crate) fn leave(&self) {
        self.own.fetch_add(1, Ordering::AcqRel);
    }

    /// Checks that `own` takes a change on this route that a target has ordered. `directly` says
    /// that it came from that target itself. Earlier orders of a target that was away are refused
    /// anyway, and a server that ended in good order has left nothing on its way.
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
            return Err(not_current(
                own,
                &format!("target {by} has changed to another route since"),
            ));
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
