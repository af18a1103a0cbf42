//! Which targets may share a column, as far as looks at all files have shown: pure.
//!
//! Any two may, but for what is known for certain:
//!
//! - Two targets of one server share none, if a look at all files has found no two copies
//!   of a column on one server, and none have been put so since it began. Copies are put so
//!   only when there are too few servers.
//! - A target shares none with anybody, if it was lost when a look at all files began that
//!   has found no copy there, and since then neither was it given one nor its state changed.
//!   What is away is given something only when too few targets are online.
//!
//! Where targets are is followed from the start, so that one that moves from server to server
//! takes nothing along that is not known.

use super::sites::{Fit, Site, Sites};
use std::collections::{BTreeMap, BTreeSet};
use weir_types::{ServerId, TargetId};

/// What is known.
#[derive(Debug, Default)]
pub struct Partners {
    /// The server of each target.
    servers: BTreeMap<TargetId, ServerId>,
    /// No column has two copies on one server.
    apart: bool,
    /// Those that are lost, and of which no layout has a copy.
    unused: BTreeSet<TargetId>,
    /// The look that is under way.
    look: Option<Found>,
    /// Nothing has changed since the last look began: another one would find as much.
    current: bool,
    /// A target comes and goes, so that it matters.
    asked: bool,
}

/// What a look at all files has found so far.
#[derive(Debug)]
struct Found {
    together: bool,
    unused: BTreeSet<TargetId>,
}

impl Partners {
    /// A server serves a target.
    pub fn is_of(&mut self, target: TargetId, server: ServerId) {
        let before = self.servers.insert(target, server);
        if before.is_some_and(|before| before != server) {
            self.put_together();
        }
    }

    /// A target has been given something; or it may be, since its state changes.
    pub fn may_be_used(&mut self, target: TargetId) {
        let was_known = self.unused.remove(&target);
        let found = self.look.as_mut().is_some_and(|found| found.unused.remove(&target));
        self.current &= !(was_known || found);
    }

    /// A target is of the cluster no more, nor ever again.
    pub fn is_removed(&mut self, target: TargetId) {
        self.may_be_used(target);
        self.servers.remove(&target);
    }

    /// A column may have got two copies on one server.
    pub fn put_together(&mut self) {
        (self.apart, self.current) = (false, false);
        if let Some(found) = &mut self.look {
            found.together = true;
        }
    }

    /// The mover has changed a layout.
    pub fn moved(&mut self) {
        self.current = false;
    }

    /// A look at all files begins. `away`: whether a target is not there now.
    pub fn look_begins(&mut self, sites: &Sites, away: impl Fn(TargetId) -> bool) {
        let unused = lost(sites).filter(|target| away(*target)).collect();
        self.look = Some(Found { together: false, unused });
        (self.current, self.asked) = (true, false);
    }

    /// Part of a file: whether two copies of a column are on one server, and lost targets
    /// that have copies.
    pub fn has_seen(&mut self, together: bool, lost: &BTreeSet<TargetId>) {
        if let Some(found) = &mut self.look {
            found.together |= together;
            found.unused.retain(|target| !lost.contains(target));
        }
    }

    /// A file could not be looked at, or targets have become others meanwhile.
    pub fn look_fails(&mut self) {
        self.look = None;
    }

    /// All files have been looked at, by these sites.
    pub fn look_ends(&mut self, sites: &Sites) {
        let is_there =
            |(target, site): (_, &Site)| self.servers.get(&target) == Some(&site.home.server);
        match self.look.take().filter(|_| sites.all().all(is_there)) {
            Some(found) => (self.apart, self.unused) = (!found.together, found.unused),
            None => self.current = false,
        }
    }

    /// A target has come and gone often: whom it is needed for is worth a look.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// Whether a look at all files would be worth while, if none is under way.
    pub fn wants_look(&self, sites: &Sites) -> bool {
        let servers: BTreeSet<&ServerId> = self.servers.values().collect();
        let neighbours = servers.len() < self.servers.len();
        let unknown = neighbours && !self.apart || lost(sites).any(|t| !self.unused.contains(&t));
        // One that has not ended was broken off.
        self.asked && unknown && (!self.current || self.look.is_some())
    }

    /// Whether two targets may have copies of one column.
    pub fn may_share(&self, one: TargetId, other: TargetId) -> bool {
        let server = |target| self.servers.get(&target);
        let apart = self.apart && server(one).is_some() && server(one) == server(other);
        !apart && ![one, other].iter().any(|target| self.unused.contains(target))
    }
}

