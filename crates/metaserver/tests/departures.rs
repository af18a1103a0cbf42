//! Data servers are taken out of the cluster, and numbers are never given twice.

use crate::harness::*;
use weir_metastore::ModelEngine;
use weir_types::{ClientId, ErrorKind, FileId, LayoutSpec, Result, ServerId, SessionId, TargetId};
use weir_wire::handshake::Identity;
use weir_wire::targets::{
    CountCopiesRequest, FreeNumbersRequest, ListTargetsRequest, Numbers, RemoveServerRequest,
    RemoveTargetRequest, SetTargetRequest,
};

type Model = Cluster<ModelEngine>;

fn three_servers() -> Model {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    c.register(3, &[3]).unwrap();
    c
}

fn remove_target(c: &mut Model, target: u32) {
    let (me, target) = (c.client(root()), TargetId(target));
    c.ask(&me, &SetTargetRequest { target, draining: true }).unwrap();
    let mut place = None;
    loop {
        let step = RemoveTargetRequest { target, force: false, place };
        match c.ask(&me, &step).unwrap().next {
            None => return,
            next => place = next,
        }
    }
}

fn remove_server(c: &mut Model, server: u32) -> Result<()> {
    let me = c.client(root());
    c.ask(&me, &RemoveServerRequest { server: ServerId(server) })
}

fn free(c: &mut Model) -> (u32, u32) {
    let me = c.client(root());
    let Numbers { server, target } = c.ask(&me, &FreeNumbersRequest {}).unwrap();
    (server.0, target.0)
}

fn count(c: &mut Model, targets: &[u32]) -> u64 {
    let me = c.client(root());
    let targets: Vec<TargetId> = targets.iter().map(|target| TargetId(*target)).collect();
    let mut place = None;
    loop {
        let request = CountCopiesRequest { targets: targets.clone(), place };
        let step = c.ask(&me, &request).unwrap();
        match step.next {
            None => return step.files,
            next => place = next,
        }
    }
}

#[test]
fn a_server_that_was_removed_is_refused_and_its_numbers_do_not_come_back() {
    let mut c = three_servers();
    let error = remove_server(&mut c, 3).unwrap_err();
    assert!(error.kind == ErrorKind::Busy && error.message.contains("target 3"), "{error}");
    assert_eq!(kind(remove_server(&mut c, 9)), ErrorKind::TargetMissing);
    assert_eq!(free(&mut c), (4, 4));
    remove_target(&mut c, 3);
    remove_server(&mut c, 3).unwrap();
    for restarted in [false, true] {
        if restarted {
            c = c.restart();
        }
        assert_eq!(free(&mut c), (4, 4));
        // Nor is there one that has no number.
        assert_eq!(kind(c.register(0, &[6])), ErrorKind::AuthFailed);
        let hello = Model::hello(Identity::Server(ServerId(0)), SessionId(0));
        assert_eq!(c.machine.key_for(&hello).map(drop).unwrap_err().kind, ErrorKind::AuthFailed);
        // With its own target, or a new one; and its key is refused.
        for targets in [&[3][..], &[5]] {
            assert_eq!(kind(c.register(3, targets)), ErrorKind::AuthFailed);
        }
        assert_eq!(kind(c.heartbeat(3, vec![Model::report(3)])), ErrorKind::AuthFailed);
        let hello = Model::hello(Identity::Server(ServerId(3)), SessionId(0));
        let error = c.machine.key_for(&hello).unwrap_err();
        assert!(error.message.contains("removed from the cluster"), "{error}");
        assert_eq!(kind(remove_server(&mut c, 3)), ErrorKind::TargetMissing);
        c.heartbeat(2, vec![Model::report(2)]).unwrap();
    }
    let me = c.client(root());
    let page = c.ask(&me, &ListTargetsRequest { after: None }).unwrap();
    assert_eq!(page.targets.iter().map(|t| t.target.0).collect::<Vec<_>>(), [1, 2]);
    c.register(7, &[20]).unwrap();
    assert_eq!(free(&mut c), (8, 21));
}

#[test]
fn the_last_server_stays() {
    let mut c = Model::new(1);
    remove_target(&mut c, 1);
    let error = remove_server(&mut c, 1).unwrap_err();
    assert!(error.kind == ErrorKind::Busy && error.message.contains("last one"), "{error}");
    c.register(1, &[1, 2]).unwrap();
}

#[test]
fn files_with_copies_on_any_of_some_targets_are_counted_once() {
    let mut c = three_servers();
    let me = &mut c.client(root());
    let on = |base, count, copies| LayoutSpec {
        base: Some(base),
        count,
        copies,
        ..LayoutSpec::default()
    };
    for n in 0..600 {
        c.make(me, &create_with(FileId::ROOT, &format!("a{n}"), on(0, 1, 1))).unwrap();
    }
    for n in 0..5 {
        c.make(me, &create_with(FileId::ROOT, &format!("b{n}"), on(1, 2, 1))).unwrap();
    }
    assert_eq!(
        [&[1][..], &[2], &[3], &[2, 3], &[1, 2, 3], &[9], &[]].map(|t| count(&mut c, t)),
        [600, 5, 5, 5, 605, 0, 0]
    );
}

#[test]
fn only_administrators_may() {
    let mut c = three_servers();
    let me = c.session_of(ClientId(77), root());
    let server = RemoveServerRequest { server: ServerId(3) };
    let counts = CountCopiesRequest { targets: vec![TargetId(1)], place: None };
    assert_eq!(kind(c.ask(&me, &server)), ErrorKind::NotAdministrator);
    assert_eq!(kind(c.ask(&me, &counts)), ErrorKind::NotAdministrator);
    assert_eq!(kind(c.ask(&me, &FreeNumbersRequest {})), ErrorKind::NotAdministrator);
}
