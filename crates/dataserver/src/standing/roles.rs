//! The rules of who may serve what of files with several copies. Pure.
//!
//! The first copy whose target is online is the *primary*: it orders changes and passes them on to
//! the others, the *followers*. Each server derives that from the map that the metadata server
//! gives to data servers. A server without a lease does nothing.
//!
//! Invariants
//! - No two copies order changes of one column at a time. A copy takes over from another after that
//!   has lost its lease. A copy that takes back its place waits until all servers act under a map
//!   that says so.
//! - A follower takes changes only from the primary of its own map.
//! - A copy is read only while its target is online, and all servers know that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use weir_host::plant::{Bug, planted};
use weir_types::{Epoch, Error, ErrorKind, Result, TargetId};
use weir_wire::data::CopyAccess;
use weir_wire::map::{Standing, TargetState};

/// State of all targets, as a server knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Map {
    /// Its epoch; 0 if there is no map yet.
    pub(crate) epoch: Epoch,
    /// All servers act under this epoch or a later one.
    pub(crate) in_effect: Epoch,
    pub(crate) targets: BTreeMap<TargetId, Standing>,
    /// For targets that were away and are online now: since when they were away, taking changes.
    pub(crate) left: BTreeMap<TargetId, Epoch>,
    /// Own targets whose disks hang. None of their columns with several copies is served any more,
    /// as if the server had been killed. They come back after the server's restart.
    pub(crate) given_up: BTreeSet<TargetId>,
}

/// Later than any possible epoch.
const LATEST: Epoch = Epoch(u64::MAX);

/// The primary's plan for the other copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// Epoch of the plan.
    pub(crate) epoch: Epoch,
    /// Targets that are away, and will lack the change.
    pub(crate) lacking: Vec<TargetId>,
    /// Targets that take changes without being read. If they are unreachable they lack the change.
    pub(crate) dispensable: Vec<TargetId>,
}

impl Map {
    /// The map after this one. It remembers since when targets were away that have just come back.
    pub(crate) fn next(
        &self,
        epoch: Epoch,
        in_effect: Epoch,
        targets: BTreeMap<TargetId, Standing>,
    ) -> Self {
        let left = |(target, now): (&TargetId, &Standing)| {
            let before = self.targets.get(target)?;
            let left = match before.state {
                TargetState::Syncing => Some(before.since),
                _ if before.since == now.since => self.left.get(target).copied(),
                _ => None,
            };
            left.filter(|_| now.state.is_online()).map(|left| (*target, left))
        };
        let left = targets.iter().filter_map(left).collect();
        Self { epoch, in_effect, targets, left, given_up: self.given_up.clone() }
    }

    /// # Errors
    /// `NotCurrent` if a target of this server was given up.
    pub(crate) fn is_kept(&self, own: TargetId) -> Result<()> {
        match self.given_up.contains(&own) {
            true => Err(not_current(own, "its disk hangs, and its server has given it up")),
            false => Ok(()),
        }
    }

    fn state(&self, target: TargetId) -> TargetState {
        self.targets.get(&target).map_or(TargetState::Offline, |standing| standing.state)
    }

    /// Whether all servers act under a map with the present state of a target.
    pub(crate) fn is_settled(&self, target: TargetId) -> bool {
        self.targets.get(&target).is_some_and(|standing| standing.since <= self.in_effect)
    }

    /// Whether all servers know that a target is back.
    fn is_known(&self, own: TargetId) -> bool {
        self.is_settled(own) || planted(Bug::RegrantBeforeReconcile)
    }

    fn primary(&self, copies: &[CopyAccess]) -> Option<TargetId> {
        self.primary_under(LATEST, copies)
    }

    fn primary_under(&self, under: Epoch, copies: &[CopyAccess]) -> Option<TargetId> {
        let online =
            |copy: &&CopyAccess| !copy.filling && self.state_under(under, copy.target).is_online();
        copies.iter().find(online).map(|copy| copy.target)
    }

