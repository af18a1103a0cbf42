//! Requests in, the exact list of actions out.

use super::*;
use weir_layout::{Region, RegionList};
use weir_types::codec::Encode;
use weir_types::{
    ColumnIndex, CopyIndex, FileId, Generation, KeyGeneration, ObjectId, RequestId, SegmentIndex,
};
use weir_wire::data::{Copied, CopyPiece, CopyRequest};
use weir_wire::data::{PingRequest, ReadFlags, StatusRequest, WriteFlags};
use weir_wire::message::Request;
use weir_wire::{Capability, Key};

const NOW: u64 = 1_000_000;
const SESSION: SessionId = SessionId(3);
const CLIENT: ClientId = ClientId(9);
const TARGET: TargetId = TargetId(7);
const STRIPE: StripeMap = StripeMap { unit_bytes: 65_536, columns: 4 };

type Actions = Vec<Action<u8>>;

fn key(target: TargetId) -> Key {
    Key::from_bytes([target.0 as u8; 32])
}

fn served(id: TargetId, unopened: Option<String>) -> ServedTarget {
    ServedTarget::new(id, key(id), unopened)
}

fn machine() -> Machine<u8> {
    let target = |id| Arc::new(served(id, None));
    let targets = vec![target(TargetId(8)), target(TARGET)];
    Machine::new(ServerId(2), targets, Arc::default(), Arc::default())
}

fn object() -> ObjectId {
    ObjectId {
        file: FileId(42),
        segment: SegmentIndex(0),
        column: ColumnIndex(1),
        copy: CopyIndex(0),
    }
}

fn capability() -> Capability {
    Capability {
        file: FileId(42),
        session: SESSION,
        user: 1000,
        rights: Rights::READ_WRITE,
        version: 1,
        key_generation: KeyGeneration(1),
        expires_unix_ms: NOW + 1,
    }
}

fn access_with(capability: Capability) -> Access {
    let mac = capability.sign(TARGET, &key(TARGET));
    let (object, generation) = (object(), Generation(5));
    let (copies, relay) = (Vec::new(), None);
    Access { target: TARGET, object, generation, capability, mac, copies, relay }
}

fn access() -> Access {
    access_with(capability())
}

fn read_of(access: Access) -> ReadRequest {
    let regions = RegionList::contiguous(0, 1 << 20).unwrap();
    ReadRequest { access, stripe: STRIPE, flags: ReadFlags::default(), regions }
}

fn write_of(access: Access) -> WriteRequest {
    let regions = RegionList::contiguous(65_536 + 100, 200).unwrap();
    WriteRequest { access, stripe: STRIPE, flags: WriteFlags::default(), regions, staged: None }
}

fn header<R: Request>(_: &R) -> Header {
    Header::request(R::OP, RequestId(11))
}

fn ask_with<R: Request>(machine: &mut Machine<u8>, request: &R, header: Header) -> Actions {
    let mut actions = Vec::new();
    let body = request.to_bytes();
    let incoming = Incoming {
        conn: 1,
        session: SESSION,
        client: CLIENT,
        header: &header,
        body: &body,
        now_unix_ms: NOW,
    };
    machine.on_request(&incoming, &mut actions);
    actions
}

fn ask<R: Request>(machine: &mut Machine<u8>, request: &R) -> Actions {
    ask_with(machine, request, header(request))
}

/// The kind of the error that is the only action.
fn refusal(actions: &Actions) -> ErrorKind {
    match &actions[..] {
        [Action::Reply { header, body: Body::Error(error), data_of: None, conn: 1 }] => {
            assert_eq!(header.status, Some(error.kind));
            assert_eq!(header.request_id, RequestId(11));
            error.kind
        }
        other => panic!("{other:?}"),
    }
}

fn counter(machine: &Machine<u8>, name: &str) -> u64 {
    let all = machine.counters.snapshot();
    all.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no counter {name}")).1
}

