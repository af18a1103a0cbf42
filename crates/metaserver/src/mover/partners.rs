//! Which targets may share a column, as far as scans of all files have shown. Pure.
//!
//! Any two may, except in two cases that are known for certain:
//!
//! - Two targets of one server share none, if a scan of all files has found no two copies of a
//!   column on one server, and none were placed so since it began. Copies are placed so only when
//!   there are too few servers.
//! - A target shares none with any other if it was lost at the begin of a scan that has found no
//!   copy there, and since then it got no copy and its state did not change. A target that is away
//!   gets a copy only when too few targets are online.
//!
//! The servers of targets are followed from the start, so that a target that moves between servers
//! carries no unknown copies along.

use super::sites::{Fit, Site, Sites};
use std::collections::{BTreeMap, BTreeSet};
use weir_types::{ServerId, TargetId};

/// Known facts.
#[derive(Debug, Default)]
pub struct Partners {
    /// The server of each target.
    servers: BTreeMap<TargetId, ServerId>,
    /// Whether no column has two copies on one server.
    apart: bool,
    /// Lost targets without copies in any layout.
    unused: BTreeSet<TargetId>,
    /// The scan that is under way.
    look: Option<Found>,
    /// Whether nothing has changed since the last scan began, so that another would find the same.
    current: bool,
    /// Whether a target is flapping, so that the facts matter.
    asked: bool,
}

/// Findings of a scan so far.
#[derive(Debug)]
struct Found {
    together: bool,
    unused: BTreeSet<TargetId>,
}

impl Partners {
    /// Records that a server serves a target.
    pub fn is_of(&mut self, target: TargetId, server: ServerId) {
        let before = self.servers.insert(target, server);
        if before.is_some_and(|before| before != server) {
            self.put_together();
        }
    }

    /// Records that a target got a copy, or may get one because its state changes.
    pub fn may_be_used(&mut self, target: TargetId) {
        let was_known = self.unused.remove(&target);
        let found = self.look.as_mut().is_some_and(|found| found.unused.remove(&target));
        self.current &= !(was_known || found);
    }

    /// Records that a target was removed from the cluster for good.
    pub fn is_removed(&mut self, target: TargetId) {
        self.may_be_used(target);
        self.servers.remove(&target);
    }

    /// Records that a column may have got two copies on one server.
    pub fn put_together(&mut self) {
        (self.apart, self.current) = (false, false);
        if let Some(found) = &mut self.look {
            found.together = true;
        }
    }

    /// Records that the mover has changed a layout.
    pub fn moved(&mut self) {
        self.current = false;
    }

    /// Begins a scan of all files. `away` says whether a target is away now.
    pub fn look_begins(&mut self, sites: &Sites, away: impl Fn(TargetId) -> bool) {
        let unused = lost(sites).filter(|target| away(*target)).collect();
        self.look = Some(Found { together: false, unused });
        (self.current, self.asked) = (true, false);
    }

    /// Adds part of a file: whether two copies of a column are on one server, and lost targets with
    /// copies.
    pub fn has_seen(&mut self, together: bool, lost: &BTreeSet<TargetId>) {
        if let Some(found) = &mut self.look {
            found.together |= together;
            found.unused.retain(|target| !lost.contains(target));
        }
    }

    /// Ends a scan without result: a file could not be read, or targets have changed meanwhile.
    pub fn look_fails(&mut self) {
        self.look = None;
    }

    /// Ends a scan of all files with these sites.
    pub fn look_ends(&mut self, sites: &Sites) {
        let is_there =
            |(target, site): (_, &Site)| self.servers.get(&target) == Some(&site.home.server);
        match self.look.take().filter(|_| sites.all().all(is_there)) {
            Some(found) => (self.apart, self.unused) = (!found.together, found.unused),
            None => self.current = false,
        }
    }

    /// Records that a target is flapping, so that a scan is worthwhile.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// Whether a scan of all files would be worthwhile, if none is under way.
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
