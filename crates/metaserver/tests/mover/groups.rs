//! Copies of files in two groups.

use super::servers::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_types::{ErrorKind, LayoutKind, LayoutSpec, Placement};
use weir_wire::meta::{OpenFile, RebalanceRequest};

/// Servers 1 and 3 are one group, 2 and 4 the other.
#[test]
fn copies_of_a_file_with_data_are_moved_when_two_groups_are_named() {
    let mut s = Servers::new(4);
    let pair = |base| LayoutSpec { copies: 2, count: 1, base: Some(base), ..Default::default() };
    let groups = LayoutSpec { copies: 2, placement: Placement::Groups, ..Default::default() };
    // On 1 and 3.
    s.dead.extend([2, 4]);
    s.pass(10);
    let files: Vec<OpenFile> = (0..3).map(|n| s.create_of(&format!("f{n}"), pair(0))).collect();
    assert!(files.iter().all(|file| s.copies(file) == [BTreeSet::from([1, 3])]));
    s.dead.clear();
    s.pass(20);
    assert!(files.iter().all(|file| s.copies(file) == [BTreeSet::from([1, 3])]), "that is fine");
    for file in &files {
        s.set_layout(file, groups.clone()).unwrap();
    }
    s.pass(10);
    for file in &files {
        let copies = s.copies(file);
        assert_eq!(copies[0].iter().map(|server| server % 2).sum::<u32>(), 1, "{copies:?}");
    }
    let moved = s.counter("mover.copies_done");
    assert_eq!(moved, 3);
    s.pass(10);
    assert_eq!(s.counter("mover.copies_done"), moved, "nothing goes on moving");
    // A second copy goes where it is to be at once.
    let single = s.create("single", 1);
    s.set_layout(&single, groups).unwrap();
    s.pass(10);
    for on in s.copies(&single) {
        assert_eq!(on.iter().map(|server| server % 2).sum::<u32>(), 1, "{on:?}");
    }
}

#[test]
fn a_placement_that_copies_which_there_are_cannot_be_given_is_refused() {
    let mut s = Servers::new(4);
    let as_usual =
        [(LayoutKind::Striped, Placement::Chained), (LayoutKind::Chunked, Placement::Random)];
    for (kind, usual) in as_usual {
        let file =
            s.create_of(&format!("{kind:?}"), LayoutSpec { kind, copies: 2, ..Default::default() });
        let before = s.copies(&file);
        for placement in [Placement::Chained, Placement::Random] {
            let wish = LayoutSpec { copies: 2, placement, ..LayoutSpec::default() };
            let set = s.set_layout(&file, wish);
            if placement == usual {
                set.unwrap();
                continue;
            }
            let error = set.unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument);
            assert!(
                ["stay where they are", "copy the file"].iter().all(|w| error.message.contains(w)),
                "{error}"
            );
        }
        let chunked = kind == LayoutKind::Chunked;
        let groups = LayoutSpec { copies: 2, placement: Placement::Groups, ..Default::default() };
        assert_eq!(s.set_layout(&file, groups).is_err(), chunked, "chunks are in no groups");
        s.pass(5);
        assert_eq!(s.copies(&file), before);
    }
    // Of one copy all others are new, and those go anywhere.
    let single = s.create("single", 1);
    let random = LayoutSpec { copies: 2, placement: Placement::Random, ..Default::default() };
    s.set_layout(&single, random).unwrap();
    // One that is to be on more targets than a group has could not be emptied any more.
    let wide = s.create_of("wide", LayoutSpec { copies: 2, count: 4, ..Default::default() });
    let groups = LayoutSpec { copies: 2, placement: Placement::Groups, ..Default::default() };
    let error = s.set_layout(&wide, groups).unwrap_err();
    assert!(error.message.contains("of one group"), "{error}");
}

/// The other group was away when the file was made.
#[test]
fn copies_that_had_to_be_in_one_group_are_parted_when_the_other_is_back() {
    let mut s = Servers::new(4);
    s.dead.extend([2, 4]);
    s.pass(10);
    let groups = LayoutSpec { copies: 2, placement: Placement::Groups, ..LayoutSpec::default() };
    let file = s.create_of("f", groups.clone());
    assert!(s.copies(&file).iter().all(|on| *on == BTreeSet::from([1, 3])));
    // And one that is wished to be so now.
    let other = s.create("other", 2);
    s.set_layout(&other, groups).unwrap();
    s.pass(2);
    s.dead.clear();
    s.pass(20);
    for file in [&file, &other] {
        let copies = s.copies(file);
        let apart = |on: &BTreeSet<u32>| on.iter().map(|server| server % 2).sum::<u32>() == 1;
        assert!(copies.iter().all(|on| on.len() == 2 && apart(on)), "{copies:?}");
    }
}

#[test]
fn what_is_evened_out_stays_in_two_groups() {
    let mut s = Servers::new(4);
    let groups =
        LayoutSpec { copies: 2, count: 1, placement: Placement::Groups, ..Default::default() };
    let spec = |n: u32| LayoutSpec { base: Some(n % 2), ..groups.clone() };
    // All on 1 and 2, which are partners, but for one that is on 3 and 4.
    let mut files: Vec<OpenFile> =
        (0..60).map(|n| s.create_of(&format!("f{n}"), spec(n))).collect();
    files.push(s.create_of("last", LayoutSpec { base: Some(2), ..groups.clone() }));
    assert!(files[..60].iter().all(|file| s.copies(file) == [BTreeSet::from([1, 2])]));
    // Only in the group of 1 there is room.
    s.used = BTreeMap::from([(1, TOTAL / 2), (2, TOTAL / 2), (3, 0), (4, TOTAL / 2)]);
    s.pass(1);
    s.c.ask(&s.me, &RebalanceRequest { within_percent: 3, stop: false }).unwrap();
    s.pass(20);
    for file in &files {
        let copies = s.copies(file);
        let apart = |on: &BTreeSet<u32>| on.iter().map(|server| server % 2).sum::<u32>() == 1;
        assert!(copies.iter().all(|on| on.len() == 2 && apart(on)), "{copies:?}");
    }
    // What was on 2 did not go there, and back.
    let there = files[..60].iter().filter(|file| s.copies(file)[0].contains(&3)).count() as u64;
    assert!(there > 0 && s.counter("mover.copies_done") == there, "{there} are on 3");
}
