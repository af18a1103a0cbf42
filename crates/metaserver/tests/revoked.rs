//! Rights that end before their time: what data servers are told, and what clients get instead.

use crate::harness::*;
use weir_metaserver::machine::Peer;
use weir_metastore::ModelEngine;
use weir_types::codec::Bytes;
use weir_types::{
    ACL_ACCESS, ClientId, ClientStanding, Encode, Epoch, ErrorKind, FileId, KeyGeneration,
    Restrictions, ServerId, TargetId,
};
use weir_wire::data::StatusRequest;
use weir_wire::meta::*;
use weir_wire::peer::{HeartbeatRequest, Revocation, Revocations};
use weir_wire::targets::RotateKeysRequest;
use weir_wire::{Capability, Rights};

type Model = Cluster<ModelEngine>;

const GUEST: ClientId = ClientId(77);

/// What a data server that knows all up to `known` is told.
fn told(c: &mut Model, server: u32, known: u64) -> Revocations {
    let machine = weir_wire::targets::MachineLoad::default();
    let targets = vec![Model::report(server)];
    let request = HeartbeatRequest { acting: Epoch(0), revoked: known, machine, targets };
    let body = request.to_bytes();
    c.send::<HeartbeatRequest>(Peer::Server(ServerId(server)), &body).unwrap().revoked
}

/// Up to which number a server knows all that was revoked until now.
fn so_far(c: &mut Model, server: u32) -> u64 {
    let mut known = 0;
    loop {
        let page = told(c, server, known);
        known = page.upto;
        if !page.more {
            return known;
        }
    }
}

fn lacking(c: &mut Model) -> u64 {
    let admin = c.client(root());
    let status = c.ask(&admin, &StatusRequest {}).unwrap();
    status.counters.iter().find(|(name, _)| name == "revocations.servers_lacking").unwrap().1
}

fn chmod(c: &mut Model, by: &mut Client, file: FileId, mode: u16) {
    c.make(by, &SetAttrRequest { mode: Some(mode), ..set_nothing(file) }).unwrap();
}

fn revoke(c: &mut Model, client: ClientId) {
    let (admin, name) = (c.client(root()), String::new());
    let (standing, restrictions) = (ClientStanding::Revoked, Restrictions::NONE);
    let info = ClientInfo { client, name, standing, restrictions };
    c.ask(&admin, &SetClientRequest { info }).unwrap();
}

#[test]
fn data_servers_are_told_which_sessions_have_ended_and_confirm_it() {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    let (first, second) = (so_far(&mut c, 1), so_far(&mut c, 2));
    let guest = c.session_of(GUEST, root());
    assert_eq!(lacking(&mut c), 0);
    revoke(&mut c, GUEST);
    assert_eq!(kind(c.ask(&guest, &StatusRequest {})), ErrorKind::SessionExpired);
    assert_eq!(lacking(&mut c), 2);
    let page = told(&mut c, 1, first);
    let [Revocation { number, client: Some(GUEST), file: None, .. }] = page.list[..] else {
        panic!("{page:?}");
    };
    assert!(guest.session.0 < number, "the session was before");
    assert_eq!(lacking(&mut c), 2, "told, but not confirmed");
    assert_eq!(told(&mut c, 1, page.upto).list, []);
    assert_eq!(lacking(&mut c), 1);
    let upto = told(&mut c, 2, second).upto;
    told(&mut c, 2, upto);
    assert_eq!(lacking(&mut c), 0);
    // It registers anew: perhaps it has started anew and knows nothing.
    let reply = c.register(2, &[2]).unwrap();
    assert_eq!((reply.revoked.list.len(), lacking(&mut c)), (1, 1));
}

#[test]
fn a_key_that_is_restricted_goes_on_with_a_new_session_only() {
    let mut c = Model::new(1);
    let known = so_far(&mut c, 1);
    let before = c.session_of(GUEST, root());
    c.set_client(GUEST, Restrictions { read_only: true, ..Restrictions::NONE });
    let page = told(&mut c, 1, known);
    let number = page.list[0].number;
    let after = c.session_of(GUEST, root());
    assert!(before.session.0 < number && number < after.session.0);
}

