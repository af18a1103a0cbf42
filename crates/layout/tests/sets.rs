//! Sets of every code on nodes of every kind: the rules for their places, and every loss of as many
//! nodes as they must survive.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use proptest::prelude::*;
use std::collections::BTreeSet;
use weir_layout::set::{
    Arrangement, Block, Fault, Member, Parity, Set, SetCode, Site, Unrecoverable,
};
use weir_layout::{Domain, Home, Host};
use weir_types::{ServerId, TargetId};

/// Targets of servers, with `on_host` servers on each machine and `in_domain` machines in each
/// domain.
fn sites(servers: u32, targets: u32, on_host: u32, in_domain: u32) -> Vec<Site> {
    let site = |i: u32| {
        let server = i / targets;
        let host = server / on_host * on_host;
        let domain = host / (on_host * in_domain) * (on_host * in_domain);
        let home = Home {
            server: ServerId(server),
            host: Host(ServerId(host)),
            domain: Domain(ServerId(domain)),
        };
        Site { target: TargetId(i), home }
    };
    (0..servers * targets).map(site).collect()
}

fn set(code: SetCode, sites: &[Site], held: &[Vec<TargetId>], anywhere: bool) -> Set<usize> {
    let mut arrangement = Arrangement::new(code, sites).unwrap();
    let mut members = Vec::new();
    for (what, held) in held.iter().enumerate() {
        if let Some(targets) = arrangement.add(held, anywhere) {
            members.push(Member { what, generation: 7, len: 1, targets });
        }
    }
    let parity = |target| Parity { generation: 9, target };
    Set { code, members, parities: arrangement.parities().into_iter().map(parity).collect() }
}

/// For each of `members` members, three targets that hold it.
fn held(seed: &[u32], members: usize, targets: usize) -> Vec<Vec<TargetId>> {
    let target = |i: &u32| TargetId(i % targets as u32);
    seed.chunks(3).take(members).map(|three| three.iter().map(target).collect()).collect()
}

/// All subsets of `size` elements.
fn choices<T: Copy>(from: &[T], size: usize) -> Vec<Vec<T>> {
    if size == 0 {
        return vec![vec![]];
    }
    let rest = |(i, first): (usize, &T)| {
        let first = *first;
        choices(&from[i + 1..], size - 1).into_iter().map(move |rest| [vec![first], rest].concat())
    };
    from.iter().enumerate().flat_map(rest).collect()
}

/// Whether all members can be restored if these targets are lost.
fn survives(set: &Set<usize>, lost: &BTreeSet<TargetId>) -> bool {
    let targets: std::collections::BTreeMap<Block, TargetId> = set.blocks().collect();
    let found = |block| (!lost.contains(&targets[&block])).then(|| set.generation(block));
    set.recover(found).is_ok()
}

/// The choices of `lost` nodes whose loss loses data.
fn fatal(
    set: &Set<usize>,
    sites: &[Site],
    lost: usize,
    node: impl Fn(&Site) -> ServerId,
) -> Vec<Vec<ServerId>> {
    let nodes: BTreeSet<ServerId> = sites.iter().map(&node).collect();
    let nodes: Vec<ServerId> = nodes.into_iter().collect();
    let on = |lost: &Vec<ServerId>| -> BTreeSet<TargetId> {
        sites.iter().filter(|site| lost.contains(&node(site))).map(|site| site.target).collect()
    };
    choices(&nodes, lost).into_iter().filter(|lost| !survives(set, &on(lost))).collect()
}

fn code() -> impl Strategy<Value = SetCode> {
    prop_oneof![
        (2..=16_usize).prop_map(|members| SetCode::Raid6 { members }),
        (2..=16_usize).prop_map(|members| SetCode::Raid5Mirror { members }),
        (2..=8_usize, 1..=3_usize)
            .prop_map(|(members, parities)| SetCode::ReedSolomon { members, parities }),
    ]
}

