//! The mover's view of the targets.

use std::collections::{BTreeMap, BTreeSet};
use weir_layout::place::FULL_BELOW_BYTES;
use weir_layout::{Apart, Groups, Home, Spread};
use weir_types::{ServerId, TargetId};

/// What happens to the copies of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// They stay, and more may be added.
    Takes,
    /// They stay.
    Keeps,
    /// They have to be moved, and can be read meanwhile.
    Leaves,
    /// They are given up.
    Lost,
}

/// A target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its server, and what fails together with that.
    pub home: Home,
    /// What happens to its copies.
    pub fit: Fit,
    /// Whether its data is current and readable.
    pub online: bool,
    /// Free space; `u64::MAX` if unknown.
    pub free_bytes: u64,
}

impl Site {
    fn has_room(&self) -> bool {
        self.free_bytes >= FULL_BELOW_BYTES
    }
}

/// How targets have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differs {
    /// Without consequences.
    Not,
    /// Something that was impossible may be possible now.
    Helps,
    /// Copies may have to be moved or made.
    Needs,
}

/// All targets, and how many copies each got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    sites: BTreeMap<TargetId, Site>,
    /// Group of nodes of each server.
    groups: Groups,
    /// The best spread of copies if all targets took some.
    most: Spread,
    /// Reset when targets come, go or fill up: it only serves evenness.
    given: BTreeMap<TargetId, u64>,
    /// Targets that get copies only if no others can.
    closed: BTreeSet<TargetId>,
}

impl Sites {
    /// Makes the view of these targets.
    pub fn new(sites: BTreeMap<TargetId, Site>) -> Self {
        let (groups, most) = places(&sites);
        Self { sites, groups, most, ..Self::default() }
    }

    /// Takes over the present targets. Returns whether that may change what segments need.
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

    /// Restricts the online targets to these: nothing important is decided by the state at the last
    /// look.
    pub fn keep_online(&mut self, online: &BTreeSet<TargetId>) {
        for (target, site) in &mut self.sites {
            site.online &= online.contains(target);
        }
    }

    /// What happens to the copies of a target. An unknown target was removed.
    pub fn fit(&self, target: TargetId) -> Fit {
        self.sites.get(&target).map_or(Fit::Lost, |site| site.fit)
    }

    /// Whether a target's data is current.
    pub fn is_online(&self, target: TargetId) -> bool {
        self.sites.get(&target).is_some_and(|site| site.online && site.fit != Fit::Lost)
    }

    /// Whether a copy that is being made there can be filled: the target is online, and has space.
    pub fn can_be_filled(&self, target: TargetId) -> bool {
        self.is_online(target) && self.sites.get(&target).is_some_and(Site::has_room)
    }

    /// Whether a target is full, as far as is known.
    pub fn is_full(&self, target: TargetId) -> bool {
        self.sites.get(&target).is_some_and(|site| !site.has_room())
    }

    /// The server of a target.
    pub fn server(&self, target: TargetId) -> Option<ServerId> {
        self.sites.get(&target).map(|site| site.home.server)
    }

    /// What fails with a target, see [`Spread::part`].
    pub fn part(&self, target: TargetId) -> Option<ServerId> {
        self.sites.get(&target).and_then(|site| self.most.part(site.home))
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (TargetId, &Site)> {
        self.sites.iter().map(|(target, site)| (*target, site))
    }

    /// Whether any copies have to be moved or made elsewhere.
    pub fn any_goes(&self) -> bool {
        self.sites.values().any(|site| matches!(site.fit, Fit::Leaves | Fit::Lost))
    }

    /// Distance of a target from those of other copies.
    pub fn apart(&self, target: TargetId, others: &BTreeSet<TargetId>) -> Apart {
        let homes = others.iter().filter_map(|other| self.sites.get(other)).map(|site| site.home);
        self.sites.get(&target).map_or(Apart::Target, |site| Apart::of(site.home, homes))
    }

    /// Possible targets of another copy that are not in `taken`: those furthest from the remaining
    /// copies.
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

    /// Restricts candidates to those in another group of nodes than all remaining copies, if there
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

    /// Sets the targets that get copies only if no others can.
    pub fn close(&mut self, closed: BTreeSet<TargetId>) {
        self.closed = closed;
    }

    /// Whether a target may get copies like others.
    pub fn is_open(&self, target: TargetId) -> bool {
        !self.closed.contains(&target)
    }

    /// The number of groups of nodes of these copies, if that matters, and of domains, machines and
    /// servers: the more the better, in this order.
    pub fn spread(&self, copies: &BTreeSet<TargetId>, in_groups: bool) -> (usize, Spread) {
        let homes = copies.iter().filter_map(|target| self.sites.get(target)).map(|s| s.home);
        let groups: BTreeSet<bool> =
            copies.iter().filter(|_| in_groups).filter_map(|target| self.group(*target)).collect();
        (groups.len(), Spread::of(homes))
    }

    /// Whether [`Sites::spread`] would be better if all targets took copies: some may do so again.
    pub fn are_makeshift(&self, copies: &BTreeSet<TargetId>, in_groups: bool) -> bool {
        let (groups, are) = self.spread(copies, in_groups);
        let in_one_group = in_groups && groups < self.most.servers.min(copies.len()).min(2);
        in_one_group || are != self.most.at_most(copies.len())
    }

    /// Whether [`Sites::spread`] would be better with one of the candidates in place of one of
    /// these copies.
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

    /// The target that got the fewest copies; `seed` chooses among equals.
    pub fn least_given(&self, among: &[TargetId], seed: u64) -> Option<TargetId> {
        let given = |target: &TargetId| self.given.get(target).copied().unwrap_or(0);
        among.iter().copied().min_by_key(|target| (given(target), mixed(seed, *target), *target))
    }

    /// Counts a copy for a target.
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
