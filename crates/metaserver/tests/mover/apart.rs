//! Copies are on different servers, machines and racks.

use super::servers::*;
use std::collections::BTreeSet;
use weir_types::{Epoch, ErrorKind, LayoutKind, LayoutSpec, Placement, TargetId};
use weir_wire::meta::OpenFile;
use weir_wire::targets::ListTargetsRequest;

#[test]
fn copies_that_had_to_share_a_server_are_parted_when_others_are_back() {
    let mut s = Servers::new(1);
    let reports = [5, 6].map(Model::report).to_vec();
    s.c.register(2, &[5, 6]).unwrap();
    s.dead.insert(1);
    let beat = |s: &mut Servers| {
        s.c.heartbeat_under(2, Epoch(u64::MAX), reports.clone()).unwrap();
        s.quarter();
    };
    (0..40).for_each(|_| beat(&mut s));
    let spec = LayoutSpec { copies: 2, count: 1, ..LayoutSpec::default() };
    let file = s.create_of("f", spec);
    assert_eq!(s.copies(&file)[0], BTreeSet::from([5, 6]));
    s.dead.clear();
    let mut reports = reports.clone();
    for _ in 0..80 {
        let reply = s.c.heartbeat_under(2, Epoch(u64::MAX), reports.clone()).unwrap();
        reports[0].filled = reply.fill.clone();
        reports[0].removed = reply.remove.iter().map(|(_, object)| *object).collect();
        s.quarter();
    }
    assert!(s.copies(&file)[0].contains(&1), "{:?}", s.copies(&file));
}

/// Servers 1 and 2 are on one machine, each other one is on its own.
fn two_on_a_machine(count: u32) -> Servers {
    let mut s = Servers::new(count);
    s.c.register_on("node-1", 2, &[2]).unwrap();
    s.pass(1);
    s
}

#[test]
fn copies_are_on_other_machines() {
    let mut s = two_on_a_machine(3);
    let layouts = [
        LayoutSpec { copies: 2, count: 1, ..LayoutSpec::default() },
        LayoutSpec { copies: 2, ..LayoutSpec::default() },
        LayoutSpec { copies: 2, count: 2, kind: LayoutKind::Chunked, ..LayoutSpec::default() },
        LayoutSpec { copies: 2, placement: Placement::Groups, ..LayoutSpec::default() },
    ];
    for (n, spec) in layouts.into_iter().cycle().take(24).enumerate() {
        let file = s.create_of(&format!("f{n}"), spec.clone());
        let copies = s.copies(&file);
        assert!(copies.iter().all(|on| on.len() == 2 && on.contains(&3)), "{spec:?} {copies:?}");
    }
    // Not where there is no other.
    let three = s.create("three", 3);
    assert_eq!(s.copies(&three)[0], BTreeSet::from([1, 2, 3]));
}

#[test]
fn copies_that_had_to_share_a_machine_are_parted_when_another_is_back() {
    let mut s = two_on_a_machine(3);
    s.dead.insert(3);
    s.pass(10);
    let files: Vec<OpenFile> = (0..4).map(|n| s.create(&format!("f{n}"), 2)).collect();
    assert!(files.iter().all(|f| s.copies(f) == [BTreeSet::from([1, 2]), BTreeSet::from([1, 2])]));
    s.dead.clear();
    s.pass(20);
    for file in &files {
        let copies = s.copies(file);
        assert!(copies.iter().all(|on| on.len() == 2 && on.contains(&3)), "{copies:?}");
    }
    // Nothing goes on moving.
    let moved = s.counter("mover.copies_done");
    s.pass(20);
    assert_eq!(s.counter("mover.copies_done"), moved);
}

#[test]
fn copies_on_one_machine_are_parted_when_the_cluster_gets_a_second_one() {
    let mut s = two_on_a_machine(2);
    let files: Vec<OpenFile> = (0..4).map(|n| s.create(&format!("f{n}"), 2)).collect();
    s.pass(10);
    assert_eq!(s.counter("mover.copies_done"), 0);
    s.c.register(3, &[3]).unwrap();
    s.all.push(3);
    s.pass(20);
    for file in &files {
        let copies = s.copies(file);
        assert!(copies.iter().all(|on| on.len() == 2 && on.contains(&3)), "{copies:?}");
    }
}

