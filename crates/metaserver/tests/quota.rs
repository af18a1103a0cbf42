//! Quotas: what counts and what is refused, where files and directories may go, and who may
//! see and set them.

mod nested;

use crate::harness::*;
use weir_metaserver::audit::{Kind, Problem, SnapshotReader, Subject};
use weir_metaserver::machine::{Answer, Peer};
use weir_metaserver::quota::MAX_AHEAD_BYTES;
use weir_metaserver::schema::{self, QuotaRecord, key};
use weir_metastore::{Engine, ModelEngine, Tx, transact};
use weir_types::{Caller, ClientId, Error, ErrorKind, FileId, FileKind, RequestId};
use weir_wire::lease::ROOM_LIMITED;
use weir_wire::message::Request;
use weir_wire::meta::*;
use weir_wire::quota::*;
use weir_wire::{Header, Rights};

const ROOT: FileId = FileId::ROOT;
const MIB: u64 = 1 << 20;
const ALICE: QuotaSubject = QuotaSubject::User(1000);
const STAFF: QuotaSubject = QuotaSubject::Group(50);

type Machine = Cluster<ModelEngine>;

fn alice() -> Caller {
    user(1000, 50, &[])
}

fn set(c: &mut Machine, subject: QuotaSubject, bytes: Option<u64>, files: Option<u64>) {
    let admin = c.client(root());
    let change = QuotaChange::Set(QuotaLimits { bytes, files });
    c.ask(&admin, &SetQuotaRequest { subject, change }).unwrap();
    c.pass_ms(1000);
}

fn quotas(c: &mut Machine) -> Vec<QuotaInfo> {
    let admin = c.client(root());
    c.ask(&admin, &ListQuotasRequest { after: None, own: false }).unwrap().quotas
}

/// Bytes and files that are used.
fn used(c: &mut Machine, subject: QuotaSubject) -> (u64, u64) {
    let all = quotas(c);
    let info = all.iter().find(|info| info.subject == subject).unwrap();
    assert!(!info.counting);
    (info.used_bytes, info.used_files)
}

/// A directory that everybody may write to.
fn shared(c: &mut Machine, name: &str) -> FileId {
    let admin = &mut c.client(root());
    let request =
        MkdirRequest { parent: ROOT, name: name.as_bytes().into(), mode: 0o777, umask: 0 };
    c.make(admin, &request).unwrap().file
}

fn room(c: &mut Machine, by: &Client, file: FileId, end: u64) -> Result<u64, Error> {
    c.ask(by, &RoomRequest { file, end }).map(|room| room.up_to)
}

/// Asks for room, and reports what was written.
fn write(c: &mut Machine, by: &mut Client, open: &OpenFile, end: u64) -> Result<(), Error> {
    room(c, by, open.attr.file, end)?;
    c.make(by, &commit(open, end)).map(drop)
}

fn mkdir(c: &mut Machine, by: &mut Client, parent: FileId, name: &str) -> Result<FileId, Error> {
    let request = MkdirRequest { parent, name: name.as_bytes().into(), mode: 0o777, umask: 0 };
    c.make(by, &request).map(|attr| attr.file)
}

fn link(c: &mut Machine, by: &mut Client, file: FileId, to: (FileId, &str)) -> Result<(), Error> {
    let request = LinkRequest { file, parent: to.0, name: to.1.as_bytes().into() };
    c.make(by, &request).map(drop)
}

/// What the check of a snapshot says of quotas.
fn audit(c: &Machine) -> Vec<Problem> {
    let mut reader = SnapshotReader::new();
    let all = c.machine.engine().range(&[0], &[0xff], usize::MAX).unwrap();
    for (key, value) in all {
        reader.record(&key, &value.value, &mut drop);
    }
    reader.finish(&mut drop)
}

