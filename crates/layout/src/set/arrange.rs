//! Which targets hold the blocks of a new set.
//!
//! **RAID 6 and `k+m`**: no two blocks are on one target. They are also spread over domains,
//! machines and servers: a block goes where the fewest others are.
//!
//! **RAID 5 and mirror**: the two copies of a member are on two nodes, no two members are on the
//! same pair of nodes, and P is on no node of any pair. If two members shared a pair, or P were on
//! a node of one, the loss of that pair would lose data. A node here is a domain if there are
//! enough of them, or else a machine, or else a server.

use super::code::SetCode;
use crate::place::Home;
use std::collections::{BTreeMap, BTreeSet};
use weir_types::{ServerId, TargetId};

/// A target that can hold blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The target.
    pub target: TargetId,
    /// Its server, machine and failure domain.
    pub home: Home,
}

/// There are not enough targets, or they share too many failure domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooFew {
    code: SetCode,
    needed: usize,
    of_what: &'static str,
    there: usize,
}

impl std::fmt::Display for TooFew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { code, needed, of_what, there } = self;
        write!(
            f,
            "{code} needs at least {needed} {of_what}, there are {there}: add some, or choose a \
             code with fewer members"
        )
    }
}

impl std::error::Error for TooFew {}

/// A set under construction.
#[derive(Clone, Debug)]
pub struct Arrangement {
    code: SetCode,
    sites: Vec<Site>,
    /// For each site, the id of what counts as its node.
    nodes: Vec<ServerId>,
    /// For each member, the sites of its copies.
    members: Vec<Vec<usize>>,
}

impl Arrangement {
    /// An empty set on some of these targets.
    ///
    /// # Errors
    /// If there are too few of them for a full set.
    pub fn new(code: SetCode, sites: &[Site]) -> Result<Self, TooFew> {
        let (needed, of_what) = match code {
            SetCode::Raid5Mirror { members } => (nodes_for_pairs(members) + 1, "nodes"),
            _ => (code.members() + code.parities(), "targets"),
        };
        let sites: Vec<Site> = {
            let mut seen = BTreeSet::new();
            sites.iter().copied().filter(|site| seen.insert(site.target)).collect()
        };
        let levels: [fn(&Home) -> ServerId; 3] =
            [|home| home.domain.0, |home| home.host.0, |home| home.server];
        let at = |level: fn(&Home) -> ServerId| -> Vec<ServerId> {
            sites.iter().map(|site| level(&site.home)).collect()
        };
        let count = |nodes: &Vec<ServerId>| nodes.iter().collect::<BTreeSet<_>>().len();
        let nodes = levels.into_iter().map(at).find(|nodes| count(nodes) >= needed);
        let nodes = nodes.unwrap_or_else(|| at(levels[2]));
        let there = match code {
            SetCode::Raid5Mirror { .. } => count(&nodes),
            _ => sites.len(),
        };
        if there < needed {
            return Err(TooFew { code, needed, of_what, there });
        }
        Ok(Self { code, sites, nodes, members: Vec::new() })
    }

    /// Whether the set has as many members as its code.
    pub fn is_full(&self) -> bool {
        self.members.len() >= self.code.members()
    }

    /// Adds a member with copies on the `held` targets, if these have a suitable place. With
    /// `anywhere`, other targets are used where needed, and the caller makes copies there; then a
    /// place always exists. Returns the targets of its copies.
    pub fn add(&mut self, held: &[TargetId], anywhere: bool) -> Option<Vec<TargetId>> {
        if self.is_full() {
            return None;
        }
        let held: Vec<usize> =
            (0..self.sites.len()).filter(|&i| held.contains(&self.sites[i].target)).collect();
        let chosen = match self.code {
            SetCode::Raid5Mirror { .. } => self.pair(&held, anywhere)?,
            _ => vec![self.apart(&held, anywhere, &self.used())?],
        };
        self.members.push(chosen.clone());
        Some(self.targets(&chosen))
    }

    /// The targets of the parities.
    pub fn parities(&self) -> Vec<TargetId> {
        let mut used = self.used();
        match self.code {
            SetCode::Raid5Mirror { .. } => {
                let free = self.free_nodes();
                let site = (0..self.sites.len()).find(|&i| free.contains(&self.nodes[i]));
                self.targets(site.as_slice())
            }
            _ => {
                let mut chosen = Vec::new();
                while let Some(next) = (chosen.len() < self.code.parities())
                    .then(|| self.apart(&[], true, &used))
                    .flatten()
                {
                    used.push(next);
                    chosen.push(next);
                }
                self.targets(&chosen)
            }
        }
    }

    fn targets(&self, sites: &[usize]) -> Vec<TargetId> {
        sites.iter().map(|&site| self.sites[site].target).collect()
    }

    fn used(&self) -> Vec<usize> {
        self.members.iter().flatten().copied().collect()
    }

