//! Who may serve what of files with several copies: pure.
//!
//! The first copy whose target is online is the *primary*: it orders changes and
//! hands them on to the others, the *followers*. Everybody works that out from the
//! map that the metadata server gives to data servers; a server without a lease
//! does nothing.
//!
//! Invariants
//! - No two copies order changes of one column at a time: who takes over from
//!   another does so when that has lost its lease, and who takes back its place
//!   waits until everybody acts under a map that says so.
//! - A follower takes changes only from who is primary under its own map.
//! - A copy is read only while its target is online.

use std::collections::BTreeMap;
use weir_types::{Epoch, Error, ErrorKind, Result, TargetId};
use weir_wire::map::{Standing, TargetState};

/// What a server knows of all targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Map {
    /// Of which epoch it is; 0: there is none yet.
    pub(crate) epoch: Epoch,
    /// Everybody acts under this epoch or a later one.
    pub(crate) in_effect: Epoch,
    pub(crate) targets: BTreeMap<TargetId, Standing>,
}

/// What the primary does about another copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follower {
    /// It takes the change.
    Takes,
    /// It is away, and will lack it.
    Lacks,
}

impl Map {
    fn state(&self, target: TargetId) -> TargetState {
        self.targets.get(&target).map_or(TargetState::Offline, |standing| standing.state)
    }

    fn primary(&self, copies: &[TargetId]) -> Option<TargetId> {
        copies.iter().copied().find(|copy| self.state(*copy) == TargetState::Online)
    }

    /// Whether a copy may be read.
    ///
    /// # Errors
    /// `NotCurrent`.
    pub(crate) fn may_read(&self, own: TargetId) -> Result<()> {
        match self.state(own) {
            TargetState::Online => Ok(()),
            TargetState::Syncing => Err(not_current(own, "it is being brought up to date")),
            _ => Err(not_current(own, "the metadata server has given it up, and is asked again")),
        }
    }

    /// What the primary does about each of the other copies, by position.
    ///
    /// # Errors
    /// `NotCurrent` if this one is not the primary, or not yet.
    pub(crate) fn orders(&self, own: TargetId, copies: &[TargetId]) -> Result<Vec<Follower>> {
        match self.primary(copies) {
            Some(primary) if primary != own => {
                return Err(not_current(own, &format!("target {primary} orders the changes now")));
            }
            Some(_) => {}
            None => return self.may_read(own).map(|()| Vec::new()),
        }
        let since = self.targets.get(&own).map_or(Epoch(u64::MAX), |standing| standing.since);
        if since > self.in_effect {
            return Err(not_current(own, "others may not know yet that it is back"));
        }
        let follower = |copy: &TargetId| match self.state(*copy) {
            TargetState::Online | TargetState::Syncing => Follower::Takes,
            TargetState::Offline | TargetState::OutOfService => Follower::Lacks,
        };
        Ok(copies.iter().map(follower).collect())
    }

    /// Whether a follower takes what that copy has ordered.
    ///
    /// # Errors
    /// `NotCurrent`.
    pub(crate) fn follows(
        &self,
        own: TargetId,
        ordered_by: TargetId,
        copies: &[TargetId],
    ) -> Result<()> {
        match self.primary(copies) {
            Some(primary) if primary == ordered_by => {}
            Some(primary) => {
                let what = format!("target {primary} orders the changes, not {ordered_by}");
                return Err(not_current(own, &what));
            }
            None => return Err(not_current(own, "no copy is known to be online")),
        }
        match self.state(own) {
            TargetState::Online | TargetState::Syncing => Ok(()),
            _ => Err(not_current(own, "the metadata server has given it up, and is asked again")),
        }
    }
}