#[test]
fn files_of_before_are_counted_and_no_more_than_so_many_can_be_made() {
    let mut c = Machine::new(2);
    let dir = shared(&mut c, "all");
    let me = &mut c.client(alice());
    let open = c.create(me, dir, "one");
    c.make(me, &commit(&open, 700)).unwrap();
    mkdir(&mut c, me, dir, "two").unwrap();
    set(&mut c, ALICE, None, Some(4));
    assert_eq!(used(&mut c, ALICE), (700, 2));

    let name = |name: &str| weir_types::codec::Bytes::from(name.as_bytes());
    let symlink =
        |name_is: &str| SymlinkRequest { parent: dir, name: name(name_is), target: name("x") };
    c.make(me, &symlink("three")).unwrap();
    c.create(me, dir, "four");
    // What a symbolic link says is no data.
    assert_eq!(used(&mut c, ALICE), (700, 4));
    let exceeded = ErrorKind::QuotaExceeded;
    assert_eq!(kind(c.make(me, &symlink("five"))), exceeded);
    assert_eq!(kind(c.make(me, &create_request(dir, "five"))), exceeded);
    assert_eq!(kind(mkdir(&mut c, me, dir, "five")), exceeded);
    let fifo = CreateRequest { kind: FileKind::Fifo, ..create_request(dir, "five") };
    let error = c.make(me, &fifo).unwrap_err();
    assert!(error.message.contains("user 1000") && error.message.contains("4 files"), "{error}");
    // A further name is no further file; and nothing was left of what was refused.
    link(&mut c, me, open.attr.file, (dir, "again")).unwrap();
    assert_eq!(kind(c.lookup(me, dir, "five")), ErrorKind::NotFound);
    // Others make theirs, and so does the superuser in any case.
    let other = &mut c.client(user(1001, 50, &[]));
    c.create(other, dir, "others");
    c.unlink(me, dir, "three").unwrap();
    c.create(me, dir, "five");
    assert_eq!(used(&mut c, ALICE), (700, 4));
    assert_eq!(audit(&c), []);
}

#[test]
fn counting_goes_on_over_a_restart_while_files_come_and_go() {
    let mut c = Machine::new(2);
    let dir = shared(&mut c, "all");
    let me = &mut c.client(alice());
    for i in 0..1500 {
        c.create(me, dir, &format!("f{i}"));
    }
    let admin = c.client(root());
    let change = QuotaChange::Set(QuotaLimits { bytes: None, files: Some(2000) });
    c.ask(&admin, &SetQuotaRequest { subject: ALICE, change }).unwrap();
    for step in 0..8 {
        let now = c.now;
        c.machine.work(1, now).unwrap();
        // One that was counted and one that was not, perhaps.
        c.unlink(me, dir, &format!("f{}", step * 2)).unwrap();
        c.unlink(me, dir, &format!("f{}", 1499 - step * 2)).unwrap();
        c.create(me, dir, &format!("new{step}"));
        if step == 1 {
            c = c.restart();
        }
    }
    // What lost its name is open in no session that lives after the restart.
    c.pass_ms(20_000);
    let left = c.list(me, dir).len() as u64;
    assert_eq!(left, 1500 - 16 + 8);
    assert_eq!(used(&mut c, ALICE), (0, left));
    assert_eq!(audit(&c), []);
}

