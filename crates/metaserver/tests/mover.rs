//! Copies of files are made, moved and dropped while the files are in use.
#![allow(clippy::unwrap_used)]

mod harness;
use harness::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_metaserver::machine::MoverSettings;
use weir_metastore::ModelEngine;
use weir_types::{
    Duplication, Epoch, Error, ErrorKind, FileId, FsUsage, LayoutKind, LayoutSpec, ObjectId,
    Placement, Segment, TargetId,
};
use weir_wire::Rights;
use weir_wire::map::TargetState;
use weir_wire::meta::{
    GetLayoutRequest, OpenFile, OpenRequest, RebalanceRequest, SetLayoutRequest,
};
use weir_wire::peer::{Fill, HeartbeatReply, TargetReport};
use weir_wire::targets::{ListTargetsRequest, SetTargetRequest};

type Model = Cluster<ModelEngine>;

const REBUILD_AFTER_MS: u64 = 20_000;

/// The size of targets whose use plays a part.
const TOTAL: u64 = 1 << 30;

/// Data servers of a target each, which do at once what they are told.
struct Servers {
    c: Model,
    me: Client,
    /// Those that do not answer.
    dead: BTreeSet<u32>,
    all: Vec<u32>,
    /// What each was told to fill, until it says that it has.
    filled: BTreeMap<u32, Vec<Fill>>,
    removed: BTreeMap<u32, Vec<ObjectId>>,
    ordered: Vec<Fill>,
    /// Nothing is filled for now.
    idle: bool,
    /// Nothing is filled for now by this one.
    slow: Option<u32>,
    /// Nothing that is to go to this target is filled.
    full: Option<u32>,
    /// Bytes that each target uses, where that plays a part.
    used: BTreeMap<u32, u64>,
}

impl Servers {
    fn new(count: u32) -> Self {
        let mut c = Model::new(1);
        (2..=count).for_each(|server| drop(c.register(server, &[server]).unwrap()));
        settings(&mut c);
        let me = c.client(root());
        let (dead, filled, removed) = Default::default();
        let all = (1..=count).collect();
        let mut new = Self {
            c,
            me,
            dead,
            all,
            filled,
            removed,
            ordered: vec![],
            idle: false,
            slow: None,
            full: None,
            used: BTreeMap::new(),
        };
        new.pass(1);
        new
    }

    fn beat(&mut self, server: u32) -> HeartbeatReply {
        let usage = self.used.get(&server).map(|used| FsUsage {
            total_bytes: TOTAL,
            free_bytes: TOTAL - used,
            ..Model::report(server).usage
        });
        let report = TargetReport {
            usage: usage.unwrap_or(Model::report(server).usage),
            filled: self.filled.remove(&server).unwrap_or_default(),
            removed: self.removed.remove(&server).unwrap_or_default(),
            ..Model::report(server)
        };
        let reply = self.c.heartbeat_under(server, Epoch(u64::MAX), vec![report]).unwrap();
        if !self.idle && self.slow != Some(server) {
            let new = |fill: &&Fill| !self.ordered.contains(fill);
            let new: Vec<Fill> = reply.fill.iter().filter(new).cloned().collect();
            self.ordered.extend(new);
            let can = reply.fill.iter().filter(|fill| Some(fill.to.0) != self.full);
            self.filled.insert(server, can.cloned().collect());
        }
        let removed = reply.remove.iter().map(|(_, object)| *object).collect();
        self.removed.insert(server, removed);
        reply
    }

    /// Seconds pass.
    fn pass(&mut self, seconds: u64) {
        (0..4 * seconds).for_each(|_| self.quarter());
    }

    /// A quarter of a second passes.
    fn quarter(&mut self) {
        for server in self.all.clone() {
            if !self.dead.contains(&server) {
                self.beat(server);
            }
        }
        self.c.machine.take_ready(self.c.now);
        self.c.getattr(&self.me, FileId::ROOT).unwrap();
        self.c.pass_ms(250);
    }

