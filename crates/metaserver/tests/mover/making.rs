//! Copies are made, and dropped, as files want them.

use super::servers::*;
use crate::harness::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_metaserver::machine::MoverSettings;
use weir_types::{
    Duplication, ErrorKind, FileId, LayoutKind, LayoutSpec, ObjectId, Placement, TargetId,
};
use weir_wire::Rights;
use weir_wire::map::TargetState;
use weir_wire::meta::{OpenFile, OpenRequest, SetLayoutRequest, SyncMetaRequest};
use weir_wire::targets::SetTargetRequest;

#[test]
fn copies_of_a_target_that_stays_away_are_made_elsewhere() {
    let mut s = Servers::new(4);
    let files: Vec<OpenFile> = (0..40).map(|n| s.create(&format!("f{n}"), 2)).collect();
    s.dead.insert(1);
    s.pass(15);
    assert!(s.ordered.is_empty(), "it may come back");
    s.pass(30);
    for file in &files {
        for column in s.copies(file) {
            assert_eq!(column.len(), 2);
            assert!(!column.contains(&1), "{column:?}");
        }
    }
    // Each of the others has filled, and has been filled, about as much.
    let mut to = BTreeMap::<TargetId, usize>::new();
    s.ordered.iter().for_each(|fill| *to.entry(fill.to).or_default() += 1);
    let all = s.ordered.len();
    assert!(
        to.len() == 3 && to.values().all(|n| n * 30 >= all * 9 && n * 30 <= all * 11),
        "{to:?}"
    );
    assert_eq!(s.counter("mover.copies_to_do"), 0);
    assert_eq!(s.counter("mover.copies_done"), all as u64);
    // When it returns what it has is removed.
    let garbage = s.c.keys("g/");
    assert_eq!(garbage, all);
    s.dead.clear();
    s.c.register(1, &[1]).unwrap();
    s.pass(3);
    assert_eq!(s.c.keys("g/"), 0);
}

#[test]
fn a_server_makes_no_more_copies_at_a_time_than_rebuild_concurrency_says() {
    for rebuild_concurrency in [1, 3] {
        let mut s = Servers::new(2);
        let mover = MoverSettings { rebuild_concurrency, ..MoverSettings::default() };
        s.c.machine.set_mover(mover);
        let files: Vec<_> = (0..10).map(|n| s.create(&format!("f{n}"), 1)).collect();
        s.idle = true;
        files.iter().for_each(|file| s.set_copies(file, 2));
        s.pass(5);
        let told = [1, 2].map(|server| s.beat(server).fill.len());
        assert_eq!(told, [rebuild_concurrency as usize; 2]);
        s.idle = false;
        s.pass(60);
        assert!(files.iter().all(|file| s.copies(file).iter().all(|on| on.len() == 2)));
    }
}

#[test]
fn more_and_fewer_copies_are_made_of_a_file_with_data() {
    let mut s = Servers::new(3);
    let file = s.create("f", 1);
    let generation = file.attr.generation;
    s.set_copies(&file, 3);
    s.pass(4);
    assert_eq!(s.copies(&file), vec![BTreeSet::from([1, 2, 3]); 2]);
    let open = s.c.make(&mut s.me, &OpenRequest { file: file.attr.file, rights: Rights::READ });
    assert!(open.unwrap().attr.generation > generation, "old layouts are good no more");
    s.set_copies(&file, 1);
    s.pass(4);
    assert!(s.copies(&file).iter().all(|column| column.len() == 1));
    s.pass(2);
    assert_eq!(s.c.keys("g/"), 4, "who had looked before may make it anew");
    s.pass(10);
    assert_eq!(s.c.keys("g/"), 0, "what was dropped is removed");
    assert_eq!(s.state(1, 1), TargetState::Online);
    let other = LayoutSpec { kind: LayoutKind::Chunked, copies: 2, ..LayoutSpec::default() };
    let request = SetLayoutRequest { file: file.attr.file, layout: Some(other) };
    assert_eq!(kind(s.c.make(&mut s.me, &request)), ErrorKind::InvalidArgument);
}

