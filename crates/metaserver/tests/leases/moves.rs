//! Copies of a file are made elsewhere while clients hold leases of it.

use super::world::*;
use crate::harness::*;
use std::collections::BTreeMap;
use weir_types::{Epoch, FileId, LayoutSpec};
use weir_wire::Rights;
use weir_wire::lease::*;
use weir_wire::meta::{GetLayoutRequest, SetLayoutRequest};
use weir_wire::peer::{Fill, TargetReport};

/// Two servers with a target each, and a file with one copy that is to have two.
fn wished() -> (World, Mount, FileId) {
    let mut w = World::new();
    w.c.register(2, &[2]).unwrap();
    let mut a = w.mount();
    let open = w.now(&mut a, &create_request(ROOT, "f"));
    let file = open.attr.file;
    w.now(&mut a, &commit(&open, 5000));
    let layout = Some(LayoutSpec { copies: 2, ..LayoutSpec::default() });
    w.now(&mut a, &SetLayoutRequest { file, layout });
    w.now(&mut a, &acquire(whole(file, LeaseMode::Write)));
    (w, a, file)
}

/// Copies of the first column, and those that are being filled.
fn copies(w: &mut World, a: &mut Mount, file: FileId) -> (usize, usize) {
    let rights = Rights::READ_WRITE;
    let page = w.now(a, &GetLayoutRequest { file, offset: 0, rights });
    let segment = &page.layout.segments[0];
    (segment.columns[0].targets.len(), segment.filling.len())
}

/// The servers report, and have filled what they were told to.
fn beat(w: &mut World, told: &mut BTreeMap<u32, Vec<Fill>>) {
    for server in [1, 2] {
        let filled = told.remove(&server).unwrap_or_default();
        let report = TargetReport { filled, ..Cluster::report(server) };
        let reply = w.c.heartbeat_under(server, Epoch(1), vec![report]).unwrap();
        told.insert(server, reply.fill);
    }
}

type Cluster = crate::harness::Cluster<weir_metastore::ModelEngine>;

#[test]
fn a_layout_changes_when_nobody_holds_a_lease_and_leases_come_back_with_a_new_generation() {
    let (mut w, mut a, file) = wished();
    let before = w.now(&mut a, &acquire(whole(file, LeaseMode::Write))).attr.generation;
    w.pass(1000, &mut [&mut a]);
    assert_eq!(copies(&mut w, &mut a, file), (1, 0), "it is asked for its lease first");
    let events = w.poll(&mut a).events;
    assert!(events.iter().any(|e| matches!(e.what, EventKind::Recall { .. })), "{events:?}");
    // Who wants the lease next gets it when the change is durable.
    let pending = w.send(&mut a, &acquire(whole(file, LeaseMode::Write)));
    let acks = events.iter().map(|e| EventAck {
        number: e.number,
        forgotten: false,
        unconfirmed: false,
        holds: false,
    });
    w.now(&mut a, &AckEventsRequest { acks: acks.collect() });
    w.pass(1000, &mut [&mut a]);
    assert_eq!(copies(&mut w, &mut a, file).0, 2);
    let again = match pending {
        Ok(again) => again,
        Err(pending) => w.later::<AcquireRequest>(pending).unwrap(),
    };
    drop(again);
    let granted = w.now(&mut a, &acquire(whole(file, LeaseMode::Write)));
    assert!(granted.attr.generation > before, "the old layout is good no more");
}

#[test]
fn a_copy_is_whole_when_it_still_is_while_nobody_writes() {
    let (mut w, mut a, file) = wished();
    let mut told = BTreeMap::new();
    for _ in 0..4 {
        w.obey(&mut a);
        w.pass(500, &mut [&mut a]);
    }
    assert_eq!(copies(&mut w, &mut a, file).0, 2);
    w.now(&mut a, &acquire(whole(file, LeaseMode::Write)));
    for _ in 0..4 {
        beat(&mut w, &mut told);
        w.pass(500, &mut [&mut a]);
    }
    let filling = copies(&mut w, &mut a, file).1;
    assert!(filling > 0, "a writer holds its lease, and may write what the copy misses");
    w.obey(&mut a);
    for _ in 0..4 {
        beat(&mut w, &mut told);
        w.pass(500, &mut [&mut a]);
    }
    assert_eq!(copies(&mut w, &mut a, file), (2, 0));
}
