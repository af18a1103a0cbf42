//! Who may do what. Each row: caller, request, what comes of it.

use crate::harness::*;
use weir_metastore::ModelEngine;
use weir_types::{Caller, Error, ErrorKind, FileId, FileKind, Timestamp};
use weir_wire::Rights;
use weir_wire::message::Request;
use weir_wire::meta::*;

const ROOT: FileId = FileId::ROOT;
const OWNER: u32 = 10;
const GROUP: u32 = 20;

struct Fixture {
    c: Cluster<ModelEngine>,
    admin: Client,
}

impl Fixture {
    fn new() -> Self {
        let mut c = Cluster::new(1);
        let admin = c.client(root());
        Self { c, admin }
    }

    /// A file of OWNER and GROUP with this mode.
    fn file(&mut self, name: &str, mode: u16) -> FileId {
        let file = self.c.create(&mut self.admin, ROOT, name).attr.file;
        self.c.close(&mut self.admin, file);
        self.give(file, mode);
        file
    }

    fn dir(&mut self, name: &str, mode: u16) -> FileId {
        let dir = self.c.mkdir(&mut self.admin, ROOT, name);
        self.give(dir, mode);
        dir
    }

    fn give(&mut self, file: FileId, mode: u16) {
        let owner = SetAttrRequest { uid: Some(OWNER), gid: Some(GROUP), ..set_nothing(file) };
        self.c.make(&mut self.admin, &owner).unwrap();
        let mode = SetAttrRequest { mode: Some(mode), ..set_nothing(file) };
        self.c.make(&mut self.admin, &mode).unwrap();
    }

    fn as_user<R: Request>(&mut self, who: &Caller, request: &R) -> Result<R::Reply, Error> {
        let mut client = self.c.client(who.clone());
        self.c.make(&mut client, request)
    }

    fn ask<R: Request>(&mut self, who: &Caller, request: &R) -> Result<R::Reply, Error> {
        let client = self.c.client(who.clone());
        self.c.ask(&client, request)
    }
}

fn owner() -> Caller {
    user(OWNER, 1, &[])
}
fn member() -> Caller {
    user(11, 1, &[GROUP])
}
fn other() -> Caller {
    user(12, 1, &[])
}

#[test]
fn open_needs_the_bits_of_the_rights() {
    let mut f = Fixture::new();
    use ErrorKind::AccessDenied as No;
    let table: &[(u16, Caller, Rights, Option<ErrorKind>)] = &[
        (0o600, owner(), Rights::READ_WRITE, None),
        (0o600, member(), Rights::READ, Some(No)),
        (0o640, member(), Rights::READ, None),
        (0o640, member(), Rights::WRITE, Some(No)),
        (0o604, other(), Rights::READ, None),
        (0o606, other(), Rights::READ_WRITE, None),
        (0o044, owner(), Rights::READ, Some(No)),
        (0o000, root(), Rights::READ_WRITE, None),
        (0o000, owner(), Rights::NONE, None),
    ];
    for (n, (mode, who, rights, expected)) in table.iter().enumerate() {
        let file = f.file(&format!("f{n}"), *mode);
        let result = f.ask(who, &OpenRequest { file, rights: *rights });
        assert_eq!(result.err().map(|e| e.kind), *expected, "row {n}");
    }
}

#[test]
fn directories_need_search_to_look_up_and_write_to_change() {
    let mut f = Fixture::new();
    for (mode, looks, lists, makes) in [
        (0o755, true, true, false),
        (0o711, true, false, false),
        (0o744, false, true, false),
        (0o773, true, false, true),
        (0o772, false, false, false),
        (0o777, true, true, true),
    ] {
        let name = format!("d{mode:o}");
        let dir = f.dir(&name, mode);
        f.c.create(&mut f.admin, dir, "there");
        let who = other();
        let look = LookupRequest { parent: dir, name: b"there"[..].into() };
        assert_eq!(f.ask(&who, &look).is_ok(), looks, "lookup in {mode:o}");
        let list = ReaddirRequest {
            last: 0,
            dir,
            cookie: 0,
            max_entries: 9,
            attributes: false,
            layouts: false,
        };
        assert_eq!(f.ask(&who, &list).is_ok(), lists, "list {mode:o}");
        let made = f.as_user(&who, &create_request(dir, "new"));
        assert_eq!(made.is_ok(), makes, "create in {mode:o}");
        let remove = UnlinkRequest { parent: dir, name: b"there"[..].into(), hold: false };
        assert_eq!(f.as_user(&who, &remove).is_ok(), makes, "unlink in {mode:o}");
    }
}