    /// A site without a block: in a domain, then on a machine, then on a server with the fewest
    /// blocks.
    fn apart(&self, held: &[usize], anywhere: bool, used: &[usize]) -> Option<usize> {
        let rank = |site: usize| load(self.sites[site].home, used.iter().map(|&i| self.sites[i]));
        let free = (0..self.sites.len()).filter(|site| !used.contains(site));
        let ranked: Vec<_> = free.map(|site| (rank(site), site)).collect();
        let least = ranked.iter().map(|(rank, _)| *rank).min()?;
        let mut best = ranked.iter().filter(|(rank, _)| *rank == least).map(|(_, site)| *site);
        let first = best.clone().next();
        best.find(|site| held.contains(site)).or(first.filter(|_| anywhere))
    }

    /// Nodes without a copy of any member.
    fn free_nodes(&self) -> BTreeSet<ServerId> {
        let used: BTreeSet<_> = self.used().into_iter().map(|site| self.nodes[site]).collect();
        self.nodes.iter().copied().filter(|node| !used.contains(node)).collect()
    }

    /// Two sites on a pair of nodes that no member uses, such that a node is left for P. Prefers
    /// sites that hold the member, then nodes with few blocks.
    fn pair(&self, held: &[usize], anywhere: bool) -> Option<Vec<usize>> {
        let node = |site: usize| self.nodes[site];
        let taken: BTreeSet<_> =
            self.members.iter().map(|pair| ordered(node(pair[0]), node(pair[1]))).collect();
        let mut loads: BTreeMap<ServerId, usize> = BTreeMap::new();
        self.used().into_iter().for_each(|site| *loads.entry(node(site)).or_default() += 1);
        let load = |site: usize| loads.get(&node(site)).copied().unwrap_or(0);
        let free = self.free_nodes();
        let fits = |a: usize, b: usize| {
            let more = free.iter().filter(|&&f| f == node(a) || f == node(b)).count();
            node(a) != node(b) && !taken.contains(&ordered(node(a), node(b))) && more < free.len()
        };
        let sites = self.sites_to_pair(held, anywhere, load);
        let pairs = sites.iter().flat_map(|&a| sites.iter().map(move |&b| (a, b)));
        let rank = |&(a, b): &(usize, usize)| {
            let moved = [a, b].iter().filter(|site| !held.contains(site)).count();
            (moved, load(a).max(load(b)), load(a) + load(b))
        };
        let best = pairs.filter(|&(a, b)| a < b && fits(a, b)).min_by_key(rank);
        best.map(|(a, b)| vec![a, b])
    }

    /// Sites for a pair: those that hold the member, and one on each of as many nodes as have
    /// enough pairs. Nodes in use come first, so that few are in use and one is left for P.
    fn sites_to_pair(
        &self,
        held: &[usize],
        anywhere: bool,
        load: impl Fn(usize) -> usize,
    ) -> Vec<usize> {
        let mut sites = held.to_vec();
        if anywhere {
            let mut seen = BTreeSet::new();
            let mut firsts: Vec<usize> =
                (0..self.sites.len()).filter(|&site| seen.insert(self.nodes[site])).collect();
            firsts.sort_by_key(|&site| load(site) == 0);
            firsts.truncate(self.used().len() + nodes_for_pairs(self.code.members()) + 1);
            sites.extend(firsts.into_iter().filter(|site| !held.contains(site)));
        }
        sites
    }
}

/// Number of blocks already in the domain, on the machine and on the server of a home.
fn load(home: Home, blocks: impl Iterator<Item = Site>) -> [usize; 3] {
    blocks.fold([0; 3], |[domain, host, server], other| {
        [
            domain + usize::from(other.home.domain == home.domain),
            host + usize::from(other.home.host == home.host),
            server + usize::from(other.home.server == home.server),
        ]
    })
}

/// The smallest number of nodes with at least this many pairs.
fn nodes_for_pairs(pairs: usize) -> usize {
    let mut nodes = 2;
    while nodes * (nodes - 1) / 2 < pairs {
        nodes += 1;
    }
    nodes
}

fn ordered(a: ServerId, b: ServerId) -> (ServerId, ServerId) {
    (a.min(b), a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_pairs_and_p_need_six_nodes() {
        assert_eq!(nodes_for_pairs(8) + 1, 6);
        let sites = |count: u32| -> Vec<Site> {
            let site = |i| Site { target: TargetId(i), home: Home::alone(ServerId(i)) };
            (0..count).map(site).collect()
        };
        let code = SetCode::Raid5Mirror { members: 8 };
        let error = Arrangement::new(code, &sites(5)).unwrap_err().to_string();
        assert!(error.contains("at least 6 nodes, there are 5"), "{error}");
        let mut set = Arrangement::new(code, &sites(6)).unwrap();
        while !set.is_full() {
            assert!(set.add(&[], true).is_some());
        }
        assert_eq!(set.parities().len(), 1);
    }
}