    /// State of a target for a change that was ordered under an earlier epoch. A target that has
    /// come back since keeps its old state until all servers know that it is back: no server relies
    /// on its presence before.
    fn state_under(&self, under: Epoch, target: TargetId) -> TargetState {
        match self.state(target) {
            state if state.is_online() && self.has_come_since(under, target) => {
                TargetState::Syncing
            }
            state => state,
        }
    }

    fn has_come_since(&self, under: Epoch, target: TargetId) -> bool {
        let since = self.targets.get(&target).map(|standing| standing.since);
        since.is_some_and(|since| since > under && since > self.in_effect)
    }

    /// Whether a target is online, according to this map. Other servers may not know it yet.
    pub(crate) fn is_online(&self, target: TargetId) -> bool {
        self.state(target).is_online()
    }

    /// Checks that a copy may be read.
    ///
    /// # Errors
    /// `NotCurrent`.
    pub(crate) fn may_read(&self, own: TargetId) -> Result<()> {
        match self.state(own) {
            // Until then others may take changes without it.
            TargetState::Online | TargetState::Suspect if !self.is_known(own) => {
                Err(not_current(own, "others may not know yet that it is back"))
            }
            TargetState::Online | TargetState::Suspect => Ok(()),
            TargetState::Syncing => Err(not_current(own, "it is being brought up to date")),
            _ => Err(not_current(own, "the metadata server has given it up, and is asked again")),
        }
    }

    /// The primary's plan for the other copies.
    ///
    /// # Errors
    /// `NotCurrent` if this copy is not the primary, or not yet.
    pub(crate) fn orders(&self, own: TargetId, copies: &[CopyAccess]) -> Result<Orders> {
        self.orders_under(LATEST, own, copies).map(|orders| Orders { epoch: self.epoch, ..orders })
    }

    /// The primary's plan for a change that it began under an earlier epoch. It may end the change
    /// under that epoch, because no other copy orders before it has ended.
    ///
    /// # Errors
    /// `NotCurrent` if it has lost its place for another reason than a copy that has come back
    /// since.
    pub(crate) fn orders_under(
        &self,
        under: Epoch,
        own: TargetId,
        copies: &[CopyAccess],
    ) -> Result<Orders> {
        match self.primary_under(under, copies) {
            Some(primary) if primary == own => {}
            Some(primary) => {
                return Err(not_current(own, &format!("target {primary} orders the changes now")));
            }
            None => return Err(not_current(own, "no copy is known to be online")),
        }
        if !self.is_known(own) {
            return Err(not_current(own, "others may not know yet that it is back"));
        }
        let came_back =
            |target| self.state(target).is_online() && self.has_come_since(under, target);
        // Those before it that have just lost their place may not know it.
        let mut before = copies.iter().take_while(|copy| copy.target != own);
        let may_order = |copy: &CopyAccess| {
            !copy.filling
                && copy.target != TargetId::NONE
                && self.state(copy.target) != TargetState::Offline
                && !self.is_settled(copy.target)
                && !came_back(copy.target)
        };
        if before.any(may_order) {
            return Err(not_current(own, "the copy before it may not know yet that it is not"));
        }
        let mut orders = Orders { epoch: under, ..Orders::default() };
        for copy in copies.iter().filter(|copy| ![own, TargetId::NONE].contains(&copy.target)) {
            // One that still takes itself for online must have every change.
            let settled = self.is_settled(copy.target);
            match self.state(copy.target) {
                TargetState::Offline => orders.lacking.push(copy.target),
                TargetState::OutOfService if settled => orders.lacking.push(copy.target),
                TargetState::Syncing if settled => orders.dispensable.push(copy.target),
                _ if came_back(copy.target) => orders.dispensable.push(copy.target),
                _ if copy.filling => orders.dispensable.push(copy.target),
                _ => {}
            }
        }
        Ok(orders)
    }