#[test]
fn bytes_are_refused_before_they_are_written() {
    let mut c = Machine::new(2);
    let dir = shared(&mut c, "all");
    set(&mut c, STAFF, Some(10 * MIB), None);
    let me = &mut c.client(alice());
    let open = c.create(me, dir, "file");
    let file = open.attr.file;
    let ahead = room(&mut c, me, file, MIB).unwrap() - MIB;
    assert!(ahead > 0 && ahead <= MIB, "a part of what is left: {ahead}");
    c.make(me, &commit(&open, MIB)).unwrap();
    // What is told is counted, whatever was granted; what is asked for is refused.
    write(&mut c, me, &open, 10 * MIB).unwrap();
    let error = room(&mut c, me, file, 10 * MIB + 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::QuotaExceeded);
    assert!(error.message.contains("group 50"), "{error}");
    assert_eq!(used(&mut c, STAFF), (10 * MIB, 1));
    // Writing over what is there costs nothing.
    assert_eq!(room(&mut c, me, file, 5 * MIB).unwrap(), 10 * MIB);
    assert_eq!(kind(c.make(me, &set_size(file, 11 * MIB))), ErrorKind::QuotaExceeded);
    c.make(me, &set_size(file, 4 * MIB)).unwrap();
    assert_eq!(used(&mut c, STAFF), (4 * MIB, 1));
    let error = kind(c.make(me, &set_size(file, 11 * MIB)));
    assert_eq!(error, ErrorKind::QuotaExceeded);
    c.make(me, &set_size(file, 9 * MIB)).unwrap();
    // The superuser may, and it counts.
    let boss = &mut c.client(root());
    c.make(boss, &OpenRequest { file, rights: Rights::WRITE }).unwrap();
    assert_eq!(room(&mut c, boss, file, 12 * MIB).unwrap(), 12 * MIB);
    let grown = c.getattr(boss, file).unwrap().generation;
    let told = CommitSizeRequest { generation: grown, ..commit(&open, 12 * MIB) };
    c.make(boss, &told).unwrap();
    assert_eq!(used(&mut c, STAFF), (12 * MIB, 1));
    // Room is for who has the file open to write it.
    let other = c.client(user(1000, 50, &[]));
    assert_eq!(kind(room(&mut c, &other, file, MIB)), ErrorKind::BadHandle);
    assert_eq!(audit(&c), []);
}

#[test]
fn who_writes_learns_whether_a_quota_limits_the_file() {
    let mut c = Machine::new(2);
    let dir = shared(&mut c, "all");
    let me = &mut c.client(alice());
    let open = c.create(me, dir, "file");
    let flags = |c: &mut Machine, me: &Client, size: u64| {
        let prefix = MetaPrefix { caller: me.caller.clone(), mutation: None };
        let header = Header::request(CommitSizeRequest::OP, RequestId(1));
        let bytes = body(&prefix, &commit(&open, size));
        let answer = c.machine.on_request(Peer::Client(me.session), &header, &bytes, c.now);
        c.machine.flush().unwrap();
        match answer {
            Answer::Now(reply) | Answer::AfterSync(_, reply) => reply.keep,
            Answer::Parked(_) => panic!("it waits"),
        }
    };
    assert_eq!(flags(&mut c, me, 1) & ROOM_LIMITED, 0);
    set(&mut c, ALICE, None, Some(1000));
    assert_eq!(flags(&mut c, me, 2) & ROOM_LIMITED, 0, "files are limited, and no bytes");
    set(&mut c, QuotaSubject::Directory(dir), Some(MIB), None);
    assert_ne!(flags(&mut c, me, 3) & ROOM_LIMITED, 0);
    assert_eq!(flags(&mut c, me, 3) & ROOM_LIMITED, ROOM_LIMITED, "also if nothing is new");
    let admin = c.client(root());
    let change = QuotaChange::Remove;
    let subject = QuotaSubject::Directory(dir);
    c.ask(&admin, &SetQuotaRequest { subject, change }).unwrap();
    assert_eq!(flags(&mut c, me, 4) & ROOM_LIMITED, 0);
    assert_eq!(room(&mut c, me, open.attr.file, 1 << 50).unwrap(), u64::MAX);
}