#[test]
fn what_is_not_named_of_the_copies_of_a_file_with_data_stays() {
    let mut s = Servers::new(4);
    let client_async = Some(Duplication::ClientAsync);
    let ways = |s: &mut Servers, open: &OpenFile| {
        let request = OpenRequest { file: open.attr.file, rights: Rights::READ };
        let layout = s.c.make(&mut s.me, &request).unwrap().layout;
        (layout.duplication, layout.placement)
    };
    for placement in [Placement::Chained, Placement::Groups, Placement::Random] {
        let name = format!("{placement:?}");
        let wish =
            LayoutSpec { copies: 2, placement, duplication: client_async, ..Default::default() };
        let file = s.create_of(&name, wish);
        s.set_copies(&file, 2);
        assert_eq!(ways(&mut s, &file), (Duplication::ClientAsync, placement));
        s.set_copies(&file, 3);
        // Two groups keep two copies.
        let usual = if placement == Placement::Groups { Placement::Chained } else { placement };
        assert_eq!(ways(&mut s, &file), (Duplication::ClientAsync, usual));
        s.pass(10);
        s.set_copies(&file, 1);
        s.pass(10);
        assert_eq!(ways(&mut s, &file), (Duplication::ClientAsync, usual));
        let named = LayoutSpec { copies: 2, ..LayoutSpec::default() };
        let named = LayoutSpec { duplication: Some(Duplication::ServerSync), ..named };
        s.set_layout(&file, named).unwrap();
        assert_eq!(ways(&mut s, &file), (Duplication::ServerSync, usual), "unless it is named");
    }
}

/// What was put off, and is said to be done, only the first may have.
#[test]
fn a_copy_that_is_one_too_many_goes_only_when_another_has_everything() {
    let mut s = Servers::new(3);
    let file = s.create("f", 3);
    let all = vec![BTreeSet::from([1, 2, 3]); 2];
    s.idle = true;
    s.set_copies(&file, 2);
    s.pass(60);
    assert_eq!(s.copies(&file), all, "nobody has said so");
    assert!(s.ordered.is_empty());
    s.idle = false;
    s.pass(4);
    assert!(s.copies(&file).iter().all(|column| column.len() == 2));
    assert!(!s.ordered.is_empty());
    s.pass(1);
    assert_eq!(s.counter("mover.filling"), 0);
    // Nothing has to be done any more for one that is kept after all.
    s.idle = true;
    s.set_copies(&file, 1);
    s.pass(1);
    s.set_copies(&file, 2);
    s.idle = false;
    s.pass(3);
    assert!(s.copies(&file).iter().all(|column| column.len() == 2));
    assert_eq!(s.counter("mover.filling"), 0);
}

#[test]
fn nothing_is_forgotten_when_the_server_dies_in_between() {
    let mut s = Servers::new(3);
    let files: Vec<OpenFile> = (0..20).map(|n| s.create(&format!("f{n}"), 1)).collect();
    for file in &files {
        s.set_copies(file, 2);
    }
    for round in 0..60 {
        for _ in 0..round / 8 {
            [1, 2, 3].into_iter().for_each(|server| drop(s.beat(server)));
            s.c.machine.work(1, s.c.now).unwrap();
            s.c.machine.take_ready(s.c.now);
            s.c.machine.flush().unwrap();
            s.c.pass_ms(100);
        }
        s = s.restart();
    }
    s.pass(20);
    for file in &files {
        assert!(s.copies(file).iter().all(|column| column.len() == 2));
    }
}

/// A server may have looked up the layout of before, and make a copy anew that has just gone.
#[test]
fn what_went_before_a_metadata_server_died_is_removed_twice_too() {
    let mut s = Servers::new(3);
    let file = s.create("f", 2);
    let mut asked = BTreeMap::<ObjectId, u32>::new();
    s.set_copies(&file, 1);
    // Until copies have gone, of which nobody was told yet.
    while s.copies(&file).iter().any(|column| column.len() == 2) {
        s.quarter();
    }
    s.removed.clear();
    s = s.restart();
    for _ in 0..60 {
        for server in s.all.clone() {
            let reply = s.beat(server);
            reply.remove.iter().for_each(|(_, object)| *asked.entry(*object).or_default() += 1);
        }
        s.c.machine.take_ready(s.c.now);
        s.c.pass_ms(250);
    }
    assert!(asked.len() == 2 && asked.values().all(|times| *times == 2), "{asked:?}");
}

