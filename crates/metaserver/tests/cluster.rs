//! Data servers come and go; clients get maps, tickets and counters.

use crate::harness::*;
use weir_metaserver::machine::Peer;
use weir_metastore::ModelEngine;
use weir_types::{
    Decode, DiskId, Encode, Epoch, ErrorKind, FileId, KeyGeneration, ServerId, TargetId,
};
use weir_wire::data::{ServerStatus, StatusRequest};
use weir_wire::handshake::{Attempt, Identity};
use weir_wire::map::{ClusterMap, TargetState};
use weir_wire::message::Op;
use weir_wire::meta::*;
use weir_wire::peer::{FindPeerRequest, TargetReport};
use weir_wire::ticket::OF_SERVERS;

type Model = Cluster<ModelEngine>;

fn map(c: &mut Model, me: &Client, have: Epoch) -> Option<ClusterMap> {
    c.ask(me, &GetMapRequest { have }).unwrap()
}

fn states(map: &ClusterMap) -> Vec<(u32, TargetState)> {
    map.targets().map(|(_, t)| (t.target.0, t.state)).collect()
}

#[test]
fn targets_go_offline_when_silent_and_come_back() {
    let mut c = Model::new(2);
    c.register(2, &[3]).unwrap();
    let me = &mut c.client(root());
    let first = map(&mut c, me, Epoch(0)).unwrap();
    assert_eq!(states(&first), [1, 2, 3].map(|t| (t, TargetState::Online)));
    assert_eq!(map(&mut c, me, first.epoch), None, "nothing newer");
    for _ in 0..6 {
        c.pass_ms(1000);
        c.heartbeat(2, vec![Model::report(3)]).unwrap();
    }
    let second = map(&mut c, me, first.epoch).unwrap();
    assert_eq!(
        states(&second),
        [(1, TargetState::Offline), (2, TargetState::Offline), (3, TargetState::Online)]
    );
    assert_eq!(
        c.ask(me, &StatfsRequest { file: FileId::ROOT }).unwrap().total_bytes,
        1 << 40,
        "online ones only"
    );
    let open = c.create(me, FileId::ROOT, "f");
    assert_eq!(open.layout.segments[0].columns.len(), 1, "new files avoid them");
    c.heartbeat(1, vec![Model::report(1), Model::report(2)]).unwrap();
    let third = map(&mut c, me, second.epoch).unwrap();
    assert_eq!(states(&third), [1, 2, 3].map(|t| (t, TargetState::Online)));
    // Nothing of this is forgotten.
    let mut c = c.restart();
    let after = map(&mut c, me, Epoch(0)).unwrap();
    assert_eq!((after.epoch, states(&after)), (third.epoch, states(&third)));
}

#[test]
fn the_space_of_a_disk_counts_once_however_many_targets_and_servers_are_on_it() {
    let mut c = Model::new(2);
    c.register_on("node-1", 2, &[3]).unwrap();
    let me = &mut c.client(root());
    let on = |disk, target| TargetReport { disk: DiskId(disk), ..Model::report(target) };
    let mut df_with = |third: u64| {
        c.heartbeat(1, vec![on(5, 1), on(5, 2)]).unwrap();
        c.heartbeat(2, vec![on(third, 3)]).unwrap();
        let usage = c.ask(me, &StatfsRequest { file: FileId::ROOT }).unwrap();
        (usage.total_bytes >> 40, usage.free_bytes >> 39, usage.total_files, usage.free_files)
    };
    assert_eq!(df_with(5), (1, 1, 1000, 900), "another server of the same machine");
    assert_eq!(df_with(6), (2, 2, 2000, 1800), "another disk");
    let map = map(&mut c, me, Epoch(0)).unwrap();
    let disks: Vec<u64> = map.targets().map(|(_, t)| t.disk.0).collect();
    assert_eq!(disks, [5, 5, 6]);
}

#[test]
fn a_target_in_trouble_takes_no_new_files_until_its_server_says_that_it_is_well() {
    let mut c = Model::new(2);
    let me = &mut c.client(root());
    let sick = || {
        let trouble = "its disk is gone".to_owned();
        TargetReport { trouble, ..Model::report(2) }
    };
    c.heartbeat(1, vec![Model::report(1), sick()]).unwrap();
    let first = map(&mut c, me, Epoch(0)).unwrap();
    let expected = [(1, TargetState::Online), (2, TargetState::OutOfService)];
    assert_eq!(states(&first), expected);
    assert_eq!(c.create(me, FileId::ROOT, "f").layout.segments[0].columns.len(), 1);
    assert_eq!(
        c.ask(me, &StatfsRequest { file: FileId::ROOT }).unwrap().total_bytes,
        1 << 40,
        "the other one's"
    );
    c.heartbeat(1, vec![Model::report(1), sick()]).unwrap();
    assert_eq!(map(&mut c, me, first.epoch), None, "said once");
    let mut c = c.restart();
    assert_eq!(states(&map(&mut c, me, Epoch(0)).unwrap()), expected);
    // Silence makes it offline like any other.
    for _ in 0..7 {
        c.pass_ms(1000);
    }
    let silent = map(&mut c, me, Epoch(0)).unwrap();
    assert_eq!(states(&silent), [1, 2].map(|t| (t, TargetState::Offline)));
    c.heartbeat(1, vec![Model::report(1), Model::report(2)]).unwrap();
    let well = map(&mut c, me, Epoch(0)).unwrap();
    assert_eq!(states(&well), [1, 2].map(|t| (t, TargetState::Online)));
}