    /// Checks that a follower takes what that copy has ordered under that epoch.
    ///
    /// # Errors
    /// `NotCurrent`.
    pub(crate) fn follows(
        &self,
        own: TargetId,
        (ordered_by, under): (TargetId, Epoch),
        copies: &[CopyAccess],
    ) -> Result<()> {
        match self.primary_under(under, copies) {
            Some(primary) if primary == ordered_by => {}
            Some(primary) => {
                let what = format!("target {primary} orders the changes, not {ordered_by}");
                return Err(not_current(own, &what));
            }
            None => return Err(not_current(own, "no copy is known to be online")),
        }
        // Others may have ordered since.
        let since = self.targets.get(&ordered_by).map(|standing| standing.since);
        if since.is_some_and(|since| under < since) && !planted(Bug::ApplyOldEpoch) {
            return Err(has_been_away(own, ordered_by));
        }
        // What this one missed, and more, has been brought.
        self.took_changes(own, under, own)?;
        match self.state(own) {
            TargetState::Online | TargetState::Suspect | TargetState::Syncing => Ok(()),
            _ => Err(not_current(own, "the metadata server has given it up, and is asked again")),
        }
    }

    /// Checks that `own` takes a change that the targets `by` have passed on. The ordering copy may
    /// have gone on without one of them meanwhile, with newer changes.
    ///
    /// # Errors
    /// `NotCurrent`.
    pub(crate) fn passed_on(&self, own: TargetId, under: Epoch, by: &[TargetId]) -> Result<()> {
        by.iter().try_for_each(|target| self.took_changes(own, under, *target))
    }

    /// Checks that a target has taken all changes since an epoch. A target that was away takes
    /// changes when it is back, even before all servers know that.
    fn took_changes(&self, own: TargetId, under: Epoch, target: TargetId) -> Result<()> {
        let since = self.targets.get(&target).map(|standing| standing.since);
        let left = self.left.get(&target).copied();
        let since = if self.has_come_since(under, target) { left.or(since) } else { since };
        match since.is_some_and(|since| under < since) && !planted(Bug::ApplyOldEpoch) {
            true => Err(has_been_away(own, target)),
            false => Ok(()),
        }
    }

    /// Checks that a target may order what a client sends on a connection since an epoch. While the
    /// target was away the client may have sent newer changes to another copy.
    ///
    /// # Errors
    /// `Unreachable`: the client has to make a new connection.
    pub(crate) fn has_stayed(&self, own: TargetId, since: Epoch) -> Result<()> {
        let came = self.targets.get(&own).map(|standing| standing.since);
        match came.is_some_and(|came| since < came) {
            true => {
                let what = format!(
                    "the copy on target {own} has been away since its client has connected: \
                     nothing was changed"
                );
                Err(Error::new(ErrorKind::Unreachable, what))
            }
            false => Ok(()),
        }
    }

    /// Whether all servers do without what a target might report.
    pub(crate) fn is_done_without(&self, target: TargetId) -> bool {
        match self.state(target) {
            TargetState::Offline => true,
            TargetState::OutOfService | TargetState::Syncing => self.is_settled(target),
            TargetState::Online | TargetState::Suspect => false,
        }
    }

    /// Targets that are being brought up to date.
    pub(crate) fn syncing(&self) -> impl Iterator<Item = TargetId> {
        let syncs = self.targets.values().filter(|s| s.state == TargetState::Syncing);
        syncs.map(|standing| standing.target)
    }

    /// Whether a target takes nothing now, and may come back. A removed target is not on the map.
    pub(crate) fn is_away(&self, target: TargetId) -> bool {
        let standing = self.targets.get(&target);
        let away = |state| matches!(state, TargetState::Offline | TargetState::OutOfService);
        standing.is_some_and(|standing| away(standing.state))
    }

    /// For a column without an ordering copy: whether another copy went away later than this one,
    /// so that it has everything this one had, and is not back yet. Of copies that went away at the
    /// same time, one that may have lost unsynced data has the least.
    pub(crate) fn comes_later(&self, own: TargetId, copies: &[CopyAccess]) -> bool {
        let back =
            |target| matches!(self.state(target), TargetState::Syncing | TargetState::OutOfService);
        let mut others = copies.iter().filter(|copy| !copy.filling && back(copy.target));
        others.any(|copy| copy.target != own && self.went(copy.target) > self.went(own))
    }

    /// Sort key for the order in which targets went away.
    fn went(&self, target: TargetId) -> Option<(Epoch, bool, Reverse<TargetId>)> {
        self.targets.get(&target).map(|s| (s.since, !s.forgot, Reverse(target)))
    }

