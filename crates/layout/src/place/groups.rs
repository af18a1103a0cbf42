//! Two groups of nodes (CEFT-PVFS): a file is striped over one group, and the other one mirrors it.
//! The less loaded group becomes the primary one of a new file.

use super::{Home, LayoutSpec, MAX_COLUMNS, Random, Ring, TargetInfo, check_base, check_enough};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use weir_types::{Error, ErrorKind, Placement, Result, ServerId};

/// Assigns nodes to two groups. All nodes of a domain are in one group. In the order of their
/// numbers, a node joins the group of its domain, and the first node of a domain joins the group
/// with fewer nodes. So if each node has a domain of its own, every second one is in the second
/// group. If all nodes are in one domain, machines count instead of domains; if all are on one
/// machine, servers do. An added node does not change the groups, except if it makes a second
/// domain or a second machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    second: BTreeSet<ServerId>,
}

impl Groups {
    /// The groups of these nodes, each of which may appear several times.
    pub fn of(homes: impl Iterator<Item = Home>) -> Self {
        let all: BTreeMap<ServerId, Home> = homes.map(|home| (home.server, home)).collect();
        let several = |unit: fn(&Home) -> ServerId| {
            let units = || all.values().map(unit);
            units().min() != units().max()
        };
        let units: [fn(&Home) -> ServerId; 2] = [|home| home.domain.0, |home| home.host.0];
        let unit = units.into_iter().find(|unit| several(*unit)).unwrap_or(|home| home.server);
        let mut second = BTreeSet::new();
        let mut halves: BTreeMap<ServerId, bool> = BTreeMap::new();
        for (done, home) in all.values().enumerate() {
            let fewer = second.len() < done - second.len();
            if *halves.entry(unit(home)).or_insert(fewer) {
                second.insert(home.server);
            }
        }
        Self { second }
    }

    /// Whether a node is in the second group.
    pub fn is_second(&self, server: ServerId) -> bool {
        self.second.contains(&server)
    }
}

/// The targets of a new file with two copies, in pairs: first those of the primary group, then
/// those of the other group, then all further targets.
pub(super) fn ring(spec: &LayoutSpec, targets: &[TargetInfo], seed: u64) -> Result<Ring> {
    let wanted = usize::from(spec.count.max(1));
    let copies = usize::from(spec.copies.max(1));
    check_enough(spec, targets, wanted, wanted.max(copies))?;
    check_base(spec.base, targets)?;
    let groups = Groups::of(targets.iter().map(|t| t.home));
    let is_there = |second: bool| {
        targets.iter().any(|t| t.online && groups.is_second(t.home.server) == second)
    };
    let halves = [false, true].map(|second| {
        // If the other group is away, this one holds all copies.
        let needed = if is_there(!second) { wanted } else { wanted.max(copies) };
        Half::of(targets, &groups, second, needed)
    });
    let primary = match spec.base {
        Some(base) => usize::from(groups.is_second(targets[base as usize].home.server)),
        None => less_loaded(&halves, wanted, seed),
    };
    let chosen = if halves[primary].usable.is_empty() { 1 - primary } else { primary };
    let (own, other) = (&halves[chosen].usable, &halves[1 - chosen].usable);
    if own.len() < wanted {
        let what = format!(
            "{wanted} targets of one group are asked for, and {} of {} can be written to: ask for \
             fewer",
            own.len(),
            halves[chosen].all
        );
        let kind = match halves[chosen].all < wanted {
            true => ErrorKind::InvalidArgument,
            false => ErrorKind::Unreachable,
        };
        return Err(Error::new(kind, what));
    }
    // As many as have a partner of their own.
    let pairs = if other.is_empty() { own.len() } else { own.len().min(other.len()) };
    let count = if spec.count == 0 { pairs.min(MAX_COLUMNS) } else { wanted };
    let first = match spec.base {
        Some(base) => own.partition_point(|&i| i < base as usize),
        None => Random::new(seed).below(own.len() as u64) as usize,
    } % own.len();
    let turned = |half: &[usize], n: usize| -> Vec<TargetInfo> {
        (0..half.len()).map(|i| targets[half[(n + i) % half.len()]]).collect()
    };
    let mut ring = turned(own, first);
    let rest = ring.split_off(count);
    // A target has the same partner for all files.
    let mut mirrors = turned(other, first % other.len().max(1));
    // While the other group is away, copies are chained within this one.
    if mirrors.is_empty() && own.len() < copies {
        let second = chosen == 0;
        mirrors = targets.iter().filter(|t| !t.online && t.returns).copied().collect();
        let is_partner = |t: &TargetInfo| groups.is_second(t.home.server) == second;
        if mirrors.iter().any(is_partner) {
            mirrors.retain(is_partner);
        }
    }
    ring.extend(&mirrors);
    ring.extend(rest);
    let (primaries, mirrors, base) = (count, mirrors.len(), own[first] as u32);
    Ok(Ring { base, targets: ring, primaries, mirrors, copies, placement: Placement::Groups, seed })
}

/// One of the two groups.
struct Half {
    /// Number of targets.
    all: usize,
    /// Positions of the targets that can be written; full ones only if there are not enough others.
    usable: Vec<usize>,
    /// The known load.
    primaries: u64,
    free_bytes: u64,
}

impl Half {
    fn of(targets: &[TargetInfo], groups: &Groups, second: bool, needed: usize) -> Self {
        let mine = || {
            let all = targets.iter().enumerate();
            all.filter(move |(_, t)| groups.is_second(t.home.server) == second)
        };
        let online = || mine().filter(|(_, t)| t.online);
        let roomy = online().filter(|(_, t)| t.has_room()).count();
        let usable = online().filter(|(_, t)| roomy < needed || t.has_room());
        Self {
            all: mine().count(),
            usable: usable.map(|(i, _)| i).collect(),
            primaries: mine().map(|(_, t)| t.primaries).fold(0, u64::saturating_add),
            free_bytes: online().map(|(_, t)| t.free_bytes).fold(0, u64::saturating_add),
        }
    }
}

/// Chooses the primary group of a new file: of the groups with enough targets, the one with fewer
/// first copies, then the one with more free space, then a random one.
fn less_loaded(halves: &[Half; 2], wanted: usize, seed: u64) -> usize {
    let any = Random::new(seed ^ HALVES).below(2) as usize;
    let rank = |&i: &usize| {
        let half = &halves[i];
        (half.usable.len() < wanted, half.primaries, Reverse(half.free_bytes), i != any)
    };
    [0, 1].into_iter().min_by_key(rank).unwrap_or_default()
}

/// Makes the choice of the group independent of the choice of the first target.
const HALVES: u64 = 0x5bd1_e995;