#[test]
fn two_writers_together_get_no_more_than_there_is() {
    let mut c = Machine::new(2);
    let dir = shared(&mut c, "all");
    const LIMIT: u64 = 2048 * MIB;
    set(&mut c, QuotaSubject::Directory(dir), Some(LIMIT), None);
    let (mut writers, mut files) = (Vec::new(), Vec::new());
    for i in 0..3 {
        let mut me = c.client(alice());
        files.push((c.create(&mut me, dir, &format!("f{i}")), 0u64, 0u64));
        writers.push(me);
    }
    let (mut asked, mut refused) = (0, [false; 3]);
    while refused.contains(&false) {
        for (i, (open, end, up_to)) in files.iter_mut().enumerate() {
            // Each writes a MiB at a time, and tells after some.
            *end += MIB;
            if *end > *up_to {
                asked += 1;
                match room(&mut c, &writers[i], open.attr.file, *end) {
                    Ok(granted) => {
                        assert!(granted - *end <= MAX_AHEAD_BYTES);
                        *up_to = granted;
                    }
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::QuotaExceeded);
                        *end -= MIB;
                        refused[i] = true;
                    }
                }
            }
            if *end % (16 * MIB) == 0 || refused[i] {
                c.make(&mut writers[i], &commit(open, *end)).unwrap();
            }
        }
        let written: u64 = files.iter().map(|(_, end, _)| *end).sum();
        assert!(written <= LIMIT);
    }
    let (bytes, _) = used(&mut c, QuotaSubject::Directory(dir));
    assert!((LIMIT - 8 * MIB..=LIMIT).contains(&bytes), "{bytes}");
    assert!(asked < 400, "who has room does not ask: {asked}");
    // What one was told it may write is free again when it is closed.
    for (writer, (open, ..)) in writers.iter_mut().zip(&files) {
        c.close(writer, open.attr.file);
    }
    assert_eq!(quotas(&mut c)[0].granted_bytes, 0);
}

#[test]
fn what_is_granted_goes_with_the_session() {
    let mut c = Machine::new(2);
    let dir = shared(&mut c, "all");
    set(&mut c, ALICE, Some(100 * MIB), None);
    let me = &mut c.client(alice());
    let open = c.create(me, dir, "file");
    room(&mut c, me, open.attr.file, 60 * MIB).unwrap();
    let granted = quotas(&mut c)[0].granted_bytes;
    assert!(granted >= 60 * MIB);
    let other = &mut c.client(alice());
    let second = c.create(other, dir, "other");
    assert_eq!(kind(write(&mut c, other, &second, 50 * MIB)), ErrorKind::QuotaExceeded);
    c.pass_ms(25_000);
    c.getattr(other, dir).unwrap();
    c.pass_ms(10_000);
    assert_eq!(quotas(&mut c)[0].granted_bytes, 0, "the other one was silent for 35 s");
    write(&mut c, other, &second, 50 * MIB).unwrap();
}

/// As `docs/semantics.md` says, How far beyond.
#[test]
fn a_restart_goes_beyond_by_64_mib_a_file_and_no_more_than_was_left() {
    const UNTOLD: u64 = 20 * MIB;
    // Enough for all that a writer is ever told, and so little that it is told less.
    for limit in [4096 * MIB, 160 * MIB] {
        let mut c = Machine::new(2);
        let dir = shared(&mut c, "all");
        let quota = QuotaSubject::Directory(dir);
        set(&mut c, quota, Some(limit), None);
        let mut greedy = c.client(alice());
        let big = c.create(&mut greedy, dir, "big");
        let mut writers: Vec<_> = (0..3)
            .map(|i| {
                let mut me = c.client(alice());
                let open = c.create(&mut me, dir, &format!("f{i}"));
                let up_to = room(&mut c, &me, open.attr.file, 10 * MIB + UNTOLD).unwrap();
                c.make(&mut me, &commit(&open, 10 * MIB)).unwrap();
                (me, open, up_to)
            })
            .collect();
        let (told, files) = (3 * 10 * MIB, writers.len() as u64);
        let left = limit - told;
        let most = (files * (64 * MIB + UNTOLD)).min(left);
        let granted = quotas(&mut c)[0].granted_bytes;
        assert!(granted > files * UNTOLD && granted <= most, "{granted}");
        // As long as it runs nobody else gets that.
        assert_eq!(kind(room(&mut c, &greedy, big.attr.file, left)), ErrorKind::QuotaExceeded);

        let mut c = c.killed();
        for (me, open, _) in &writers {
            c.rejoin(me).unwrap();
            c.ask(me, &reassert(&[open.attr.file])).unwrap();
        }
        c.rejoin(&greedy).unwrap();
        c.ask(&greedy, &reassert(&[big.attr.file])).unwrap();
        c.nothing_is_held();
        write(&mut c, &mut greedy, &big, left).unwrap();
        assert_eq!(used(&mut c, quota).0, limit);
        // What they had been told they may have written meanwhile.
        for (me, open, up_to) in &mut writers {
            c.make(me, &commit(open, *up_to)).unwrap();
            assert_eq!(
                kind(room(&mut c, me, open.attr.file, *up_to + 1)),
                ErrorKind::QuotaExceeded
            );
        }
        let (bytes, _) = used(&mut c, quota);
        assert_eq!(bytes, limit + granted, "all of it is counted");
        assert!(bytes <= limit + most);
        assert_eq!(kind(room(&mut c, &greedy, big.attr.file, left + 1)), ErrorKind::QuotaExceeded);
        assert_eq!(audit(&c), []);
    }
}