fn lost(sites: &Sites) -> impl Iterator<Item = TargetId> {
    sites.all().filter(|(_, site)| site.fit == Fit::Lost).map(|(target, _)| target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_layout::Home;

    const ONE: TargetId = TargetId(1);
    const TWO: TargetId = TargetId(2);
    const THREE: TargetId = TargetId(3);

    /// Two targets of server 1 and one of server 2, which is lost.
    fn sites() -> Sites {
        let site = |(target, server, fit)| {
            let home = Home::alone(ServerId(server));
            (target, Site { home, fit, online: fit == Fit::Takes, free_bytes: u64::MAX })
        };
        let all = [(ONE, 1, Fit::Takes), (TWO, 1, Fit::Takes), (THREE, 2, Fit::Lost)];
        Sites::new(all.into_iter().map(site).collect())
    }

    fn partners() -> Partners {
        let mut partners = Partners::default();
        for (target, server) in [(ONE, 1), (TWO, 1), (THREE, 2)] {
            partners.is_of(target, ServerId(server));
        }
        partners
    }

    fn looked(partners: &mut Partners, together: bool, lost: &[TargetId]) {
        partners.look_begins(&sites(), |_| true);
        partners.has_seen(together, &lost.iter().copied().collect());
        partners.look_ends(&sites());
    }

    /// Whether the two of one server may share a column, and one of them with the lost one.
    fn may(partners: &Partners) -> (bool, bool) {
        (partners.may_share(ONE, TWO), partners.may_share(TWO, THREE))
    }

    #[test]
    fn any_two_may_share_a_column_until_a_look_at_all_files_has_found_none() {
        let mut partners = partners();
        assert_eq!(may(&partners), (true, true), "nothing is known");
        looked(&mut partners, true, &[THREE]);
        assert_eq!(may(&partners), (true, true));
        looked(&mut partners, false, &[THREE]);
        assert_eq!(may(&partners), (false, true));
        looked(&mut partners, true, &[]);
        assert_eq!(may(&partners), (true, false));
        looked(&mut partners, false, &[]);
        assert_eq!(may(&partners), (false, false));
        assert!(partners.may_share(ONE, TargetId(9)), "one that nobody knows");
    }

    #[test]
    fn what_is_put_on_one_server_meanwhile_is_not_overlooked() {
        let mut partners = partners();
        looked(&mut partners, false, &[]);
        partners.put_together();
        assert_eq!(may(&partners), (true, false));
        partners.look_begins(&sites(), |_| true);
        partners.put_together();
        partners.look_ends(&sites());
        assert_eq!(may(&partners), (true, false), "the look was past it, perhaps");
        looked(&mut partners, false, &[]);
        // A disk is moved to another machine with what it has.
        partners.is_of(TWO, ServerId(3));
        partners.is_of(TWO, ServerId(1));
        assert_eq!(may(&partners), (true, false));
    }

    #[test]
    fn a_lost_target_that_is_not_away_any_more_may_be_given_something() {
        let mut partners = partners();
        looked(&mut partners, false, &[]);
        partners.may_be_used(THREE);
        assert_eq!(may(&partners), (false, true));
        partners.look_begins(&sites(), |_| true);
        partners.may_be_used(THREE);
        partners.look_ends(&sites());
        assert_eq!(may(&partners), (false, true), "it was there in between");
        partners.look_begins(&sites(), |_| false);
        partners.look_ends(&sites());
        assert_eq!(may(&partners), (false, true), "it is there again, as the mover will see");
    }

    #[test]
    fn a_look_that_fails_shows_nothing() {
        let mut partners = partners();
        partners.look_begins(&sites(), |_| true);
        partners.look_fails();
        partners.look_ends(&sites());
        assert_eq!(may(&partners), (true, true));
        // Nor one by sites that are not what they were any more.
        partners.look_begins(&sites(), |_| true);
        partners.is_of(TargetId(4), ServerId(1));
        partners.is_of(ONE, ServerId(4));
        partners.look_ends(&sites());
        assert_eq!(may(&partners), (true, true));
    }

    #[test]
    fn all_files_are_looked_at_once_more_only_if_that_may_show_more() {
        let mut partners = partners();
        assert!(!partners.wants_look(&sites()), "nobody asks");
        partners.ask();
        assert!(partners.wants_look(&sites()));
        looked(&mut partners, true, &[]);
        partners.ask();
        assert!(!partners.wants_look(&sites()), "it would show the same");
        partners.moved();
        assert!(partners.wants_look(&sites()), "they may have been parted");
        looked(&mut partners, false, &[]);
        partners.ask();
        partners.moved();
        assert!(!partners.wants_look(&sites()), "all is known");
        partners.may_be_used(THREE);
        assert!(partners.wants_look(&sites()));
        partners.look_begins(&sites(), |_| true);
        partners.ask();
        assert!(partners.wants_look(&sites()), "broken off");
    }
}
