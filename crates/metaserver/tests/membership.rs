//! Targets are listed as they are; administrators drain them and take them out.

use crate::harness::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use weir_metastore::ModelEngine;
use weir_types::{ClientId, ErrorKind, FileId, LayoutKind, LayoutSpec, ObjectId, Result, TargetId};
use weir_wire::map::TargetState;
use weir_wire::meta::{ExtendRequest, GetMapRequest, OpenFile};
use weir_wire::peer::TargetReport;
use weir_wire::targets::{ListTargetsRequest, RemoveTargetRequest, SetTargetRequest, TargetView};

type Model = Cluster<ModelEngine>;

fn three_servers() -> Model {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    c.register(3, &[3]).unwrap();
    c
}

fn views(c: &mut Model) -> Vec<TargetView> {
    let me = c.client(root());
    let page = c.ask(&me, &ListTargetsRequest { after: None }).unwrap();
    assert!(page.end);
    page.targets
}

fn drain(c: &mut Model, target: u32, draining: bool) {
    let me = c.client(root());
    c.ask(&me, &SetTargetRequest { target: TargetId(target), draining }).unwrap();
}

fn remove(c: &mut Model, target: u32, force: bool) -> Result<u64> {
    let me = c.client(root());
    let mut place = None;
    loop {
        let target = TargetId(target);
        let step = c.ask(&me, &RemoveTargetRequest { target, force, place })?;
        match step.next {
            None => return Ok(step.files),
            next => place = next,
        }
    }
}

fn make(c: &mut Model, name: &str, spec: LayoutSpec) -> Result<OpenFile> {
    let me = &mut c.client(root());
    c.make(me, &create_with(FileId::ROOT, name, spec))
}

fn targets_of(open: &OpenFile) -> Vec<u32> {
    let columns = open.layout.segments.iter().flat_map(|s| &s.columns);
    let mut all: Vec<u32> = columns.flat_map(|c| &c.targets).map(|t| t.0).collect();
    all.sort_unstable();
    all
}

fn beat(c: &mut Model, servers: &[u32]) {
    for server in servers {
        c.heartbeat(*server, vec![Model::report(*server)]).unwrap();
    }
}

#[test]
fn a_list_says_what_is_so_and_since_when() {
    let mut c = three_servers();
    make(&mut c, "f", LayoutSpec { copies: 2, ..LayoutSpec::default() }).unwrap();
    for _ in 0..3 {
        c.pass_ms(1000);
        beat(&mut c, &[2, 3]);
    }
    let epoch = |c: &mut Model| {
        let me = c.client(root());
        c.ask(&me, &GetMapRequest { have: weir_types::Epoch(0) }).unwrap().unwrap().epoch
    };
    let before = epoch(&mut c);
    let all = views(&mut c);
    let suspects: Vec<bool> = all.iter().map(|view| view.suspect).collect();
    assert_eq!((suspects, all[0].state), (vec![true, false, false], TargetState::Online));
    assert_eq!((all[0].silent_ms, all[1].silent_ms, &*all[1].host), (3000, 0, "node-2"));
    assert_eq!(epoch(&mut c), before, "nobody is told");
    for _ in 0..3 {
        c.pass_ms(1000);
        beat(&mut c, &[3]);
        let gaps = vec![(TargetId(1), 7)];
        c.heartbeat(2, vec![TargetReport { gaps, ..Model::report(2) }]).unwrap();
    }
    let all = views(&mut c);
    assert_eq!((all[0].state, all[0].suspect, all[0].behind), (TargetState::Offline, false, 7));
    assert!(all[0].since_ms.unwrap() <= 2000);
    let status = c.machine.status(c.now).counters;
    let of_targets: Vec<_> =
        status.iter().filter(|(name, _)| name.starts_with("target.")).collect();
    assert!(of_targets.iter().all(|(name, _)| name.starts_with("target.1.")), "{of_targets:?}");
    for (name, value) in
        [("behind_parts", 7), ("behind_bytes_at_most", 7 << 20), ("filling_copies", 0)]
    {
        assert!(status.contains(&(format!("target.1.{name}"), value)), "{name}: {of_targets:?}");
    }
    let mut c = c.restart();
    assert_eq!(views(&mut c)[0].since_ms, None, "before this process began");
}