#[test]
fn a_read_is_probed_and_answered_with_its_data() {
    let mut m = machine();
    let actions = ask(&mut m, &read_of(access()));
    let [Action::Probe { op, conn: 1, target: TARGET, work }] = &actions[..] else {
        panic!("{actions:?}")
    };
    // A quarter of a MiB, in one piece, though it spans four stripes.
    assert_eq!((&work.pieces[..], work.bytes), (&[(0, 262_144)][..], 262_144));
    let mut actions = Vec::new();
    m.on_done(*op, Ok(Outcome::Read { bytes: 262_144, object_len: 300_000 }), &mut actions);
    let reply = Header::reply_to(&header(&read_of(access())), None);
    let body = Body::Len(ObjectLen { len: 300_000 });
    assert_eq!(actions, [Action::Reply { conn: 1, header: reply, body, data_of: Some(*op) }]);
    assert_eq!(m.in_progress(), 0);
    assert_eq!(counter(&m, "bytes.read"), 262_144);
}

#[test]
fn a_miss_goes_to_the_disk_and_a_locked_read_at_once() {
    let mut m = machine();
    let mut actions = ask(&mut m, &read_of(access()));
    let Some(Action::Probe { op, work, .. }) = actions.pop() else { panic!() };
    m.on_miss(op, work.clone(), &mut actions);
    let disk = Action::Disk { op, conn: 1, target: TARGET, work: Work::Read(work) };
    assert_eq!(actions, [disk]);

    let mut request = read_of(access());
    request.flags.locked = true;
    let actions = ask(&mut m, &request);
    assert!(
        matches!(&actions[..], [Action::Disk { work: Work::Read(w), .. }] if w.locked),
        "{actions:?}"
    );
}

#[test]
fn replies_carry_the_load_of_their_target() {
    let mut m = machine();
    let ops: Vec<OpId> = (0..3)
        .map(|_| match ask(&mut m, &read_of(access())).pop() {
            Some(Action::Probe { op, .. }) => op,
            other => panic!("{other:?}"),
        })
        .collect();
    m.targets[0].load.queued.store(9, Relaxed);
    let mut actions = Vec::new();
    m.on_done(ops[1], Ok(Outcome::Read { bytes: 0, object_len: 0 }), &mut actions);
    let Some(Action::Reply { header, .. }) = actions.pop() else { panic!() };
    assert_eq!((header.in_flight, header.queue_depth), (2, 9));
    // Its number is used again, and no other one's.
    let Some(Action::Probe { op, .. }) = ask(&mut m, &read_of(access())).pop() else { panic!() };
    assert_eq!(op, ops[1]);
}

#[test]
fn a_write_goes_to_the_disk_if_payload_and_checksums_fit() {
    let mut m = machine();
    let request = write_of(access());
    let mut good = header(&request);
    (good.payload_len, good.checks) = (200, 1);
    let actions = ask_with(&mut m, &request, good);
    let work = Work::Write {
        object: object(),
        pieces: vec![(100, 200)],
        generation: Generation(5),
        sync: false,
    };
    assert_eq!(actions, [Action::Disk { op: OpId(0), conn: 1, target: TARGET, work }]);
    for (payload_len, checks) in [(199, 1), (201, 1), (200, 0), (200, 2), (0, 0)] {
        let bad = Header { payload_len, checks, ..good };
        assert_eq!(refusal(&ask_with(&mut m, &request, bad)), ErrorKind::Protocol);
    }
    assert_eq!(counter(&m, "refused.malformed"), 5);
}

#[test]
fn the_other_operations_go_to_the_disk() {
    let mut m = machine();
    let work = |actions: Actions| match actions.into_iter().next() {
        Some(Action::Disk { work, .. }) => work,
        other => panic!("{other:?}"),
    };
    let (object, generation) = (object(), Generation(5));
    let truncate = TruncateRequest { access: access(), len: 10 };
    assert_eq!(work(ask(&mut m, &truncate)), Work::Truncate { object, len: 10, generation });
    assert_eq!(work(ask(&mut m, &SyncRequest { access: access() })), Work::Sync { object });
    assert_eq!(
        work(ask(&mut m, &StatObjectRequest { access: access() })),
        Work::Stat { object, of_copies: false, as_is: false }
    );
}