#[test]
fn a_change_that_takes_rights_away_voids_capabilities_and_open_files_get_new_ones() {
    let mut c = Model::new(1);
    let mut admin = c.client(root());
    let made = c.create(&mut admin, FileId::ROOT, "f");
    let file = made.attr.file;
    let anna = user(7, 7, &[]);
    chmod(&mut c, &mut admin, file, 0o644);
    let mut reader = c.client(anna.clone());
    let opened = c.make(&mut reader, &OpenRequest { file, rights: Rights::READ }).unwrap();
    let other = c.client(anna);
    let known = so_far(&mut c, 1);

    chmod(&mut c, &mut admin, file, 0o755);
    assert_eq!(told(&mut c, 1, known).list, [], "that gave rights");
    chmod(&mut c, &mut admin, file, 0o600);
    let page = told(&mut c, 1, known);
    let [Revocation { number, client: None, file: Some(of), .. }] = page.list[..] else {
        panic!("{page:?}");
    };
    assert_eq!(of, file);
    for void in [&made, &opened] {
        assert!(void.capability.capability.version < number);
    }
    // Who has it open may go on reading it, and nothing else; others may not begin.
    let page = |rights| GetLayoutRequest { file, offset: 0, rights };
    let again = c.ask(&reader, &page(Rights::READ)).unwrap();
    assert!(again.capability.capability.version >= number);
    assert_eq!(kind(c.ask(&reader, &page(Rights::WRITE))), ErrorKind::AccessDenied);
    assert_eq!(kind(c.ask(&other, &page(Rights::READ))), ErrorKind::AccessDenied);
    c.close(&mut reader, file);
    assert_eq!(kind(c.ask(&reader, &page(Rights::READ))), ErrorKind::AccessDenied);

    // What only the superuser could use is given away; then it is taken from its owner, and what the
    // group could read from the group.
    let change = set_nothing(file);
    for (change, revoked) in [
        (SetAttrRequest { uid: Some(7), ..change.clone() }, 0),
        (SetAttrRequest { uid: Some(8), ..change.clone() }, 1),
        (SetAttrRequest { mode: Some(0o640), ..change.clone() }, 0),
        (SetAttrRequest { gid: Some(7), ..change }, 1),
    ] {
        let known = so_far(&mut c, 1);
        c.make(&mut admin, &change).unwrap();
        assert_eq!(told(&mut c, 1, known).list.len(), revoked, "{change:?}");
    }
    // An access control list: the owner, user 8, the mask, the group, others.
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let list = [
        2u32.to_le_bytes().to_vec(),
        entry(1, 6, none),
        entry(2, 4, 8),
        entry(4, 0, none),
        entry(0x10, 4, none),
        entry(0x20, 0, none),
    ];
    let (name, value) = (Bytes(ACL_ACCESS.to_vec()), Bytes(list.concat()));
    let known = so_far(&mut c, 1);
    let set = SetXattrRequest { file, name: name.clone(), value, mode: XattrMode::Any };
    c.make(&mut admin, &set).unwrap();
    assert_eq!(told(&mut c, 1, known).list.len(), 1);
    let known = so_far(&mut c, 1);
    c.make(&mut admin, &RemoveXattrRequest { file, name }).unwrap();
    assert_eq!(told(&mut c, 1, known).list.len(), 1);
}

#[test]
fn what_was_revoked_before_a_restart_is_void_after_it() {
    let mut c = Model::new(1);
    let mut admin = c.client(root());
    let made = c.create(&mut admin, FileId::ROOT, "f");
    let mut quiet = c.restart();
    assert_eq!(quiet.register(1, &[1]).unwrap().revoked.list, [], "nothing was revoked");
    chmod(&mut quiet, &mut admin, made.attr.file, 0);
    let open = OpenRequest { file: made.attr.file, rights: Rights::READ };
    let opened = quiet.make(&mut admin, &open).unwrap();
    let mut c = quiet.restart();
    let page = c.register(1, &[1]).unwrap().revoked;
    let [Revocation { number, client: None, file: None, .. }] = page.list[..] else {
        panic!("{page:?}");
    };
    assert!(opened.capability.capability.version < number);
    let again = c.make(&mut admin, &open).unwrap();
    assert!(again.capability.capability.version >= number);
    // Until all of before has run out by itself.
    c.pass_ms(3 * 3_600_000);
    let mut c = c.restart();
    assert_eq!(c.register(1, &[1]).unwrap().revoked.list, []);
}