#[test]
fn what_exists_is_said_before_what_is_forbidden() {
    let mut f = Fixture::new();
    let dir = f.dir("d", 0o755);
    f.c.mkdir(&mut f.admin, dir, "there");
    let make =
        |name: &str| MkdirRequest { parent: dir, name: name.as_bytes().into(), mode: 0, umask: 0 };
    assert_eq!(kind(f.as_user(&other(), &make("there"))), ErrorKind::Exists);
    assert_eq!(kind(f.as_user(&other(), &make("new"))), ErrorKind::AccessDenied);
}

#[test]
fn only_owners_change_modes_and_only_the_superuser_gives_away() {
    let mut f = Fixture::new();
    let file = f.file("f", 0o666);
    let chmod = |mode| SetAttrRequest { mode: Some(mode), ..set_nothing(file) };
    let chown = |uid| SetAttrRequest { uid: Some(uid), ..set_nothing(file) };
    let chgrp = |gid| SetAttrRequest { gid: Some(gid), ..set_nothing(file) };
    let no = ErrorKind::NotPermitted;
    assert_eq!(kind(f.as_user(&other(), &chmod(0o777))), no);
    assert_eq!(kind(f.as_user(&member(), &chmod(0o777))), no);
    f.as_user(&owner(), &chmod(0o640)).unwrap();
    assert_eq!(kind(f.as_user(&owner(), &chown(12))), no);
    f.as_user(&owner(), &chown(OWNER)).unwrap();
    assert_eq!(kind(f.as_user(&owner(), &chgrp(99))), no);
    let in_both = user(OWNER, 1, &[99]);
    f.as_user(&in_both, &chgrp(99)).unwrap();
    assert_eq!(kind(f.as_user(&other(), &chgrp(99))), no);
    f.as_user(&root(), &chown(12)).unwrap();
    assert_eq!(f.ask(&root(), &GetAttrRequest { file }).unwrap().uid, 12);
}

#[test]
fn privileges_of_programs_go_with_their_owner_and_their_contents() {
    let mut f = Fixture::new();
    let file = f.file("f", 0o6755);
    let in_both = user(OWNER, GROUP, &[99]);
    let chgrp = SetAttrRequest { gid: Some(99), ..set_nothing(file) };
    assert_eq!(f.as_user(&in_both, &chgrp).unwrap().attr.mode, 0o755);
    // A setgid bit for a group that the owner is not in does not stick.
    let foreign = SetAttrRequest { mode: Some(0o2755), ..set_nothing(file) };
    assert_eq!(f.as_user(&owner(), &foreign).unwrap().attr.mode, 0o755);
    let file = f.file("g", 0o6777);
    assert_eq!(f.as_user(&other(), &set_size(file, 5)).unwrap().attr.mode, 0o777);
    let shut = CreateRequest {
        exclusive: false,
        truncate: true,
        rights: Rights::READ,
        ..create_request(ROOT, "shut")
    };
    // Nobody learns more than that he may not, whoever has it open.
    let file = f.file("shut", 0o444);
    let mut client = f.c.client(root());
    f.c.make(&mut client, &OpenRequest { file, rights: Rights::READ_WRITE }).unwrap();
    client.caller = other();
    assert_eq!(kind(f.c.make(&mut client, &shut)), ErrorKind::AccessDenied);
    client.caller = root();
    assert_eq!(kind(f.c.make(&mut client, &shut)), ErrorKind::Busy);
    f.file("h", 0o6777);
    let empty = CreateRequest { exclusive: false, truncate: true, ..create_request(ROOT, "h") };
    assert_eq!(f.as_user(&root(), &empty).unwrap().attr.mode, 0o6777);
    assert_eq!(f.as_user(&other(), &empty).unwrap().attr.mode, 0o777);
}