#[test]
fn a_target_that_is_drained_gets_something_only_where_there_is_nothing_else_left() {
    let mut c = three_servers();
    drain(&mut c, 2, true);
    let all = |copies| LayoutSpec { copies, ..LayoutSpec::default() };
    for n in 0..9 {
        assert_eq!(targets_of(&make(&mut c, &format!("a{n}"), all(1)).unwrap()), [1, 3]);
        let two = LayoutSpec { count: 1, ..all(2) };
        assert_eq!(targets_of(&make(&mut c, &format!("b{n}"), two).unwrap()), [1, 3]);
    }
    let three = LayoutSpec { count: 3, ..all(1) };
    assert_eq!(targets_of(&make(&mut c, "c", three).unwrap()), [1, 2, 3]);
    let me = &mut c.client(root());
    let chunked = LayoutSpec { kind: LayoutKind::Chunked, segment_bytes: 4096, ..all(1) };
    let open = c.make(me, &create_with(FileId::ROOT, "d", chunked)).unwrap();
    let more = ExtendRequest::covering(open.attr.file, 50 * 4096);
    let page = c.make(me, &more).unwrap();
    let mut chunks = page.layout.segments.iter().flat_map(|s| &s.columns[0].targets);
    assert!(chunks.all(|target| target.0 != 2));
    // It is not forgotten, and can be taken back.
    let mut c = c.restart();
    beat(&mut c, &[1, 2, 3]);
    assert!(views(&mut c)[1].draining);
    drain(&mut c, 2, false);
    assert_eq!(targets_of(&make(&mut c, "e", all(1)).unwrap()), [1, 2, 3]);
}

#[test]
fn a_target_is_removed_when_no_file_has_a_copy_there() {
    let mut c = three_servers();
    let one = LayoutSpec { count: 1, base: Some(1), ..LayoutSpec::default() };
    let me = &mut c.client(root());
    let open = c.make(me, &create_with(FileId::ROOT, "f", one)).unwrap();
    assert_eq!(targets_of(&open), [2]);
    assert_eq!(kind(remove(&mut c, 2, false)), ErrorKind::Busy, "it is in use");
    drain(&mut c, 2, true);
    let error = remove(&mut c, 2, false).unwrap_err();
    assert!(error.message.contains("have copies on target 2"), "{error}");
    assert_eq!(kind(remove(&mut c, 2, true)), ErrorKind::Busy, "it is served");
    c.close(me, open.attr.file);
    c.unlink(me, FileId::ROOT, "f").unwrap();
    c.pass_ms(2000);
    beat(&mut c, &[1, 2, 3]);
    assert_eq!(remove(&mut c, 2, false).unwrap(), 0);
    assert_eq!(c.keys("g/"), 0, "and what was to be removed there");
    let known = |c: &mut Model| views(c).iter().map(|v| v.target.0).collect::<Vec<_>>();
    assert_eq!(known(&mut c), [1, 3]);
    // It does not come back, and does no harm to others of its server.
    let mut c = c.restart();
    c.register(2, &[2, 4]).unwrap();
    c.heartbeat(2, vec![Model::report(2), Model::report(4)]).unwrap();
    assert_eq!(known(&mut c), [1, 3, 4]);
    assert_eq!(kind(remove(&mut c, 2, false)), ErrorKind::TargetMissing);
}