    fn create(&mut self, name: &str, copies: u8) -> OpenFile {
        let spec = LayoutSpec { copies, count: 2, ..LayoutSpec::default() };
        self.create_of(name, spec)
    }

    fn create_of(&mut self, name: &str, spec: LayoutSpec) -> OpenFile {
        let open = self.c.make(&mut self.me, &create_with(FileId::ROOT, name, spec)).unwrap();
        self.c.make(&mut self.me, &commit(&open, 1 << 20)).unwrap();
        open
    }

    fn segments(&mut self, open: &OpenFile) -> Vec<Segment> {
        let request = GetLayoutRequest { file: open.attr.file, offset: 0, rights: Rights::READ };
        self.c.ask(&self.me, &request).unwrap().layout.segments
    }

    fn copies(&mut self, open: &OpenFile) -> Vec<BTreeSet<u32>> {
        let segments = self.segments(open);
        assert!(segments.iter().all(|s| s.filling.is_empty()), "{segments:?}");
        let columns = segments.iter().flat_map(|s| &s.columns);
        columns.map(|c| c.copies().map(|(_, t)| t.0).collect()).collect()
    }

    fn set_copies(&mut self, open: &OpenFile, copies: u8) {
        self.set_layout(open, LayoutSpec { copies, ..LayoutSpec::default() }).unwrap();
    }

    fn set_layout(&mut self, open: &OpenFile, layout: LayoutSpec) -> Result<(), Error> {
        let request = SetLayoutRequest { file: open.attr.file, layout: Some(layout) };
        self.c.make(&mut self.me, &request)
    }

    fn counter(&self, name: &str) -> u64 {
        let status = self.c.machine.status(self.c.now);
        status.counters.iter().find(|(n, _)| n == name).unwrap().1
    }

    fn state(&mut self, server: u32, target: u32) -> TargetState {
        let report = Model::report(server);
        let reply = self.c.heartbeat_under(server, Epoch(0), vec![report]).unwrap();
        reply.standings.iter().find(|s| s.target.0 == target).unwrap().state
    }

    fn restart(self) -> Self {
        let mut c = self.c.restart();
        settings(&mut c);
        let (filled, removed) = Default::default();
        Self { c, filled, removed, ..self }
    }
}

fn settings(c: &mut Model) {
    c.machine.set_mover(MoverSettings {
        rebuild_after_ms: REBUILD_AFTER_MS,
        rebuild_concurrency: 4,
        ..MoverSettings::default()
    });
}

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

#[test]
fn what_had_to_be_made_on_a_target_that_is_drained_moves_when_another_is_back() {
    let mut s = Servers::new(3);
    s.dead.insert(3);
    s.pass(10);
    s.c.ask(&s.me, &SetTargetRequest { target: TargetId(2), draining: true }).unwrap();
    s.pass(5);
    let file = s.create("f", 2);
    assert_eq!(s.copies(&file)[0], BTreeSet::from([1, 2]));
    s.dead.clear();
    s.pass(20);
    assert_eq!(s.copies(&file)[0], BTreeSet::from([1, 3]));
}

#[test]
fn a_round_of_rebalancing_goes_on_without_files_that_are_removed_meanwhile() {
    let mut s = Servers::new(2);
    let spec = |base| LayoutSpec { count: 1, base: Some(base), ..LayoutSpec::default() };
    let files: Vec<OpenFile> = (0..40).map(|n| s.create_of(&format!("f{n}"), spec(0))).collect();
    s.c.register(3, &[3]).unwrap();
    s.all.push(3);
    s.used = BTreeMap::from([(1, TOTAL / 2), (2, 0), (3, 0)]);
    s.pass(1);
    s.idle = true;
    s.c.ask(&s.me, &RebalanceRequest { within_percent: 3, stop: false }).unwrap();
    s.pass(3);
    assert!(s.counter("mover.relieved") > 0);
    for (n, file) in files.iter().enumerate() {
        s.c.close(&mut s.me, file.attr.file);
        s.c.unlink(&mut s.me, FileId::ROOT, &format!("f{n}")).unwrap();
    }
    s.pass(5);
    assert_eq!(s.counter("mover.relieved"), 0);
}