#[test]
fn each_bad_capability_is_refused_and_counted_by_reason() {
    let mut m = machine();
    let good = access();
    let forged = Access {
        capability: Capability { expires_unix_ms: NOW + 999, ..capability() },
        ..access()
    };
    let elsewhere = Access { target: TargetId(8), ..access() };
    let session = access_with(Capability { session: SessionId(4), ..capability() });
    let file = access_with(Capability { file: FileId(43), ..capability() });
    let expired = access_with(Capability { expires_unix_ms: NOW, ..capability() });
    for (access, counter_name) in [
        (forged, "refused.capability_not_signed"),
        (elsewhere, "refused.capability_not_signed"),
        (session, "refused.capability_of_other_session"),
        (file, "refused.capability_for_other_file"),
        (expired, "refused.capability_expired"),
    ] {
        let before = counter(&m, counter_name);
        assert_eq!(refusal(&ask(&mut m, &read_of(access))), ErrorKind::BadCapability);
        assert_eq!(counter(&m, counter_name), before + 1, "{counter_name}");
    }
    assert!(matches!(ask(&mut m, &read_of(good))[..], [Action::Probe { .. }]));
}

#[test]
fn rights_are_checked_on_every_path() {
    let mut m = machine();
    let reader = || access_with(Capability { rights: Rights::READ, ..capability() });
    let writer = || access_with(Capability { rights: Rights::WRITE, ..capability() });
    let write = write_of(reader());
    let mut write_header = header(&write);
    (write_header.payload_len, write_header.checks) = (200, 1);
    let refused = [
        ask_with(&mut m, &write, write_header),
        ask(&mut m, &TruncateRequest { access: reader(), len: 0 }),
        ask(&mut m, &read_of(writer())),
    ];
    assert!(refused.iter().all(|actions| refusal(actions) == ErrorKind::BadCapability));
    assert_eq!(counter(&m, "refused.capability_without_right"), 3);
    assert_eq!(m.in_progress(), 0);
    // Either right will do to ask for the length, or that data be durable.
    for access in [reader(), writer()] {
        let sync = SyncRequest { access: access.clone() };
        assert!(matches!(ask(&mut m, &sync)[..], [Action::Disk { .. }]));
        assert!(matches!(ask(&mut m, &StatObjectRequest { access })[..], [Action::Disk { .. }]));
    }
}

#[test]
fn room_is_given_back_and_reserved_with_the_right_to_write() {
    let mut m = machine();
    let (object, generation, offset) = (object(), Generation(5), 4096);
    let punch = |access| PunchRequest { access, offset, len: u64::MAX };
    let allocate = |access, len| AllocateRequest { access, offset, len };
    let seek = |access| SeekRequest { access, offset, hole: true };
    let work = |actions: Actions| match actions.into_iter().next() {
        Some(Action::Disk { work, .. }) => work,
        other => panic!("{other:?}"),
    };
    let most = MAX_ALLOCATE_BYTES;
    let expected = Work::Punch { object, offset, len: u64::MAX, generation };
    assert_eq!(work(ask(&mut m, &punch(access()))), expected);
    let expected = Work::Allocate { object, offset, len: most, generation };
    assert_eq!(work(ask(&mut m, &allocate(access(), most))), expected);
    assert_eq!(refusal(&ask(&mut m, &allocate(access(), most + 1))), ErrorKind::InvalidArgument);
    let reader = || access_with(Capability { rights: Rights::READ, ..capability() });
    assert_eq!(refusal(&ask(&mut m, &punch(reader()))), ErrorKind::BadCapability);
    assert_eq!(refusal(&ask(&mut m, &allocate(reader(), 1))), ErrorKind::BadCapability);
    let actions = ask(&mut m, &seek(reader()));
    let [Action::Disk { op, work: Work::Seek { hole: true, .. }, .. }] = &actions[..] else {
        panic!("{actions:?}")
    };
    let mut replies = Vec::new();
    m.on_done(*op, Ok(Outcome::Found(Some(8192))), &mut replies);
    assert!(matches!(&replies[..], [Action::Reply { body: Body::Found(Some(8192)), .. }]));
}