#[test]
fn a_disk_that_fails_in_one_server_may_move_to_another_which_the_first_cannot_prevent() {
    let mut c = Model::new(2);
    let me = &mut c.client(root());
    let missing = || {
        let trouble = "its directory is missing".to_owned();
        vec![Model::report(1), TargetReport { trouble, ..Model::report(2) }]
    };
    c.heartbeat(1, missing()).unwrap();
    c.register(2, &[2]).unwrap();
    let moved = map(&mut c, me, Epoch(0)).unwrap();
    assert_eq!(moved.server_of(TargetId(2)).unwrap().server, ServerId(2));
    c.heartbeat(1, missing()).unwrap();
    c.register_reports(1, missing()).unwrap();
    assert_eq!(map(&mut c, me, moved.epoch), None);
    // Its word keeps nothing alive that is not its own.
    for _ in 0..7 {
        c.pass_ms(1000);
        c.heartbeat(1, missing()).unwrap();
    }
    let silent = map(&mut c, me, Epoch(0)).unwrap();
    assert_eq!(silent.server_of(TargetId(2)).unwrap().server, ServerId(2));
    assert_eq!(states(&silent), [(1, TargetState::Online), (2, TargetState::Offline)]);
}

#[test]
fn a_process_that_was_stopped_blames_nobody() {
    let mut c = Model::new(1);
    let me = &mut c.client(root());
    c.now.monotonic_ms += 60_000;
    c.machine.on_tick(c.now).unwrap();
    assert!(c.getattr(me, FileId::ROOT).is_ok());
    assert_eq!(states(&map(&mut c, me, Epoch(0)).unwrap()), [(1, TargetState::Online)]);
}

#[test]
fn who_waits_for_replies_that_wait_for_the_journal_is_not_silent() {
    let mut c = Model::new(1);
    let me = &mut c.client(root());
    for (is_stalled, state) in [(true, TargetState::Online), (false, TargetState::Offline)] {
        c.machine.set_stalled(is_stalled);
        for _ in 0..7 {
            c.pass_ms(1000);
        }
        assert_eq!(states(&map(&mut c, me, Epoch(0)).unwrap()), [(1, state)]);
    }
}

#[test]
fn a_target_has_one_server_and_may_move_when_that_is_gone() {
    let mut c = Model::new(2);
    let me = &mut c.client(root());
    let error = c.register(2, &[2]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Exists);
    assert!(error.message.contains("data server 1"), "{error}");
    for _ in 0..7 {
        c.pass_ms(1000);
        c.heartbeat(1, vec![Model::report(1)]).unwrap();
    }
    c.register(2, &[2]).unwrap();
    let now = map(&mut c, me, Epoch(0)).unwrap();
    assert_eq!(now.server_of(TargetId(2)).unwrap().server, ServerId(2));
    assert_eq!(now.servers.len(), 2);
}

#[test]
fn a_server_registers_before_it_reports() {
    let mut c = Model::new(1);
    assert_eq!(kind(c.heartbeat(5, vec![])), ErrorKind::Stale);
    assert_eq!(kind(c.heartbeat(1, vec![Model::report(4)])), ErrorKind::Stale);
    // One that comes back as it was changes nothing.
    let me = &mut c.client(root());
    let epoch = map(&mut c, me, Epoch(0)).unwrap().epoch;
    c.register(1, &[1]).unwrap();
    assert_eq!(map(&mut c, me, epoch), None);
}

#[test]
fn tickets_introduce_the_session_to_a_data_server() {
    let mut c = Model::new(1);
    let me = &mut c.client(root());
    let ask = |servers| GetTicketsRequest { servers };
    let tickets = c.ask(me, &ask(vec![ServerId(1), ServerId(1)])).unwrap();
    let client_key = master().client(ADMIN);
    let server_key = master().server(ServerId(1), KeyGeneration(1));
    for sealed in &tickets {
        assert_eq!(sealed.ticket.session, me.session);
        assert_eq!(sealed.open(&client_key), sealed.ticket.key(&server_key));
    }
    assert_ne!(tickets[0].ticket.nonce, tickets[1].ticket.nonce);
    assert_eq!(kind(c.ask(me, &ask(vec![ServerId(9)]))), ErrorKind::TargetMissing);
}

