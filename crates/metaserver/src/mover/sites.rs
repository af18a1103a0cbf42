//! The targets as the mover sees them.

use std::collections::{BTreeMap, BTreeSet};
use weir_layout::place::FULL_BELOW_BYTES;
use weir_layout::{Apart, Domain, Groups, Home};
use weir_types::{ServerId, TargetId};

/// What becomes of the copies of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// They stay, and more may come.
    Takes,
    /// They stay.
    Keeps,
    /// They are to go elsewhere, and can be read meanwhile.
    Leaves,
    /// They are given up.
    Lost,
}

/// A target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The server that serves it.
    pub server: ServerId,
    /// What fails with that server.
    pub domain: Domain,
    /// What becomes of its copies.
    pub fit: Fit,
    /// Whether what it has is current, and can be read.
    pub online: bool,
    /// Free space; `u64::MAX`: not known.
    pub free_bytes: u64,
}

impl Site {
    fn home(&self) -> Home {
        (self.server, self.domain)
    }

    fn has_room(&self) -> bool {
        self.free_bytes >= FULL_BELOW_BYTES
    }
}

/// How targets differ from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differs {
    /// Not so that it matters.
    Not,
    /// What could not be done may be possible now.
    Helps,
    /// Copies may have to be moved or made.
    Needs,
}

/// All targets, and how many copies each has been given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    sites: BTreeMap<TargetId, Site>,
    /// Counted anew when targets come, go or fill up: it is for evenness only.
    given: BTreeMap<TargetId, u64>,
    /// They get something only if no others can.
    closed: BTreeSet<TargetId>,
}

impl Sites {
    /// These.
    pub fn new(sites: BTreeMap<TargetId, Site>) -> Self {
        Self { sites, ..Self::default() }
    }

    /// Takes over how they are now; returns whether that may change what segments need.
    pub fn update(&mut self, sites: BTreeMap<TargetId, Site>) -> Differs {
        let mut differs = Differs::Not;
        for (target, now) in &sites {
            let Some(was) = self.sites.get(target) else {
                differs = Differs::Needs;
                break;
            };
            let went = was.fit != now.fit && matches!(now.fit, Fit::Leaves | Fit::Lost);
            let fitter = was.fit != now.fit && !went;
            if went || was.home() != now.home() {
                differs = Differs::Needs;
                break;
            }
            if fitter || (now.online && !was.online) || (now.has_room() && !was.has_room()) {
                differs = Differs::Helps;
            }
        }
        if self.sites.keys().any(|target| !sites.contains_key(target)) {
            differs = Differs::Needs;
        }
        if differs != Differs::Not {
            self.given.clear();
        }
        self.sites = sites;
        differs
    }

    /// Only these are online from now on: nothing that matters is decided by what
    /// targets were at the last look.
    pub fn keep_online(&mut self, online: &BTreeSet<TargetId>) {
        for (target, site) in &mut self.sites {
            site.online &= online.contains(target);
        }
    }

    /// What becomes of the copies of a target. One that is not known has been removed.
    pub fn fit(&self, target: TargetId) -> Fit {
        self.sites.get(&target).map_or(Fit::Lost, |site| site.fit)
    }

    /// Whether what a target has is current.
    pub fn is_online(&self, target: TargetId) -> bool {
        self.sites.get(&target).is_some_and(|site| site.online && site.fit != Fit::Lost)
    }

    /// Whether a copy that is being made there can be: it is there, and has room.
    pub fn can_be_filled(&self, target: TargetId) -> bool {
        self.is_online(target) && self.sites.get(&target).is_some_and(Site::has_room)
    }

    /// Whether there is no room for more on a target, as far as is known.
    pub fn is_full(&self, target: TargetId) -> bool {
        self.sites.get(&target).is_some_and(|site| !site.has_room())
    }