    /// Whether the bytes of a copy may be authoritative where the ordering copy lacks them: it is
    /// not online, so no client has read anything else from it, and no other copy went away later,
    /// which would have more.
    pub(crate) fn may_count(&self, own: TargetId, copies: &[CopyAccess]) -> bool {
        let later = |copy: &&CopyAccess| {
            !copy.filling && !self.is_online(copy.target) && self.went(copy.target) > self.went(own)
        };
        !self.is_online(own) && !copies.iter().any(|copy| later(&copy))
    }

    /// The target that orders the changes of a column, if there is one.
    pub(crate) fn who_orders(&self, copies: &[CopyAccess]) -> Option<TargetId> {
        self.primary(copies)
    }
}

fn has_been_away(own: TargetId, target: TargetId) -> Error {
    not_current(own, &format!("target {target} has been away since that was ordered"))
}

pub(crate) fn not_current(own: TargetId, why: &str) -> Error {
    Error::new(ErrorKind::NotCurrent, format!("the copy on target {own}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use TargetState::{Offline, Online, OutOfService, Syncing};
    use proptest::prelude::*;
    use weir_wire::Mac;

    const A: TargetId = TargetId(1);
    const B: TargetId = TargetId(2);
    const C: TargetId = TargetId(3);

    fn copies(targets: &[TargetId]) -> Vec<CopyAccess> {
        let copy = |t: &TargetId| CopyAccess { target: *t, mac: Mac([0; 16]), filling: false };
        targets.iter().map(copy).collect()
    }

    fn map(epoch: u64, in_effect: u64, states: &[(TargetId, TargetState, u64)]) -> Map {
        let standing = |(target, state, since): &(TargetId, TargetState, u64)| {
            (
                *target,
                Standing { target: *target, state: *state, since: Epoch(*since), forgot: false },
            )
        };
        let targets = states.iter().map(standing).collect();
        Map::default().next(Epoch(epoch), Epoch(in_effect), targets)
    }

    fn orders(epoch: u64, lacking: &[TargetId], dispensable: &[TargetId]) -> Orders {
        let (lacking, dispensable) = (lacking.to_vec(), dispensable.to_vec());
        Orders { epoch: Epoch(epoch), lacking, dispensable }
    }

    #[test]
    fn the_first_copy_that_is_online_orders() {
        let (two, three) = (copies(&[A, B]), copies(&[A, B, C]));
        let all = map(5, 5, &[(A, Online, 1), (B, Online, 1), (C, Online, 1)]);
        assert_eq!(all.orders(A, &two).unwrap(), orders(5, &[], &[]));
        assert_eq!(all.orders(B, &two).unwrap_err().kind, ErrorKind::NotCurrent);
        all.follows(B, (A, Epoch(9)), &two).unwrap();
        assert!(all.follows(A, (B, Epoch(9)), &two).is_err());
        let gone = map(6, 5, &[(A, Offline, 6), (B, Online, 1), (C, Syncing, 2)]);
        assert_eq!(gone.orders(B, &three).unwrap(), orders(6, &[A], &[C]));
        assert!(gone.orders(A, &two).is_err());
        assert!(gone.is_away(A) && !gone.is_away(B) && !gone.is_away(C));
        assert!(!gone.is_away(TargetId(9)), "it was removed");
        gone.follows(C, (B, Epoch(9)), &three).unwrap();
        assert!(all.follows(B, (A, Epoch(0)), &two).is_err(), "it has been away since");
        let back = map(9, 9, &[(A, Online, 1), (B, Online, 7)]);
        back.follows(B, (A, Epoch(7)), &two).unwrap();
        assert!(back.follows(B, (A, Epoch(6)), &two).is_err(), "it was away, and that came late");
        assert!(gone.may_read(C).is_err() && gone.may_read(A).is_err());
        gone.may_read(B).unwrap();
    }

    #[test]
    fn nothing_is_ordered_that_came_on_a_connection_from_before_the_copy_was_away() {
        let back = map(9, 9, &[(A, Online, 7), (B, Online, 1)]);
        back.has_stayed(A, Epoch(7)).unwrap();
        back.has_stayed(B, Epoch(1)).unwrap();
        // As of a connection that has broken: its client tries another.
        assert_eq!(back.has_stayed(A, Epoch(6)).unwrap_err().kind, ErrorKind::Unreachable);
    }

    #[test]
    fn who_is_ill_is_done_without_when_it_knows_it() {
        let two = copies(&[A, B]);
        let states = [(A, OutOfService, 6), (B, Online, 1)];
        assert!(map(6, 5, &states).orders(B, &two).is_err());
        assert_eq!(map(6, 6, &states).orders(B, &two).unwrap(), orders(6, &[A], &[]));
        let states = [(A, Online, 1), (B, Syncing, 6)];
        assert_eq!(map(6, 5, &states).orders(A, &two).unwrap(), orders(6, &[], &[]));
        assert_eq!(map(6, 6, &states).orders(A, &two).unwrap(), orders(6, &[], &[B]));
    }

    #[test]
    fn a_copy_that_is_being_made_takes_changes_and_orders_none() {
        let mut two = copies(&[A, B]);
        two[0].filling = true;
        let all = map(5, 5, &[(A, Online, 1), (B, Online, 1)]);
        assert_eq!(all.orders(B, &two).unwrap(), orders(5, &[], &[A]));
        assert!(all.orders(A, &two).is_err());
        all.follows(A, (B, Epoch(9)), &two).unwrap();
    }

    #[test]
    fn who_is_back_orders_when_everybody_knows() {
        crate::standing::planted::plant_if_asked();
        let two = copies(&[A, B]);
        let states = [(A, Online, 9), (B, Online, 1)];
        assert!(map(9, 8, &states).orders(A, &two).is_err());
        assert!(map(9, 8, &states).orders(B, &two).is_err());
        assert!(map(9, 8, &states).may_read(A).is_err());
        map(9, 9, &states).orders(A, &two).unwrap();
        map(9, 9, &states).may_read(A).unwrap();
    }

    #[test]
    fn what_is_under_way_when_another_comes_back_is_ended_as_it_was_begun() {
        let two = copies(&[A, B]);
        let before = map(8, 8, &[(A, Syncing, 5), (B, Online, 1)]);
        assert_eq!(before.orders(B, &two).unwrap(), orders(8, &[], &[A]));
        let joined = map(9, 8, &[(A, Online, 9), (B, Online, 1)]).targets;
        let joins = before.next(Epoch(9), Epoch(8), joined.clone());
        assert!(joins.orders(B, &two).is_err() && joins.orders(A, &two).is_err());
        assert_eq!(joins.orders_under(Epoch(8), B, &two).unwrap(), orders(8, &[], &[A]));
        joins.follows(A, (B, Epoch(8)), &two).unwrap();
        joins.follows(A, (B, Epoch(5)), &two).unwrap();
        assert!(joins.follows(A, (B, Epoch(4)), &two).is_err(), "it was away, and that came late");
        let knows = joins.next(Epoch(9), Epoch(9), joined.clone());
        assert!(knows.orders_under(Epoch(8), B, &two).is_err());
        assert!(knows.follows(A, (B, Epoch(8)), &two).is_err(), "all that has ended");
        joins.passed_on(C, Epoch(8), &[A]).unwrap();
        assert!(joins.passed_on(C, Epoch(4), &[A]).is_err(), "others went on without it");
        // Its server started anew in between: it does not know since when it was away.
        let fresh = Map::default().next(Epoch(9), Epoch(8), joined);
        assert!(fresh.follows(A, (B, Epoch(8)), &two).is_err());
    }

    #[test]
    fn of_copies_that_are_all_away_the_one_that_went_last_is_waited_for() {
        let (two, three) = (copies(&[A, B]), copies(&[A, B, C]));
        let all = map(9, 9, &[(A, Syncing, 5), (B, Syncing, 7), (C, Syncing, 7)]);
        assert!(all.comes_later(A, &two) && !all.comes_later(B, &two));
        assert!(!all.comes_later(B, &three) && all.comes_later(C, &three), "one of two");
        let ill = map(9, 9, &[(A, Syncing, 5), (B, OutOfService, 7)]);
        assert!(ill.comes_later(A, &two));
        let mut filling = copies(&[A, B]);
        filling[1].filling = true;
        assert!(!all.comes_later(A, &filling), "it has nothing yet");
        let mut cut = map(9, 9, &[(A, Syncing, 5), (B, Syncing, 5)]);
        assert!(!cut.comes_later(A, &two) && cut.comes_later(B, &two));
        cut.targets.get_mut(&A).unwrap().forgot = true;
        assert!(cut.comes_later(A, &two) && !cut.comes_later(B, &two), "it kept its memory");
    }

    #[test]
    fn of_those_that_are_away_only_the_one_that_went_last_may_count() {
        let three = copies(&[A, B, C]);
        let one = map(9, 9, &[(A, Syncing, 5), (B, Online, 1), (C, Online, 1)]);
        assert!(one.may_count(A, &three) && !one.may_count(B, &three), "who is online is seen");
        let two = map(9, 9, &[(A, Syncing, 5), (B, Offline, 7), (C, Online, 1)]);
        assert!(!two.may_count(A, &three) && two.may_count(B, &three));
        let removed = map(9, 9, &[(A, Syncing, 5), (C, Online, 1)]);
        assert!(removed.may_count(A, &three), "it never comes back");
        let mut filling = copies(&[A, B, C]);
        filling[1].filling = true;
        assert!(two.may_count(A, &filling), "it had nothing");
    }

    #[test]
    fn without_a_map_nothing_is_done() {
        let none = Map::default();
        assert!(none.may_read(A).is_err());
        assert!(none.orders(A, &copies(&[A, B])).is_err());
        assert!(none.follows(A, (B, Epoch(9)), &copies(&[A, B])).is_err());
    }

    fn state() -> impl Strategy<Value = TargetState> {
        prop_oneof![Just(Online), Just(Offline), Just(OutOfService), Just(Syncing)]
    }

    proptest! {
        /// Two servers act under maps that may be of different epochs; one that was
        /// declared away in between has no lease. They never both order a column,
        /// and what one of them may read has all that the other orders.
        #[test]
        fn never_do_two_order_at_a_time(
            history in prop::collection::vec((0usize..3, state()), 1..12),
            old_at in 0usize..12,
        ) {
            let (ids, all) = ([A, B, C], copies(&[A, B, C]));
            let mut states = [(A, Online, 1), (B, Online, 1), (C, Online, 1)];
            let mut maps = vec![states];
            for (i, (which, state)) in history.into_iter().enumerate() {
                let (target, was, since) = states[which];
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
                let at = ids.iter().position(|t| *t == first).unwrap();
                let lease = maps[old..].iter().all(|m| m[at].1 != Offline);
                for second in ids.into_iter().filter(|t| *t != first && lease) {
                    let misses = |orders: &Orders, who: TargetId| {
                        orders.lacking.contains(&who) || orders.dispensable.contains(&who)
                    };
                    let missed = of_old.orders(first, &all).is_ok_and(|o| misses(&o, second));
                    prop_assert!(
                        !(missed && of_new.may_read(second).is_ok()),
                        "{second} is read under {newest}, and misses what {first} orders under {old}"
                    );
                    // What was begun under the old map is ended as it was begun.
                    let old_epoch = Epoch(old as u64 + 1);
                    let ends = |map: &Map| {
                        of_old.orders(first, &all).is_ok()
                            && map.orders_under(old_epoch, first, &all).is_ok()
                    };
                    let missed =
                        of_new.orders_under(old_epoch, first, &all).is_ok_and(|o| misses(&o, second));
                    prop_assert!(!(ends(&of_new) && missed && of_new.may_read(second).is_ok()));
                    let Ok(orders) = of_new.orders(second, &all) else { continue };
                    prop_assert!(!ends(&of_new), "{first} ends what {second} does not know of");
                    let both = of_old.orders(first, &all).is_ok();
                    prop_assert!(!both, "{first} under {old}, {second} under {newest}");
                    prop_assert!(
                        !(misses(&orders, first) && of_old.may_read(first).is_ok()),
                        "{first} is read under {old}, and misses what {second} orders under {newest}"
                    );
                }
            }
        }
    }
}