#[test]
fn what_only_a_removed_target_knew_the_others_know_before_they_are_online() {
    let mut c = three_servers();
    let two = LayoutSpec { copies: 2, count: 3, ..LayoutSpec::default() };
    for n in 0..40 {
        make(&mut c, &format!("f{n}"), two.clone()).unwrap();
    }
    // The first goes, then the second, for good.
    let mut now = weir_types::Epoch(0);
    for _ in 0..6 {
        c.pass_ms(1000);
        now = c.heartbeat_under(2, now, vec![Model::report(2)]).unwrap().epoch;
        beat(&mut c, &[3]);
    }
    (0..6).for_each(|_| {
        c.pass_ms(1000);
        beat(&mut c, &[3]);
    });
    let now = Cell::new(c.register(1, &[1]).unwrap().epoch);
    let mut named = BTreeSet::new();
    // The first one says what it has noted of what it was told.
    let mut rounds = |c: &mut Model, noted: &BTreeSet<ObjectId>| {
        for _ in 0..6 {
            for n in [1, 3] {
                let distrusted = if n == 1 { noted.iter().copied().collect() } else { vec![] };
                let report = TargetReport { distrusted, ..Model::report(n) };
                let reply = c.heartbeat_under(n, now.get(), vec![report]).unwrap();
                now.set(reply.epoch);
                named.extend(reply.distrust);
            }
        }
        (views(c)[0].state, std::mem::take(&mut named))
    };
    let none = BTreeSet::new();
    assert_eq!(rounds(&mut c, &none), (TargetState::Syncing, BTreeSet::new()));
    assert_eq!(kind(remove(&mut c, 2, false)), ErrorKind::Busy);
    assert_eq!(remove(&mut c, 2, true).unwrap(), 40);
    // Files would go back to what the first one has, and nobody would notice.
    let (state, told) = rounds(&mut c, &none);
    assert_eq!((state, told.len()), (TargetState::Syncing, 40), "a column of each file");
    let is_it = |(target, object): &(TargetId, ObjectId)| (target.0, object.copy.0) == (1, 0);
    assert!(told.iter().all(is_it), "of which it and the removed one had copies: {told:?}");
    let mut c = c.restart();
    now.set(c.register(1, &[1]).unwrap().epoch);
    c.register(3, &[3]).unwrap();
    let all: BTreeSet<ObjectId> = told.iter().map(|(_, object)| *object).collect();
    let half = all.iter().copied().take(20).collect();
    let (state, left) = rounds(&mut c, &half);
    assert_eq!((state, left.len()), (TargetState::Syncing, 20), "the others");
    assert_eq!(rounds(&mut c, &all).0, TargetState::Online);
    assert_eq!((rounds(&mut c, &none).1.len(), c.keys("v/")), (0, 0));
}

#[test]
fn only_administrators_may() {
    let mut c = three_servers();
    let me = c.session_of(ClientId(77), root());
    let target = TargetId(1);
    assert_eq!(
        kind(c.ask(&me, &SetTargetRequest { target, draining: true })),
        ErrorKind::NotAdministrator
    );
    let request = RemoveTargetRequest { target, force: true, place: None };
    assert_eq!(kind(c.ask(&me, &request)), ErrorKind::NotAdministrator);
    assert_eq!(c.ask(&me, &ListTargetsRequest { after: Some(target) }).unwrap().targets.len(), 2);
}

#[test]
fn nobody_learns_of_a_map_before_it_survives_a_power_cut() {
    let mut c = three_servers();
    make(&mut c, "f", LayoutSpec { copies: 2, ..LayoutSpec::default() }).unwrap();
    c.pass_ms(1_000);
    beat(&mut c, &[1, 2, 3]);
    assert!(!c.waited_for_disk, "nothing has changed");
    // Target 1 has never reported again: it is missed.
    c.pass_ms(3_000);
    beat(&mut c, &[2, 3]);
    c.pass_ms(3_000);
    c.heartbeat(2, vec![Model::report(2)]).unwrap();
    assert!(c.waited_for_disk, "a heartbeat's answer has the new epoch");
}

#[test]
fn a_removal_that_is_given_up_leaves_the_target_in_use() {
    let mut c = three_servers();
    let two = || LayoutSpec { copies: 2, ..LayoutSpec::default() };
    make(&mut c, "before", two()).unwrap();
    let me = c.client(root());
    drain(&mut c, 1, true);
    // Begun, and never gone on with.
    let first = RemoveTargetRequest { target: TargetId(1), force: false, place: None };
    let _ = c.ask(&me, &first);
    drain(&mut c, 1, false);
    let used = |c: &mut Model, name: &str| {
        let all = (0..12).flat_map(|n| targets_of(&make(c, &format!("{name}{n}"), two()).unwrap()));
        all.collect::<BTreeSet<u32>>()
    };
    assert!(used(&mut c, "undrained").contains(&1));
    // One that comes back in the middle.
    c.pass_ms(3_000);
    beat(&mut c, &[2, 3]);
    c.pass_ms(3_000);
    beat(&mut c, &[2, 3]);
    let forced = RemoveTargetRequest { target: TargetId(1), force: true, place: None };
    let _ = c.ask(&me, &forced);
    let mut acting = [weir_types::Epoch(0); 3];
    for _ in 0..70 {
        for (server, acting) in (1..).zip(&mut acting) {
            let report = vec![Model::report(server)];
            *acting = c.heartbeat_under(server, *acting, report).unwrap().epoch;
        }
        c.pass_ms(1_000);
    }
    assert!(used(&mut c, "back").contains(&1), "after a minute it is in use again");
}