#[test]
fn new_keys_sign_at_once_and_old_ones_count_until_what_they_signed_has_expired() {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    let mut admin = c.client(root());
    let guest = c.session_of(GUEST, root());
    let generation = |open: &OpenFile| open.capability.capability.key_generation.0;
    let before = c.create(&mut admin, FileId::ROOT, "f");
    let open = OpenRequest { file: before.attr.file, rights: Rights::READ };
    assert_eq!(generation(&before), 1);
    let rotate = |target: Option<u32>, now| RotateKeysRequest {
        target: target.map(TargetId),
        now,
        own: false,
    };
    assert_eq!(kind(c.ask(&guest, &rotate(None, false))), ErrorKind::NotAdministrator);
    assert_eq!(kind(c.ask(&admin, &rotate(Some(9), false))), ErrorKind::TargetMissing);
    let oldest = |c: &mut Model, server| c.heartbeat(server, vec![Model::report(server)]).unwrap();
    let oldest = |c: &mut Model, server| oldest(c, server).oldest_keys;

    let made = c.ask(&admin, &rotate(None, false)).unwrap();
    assert_eq!(
        (made.generation, oldest(&mut c, 1)),
        (KeyGeneration(2), vec![(TargetId(1), KeyGeneration(1))])
    );
    let after = c.make(&mut admin, &open).unwrap();
    assert_eq!(generation(&after), 2);
    let capability = &after.capability.capability;
    for (target, mac) in &after.capability.macs {
        let key = master().target(*target, KeyGeneration(1));
        assert_eq!(capability.sign(*target, &key), *mac);
    }
    assert!(before.capability.capability.expires_unix_ms < made.old_until_unix_ms);
    assert_eq!(kind(c.ask(&admin, &rotate(Some(1), false))), ErrorKind::Busy);
    let made = c.ask(&admin, &rotate(Some(1), true)).unwrap();
    assert_eq!((made.generation.0, made.old_until_unix_ms), (3, 0));
    assert_eq!(oldest(&mut c, 1), [(TargetId(1), KeyGeneration(3))]);
    assert_eq!(oldest(&mut c, 2), [(TargetId(2), KeyGeneration(1))]);

    // After a start, too, and when the time of the old ones is over.
    let mut c = c.restart();
    let reply = c.register(1, &[1]).unwrap();
    assert_eq!(reply.oldest_keys, [(TargetId(1), KeyGeneration(3))]);
    c.register(2, &[2]).unwrap();
    let mut admin = c.client(root());
    assert_eq!(generation(&c.make(&mut admin, &open).unwrap()), 3);
    c.pass_ms(2 * 3_600_000);
    assert_eq!(oldest(&mut c, 2), [(TargetId(2), KeyGeneration(2))]);
    // What has ended stays ended, also if the clock is set back and the server starts anew.
    c.now.unix = weir_types::Timestamp::new(1_000_000, 0);
    let mut c = c.restart();
    let reply = c.register(2, &[2]).unwrap();
    assert_eq!(reply.oldest_keys, [(TargetId(2), KeyGeneration(2))]);
    c.register(1, &[1]).unwrap();
    let admin = c.client(root());
    c.ask(&admin, &rotate(None, false)).unwrap();
}

#[test]
fn what_lasted_longer_before_a_restart_is_revoked_for_as_long() {
    let day_ms = 24 * 3_600_000;
    let mut c = Model::new(1);
    c.times.capability_ms = day_ms;
    let mut c = c.restart();
    let mut admin = c.client(root());
    let made = c.create(&mut admin, FileId::ROOT, "f");
    c.times.capability_ms = 3_600_000;
    let mut c = c.restart();
    let mut admin = c.client(root());
    c.register(1, &[1]).unwrap();
    let known = so_far(&mut c, 1);
    chmod(&mut c, &mut admin, made.attr.file, 0);
    let page = told(&mut c, 1, known);
    let Capability { expires_unix_ms, .. } = made.capability.capability;
    assert!(page.list[0].until_unix_ms > expires_unix_ms, "{page:?}");
}

#[test]
fn a_key_that_was_revoked_just_before_a_restart_is_not_said_to_be_known_everywhere() {
    let mut c = Model::new(1);
    c.session_of(GUEST, root());
    revoke(&mut c, GUEST);
    let mut c = c.restart();
    assert_eq!(lacking(&mut c), 1);
    let known = so_far(&mut c, 1);
    told(&mut c, 1, known);
    assert_eq!(lacking(&mut c), 0);
}