/// `chown` with no owner and no group.
#[test]
fn a_change_of_nothing_takes_no_privilege_of_others() {
    let mut f = Fixture::new();
    for (mode, who, want) in [
        (0o4755, other(), Some(ErrorKind::NotPermitted)),
        (0o2755, member(), Some(ErrorKind::NotPermitted)),
        // A mark for locking, which members keep.
        (0o2744, other(), Some(ErrorKind::NotPermitted)),
        (0o2744, member(), None),
        (0o755, other(), None),
        (0o4755, owner(), None),
        (0o6755, root(), None),
    ] {
        let file = f.file(&format!("{mode:o} {}", who.uid), mode);
        let found = f.as_user(&who, &set_nothing(file));
        assert_eq!(found.err().map(|e| e.kind), want, "{mode:o} by {}", who.uid);
    }
    let dir = f.dir("d", 0o2777);
    f.as_user(&other(), &set_nothing(dir)).unwrap();

    // The kernel of a mount asks for it before a write.
    let file = f.file("f", 0o6777);
    let mut writer = f.c.client(other());
    f.c.ask(&writer, &OpenRequest { file, rights: Rights::WRITE }).unwrap();
    f.c.make(&mut writer, &set_nothing(file)).unwrap();
}

/// From the mode that there is, not from one that was read before: another one's `chmod` stays.
#[test]
fn a_change_of_nothing_takes_ones_own_privilege_and_no_more() {
    let mut f = Fixture::new();
    for (mode, who, left) in [
        (0o4755, owner(), 0o755),
        (0o6755, root(), 0o755),
        (0o2744, member(), 0o2744),
        (0o6700, owner(), 0o700),
        (0o1755, other(), 0o1755),
    ] {
        let file = f.file(&format!("{mode:o} {}", who.uid), mode);
        let found = f.as_user(&who, &set_nothing(file)).unwrap();
        assert_eq!(found.attr.mode, left, "{mode:o} by {}", who.uid);
    }
    let dir = f.dir("d", 0o2777);
    assert_eq!(f.as_user(&root(), &set_nothing(dir)).unwrap().attr.mode, 0o2777);

    let file = f.file("f", 0o6777);
    let mut writer = f.c.client(other());
    f.c.ask(&writer, &OpenRequest { file, rights: Rights::WRITE }).unwrap();
    f.give(file, 0o6700);
    assert_eq!(f.c.make(&mut writer, &set_nothing(file)).unwrap().attr.mode, 0o700);
}

#[test]
fn times_of_choice_are_for_owners_and_now_is_for_writers() {
    let mut f = Fixture::new();
    let file = f.file("f", 0o662);
    let set = |time| SetAttrRequest { mtime: Some(time), atime: Some(time), ..set_nothing(file) };
    let at = SetTime::At(Timestamp::new(1, 2));
    assert_eq!(kind(f.as_user(&other(), &set(at))), ErrorKind::NotPermitted);
    f.as_user(&other(), &set(SetTime::Now)).unwrap();
    let attr = f.as_user(&owner(), &set(at)).unwrap().attr;
    assert_eq!((attr.mtime, attr.atime), (Timestamp::new(1, 2), Timestamp::new(1, 2)));
    let closed = f.file("g", 0o660);
    let now = SetAttrRequest { mtime: Some(SetTime::Now), ..set_nothing(closed) };
    assert_eq!(kind(f.as_user(&other(), &now)), ErrorKind::AccessDenied);
}

#[test]
fn an_open_descriptor_outlives_the_permission() {
    let mut f = Fixture::new();
    let file = f.file("f", 0o666);
    let mut writer = f.c.client(other());
    let open = f.c.ask(&writer, &OpenRequest { file, rights: Rights::WRITE }).unwrap();
    f.give(file, 0o600);
    f.c.make(&mut writer, &commit(&open, 10)).unwrap();
    f.c.make(&mut writer, &set_size(file, 4)).unwrap();
    f.c.close(&mut writer, file);
    assert_eq!(kind(f.c.make(&mut writer, &commit(&open, 10))), ErrorKind::AccessDenied);
    let layout = GetLayoutRequest { file, offset: 0, rights: Rights::READ };
    assert_eq!(kind(f.c.ask(&writer, &layout)), ErrorKind::AccessDenied);
}

#[test]
fn whoever_makes_a_file_may_use_it_as_asked() {
    let mut f = Fixture::new();
    let dir = f.dir("d", 0o777);
    let request = CreateRequest { mode: 0o400, ..create_request(dir, "f") };
    let open = f.as_user(&other(), &request).unwrap();
    assert!(open.capability.capability.rights.allow(Rights::READ_WRITE));
    // But to open it again is another matter.
    let again = CreateRequest { exclusive: false, ..request };
    assert_eq!(kind(f.as_user(&other(), &again)), ErrorKind::AccessDenied);
}

