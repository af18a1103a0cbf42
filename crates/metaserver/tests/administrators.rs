//! What only administrators may ask (others' systems forgot to check:
//! CVE-2021-39232).

use crate::harness::*;
use weir_metaserver::machine::Peer;
use weir_metaserver::schema::{self, ClientRecord, ClientStanding, key};
use weir_metastore::{ModelEngine, transact};
use weir_types::{ClientId, ErrorKind, FileId, SessionId, TargetId};
use weir_wire::capability::ANY_FILE;
use weir_wire::handshake::Identity;
use weir_wire::meta::*;
use weir_wire::{Op, Rights};

fn session_of(c: &mut Cluster<ModelEngine>, client: ClientId) -> Client {
    let hello = Cluster::<ModelEngine>::hello(Identity::Client(client), SessionId(0));
    let session = c.machine.welcome(&hello, c.now).unwrap().session;
    Client { session, next: 1, caller: root() }
}

fn set_standing(c: &mut Cluster<ModelEngine>, client: ClientId, standing: ClientStanding) {
    let record = schema::encode(&ClientRecord { standing, ..ClientRecord::default() });
    let put = |tx: &mut weir_metastore::Tx<'_>| tx.put(&key::client(client), &record);
    transact(c.machine.engine_mut(), |tx| Ok::<_, weir_types::Error>(put(tx)?)).unwrap();
}

#[test]
fn an_ordinary_or_revoked_client_is_refused_whatever_user_it_says_it_is() {
    let mut c = Cluster::new(2);
    let capability = AdminCapabilityRequest {};
    let opens = CountOpensRequest { files: vec![FileId::ROOT] };
    let admin = c.client(root());
    let granted = c.ask(&admin, &capability).unwrap();
    assert_eq!((granted.capability.file, granted.capability.rights), (ANY_FILE, Rights::ADMIN));
    assert_eq!(granted.capability.session, admin.session);
    assert!(granted.mac_for(TargetId(1)).is_some() && granted.mac_for(TargetId(2)).is_some());
    c.ask(&admin, &opens).unwrap();

    let ordinary = session_of(&mut c, ClientId(77));
    assert_eq!(kind(c.ask(&ordinary, &capability)), ErrorKind::NotAdministrator);
    assert_eq!(kind(c.ask(&ordinary, &opens)), ErrorKind::NotAdministrator);

    // A session that began with the right loses it with the key's standing.
    for standing in [ClientStanding::Revoked, ClientStanding::Ordinary] {
        set_standing(&mut c, ADMIN, standing);
        assert_eq!(kind(c.ask(&admin, &capability)), ErrorKind::NotAdministrator);
        assert_eq!(kind(c.ask(&admin, &opens)), ErrorKind::NotAdministrator);
    }
    set_standing(&mut c, ADMIN, ClientStanding::Administrator);
    c.ask(&admin, &capability).unwrap();
}

#[test]
fn no_open_gives_the_right_of_administrators() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let file = c.create(me, FileId::ROOT, "f").attr.file;
    // An open that asks for right 4 does not even decode.
    let prefix = MetaPrefix { caller: root(), mutation: None };
    for bits in 4..=7u8 {
        let mut asked = body(&prefix, &OpenRequest { file, rights: Rights::NONE });
        *asked.last_mut().unwrap() = bits;
        let error = c.raw(Peer::Client(me.session), Op::Open, &asked);
        assert_eq!(kind(error), ErrorKind::Protocol, "rights {bits}");
    }
}

#[test]
fn files_that_are_open_are_counted_by_session() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let file = c.create(me, FileId::ROOT, "f").attr.file;
    let count = |c: &mut Cluster<ModelEngine>, me: &Client| {
        c.ask(me, &CountOpensRequest { files: vec![file, FileId::ROOT] }).unwrap()
    };
    assert_eq!(count(&mut c, me), [1, 0]);
    let other = c.client(root());
    c.ask(&other, &OpenRequest { file, rights: Rights::READ }).unwrap();
    c.ask(&other, &OpenRequest { file, rights: Rights::READ }).unwrap();
    assert_eq!(count(&mut c, me), [2, 0]);
    c.close(me, file);
    assert_eq!(count(&mut c, me), [1, 0]);
    // After a restart nobody knows until everyone had the time to say.
    let mut c = c.restart();
    assert_eq!(count(&mut c, me), [1, 1]);
    for _ in 0..3 {
        c.pass_ms(5000);
        c.getattr(me, FileId::ROOT).unwrap();
    }
    assert_eq!(count(&mut c, me), [0, 0]);
}