#[test]
fn what_is_given_away_counts_for_the_new_owner() {
    let mut c = Machine::new(2);
    let dir = shared(&mut c, "all");
    let bob = QuotaSubject::User(1001);
    set(&mut c, ALICE, Some(10 * MIB), Some(10));
    set(&mut c, bob, Some(MIB), Some(1));
    set(&mut c, STAFF, Some(20 * MIB), None);
    let me = &mut c.client(alice());
    let open = c.create(me, dir, "file");
    write(&mut c, me, &open, 2 * MIB).unwrap();
    let boss = &mut c.client(root());
    let file = open.attr.file;
    let owner = |uid, gid| SetAttrRequest { uid, gid, ..set_nothing(file) };
    // The superuser may give more than there may be.
    c.make(boss, &owner(Some(1001), None)).unwrap();
    assert_eq!((used(&mut c, ALICE), used(&mut c, bob)), ((0, 0), (2 * MIB, 1)));
    assert_eq!(used(&mut c, STAFF), (2 * MIB, 1));
    c.make(boss, &owner(Some(1000), Some(60))).unwrap();
    assert_eq!((used(&mut c, ALICE), used(&mut c, bob)), ((2 * MIB, 1), (0, 0)));
    assert_eq!(used(&mut c, STAFF), (0, 0));
    // An owner gives it to a group that has no room.
    set(&mut c, STAFF, Some(MIB), None);
    let error = kind(c.make(me, &owner(None, Some(50))));
    assert_eq!(error, ErrorKind::QuotaExceeded);
    assert_eq!(audit(&c), []);
}

#[test]
fn what_has_no_name_counts_until_it_is_closed() {
    let mut c = Machine::new(2);
    let top = shared(&mut c, "top");
    let quota = QuotaSubject::Directory(top);
    set(&mut c, quota, Some(10 * MIB), Some(4));
    let me = &mut c.client(alice());
    let sub = mkdir(&mut c, me, top, "sub").unwrap();
    let open = c.create(me, sub, "file");
    write(&mut c, me, &open, 3 * MIB).unwrap();
    let unnamed = c.make(me, &create_request(sub, "")).unwrap();
    write(&mut c, me, &unnamed, MIB).unwrap();
    assert_eq!(used(&mut c, quota), (4 * MIB, 4));
    c.unlink(me, sub, "file").unwrap();
    let rmdir = RmdirRequest { parent: top, name: b"sub"[..].into() };
    c.make(me, &rmdir).unwrap();
    // The directory that it was in is gone, and it still counts, and grows.
    assert_eq!(used(&mut c, quota), (4 * MIB, 3));
    write(&mut c, me, &open, 8 * MIB).unwrap();
    assert_eq!(kind(write(&mut c, me, &unnamed, 3 * MIB)), ErrorKind::QuotaExceeded);
    assert_eq!(audit(&c), []);
    // One gets a name, outside.
    let out = shared(&mut c, "out");
    link(&mut c, me, unnamed.attr.file, (out, "named")).unwrap();
    assert_eq!(used(&mut c, quota), (8 * MIB, 2));
    c.close(me, open.attr.file);
    c.pass_ms(1000);
    assert_eq!(used(&mut c, quota), (0, 1));
    assert_eq!(audit(&c), []);
}