#[test]
fn setgid_directories_give_their_group() {
    let mut f = Fixture::new();
    let dir = f.dir("d", 0o2777);
    let sub = MkdirRequest { parent: dir, name: b"s"[..].into(), mode: 0o755, umask: 0 };
    let attr = f.as_user(&other(), &sub).unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode), (12, GROUP, 0o2755));
    let attr = f.as_user(&other(), &create_request(dir, "f")).unwrap().attr;
    assert_eq!((attr.gid, attr.mode), (GROUP, 0o644));
}

#[test]
fn devices_are_for_the_superuser() {
    let mut f = Fixture::new();
    let dir = f.dir("d", 0o777);
    let node = |kind, name| CreateRequest { kind, rdev: 0x103, ..create_request(dir, name) };
    let denied = f.as_user(&other(), &node(FileKind::CharDevice, "c"));
    assert_eq!(kind(denied), ErrorKind::NotPermitted);
    assert_eq!(f.as_user(&root(), &node(FileKind::CharDevice, "c")).unwrap().attr.rdev, 0x103);
    let fifo = f.as_user(&other(), &node(FileKind::Fifo, "p")).unwrap();
    assert_eq!((fifo.attr.rdev, fifo.layout.segments.len()), (0, 0));
}

#[test]
fn extended_attributes_by_class() {
    let mut f = Fixture::new();
    let file = f.file("f", 0o644);
    let set = |name: &str| SetXattrRequest {
        file,
        name: name.as_bytes().into(),
        value: b"v"[..].into(),
        mode: XattrMode::Any,
    };
    let get = |name: &str| GetXattrRequest { file, name: name.as_bytes().into() };
    assert_eq!(kind(f.as_user(&other(), &set("user.a"))), ErrorKind::AccessDenied);
    f.as_user(&owner(), &set("user.a")).unwrap();
    assert_eq!(kind(f.as_user(&owner(), &set("trusted.a"))), ErrorKind::NotPermitted);
    assert_eq!(kind(f.as_user(&owner(), &set("security.a"))), ErrorKind::NotPermitted);
    f.as_user(&root(), &set("trusted.a")).unwrap();
    assert_eq!(f.ask(&other(), &get("user.a")).unwrap().0, b"v");
    assert_eq!(kind(f.ask(&other(), &get("trusted.a"))), ErrorKind::NoAttribute);
    let names = |list: Vec<weir_types::codec::Bytes>| list.len();
    assert_eq!(names(f.ask(&other(), &ListXattrRequest { file }).unwrap()), 1);
    assert_eq!(names(f.ask(&root(), &ListXattrRequest { file }).unwrap()), 2);
    assert_eq!(kind(f.as_user(&root(), &set("system.x"))), ErrorKind::Unsupported);
    assert_eq!(kind(f.as_user(&root(), &set("nothing"))), ErrorKind::Unsupported);
    let long = format!("user.{}", "x".repeat(251));
    assert_eq!(kind(f.as_user(&root(), &set(&long))), ErrorKind::AttributeRange);
    let create = SetXattrRequest { mode: XattrMode::Create, ..set("user.a") };
    assert_eq!(kind(f.as_user(&owner(), &create)), ErrorKind::Exists);
    let replace = SetXattrRequest { mode: XattrMode::Replace, ..set("user.b") };
    assert_eq!(kind(f.as_user(&owner(), &replace)), ErrorKind::NoAttribute);
    let big = SetXattrRequest { value: vec![0; 65_537][..].into(), ..set("user.b") };
    assert_eq!(kind(f.as_user(&owner(), &big)), ErrorKind::TooBig);
    let largest = SetXattrRequest { value: vec![0; 65_536][..].into(), ..set("user.b") };
    f.as_user(&owner(), &largest).unwrap();
}

#[test]
fn the_list_of_attributes_stays_within_what_a_call_returns() {
    let mut f = Fixture::new();
    let file = f.file("f", 0o644);
    let mut client = f.c.client(root());
    let mut failed = None;
    for n in 0..300 {
        let name = format!("user.{n:0250}");
        let request = SetXattrRequest {
            file,
            name: name.as_bytes().into(),
            value: b""[..].into(),
            mode: XattrMode::Any,
        };
        if let Err(error) = f.c.make(&mut client, &request) {
            failed = Some((n, error.kind));
            break;
        }
    }
    assert_eq!(failed, Some((256, ErrorKind::NoSpace)), "256 names of 255 bytes and a zero");
    assert_eq!(f.ask(&root(), &ListXattrRequest { file }).unwrap().len(), 256);
}