pub(crate) fn not_current(own: TargetId, why: &str) -> Error {
    Error::new(ErrorKind::NotCurrent, format!("the copy on target {own}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use TargetState::{Offline, Online, OutOfService, Syncing};
    use proptest::prelude::*;

    const A: TargetId = TargetId(1);
    const B: TargetId = TargetId(2);
    const C: TargetId = TargetId(3);

    fn map(epoch: u64, in_effect: u64, states: &[(TargetId, TargetState, u64)]) -> Map {
        let standing = |(target, state, since): &(TargetId, TargetState, u64)| {
            (*target, Standing { target: *target, state: *state, since: Epoch(*since) })
        };
        let targets = states.iter().map(standing).collect();
        Map { epoch: Epoch(epoch), in_effect: Epoch(in_effect), targets }
    }

    #[test]
    fn the_first_copy_that_is_online_orders() {
        let all = map(5, 5, &[(A, Online, 1), (B, Online, 1), (C, Online, 1)]);
        assert_eq!(all.orders(A, &[A, B]).unwrap(), [Follower::Takes; 2]);
        assert_eq!(all.orders(B, &[A, B]).unwrap_err().kind, ErrorKind::NotCurrent);
        all.follows(B, A, &[A, B]).unwrap();
        assert!(all.follows(A, B, &[A, B]).is_err());
        let gone = map(6, 5, &[(A, Offline, 6), (B, Online, 1), (C, Syncing, 2)]);
        assert_eq!(
            gone.orders(B, &[A, B, C]).unwrap(),
            [Follower::Lacks, Follower::Takes, Follower::Takes]
        );
        assert!(gone.orders(A, &[A, B]).is_err());
        gone.follows(C, B, &[A, B, C]).unwrap();
        assert!(gone.may_read(C).is_err() && gone.may_read(A).is_err());
        gone.may_read(B).unwrap();
        let ill = map(6, 6, &[(A, OutOfService, 6), (B, Online, 1)]);
        assert_eq!(ill.orders(B, &[A, B]).unwrap()[0], Follower::Lacks);
    }

    #[test]
    fn who_is_back_orders_when_everybody_knows() {
        let states = [(A, Online, 9), (B, Online, 1)];
        assert!(map(9, 8, &states).orders(A, &[A, B]).is_err());
        assert!(map(9, 8, &states).orders(B, &[A, B]).is_err());
        map(9, 8, &states).may_read(A).unwrap();
        map(9, 9, &states).orders(A, &[A, B]).unwrap();
    }

    #[test]
    fn without_a_map_nothing_is_done() {
        let none = Map::default();
        assert!(none.may_read(A).is_err());
        assert!(none.orders(A, &[A, B]).is_err());
        assert!(none.follows(A, B, &[A, B]).is_err());
    }

    fn state() -> impl Strategy<Value = TargetState> {
        prop_oneof![Just(Online), Just(Offline), Just(OutOfService), Just(Syncing)]
    }

    proptest! {
        /// Two servers act under maps that may be of different epochs; one that is
        /// away in the newer has no lease. They never both order a column.
        #[test]
        fn never_do_two_order_at_a_time(
            history in prop::collection::vec((0usize..3, state()), 1..12),
            old_at in 0usize..12,
        ) {
            let ids = [A, B, C];
            let mut states = [(A, Online, 1), (B, Online, 1), (C, Online, 1)];
            let mut maps = vec![states];
            for (i, (which, state)) in history.into_iter().enumerate() {
                let (target, was, since) = states[which];
                if was == Online && state == Syncing {
                    // Nobody misses anything without having been away.
                    continue;
                }
                let sides = (was == Online) != (state == Online);
                states[which] = (target, state, if sides { i as u64 + 2 } else { since });
                maps.push(states);
            }
            let newest = maps.len() - 1;
            let old = old_at.min(newest);
            // The one with the old map holds that epoch back, if it has a lease.
            let of_old = map(old as u64 + 1, old as u64 + 1, &maps[old]);
            let of_new = map(newest as u64 + 1, old as u64 + 1, &maps[newest]);
            for first in ids {
                let lease = maps[old..].iter().all(|m| {
                    let (_, state, _) = m[ids.iter().position(|t| *t == first).unwrap()];
                    !matches!(state, Offline | OutOfService)
                });
                for second in ids.into_iter().filter(|t| *t != first) {
                    let both = of_old.orders(first, &ids).is_ok() && lease
                        && of_new.orders(second, &ids).is_ok();
                    prop_assert!(!both, "{first} under {old}, {second} under {newest}");
                }
            }
        }
    }
}
