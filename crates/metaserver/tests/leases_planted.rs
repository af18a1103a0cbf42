//! Bugs planted in what the server does about leases: the tests find each. A
//! process of its own, since a bug is planted for all of it.

use crate::harness::*;
use crate::leases::model;
use crate::leases::world::*;
use weir_host::plant::{Bug, plant};
use weir_types::Generation;
use weir_wire::Rights;
use weir_wire::meta::*;

/// Nobody has come back after a restart, and a name is made all the same.
fn changes_at_once_after_a_restart() -> bool {
    let mut w = World::new();
    let mut mount = w.mount();
    w.mount();
    let mut w = w.killed();
    w.send(&mut mount, &create_request(ROOT, "f")).is_ok()
}

/// A writer died, and what it sends late would still be taken.
fn leaves_a_dead_writer_its_generation() -> bool {
    let mut w = World::new();
    let (mut dead, mut other) = (w.mount(), w.mount());
    let file = w.create(&mut dead, "f");
    let pending = w.waits(&mut other, &OpenRequest { file, rights: Rights::READ });
    w.pass(11_000, &mut [&mut other]);
    let opened = w.later::<OpenRequest>(pending).unwrap().said.unwrap();
    opened.attr.generation == Generation(1)
}

#[test]
fn every_planted_bug_is_found() {
    alone("leases_planted::every_planted_bug_is_found", find_every_planted_bug);
}

fn find_every_planted_bug() {
    if !plant(None) {
        return;
    }
    assert!(model::run(50).is_ok());
    assert!(!changes_at_once_after_a_restart());
    assert!(!leaves_a_dead_writer_its_generation());
    for bug in [Bug::SkipRecall, Bug::KeepBelief] {
        plant(Some(bug));
        assert!(model::run(400).is_err(), "{bug:?}");
    }
    plant(Some(Bug::GrantInGrace));
    assert!(changes_at_once_after_a_restart());
    plant(Some(Bug::SkipFence));
    assert!(leaves_a_dead_writer_its_generation());
    plant(None);
}