#[test]
fn a_file_is_not_held_up_by_a_copy_that_is_filled_while_others_are_confirmed() {
    for quarters in 1..10 {
        let mut s = Servers::new(4);
        let file = s.create("f", 1);
        s.slow = Some(s.segments(&file)[0].columns[1].targets[0].0);
        s.set_copies(&file, 2);
        (0..quarters).for_each(|_| s.quarter());
        s.slow = None;
        let mut waited = 0;
        while !s.segments(&file)[0].filling.is_empty() {
            s.quarter();
            waited += 1;
        }
        assert!(waited < 8, "{quarters}: {waited} quarters of a second");
    }
}

#[test]
fn the_copy_that_is_left_is_not_dropped_just_when_the_other_goes_away() {
    for quarters in 0..4 {
        let mut s = Servers::new(3);
        (0..quarters).for_each(|_| s.quarter());
        let file = s.create("f", 2);
        let first = s.segments(&file)[0].columns[0].targets[0].0;
        let alive = *s.all.iter().find(|server| **server != first).unwrap();
        s.dead.insert(first);
        while s.state(alive, first) == TargetState::Online {
            s.quarter();
        }
        s.set_copies(&file, 1);
        s.pass(8);
        let columns = s.segments(&file)[0].columns.clone();
        let left =
            |targets: &[TargetId]| targets.iter().any(|t| *t != TargetId::NONE && t.0 != first);
        assert!(columns.iter().all(|column| left(&column.targets)), "{quarters}: {columns:?}");
    }
}