#[test]
fn files_move_between_directories_with_quotas_and_directories_only_if_empty() {
    let mut c = Machine::new(2);
    let (a, b, out) = (shared(&mut c, "a"), shared(&mut c, "b"), shared(&mut c, "out"));
    let (in_a, in_b) = (QuotaSubject::Directory(a), QuotaSubject::Directory(b));
    set(&mut c, in_a, Some(10 * MIB), Some(6));
    set(&mut c, in_b, Some(MIB), Some(3));
    let me = &mut c.client(alice());
    let open = c.create(me, a, "file");
    write(&mut c, me, &open, 2 * MIB).unwrap();
    let moves = |c: &mut Machine, me: &mut Client, from, to| {
        c.make(me, &rename_request(from, to)).map(drop).map_err(|error| error.kind)
    };
    assert_eq!(moves(&mut c, me, (a, "file"), (b, "file")), Err(ErrorKind::QuotaExceeded));
    moves(&mut c, me, (a, "file"), (out, "file")).unwrap();
    assert_eq!(used(&mut c, in_a), (0, 1));
    moves(&mut c, me, (out, "file"), (a, "file")).unwrap();
    assert_eq!(used(&mut c, in_a), (2 * MIB, 2));
    // Directories, with and without something in them.
    let sub = mkdir(&mut c, me, a, "sub").unwrap();
    moves(&mut c, me, (a, "sub"), (b, "sub")).unwrap();
    assert_eq!((used(&mut c, in_a), used(&mut c, in_b)), ((2 * MIB, 2), (0, 2)));
    c.create(me, sub, "inner");
    assert_eq!(moves(&mut c, me, (b, "sub"), (out, "sub")), Err(ErrorKind::CrossDevice));
    mkdir(&mut c, me, out, "empty").unwrap();
    let exchange = RenameRequest { exchange: true, ..rename_request((b, "sub"), (out, "empty")) };
    assert_eq!(kind(c.make(me, &exchange)), ErrorKind::CrossDevice);
    let deeper = mkdir(&mut c, me, a, "deeper").unwrap();
    moves(&mut c, me, (a, "file"), (deeper, "file")).unwrap();
    moves(&mut c, me, (a, "deeper"), (a, "elsewhere")).unwrap();
    assert_eq!(used(&mut c, in_a), (2 * MIB, 3));
    // A directory with a quota goes where its own is the only one.
    moves(&mut c, me, (ROOT, "b"), (ROOT, "c")).unwrap_err();
    let boss = &mut c.client(root());
    moves(&mut c, boss, (ROOT, "b"), (out, "b")).unwrap();
    assert_eq!(moves(&mut c, boss, (out, "b"), (a, "b")), Err(ErrorKind::CrossDevice));
    // Names on both sides.
    let inner = c.lookup(me, sub, "inner").unwrap().file;
    assert_eq!(kind(link(&mut c, me, inner, (out, "inner"))), ErrorKind::CrossDevice);
    link(&mut c, me, inner, (b, "inner")).unwrap();
    assert_eq!(moves(&mut c, me, (b, "inner"), (out, "inner")), Err(ErrorKind::CrossDevice));
    c.unlink(me, b, "inner").unwrap();
    moves(&mut c, me, (sub, "inner"), (out, "inner")).unwrap();
    assert_eq!(used(&mut c, in_b), (0, 2));
    assert_eq!(audit(&c), []);
    // The quota goes with its directory.
    let rmdir = |parent, name: &str| RmdirRequest { parent, name: name.as_bytes().into() };
    c.make(me, &rmdir(b, "sub")).unwrap();
    c.make(boss, &rmdir(out, "b")).unwrap();
    assert_eq!(quotas(&mut c).len(), 1);
    assert_eq!(c.keys("p/"), 1);
    assert_eq!(audit(&c), []);
}