/// The smallest number of nodes for a set of this code.
fn fewest(code: SetCode) -> u32 {
    let pairs = |nodes: usize| nodes * (nodes - 1) / 2;
    match code {
        SetCode::Raid5Mirror { members } => {
            (2..).find(|&nodes| pairs(nodes) >= members).unwrap() as u32 + 1
        }
        _ => (code.members() + code.parities()) as u32,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For every choice of as many lost nodes as the code must survive; nodes are domains.
    #[test]
    fn every_failure_that_a_code_bears_is_survived(
        code in code(),
        more in 0..3_u32,
        targets in 1..3_u32,
        on_host in 1..3_u32,
        seed in proptest::collection::vec(0..1000_u32, 48),
    ) {
        let sites = sites((fewest(code) + more) * on_host, targets, on_host, 1);
        let held = held(&seed, code.members(), sites.len());
        let set = set(code, &sites, &held, true);
        prop_assert_eq!(set.members.len(), code.members());
        prop_assert_eq!(set.check(&sites), Ok(()));
        let lost = fatal(&set, &sites, code.bears(), |site| site.home.domain.0);
        prop_assert!(lost.is_empty(), "{:?}: lost with {:?}", set, lost);
    }

    /// With fewer domains than blocks each has as few as can be.
    #[test]
    fn blocks_are_spread_evenly_over_domains(
        members in 2..=16_usize,
        domains in 1..8_u32,
        hosts in 1..8_u32,
    ) {
        let code = SetCode::Raid6 { members };
        let sites = sites(domains * hosts, 2, 1, hosts);
        prop_assume!(sites.len() >= members + 2);
        let set = set(code, &sites, &vec![vec![]; members], true);
        prop_assert_eq!(set.check(&sites), Ok(()));
        let mut counts = std::collections::BTreeMap::new();
        for (_, target) in set.blocks() {
            *counts.entry(sites[target.0 as usize].home.domain).or_insert(0) += 1;
        }
        let full = sites.len() / domains as usize;
        let most = counts.values().max().unwrap();
        prop_assert!(counts.len() == (domains as usize).min(members + 2));
        prop_assert!(counts.values().all(|count| most - count <= 1 || *count == full));
    }

    /// The rule of pairs is exactly what double failures ask for: of places drawn at random,
    /// those and only those that break it lose data with some two nodes.
    #[test]
    fn wrong_pairs_are_those_that_lose_data(
        pairs in proptest::collection::vec((0..7_u32, 0..7_u32), 2..=8),
        parity in 0..7_u32,
    ) {
        let sites = sites(7, 1, 1, 1);
        let member = |(what, &(a, b)): (usize, &(u32, u32))| {
            let b = if a == b { (b + 1) % 7 } else { b };
            Member { what, generation: 1, len: 1, targets: vec![TargetId(a), TargetId(b)] }
        };
        let set = Set {
            code: SetCode::Raid5Mirror { members: 8 },
            members: pairs.iter().enumerate().map(member).collect(),
            parities: vec![Parity { generation: 1, target: TargetId(parity) }],
        };
        let is_fatal = !fatal(&set, &sites, 2, |site| site.home.server).is_empty();
        prop_assert_eq!(set.check(&sites).is_err(), is_fatal);
    }

    /// Members that are not moved are where they were.
    #[test]
    fn what_is_not_moved_stays_where_a_copy_is(
        code in code(),
        seed in proptest::collection::vec(0..1000_u32, 60),
    ) {
        let sites = sites(fewest(code) + 2, 1, 1, 1);
        let held = held(&seed, 20, sites.len());
        let set = set(code, &sites, &held, false);
        for member in &set.members {
            prop_assert!(member.targets.iter().all(|target| held[member.what].contains(target)));
        }
        prop_assert_eq!(set.check(&sites), Ok(()));
        let lost = fatal(&set, &sites, code.bears(), |site| site.home.server);
        prop_assert!(lost.is_empty(), "{:?}: lost with {:?}", set, lost);
    }
}

#[test]
fn planted_places_are_found() {
    let sites = sites(10, 1, 1, 1);
    let held = vec![vec![]; 8];
    let good = set(SetCode::Raid5Mirror { members: 8 }, &sites, &held, true);
    assert_eq!(good.check(&sites), Ok(()));
    let mut same = good.clone();
    same.members[5].targets = same.members[2].targets.iter().rev().copied().collect();
    assert_eq!(same.check(&sites), Err(Fault::SamePair(2, 5)));
    assert_eq!(fatal(&same, &sites, 2, |site| site.home.server).len(), 1);
    let mut beside = good.clone();
    beside.parities[0].target = beside.members[0].targets[1];
    assert!(matches!(beside.check(&sites), Err(Fault::ParityBeside(_))));
    let mut close = set(SetCode::Raid6 { members: 8 }, &sites, &held, true);
    close.parities[1].target = close.members[3].targets[0];
    assert_eq!(close.check(&sites), Err(Fault::Shared(close.members[3].targets[0])));
}

#[test]
fn a_member_of_another_generation_is_not_decoded_from() {
    let sites = sites(10, 1, 1, 1);
    let set = set(SetCode::Raid6 { members: 8 }, &sites, &vec![vec![]; 8], true);
    let stale = Block::Member { member: 2, copy: 0 };
    let lost = Block::Member { member: 5, copy: 0 };
    let found = |block: Block| match block {
        _ if block == stale => Some(set.generation(block) + 1),
        _ if block == lost => None,
        _ => Some(set.generation(block)),
    };
    let recovery = set.recover(found).unwrap();
    assert_eq!(recovery.decoded, [stale, lost]);
    let (_, sources) = recovery.repair.unwrap();
    assert!(!sources.contains(&Some(stale)) && sources.contains(&Some(Block::Parity(1))));
}

#[test]
fn a_set_with_few_members_comes_back_as_well() {
    let sites = sites(10, 1, 1, 1);
    for count in 1..8 {
        let set = set(SetCode::Raid6 { members: 8 }, &sites, &vec![vec![]; count], true);
        assert!(fatal(&set, &sites, 2, |site| site.home.server).is_empty());
    }
}

#[test]
fn copies_come_back_from_copies_though_more_is_lost_than_the_code_bears() {
    let sites = sites(10, 1, 1, 1);
    let set = set(SetCode::Raid5Mirror { members: 8 }, &sites, &vec![vec![]; 8], true);
    let block = |member, copy| Block::Member { member, copy };
    let lost = [block(0, 0), block(0, 1), block(1, 0), block(1, 1), block(2, 0)];
    let found = |block: Block| (!lost.contains(&block)).then(|| set.generation(block));
    let Err(Unrecoverable::Lost { copied, .. }) = set.recover(found) else { panic!("no error") };
    assert_eq!(copied, [(block(2, 0), block(2, 1))]);
}