#[test]
fn many_segments_are_moved_page_by_page() {
    let mut s = Servers::new(3);
    let chunk = 1 << 20;
    let spec = LayoutSpec {
        kind: LayoutKind::Chunked,
        segment_bytes: chunk,
        copies: 1,
        ..LayoutSpec::default()
    };
    let open = s.c.make(&mut s.me, &create_with(FileId::ROOT, "f", spec)).unwrap();
    s.c.make(&mut s.me, &set_size(open.attr.file, 200 * chunk)).unwrap();
    s.set_copies(&open, 2);
    s.pass(60);
    let mut offset = 0;
    for _ in 0..4 {
        let request = GetLayoutRequest { file: open.attr.file, offset, rights: Rights::READ };
        let page = s.c.ask(&s.me, &request).unwrap();
        for segment in &page.layout.segments {
            assert_eq!((segment.filling.len(), segment.columns[0].copies().count()), (0, 2));
            offset = segment.end();
        }
    }
    assert_eq!(offset, 200 * chunk);
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

#[test]
fn an_order_evens_out_what_targets_hold() {
    let mut s = Servers::new(2);
    let spec = |base| LayoutSpec { copies: 1, count: 1, base: Some(base), ..LayoutSpec::default() };
    // Of 1 MiB each.
    let files: Vec<OpenFile> = (0..300).map(|n| s.create_of(&format!("f{n}"), spec(0))).collect();
    s.c.register(3, &[3]).unwrap();
    s.all.push(3);
    s.used.insert(3, 0);
    let held = |s: &mut Servers| {
        let mut held = BTreeMap::from([(1, 0), (2, 0), (3, 0)]);
        for file in &files {
            let segments = s.segments(file);
            let column = &segments[0].columns[0];
            column.copies().for_each(|(_, t)| *held.entry(t.0).or_default() += 1u64 << 20);
        }
        held
    };
    s.used = held(&mut s);
    assert_eq!(s.used[&1], 300 << 20);
    let order = RebalanceRequest { within_percent: 3, stop: false };
    s.pass(1);
    s.c.ask(&s.me, &order).unwrap();
    for _ in 0..200 {
        s.pass(1);
        s.used = held(&mut s);
        if s.counter("mover.rebalancing") == 0 {
            break;
        }
    }
    assert_eq!(s.counter("mover.rebalancing"), 0, "{:?}", s.used);
    let mean = 100 << 20;
    assert!(s.used.values().all(|used| used.abs_diff(mean) <= TOTAL * 3 / 100), "{:?}", s.used);
    assert!(files.iter().all(|file| s.copies(file)[0].len() == 1));
}

#[test]
fn what_each_target_gets_is_counted_with_its_speed_and_end() {
    let mut s = Servers::new(3);
    (0..400).for_each(|n| drop(s.create(&format!("f{n}"), 2)));
    let of = |s: &Servers, target: u32, name: &str| {
        let all = s.c.machine.status(s.c.now).counters;
        let found = all.into_iter().find(|(n, _)| *n == format!("target.{target}.{name}"));
        found.map(|(_, value)| value)
    };
    assert_eq!(of(&s, 2, "filling_copies"), None, "there is nothing to tell");
    s.dead.insert(1);
    s.pass(15);
    s.idle = true;
    s.pass(30);
    let sum = |s: &Servers| [2, 3].map(|t| of(s, t, "filling_copies").unwrap_or(0)).iter().sum();
    let filling: u64 = sum(&s);
    assert!(filling > 0 && filling == s.counter("mover.filling"), "{filling}");
    assert!(of(&s, 2, "filling_bytes") > Some(0));
    assert_eq!(of(&s, 2, "filling_expected_s"), Some(0), "not known yet");
    s.idle = false;
    let mut goes_on = || {
        s.quarter();
        of(&s, 2, "filling_bytes_per_s") > Some(0)
    };
    assert!((0..40).any(|_| goes_on()), "it has got something");
    s.pass(200);
    assert_eq!((of(&s, 2, "filling_copies"), of(&s, 3, "behind_parts")), (None, None));
}

/// Server 1 is started anew again and again: how many seconds it takes each time until its
/// target is online.
fn waits(s: &mut Servers) -> Vec<u64> {
    let mut waits = Vec::new();
    for _ in 0..7 {
        let own = TargetReport { gaps: vec![(TargetId(1), 1)], ..Model::report(1) };
        s.c.register_reports(1, vec![own]).unwrap();
        let begin_ms = s.c.now.monotonic_ms;
        while s.state(2, 1) != TargetState::Online {
            s.quarter();
            assert!(s.c.now.monotonic_ms - begin_ms < 60_000, "{waits:?}");
        }
        waits.push((s.c.now.monotonic_ms - begin_ms) / 1000);
        s.pass(2);
    }
    waits
}

#[test]
fn a_target_that_comes_and_goes_is_kept_waiting_though_a_disk_is_dead_that_has_nothing_any_more() {
    let mut s = Servers::new(4);
    let open = s.create("f", 2);
    s.dead.insert(4);
    s.pass(5 + REBUILD_AFTER_MS / 1000 + 10);
    assert!(s.copies(&open).iter().all(|column| !column.contains(&4)), "made elsewhere");
    let waits = waits(&mut s);
    assert!(waits[..3].iter().all(|wait| *wait < 3), "{waits:?}");
    assert!(waits[5] >= 10 && waits[6] >= 20, "{waits:?}");
}

#[test]
fn a_target_that_comes_and_goes_is_not_kept_waiting_while_one_is_away_that_may_have_had_the_other_copy()
 {
    let mut s = Servers::new(4);
    s.create("f", 2);
    s.idle = true;
    s.dead.insert(4);
    s.pass(5 + REBUILD_AFTER_MS / 1000 + 10);
    let waits = waits(&mut s);
    assert!(waits.iter().all(|wait| *wait < 3), "{waits:?}");
}

#[test]
fn the_only_target_that_a_copy_can_be_made_from_is_not_kept_waiting() {
    let mut s = Servers::new(3);
    let spec = LayoutSpec { count: 1, base: Some(0), ..LayoutSpec::default() };
    s.create("mirrored", 2);
    let open = s.create_of("f", spec);
    s.idle = true;
    s.set_copies(&open, 2);
    s.pass(5);
    assert_eq!(s.segments(&open)[0].filling.len(), 1);
    let waits = waits(&mut s);
    assert!(waits.iter().all(|wait| *wait < 3), "{waits:?}");
}