    /// The server of a target.
    pub fn server(&self, target: TargetId) -> Option<ServerId> {
        self.sites.get(&target).map(|site| site.server)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (TargetId, &Site)> {
        self.sites.iter().map(|(target, site)| (*target, site))
    }

    /// Whether any copies are to be moved or made elsewhere.
    pub fn any_goes(&self) -> bool {
        self.sites.values().any(|site| matches!(site.fit, Fit::Leaves | Fit::Lost))
    }

    /// How far a copy on a target is from others.
    pub fn apart(&self, target: TargetId, others: &BTreeSet<TargetId>) -> Apart {
        let homes = others.iter().filter_map(|other| self.sites.get(other)).map(Site::home);
        self.sites.get(&target).map_or(Apart::Target, |site| Apart::of(site.home(), homes))
    }

    /// Where one more copy may go that is not on `taken`: those that are furthest from
    /// the copies that stay.
    pub fn candidates(
        &self,
        taken: &BTreeSet<TargetId>,
        stay: &BTreeSet<TargetId>,
    ) -> Vec<TargetId> {
        let takes = |(target, site): &(&TargetId, &Site)| {
            site.fit == Fit::Takes && site.online && site.has_room() && !taken.contains(target)
        };
        let mut found: Vec<TargetId> =
            self.sites.iter().filter(takes).map(|(target, _)| *target).collect();
        let furthest = found.iter().map(|target| self.apart(*target, stay)).max();
        found.retain(|target| Some(self.apart(*target, stay)) == furthest);
        if found.iter().any(|target| self.is_open(*target)) {
            found.retain(|target| self.is_open(*target));
        }
        found
    }

    /// Of candidates those in another group of nodes than all copies that stay, if there
    /// are any.
    pub fn keep_other_group(&self, candidates: &mut Vec<TargetId>, stay: &BTreeSet<TargetId>) {
        let groups = Groups::of(self.sites.values().map(Site::home));
        let group = |target: &TargetId| self.server(*target).map(|s| groups.is_second(s));
        let is_apart = |target: &TargetId| stay.iter().all(|other| group(other) != group(target));
        if candidates.iter().any(is_apart) {
            candidates.retain(is_apart);
        }
    }

    /// These get something only if no others can.
    pub fn close(&mut self, closed: BTreeSet<TargetId>) {
        self.closed = closed;
    }

    /// Whether a target may get more than others.
    pub fn is_open(&self, target: TargetId) -> bool {
        !self.closed.contains(&target)
    }

    /// In how many domains, and on how many servers, these are.
    pub fn spread(&self, copies: &BTreeSet<TargetId>) -> (usize, usize) {
        let homes = || copies.iter().filter_map(|target| self.sites.get(target)).map(Site::home);
        let servers: BTreeSet<ServerId> = homes().map(|(server, _)| server).collect();
        let domains: BTreeSet<Domain> = homes().map(|(_, domain)| domain).collect();
        (domains.len(), servers.len())
    }

    /// Whether these copies would be in more domains, or on more servers, with one of the
    /// candidates in place of one of them.
    pub fn can_be_further_apart(
        &self,
        taken: &BTreeSet<TargetId>,
        copies: &BTreeSet<TargetId>,
    ) -> bool {
        let (domains, servers) = self.spread(copies);
        // That is so for most.
        if domains == copies.len() {
            return false;
        }
        let first = self.candidates(taken, copies).first().copied();
        first.is_some_and(|target| match self.apart(target, copies) {
            Apart::Domain => true,
            Apart::Server => servers < copies.len(),
            Apart::Target => false,
        })
    }

    /// The one of them that has been given least; of several the one that `seed` says.
    pub fn least_given(&self, among: &[TargetId], seed: u64) -> Option<TargetId> {
        let given = |target: &TargetId| self.given.get(target).copied().unwrap_or(0);
        among.iter().copied().min_by_key(|target| (given(target), mixed(seed, *target), *target))
    }

    /// A copy goes there.
    pub fn give(&mut self, target: TargetId) {
        *self.given.entry(target).or_default() += 1;
    }
}

/// Spreads equal choices over the targets (SplitMix64).
fn mixed(seed: u64, target: TargetId) -> u64 {
    let mut z = seed ^ (u64::from(target.0) << 32 | u64::from(target.0));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