#[test]
fn a_target_that_was_not_opened_is_refused_for_good_but_only_to_those_with_a_right() {
    let why = "out of service: target directory /gone is missing".to_owned();
    let targets = vec![Arc::new(served(TARGET, Some(why.clone())))];
    let mut m: Machine<u8> = Machine::new(ServerId(2), targets, Arc::default(), Arc::default());
    let refused = [
        ask(&mut m, &read_of(access())),
        ask(&mut m, &SyncRequest { access: access() }),
        ask(&mut m, &TruncateRequest { access: access(), len: 0 }),
    ];
    for actions in refused {
        assert_eq!(refusal(&actions), ErrorKind::Io);
        let [Action::Reply { body: Body::Error(error), .. }] = &actions[..] else { panic!() };
        assert_eq!(error.message, why);
    }
    assert_eq!(counter(&m, "refused.target_not_opened"), 3);
    let forged = Access { mac: Mac([0; 16]), ..access() };
    assert_eq!(refusal(&ask(&mut m, &read_of(forged))), ErrorKind::BadCapability);
}

#[test]
fn an_unknown_target_is_named_with_the_server() {
    let mut m = machine();
    let actions = ask(&mut m, &read_of(Access { target: TargetId(99), ..access() }));
    assert_eq!(refusal(&actions), ErrorKind::TargetMissing);
    let [Action::Reply { body: Body::Error(error), .. }] = &actions[..] else { panic!() };
    assert!(error.message.contains("99") && error.message.contains("server 2"), "{error}");
}

#[test]
fn impossible_requests_are_refused() {
    let mut m = machine();
    let read = |regions| ReadRequest { regions, ..read_of(access()) };
    let too_much = RegionList::contiguous(0, 64 << 20).unwrap();
    assert_eq!(refusal(&ask(&mut m, &read(too_much))), ErrorKind::InvalidArgument);
    // One byte of each of 5000 blocks: more pieces than a request may have.
    let pieces = Region { offset: 0, size: 1, count: 5000, stride: 4 * 65_536 };
    let mut request = read(RegionList::new(vec![pieces]).unwrap());
    request.access.object.column = ColumnIndex(0);
    assert_eq!(refusal(&ask(&mut m, &request)), ErrorKind::InvalidArgument);
    let mut no_such_column = read_of(access());
    no_such_column.access.object.column = ColumnIndex(4);
    assert_eq!(refusal(&ask(&mut m, &no_such_column)), ErrorKind::InvalidArgument);
    // A payload where none belongs.
    let request = read_of(access());
    let with_payload = Header { payload_len: 1, ..header(&request) };
    assert_eq!(refusal(&ask_with(&mut m, &request, with_payload)), ErrorKind::Protocol);
}

#[test]
fn garbage_and_foreign_operations_are_refused() {
    let mut m = machine();
    let mut actions = Vec::new();
    for op in Op::ALL.iter().filter(|op| !matches!(op, Op::Ping | Op::Status)) {
        let header = Header::request(*op, RequestId(11));
        let body = &[0xff; 40];
        let incoming = Incoming {
            conn: 1,
            session: SESSION,
            client: CLIENT,
            header: &header,
            body,
            now_unix_ms: NOW,
        };
        m.on_request(&incoming, &mut actions);
        let kind = refusal(&actions);
        assert!(matches!(kind, ErrorKind::Protocol | ErrorKind::Unsupported), "{op:?} {kind:?}");
        actions.clear();
    }
}