/// Servers 1 and 2 are in one rack, 3 and 4 in another: so their administrator says.
fn in_two_racks(s: &mut Servers) {
    for server in 1..=4 {
        let rack = if server <= 2 { "rack1" } else { "rack2" };
        s.c.register_in((&format!("node-{server}"), rack), server, &[server]).unwrap();
    }
}

#[test]
fn copies_are_parted_when_it_is_said_which_machines_share_a_rack() {
    let mut s = Servers::new(4);
    let pair = |base| LayoutSpec { copies: 2, count: 2, base: Some(base), ..Default::default() };
    let files: Vec<OpenFile> =
        (0..4).map(|n| s.create_of(&format!("f{n}"), pair(n % 2 * 2))).collect();
    assert_eq!(s.copies(&files[0]), vec![BTreeSet::from([1, 2]); 2]);
    assert_eq!(s.copies(&files[1]), vec![BTreeSet::from([3, 4]); 2]);
    in_two_racks(&mut s);
    s.pass(20);
    let racks = |on: &BTreeSet<u32>| on.iter().map(|server| server / 3).collect::<BTreeSet<_>>();
    for file in &files {
        let copies = s.copies(file);
        assert!(copies.iter().all(|on| on.len() == 2 && racks(on).len() == 2), "{copies:?}");
    }
    let moved = s.counter("mover.copies_done");
    s.pass(20);
    assert_eq!(s.counter("mover.copies_done"), moved, "nothing goes on moving");
    // New ones are apart, and what is made of others is.
    for (n, placement) in
        [Placement::Chained, Placement::Groups, Placement::Random].iter().enumerate()
    {
        let spec = LayoutSpec { copies: 2, placement: *placement, ..LayoutSpec::default() };
        let new = s.create_of(&format!("new{n}"), spec);
        assert!(s.copies(&new).iter().all(|on| racks(on).len() == 2), "{placement:?}");
    }
    let single = s.create("single", 1);
    s.set_copies(&single, 3);
    s.pass(10);
    let copies = s.copies(&single);
    assert!(copies.iter().all(|on| on.len() == 3 && racks(on).len() == 2), "{copies:?}");
}

/// Copies that were made in the other rack meanwhile do not stay there.
#[test]
fn copies_are_in_two_racks_again_when_one_that_was_lost_is_back() {
    let mut s = Servers::new(4);
    in_two_racks(&mut s);
    s.pass(2);
    let chained = LayoutSpec { copies: 2, ..LayoutSpec::default() };
    let groups = LayoutSpec { placement: Placement::Groups, ..chained.clone() };
    let specs = [chained, groups].into_iter().cycle().take(4).enumerate();
    let files: Vec<OpenFile> = specs.map(|(n, spec)| s.create_of(&format!("f{n}"), spec)).collect();
    s.dead.extend([3, 4]);
    s.pass(45);
    for file in &files {
        assert!(s.copies(file).iter().all(|on| *on == BTreeSet::from([1, 2])));
    }
    s.dead.clear();
    s.pass(30);
    for file in &files {
        let copies = s.copies(file);
        let apart = |on: &BTreeSet<u32>| on.iter().map(|server| server / 3).sum::<u32>() == 1;
        assert!(copies.iter().all(|on| on.len() == 2 && apart(on)), "{copies:?}");
    }
}

#[test]
fn the_rack_of_a_server_is_shown_and_outlives_the_metadata_server() {
    let mut s = Servers::new(4);
    in_two_racks(&mut s);
    for _ in 0..2 {
        let page = s.c.ask(&s.me, &ListTargetsRequest { after: None }).unwrap();
        let racks: Vec<&str> = page.targets.iter().map(|view| view.domain.as_str()).collect();
        assert_eq!(racks, ["rack1", "rack1", "rack2", "rack2"]);
        s = s.restart();
    }
    let error = s.c.register_in(("node-4", "rack 2"), 4, &[4]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument);
    assert!(error.message.contains("`rack 2`"), "{error}");
    // It is in none any more.
    s.c.register(4, &[4]).unwrap();
    let page = s.c.ask(&s.me, &ListTargetsRequest { after: Some(TargetId(3)) }).unwrap();
    assert_eq!(page.targets[0].domain, "");
}
