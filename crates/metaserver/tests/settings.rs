//! Settings that others are told of, or feel, as they were made.

use crate::harness::*;
use weir_metaserver::machine::{MoverSettings, Times};
use weir_types::{FileId, ServerId};
use weir_wire::map::TargetState;
use weir_wire::meta::GetTicketsRequest;
use weir_wire::targets::ListTargetsRequest;

fn with(times: Times) -> Cluster<weir_metastore::ModelEngine> {
    let mut c = Cluster::new(1);
    c.times = times;
    let mut c = c.restart();
    c.register(1, &[1]).unwrap();
    c
}

#[test]
fn rights_last_as_long_as_capability_ms_and_ticket_ms_say() {
    let mut c = with(Times { capability_ms: 5000, ticket_ms: 7000, ..Times::default() });
    let mut me = c.client(root());
    let opened = c.create(&mut me, FileId::ROOT, "f");
    let now = (c.now.unix.0 / 1_000_000) as u64;
    assert_eq!(opened.capability.capability.expires_unix_ms, now + 5000);
    let tickets = c.ask(&me, &GetTicketsRequest { servers: vec![ServerId(1)] }).unwrap();
    assert_eq!(tickets[0].ticket.expires_unix_ms, now + 7000);
}

#[test]
fn servers_are_told_heartbeat_ms_and_rebuild_busy_percent() {
    let mut c = with(Times { heartbeat_ms: 321, ..Times::default() });
    let mover = MoverSettings { busy_percent: 7, ..MoverSettings::default() };
    c.machine.set_protection(weir_wire::Level::Data);
    // As `rebuild_busy_percent` sets it.
    c.machine.set_mover(mover);
    let reply = c.register(1, &[1]).unwrap();
    assert_eq!((reply.interval_ms, reply.busy_percent), (321, 7));
    assert_eq!(reply.protection, weir_wire::Level::Data);
}

#[test]
fn a_target_is_missed_after_target_timeout_ms() {
    for (target_timeout_ms, state) in [(1500, TargetState::Offline), (20_000, TargetState::Online)]
    {
        let mut c = with(Times { target_timeout_ms, ..Times::default() });
        let me = c.client(root());
        c.pass_ms(1000);
        c.pass_ms(4000);
        let targets = c.ask(&me, &ListTargetsRequest { after: None }).unwrap().targets;
        assert_eq!(targets[0].state, state, "{target_timeout_ms}");
    }
}