#[test]
fn only_administrators_set_quotas_and_everybody_sees_his_own() {
    let mut c = Machine::new(2);
    set(&mut c, ALICE, Some(MIB), None);
    set(&mut c, STAFF, None, Some(7));
    set(&mut c, QuotaSubject::User(1001), Some(MIB), None);
    let plain = c.session_of(ClientId(500), alice());
    let own = c.ask(&plain, &ListQuotasRequest { after: None, own: true }).unwrap();
    let subjects: Vec<_> = own.quotas.iter().map(|info| info.subject).collect();
    assert_eq!((subjects, own.end), (vec![ALICE, STAFF], true));
    let all = c.ask(&plain, &ListQuotasRequest { after: None, own: false });
    assert_eq!(kind(all), ErrorKind::NotAdministrator);
    let change = QuotaChange::Remove;
    let refused = c.ask(&plain, &SetQuotaRequest { subject: ALICE, change });
    assert_eq!(kind(refused), ErrorKind::NotAdministrator);

    let mut admin = c.client(root());
    let file = c.create(&mut admin, ROOT, "file").attr.file;
    let limits = QuotaLimits::default();
    let of = |subject| SetQuotaRequest { subject, change: QuotaChange::Set(limits) };
    let not_there = QuotaSubject::Directory(FileId(99_999));
    assert_eq!(kind(c.ask(&admin, &of(not_there))), ErrorKind::NotFound);
    assert_eq!(kind(c.ask(&admin, &of(QuotaSubject::Directory(file)))), ErrorKind::NotDirectory);
    let recount = SetQuotaRequest { subject: not_there, change: QuotaChange::Recount };
    assert_eq!(kind(c.ask(&admin, &recount)), ErrorKind::NotFound);
    // A program that would not count refuses the store while there are quotas.
    let version = |c: &Machine| c.machine.engine().get(key::FORMAT).unwrap().unwrap().value[0];
    assert_eq!(version(&c), 6);
    let mut c = c.restart();
    assert_eq!(quotas(&mut c).len(), 3);
    let admin = c.client(root());
    for subject in [ALICE, STAFF, QuotaSubject::User(1001)] {
        assert_eq!(version(&c), 6);
        c.ask(&admin, &SetQuotaRequest { subject, change }).unwrap();
    }
    assert_eq!((version(&c), c.keys("p/")), (5, 0));
}

#[test]
fn a_quota_that_counts_wrongly_is_found_and_counted_anew() {
    let mut c = Machine::new(2);
    let dir = shared(&mut c, "all");
    let me = &mut c.client(alice());
    let open = c.create(me, dir, "file");
    set(&mut c, ALICE, Some(10 * MIB), None);
    write(&mut c, me, &open, MIB).unwrap();
    assert_eq!(audit(&c), []);
    transact(c.machine.engine_mut(), |tx: &mut Tx<'_>| {
        let bytes = tx.get(&key::quota(ALICE))?.unwrap();
        let record: QuotaRecord = schema::decode(&bytes, "").unwrap();
        let wrong = QuotaRecord { used_bytes: 5, ..record };
        Ok::<_, Error>(tx.put(&key::quota(ALICE), &schema::encode(&wrong))?)
    })
    .unwrap();
    let problems = audit(&c);
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].kind, &problems[0].subject), (Kind::Quota, &Subject::Quota(ALICE)));
    let admin = c.client(root());
    let change = QuotaChange::Recount;
    c.ask(&admin, &SetQuotaRequest { subject: ALICE, change }).unwrap();
    c.pass_ms(1000);
    assert_eq!(used(&mut c, ALICE), (MIB, 1));
    assert_eq!(quotas(&mut c)[0].limits.bytes, Some(10 * MIB));
    assert_eq!(audit(&c), []);
}