#[test]
fn what_is_made_of_a_file_that_is_removed_is_removed_twice() {
    for quarters in [0, 1, 8] {
        let mut s = Servers::new(3);
        // Nothing may be of before the start.
        s.pass(70);
        let file = s.create("f", 1);
        s.idle = true;
        s.set_copies(&file, 2);
        while s.segments(&file)[0].filling.len() < 2 {
            s.quarter();
        }
        s.c.close(&mut s.me, file.attr.file);
        s.c.unlink(&mut s.me, FileId::ROOT, "f").unwrap();
        s.c.ask(&s.me, &SyncMetaRequest {}).unwrap();
        // A heartbeat may be late.
        for _ in 0..quarters {
            s.c.machine.work(1, s.c.now).unwrap();
            s.c.machine.take_ready(s.c.now);
            s.c.machine.flush().unwrap();
            s.c.pass_ms(250);
        }
        let mut asked = BTreeMap::<ObjectId, u32>::new();
        for _ in 0..60 {
            for server in s.all.clone() {
                let reply = s.beat(server);
                reply.remove.iter().for_each(|(_, object)| *asked.entry(*object).or_default() += 1);
            }
            s.c.machine.work(1, s.c.now).unwrap();
            s.c.machine.take_ready(s.c.now);
            s.c.machine.flush().unwrap();
            s.c.pass_ms(250);
        }
        let made = |object: &ObjectId| u32::from(object.copy.0 == 1);
        assert_eq!(asked.len(), 4, "{quarters}: {asked:?}");
        assert!(asked.iter().all(|(object, times)| *times == 1 + made(object)), "{asked:?}");
    }
}

#[test]
fn what_is_not_to_be_done_any_more_is_not_counted() {
    let mut s = Servers::new(4);
    (0..40).for_each(|n| drop(s.create(&format!("f{n}"), 2)));
    s.idle = true;
    let drain = |s: &mut Servers, draining| {
        let request = SetTargetRequest { target: TargetId(1), draining };
        s.c.ask(&s.me, &request).unwrap();
    };
    drain(&mut s, true);
    s.pass(3);
    assert!(s.counter("mover.copies_to_do") > 8);
    // An administrator thinks better of it.
    drain(&mut s, false);
    s.idle = false;
    s.pass(10);
    assert_eq!((s.counter("mover.filling"), s.counter("mover.copies_to_do")), (0, 0));
}

#[test]
fn a_copy_whose_target_dies_while_it_is_filled_is_filled_elsewhere() {
    let mut s = Servers::new(4);
    let file = s.create("f", 1);
    s.idle = true;
    s.set_copies(&file, 2);
    s.pass(2);
    let filling = s.segments(&file)[0].clone();
    let to = filling.columns[0].targets[1].0;
    s.dead.insert(to);
    s.pass(40);
    s.idle = false;
    s.pass(3);
    for column in s.copies(&file) {
        assert!(column.len() == 2 && !column.contains(&to), "{column:?}");
    }
}

#[test]
fn copies_that_cannot_be_filled_do_not_keep_others_from_being_made() {
    let mut s = Servers::new(4);
    // Of one copy, on a target that is drained and dies: there is nothing to fill theirs from.
    let spec = |base| LayoutSpec { count: 1, base: Some(base), ..LayoutSpec::default() };
    let single: Vec<OpenFile> =
        (0..60).map(|n| s.create_of(&format!("single{n}"), spec(0))).collect();
    let held = |s: &mut Servers, file: &OpenFile| s.segments(file)[0].columns[0].targets[0].0;
    assert!(single.iter().all(|file| held(&mut s, file) == 1));
    let file = s.create_of("f", LayoutSpec { copies: 2, ..spec(1) });
    s.idle = true;
    s.c.ask(&s.me, &SetTargetRequest { target: TargetId(1), draining: true }).unwrap();
    s.pass(5);
    assert!(s.counter("mover.filling") >= 12, "as many as there may be");
    s.dead.insert(1);
    s.pass(2);
    s.idle = false;
    let lost = s.copies(&file)[0].iter().copied().next().unwrap();
    s.dead.insert(lost);
    s.pass(60);
    let copies = s.copies(&file);
    assert!(copies[0].len() == 2 && !copies[0].contains(&lost), "{copies:?}");
}

#[test]
fn a_copy_on_a_target_that_is_full_is_made_elsewhere() {
    let mut s = Servers::new(4);
    s.used = (1..=4).map(|target| (target, 0)).collect();
    let files: Vec<OpenFile> = (0..12).map(|n| s.create(&format!("f{n}"), 1)).collect();
    s.idle = true;
    files.iter().for_each(|file| s.set_copies(file, 2));
    s.pass(2);
    let to: u32 = s.segments(&files[0])[0].columns[0].targets[1].0;
    // It has no room left, and says of no copy that it is whole.
    s.used.insert(to, TOTAL);
    s.full = Some(to);
    s.idle = false;
    s.pass(20);
    for file in &files {
        let all: Vec<_> = s.segments(file)[0].columns.iter().map(|c| c.targets.clone()).collect();
        assert!(s.segments(file)[0].filling.is_empty(), "{all:?}");
    }
}