#[test]
fn ping_and_status_need_no_capability() {
    let mut m = machine();
    let reply = Header::reply_to(&header(&PingRequest {}), None);
    assert_eq!(
        ask(&mut m, &PingRequest {}),
        [Action::Reply { conn: 1, header: reply, body: Body::Empty, data_of: None }]
    );
    let header = Header::reply_to(&header(&StatusRequest {}), None);
    assert_eq!(ask(&mut m, &StatusRequest {}), [Action::Status { conn: 1, header }]);
}

#[test]
fn failures_of_the_disk_are_answered_and_counted() {
    let mut m = machine();
    for (kind, name) in [
        (ErrorKind::Corrupt, "checksum.corrupt_on_disk"),
        (ErrorKind::Stale, "refused.stale_generation"),
        (ErrorKind::ChecksumMismatch, "checksum.damaged_on_arrival"),
        (ErrorKind::NoSpace, "error.no_space"),
        (ErrorKind::ReadOnly, "error.read_only"),
        (ErrorKind::Io, "error.io"),
        (ErrorKind::TooManyOpen, "error.other"),
    ] {
        let Some(Action::Probe { op, .. }) = ask(&mut m, &read_of(access())).pop() else {
            panic!()
        };
        let mut actions = Vec::new();
        m.on_done(op, Err(kind.into()), &mut actions);
        assert_eq!(refusal(&actions), kind);
        assert_eq!(counter(&m, name), 1, "{name}");
        // A completion that comes twice is ignored.
        m.on_done(op, Err(kind.into()), &mut actions);
        assert_eq!(actions.len(), 1);
    }
}

#[test]
fn a_server_that_stops_is_gone_to_its_clients_and_has_not_interrupted_their_calls() {
    let mut m = machine();
    let mut actions = ask(&mut m, &SyncRequest { access: access() });
    let Some(Action::Disk { op, .. }) = actions.pop() else { panic!("{actions:?}") };
    m.on_done(op, Err(ErrorKind::Interrupted.into()), &mut actions);
    assert_eq!(refusal(&actions), ErrorKind::Unreachable);
}

#[test]
fn a_copy_is_checked_here_as_far_as_it_can_be_and_another_server_asks_for_none() {
    let mut m = machine();
    let from = |target: TargetId| {
        let mac = capability().sign(target, &key(target));
        Access { target, mac, ..access() }
    };
    let pieces = vec![CopyPiece { from: 0, to: 10, len: 20 }];
    let copy = |source: Access| CopyRequest { access: access(), source, pieces: pieces.clone() };
    for (source, here) in [(from(TargetId(8)), true), (from(TargetId(9)), false)] {
        let actions = ask(&mut m, &copy(source.clone()));
        let [Action::Copy { op, conn: 1, target: TARGET, work }] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!((work.local, &work.source, &work.pieces), (here, &source, &pieces));
        let (mut done, copied) = (Vec::new(), Copied { len: 30, written: 20 });
        m.on_done(*op, Ok(Outcome::Copied(copied.clone())), &mut done);
        let header = Header::reply_to(&header(&copy(source)), None);
        assert_eq!(
            done,
            [Action::Reply { conn: 1, header, body: Body::Copied(copied), data_of: None }]
        );
    }
    assert_eq!(counter(&m, "bytes.copied"), 40);
    // What another server has to check is passed on, but not another's capability.
    let theirs = Capability { session: SessionId(4), ..capability() };
    let overheard = Access { target: TargetId(9), ..access_with(theirs) };
    assert_eq!(refusal(&ask(&mut m, &copy(overheard))), ErrorKind::BadCapability);
    let request = copy(from(TargetId(8)));
    let (header, body) = (header(&request), request.to_bytes());
    let incoming = Incoming {
        conn: 1,
        session: OF_SERVERS,
        client: CLIENT,
        header: &header,
        body: &body,
        now_unix_ms: NOW,
    };
    let mut actions = Vec::new();
    m.on_request(&incoming, &mut actions);
    assert_eq!(refusal(&actions), ErrorKind::Unsupported);
}