#[test]
fn data_servers_find_each_other_and_clients_cannot_pass_for_one() {
    let mut c = Model::new(1);
    c.register(2, &[3]).unwrap();
    let ask = |target| FindPeerRequest { target: TargetId(target) };
    let server = Peer::Server(ServerId(1));
    let found = c.send::<FindPeerRequest>(server, &ask(3).to_bytes()).unwrap();
    assert_eq!(found.entry.server, ServerId(2));
    let key = |server| master().server(ServerId(server), KeyGeneration(1));
    // For the server that asks, and for nobody who overhears it.
    assert_eq!(found.ticket.open(&key(1)), found.ticket.ticket.key(&key(2)));
    assert_ne!(found.ticket.open(&key(2)), found.ticket.ticket.key(&key(2)));
    let ticket = &found.ticket.ticket;
    assert_eq!((ticket.server, ticket.session), (ServerId(2), OF_SERVERS));
    let missing = c.send::<FindPeerRequest>(server, &ask(99).to_bytes());
    assert_eq!(kind(missing), ErrorKind::TargetMissing);
    let me = &mut c.client(root());
    assert_ne!(me.session, OF_SERVERS);
    c.ask(me, &ask(3)).unwrap_err();
}

#[test]
fn the_metadata_server_is_not_on_the_data_path_and_shows_it() {
    let mut c = Model::new(1);
    let me = &mut c.client(root());
    let status =
        |c: &mut Model, me: &Client| -> ServerStatus { c.ask(me, &StatusRequest {}).unwrap() };
    let value = |status: &ServerStatus, name: &str| {
        status.counters.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
    };
    c.create(me, FileId::ROOT, "f");
    let before = status(&mut c, me);
    assert_eq!((value(&before, "op.read"), value(&before, "op.write")), (Some(0), Some(0)));
    assert_eq!(value(&before, "op.create"), Some(1));
    assert!(before.counters.is_sorted());
    for op in [Op::Read, Op::Write] {
        let error = c.raw(Peer::Client(me.session), op, b"anything").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol);
        assert!(error.message.contains("keeps no data"), "{error}");
    }
    let after = status(&mut c, me);
    assert_eq!((value(&after, "op.read"), value(&after, "op.write")), (Some(1), Some(1)));
    assert_eq!(value(&after, "data_requests"), Some(2));
}

#[test]
fn clients_do_not_pass_for_servers_nor_servers_for_clients() {
    let mut c = Model::new(1);
    let me = &mut c.client(root());
    let prefix = MetaPrefix { caller: root(), mutation: None };
    let machine = weir_wire::targets::MachineLoad::default();
    let request = weir_wire::peer::HeartbeatRequest {
        acting: Epoch(0),
        revoked: 0,
        machine,
        targets: vec![],
    };
    let as_client = c.raw(Peer::Client(me.session), Op::Heartbeat, &body(&prefix, &request));
    assert_eq!(kind(as_client), ErrorKind::Protocol);
    let request = GetAttrRequest { file: FileId::ROOT };
    let as_server = c.raw(Peer::Server(ServerId(1)), Op::GetAttr, &body(&prefix, &request));
    assert_eq!(kind(as_server), ErrorKind::Protocol);
}

#[test]
fn keys_are_derived_and_tickets_are_no_way_in() {
    let mut c = Model::new(1);
    let me = &mut c.client(root());
    let hello = |identity| Model::hello(identity, weir_types::SessionId(0));
    let client = weir_types::ClientId(77);
    let key = c.machine.key_for(&hello(Identity::Client(client))).unwrap();
    assert_eq!(key, master().client(client));
    let ticket = c.ask(me, &GetTicketsRequest { servers: vec![ServerId(1)] }).unwrap().remove(0);
    let refused =
        c.machine.key_for(&hello(Identity::Ticket(ticket.ticket, Attempt { run: 1, number: 0 })));
    assert_eq!(kind(refused), ErrorKind::AuthFailed);
    // The session of another client cannot be joined.
    let mut thief = hello(Identity::Client(client));
    thief.session = me.session;
    assert_eq!(kind(c.machine.welcome(&thief, c.now)), ErrorKind::SessionExpired);
}

#[test]
fn malformed_requests_are_refused_and_harm_nothing() {
    let mut c = Model::new(1);
    let me = &mut c.client(root());
    for &op in Op::ALL {
        // One of them ends the session.
        let other = c.client(root());
        for body in [&b""[..], &[0xff; 64], &[0; 13]] {
            for peer in [Peer::Client(other.session), Peer::Server(ServerId(1))] {
                // Some of these happen to mean something; none may panic.
                if let Err(error) = c.raw(peer, op, body) {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
    assert!(c.getattr(me, FileId::ROOT).is_ok());
    assert!(ServerStatus::from_bytes(b"junk").is_err());
}

#[test]
fn one_that_comes_for_the_first_time_has_lost_nothing_and_one_that_starts_anew_may_have() {
    let mut c = Model::new(1);
    let me = c.client(root());
    let since = |c: &mut Model| {
        let map = map(c, &me, Epoch(0)).unwrap();
        (map.epoch, map.target(TargetId(2)).unwrap().anew)
    };
    c.register(2, &[2]).unwrap();
    let (first, anew) = since(&mut c);
    assert_eq!(anew, Epoch(0));
    c.register_anew(2, vec![Model::report(2)]).unwrap();
    let (second, anew) = since(&mut c);
    assert!(first < anew && anew <= second);
}
