//! The targets as the mover sees them.

use std::collections::{BTreeMap, BTreeSet};
use weir_layout::place::FULL_BELOW_BYTES;
use weir_layout::{Apart, Groups, Home, Spread};
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
    /// The server that serves it, and what fails with that.
    pub home: Home,
    /// What becomes of its copies.
    pub fit: Fit,
    /// Whether what it has is current, and can be read.
    pub online: bool,
    /// Free space; `u64::MAX`: not known.
    pub free_bytes: u64,
}

impl Site {
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
    /// In which group of nodes each server is.
    groups: Groups,
    /// In how many places copies could be, if all targets took some.
    most: Spread,
    /// Counted anew when targets come, go or fill up: it is for evenness only.
    given: BTreeMap<TargetId, u64>,
    /// They get something only if no others can.
    closed: BTreeSet<TargetId>,
}

impl Sites {
    /// These.
    pub fn new(sites: BTreeMap<TargetId, Site>) -> Self {
        let (groups, most) = places(&sites);
        Self { sites, groups, most, ..Self::default() }
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
            if went || was.home != now.home {
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
        if differs == Differs::Needs {
            (self.groups, self.most) = places(&sites);
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
        self.sites.get(&target).map(|site| site.home.server)
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
        let homes = others.iter().filter_map(|other| self.sites.get(other)).map(|site| site.home);
        self.sites.get(&target).map_or(Apart::Target, |site| Apart::of(site.home, homes))
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
        let is_apart = |target: &TargetId| self.is_in_other_group(*target, stay);
        if candidates.iter().any(is_apart) {
            candidates.retain(is_apart);
        }
    }

    /// Whether a target is in another group of nodes than all of these copies.
    pub fn is_in_other_group(&self, target: TargetId, copies: &BTreeSet<TargetId>) -> bool {
        copies.iter().all(|other| self.group(*other) != self.group(target))
    }

    /// Whether a target is in the second group of nodes.
    fn group(&self, target: TargetId) -> Option<bool> {
        self.server(target).map(|server| self.groups.is_second(server))
    }

    /// These get something only if no others can.
    pub fn close(&mut self, closed: BTreeSet<TargetId>) {
        self.closed = closed;
    }

    /// Whether a target may get more than others.
    pub fn is_open(&self, target: TargetId) -> bool {
        !self.closed.contains(&target)
    }

    /// In how many groups of nodes these are, if that matters, and in how many domains, on
    /// how many machines and servers: the more the better, in this order.
    pub fn spread(&self, copies: &BTreeSet<TargetId>, in_groups: bool) -> (usize, Spread) {
        let homes = copies.iter().filter_map(|target| self.sites.get(target)).map(|s| s.home);
        let groups: BTreeSet<bool> =
            copies.iter().filter(|_| in_groups).filter_map(|target| self.group(*target)).collect();
        (groups.len(), Spread::of(homes))
    }

    /// Whether there would be more of what [`Sites::spread`] counts if all targets took copies:
    /// some may do so again.
    pub fn are_makeshift(&self, copies: &BTreeSet<TargetId>, in_groups: bool) -> bool {
        let (groups, are) = self.spread(copies, in_groups);
        let in_one_group = in_groups && groups < self.most.servers.min(copies.len()).min(2);
        in_one_group || are != self.most.at_most(copies.len())
    }

    /// Whether there would be more of what [`Sites::spread`] counts with one of the candidates
    /// in place of one of these copies.
    pub fn can_be_further_apart(
        &self,
        taken: &BTreeSet<TargetId>,
        copies: &BTreeSet<TargetId>,
        in_groups: bool,
    ) -> bool {
        let (groups, Spread { domains, hosts, servers }) = self.spread(copies, in_groups);
        let in_one_group = groups == 1 && copies.len() > 1;
        // That is so for most.
        if domains == copies.len() && !in_one_group {
            return false;
        }
        let candidates = self.candidates(taken, copies);
        if in_one_group && candidates.iter().any(|target| self.is_in_other_group(*target, copies)) {
            return true;
        }
        candidates.first().is_some_and(|target| match self.apart(*target, copies) {
            Apart::Domain => domains < copies.len(),
            Apart::Host => hosts < copies.len(),
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

fn places(sites: &BTreeMap<TargetId, Site>) -> (Groups, Spread) {
    let homes = sites.values().map(|site| site.home);
    (Groups::of(homes.clone()), Spread::of(homes))
}

/// Spreads equal choices over the targets (SplitMix64).
fn mixed(seed: u64, target: TargetId) -> u64 {
    let mut z = seed ^ (u64::from(target.0) << 32 | u64::from(target.0));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
