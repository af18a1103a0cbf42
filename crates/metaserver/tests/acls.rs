//! Access control lists: who gets in by one, what they do to modes, and how they are
//! inherited.

use crate::harness::*;
use weir_metastore::ModelEngine;
use weir_types::codec::Bytes;
use weir_types::limits::MAX_WRITTEN_SEGMENTS;
use weir_types::restrictions::NOBODY;
use weir_types::{
    ACL_ACCESS, ACL_DEFAULT, Attr, Caller, ClientId, Error, ErrorKind, FileId, FileKind,
    Restrictions, SegmentIndex, Squash,
};
use weir_wire::Rights;
use weir_wire::meta::*;

const ROOT: FileId = FileId::ROOT;
const OWNER: u32 = 10;
const GROUP: u32 = 20;

/// A list from `u::rwx,u:5:r--,g::r-x,g:6:rw-,m::rwx,o::---`.
fn acl(text: &str) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for entry in text.split(',') {
        let [kind, who, bits]: [&str; 3] = entry.split(':').collect::<Vec<_>>().try_into().unwrap();
        let tag: u16 = match (kind, who) {
            ("u", "") => 0x01,
            ("u", _) => 0x02,
            ("g", "") => 0x04,
            ("g", _) => 0x08,
            ("m", _) => 0x10,
            _ => 0x20,
        };
        let mask = |letter, bit: u16| if bits.contains(letter) { bit } else { 0 };
        bytes.extend(tag.to_le_bytes());
        bytes.extend((mask('r', 4) | mask('w', 2) | mask('x', 1)).to_le_bytes());
        bytes.extend(who.parse().unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes
}

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

    fn give(&mut self, file: FileId, mode: u16) -> FileId {
        let owner = SetAttrRequest { uid: Some(OWNER), gid: Some(GROUP), ..set_nothing(file) };
        self.c.make(&mut self.admin, &owner).unwrap();
        self.chmod(file, mode);
        file
    }

    fn file(&mut self, name: &str, mode: u16) -> FileId {
        let file = self.c.create(&mut self.admin, ROOT, name).attr.file;
        self.c.close(&mut self.admin, file);
        self.give(file, mode)
    }

    fn dir(&mut self, name: &str, mode: u16) -> FileId {
        let dir = self.c.mkdir(&mut self.admin, ROOT, name);
        self.give(dir, mode)
    }

    fn chmod(&mut self, file: FileId, mode: u16) {
        let mode = SetAttrRequest { mode: Some(mode), ..set_nothing(file) };
        self.c.make(&mut self.admin, &mode).unwrap();
    }

    fn attr(&mut self, file: FileId) -> Attr {
        self.c.getattr(&self.admin, file).unwrap()
    }

    fn set(&mut self, who: Caller, file: FileId, name: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut client = self.c.client(who);
        let (name, value) = (name.into(), value.into());
        self.c.make(&mut client, &SetXattrRequest { file, name, value, mode: XattrMode::Any })
    }

    fn get(&mut self, file: FileId, name: &[u8]) -> Option<Vec<u8>> {
        match self.c.ask(&self.admin, &GetXattrRequest { file, name: name.into() }) {
            Ok(value) => Some(value.0),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::NoAttribute);
                None
            }
        }
    }

    fn opens(&mut self, who: Caller, file: FileId, rights: Rights) -> bool {
        let client = self.c.client(who);
        match self.c.ask(&client, &OpenRequest { file, rights }) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::AccessDenied);
                false
            }
        }
    }

    fn count(&mut self, file: FileId) -> usize {
        self.c.ask(&self.admin, &ListXattrRequest { file }).unwrap().len()
    }
}

fn owner() -> Caller {
    user(OWNER, 1, &[])
}

#[test]
fn named_users_and_groups_get_in_as_far_as_the_mask_lets_them() {
    let mut f = Fixture::new();
    let file = f.file("f", 0o600);
    f.set(owner(), file, ACL_ACCESS, &acl("u::rw-,u:5:rw-,g::r--,g:6:rw-,m::rw-,o::---")).unwrap();
    assert_eq!(f.attr(file).mode, 0o660, "the mask is the group's bits");
    let (reads, writes) = (Rights::READ, Rights::READ_WRITE);
    assert!(f.opens(user(5, 1, &[]), file, writes), "the user");
    assert!(f.opens(user(7, 1, &[6]), file, writes), "a member of the group");
    assert!(f.opens(user(7, GROUP, &[]), file, reads), "the file's group");
    assert!(!f.opens(user(7, GROUP, &[]), file, writes));
    assert!(f.opens(user(7, GROUP, &[6]), file, writes), "any group that gives all");
    assert!(!f.opens(user(7, 1, &[]), file, reads), "a stranger");
    f.chmod(file, 0o640);
    assert!(f.opens(user(5, 1, &[]), file, reads), "chmod changes the mask");
    assert!(!f.opens(user(5, 1, &[]), file, writes));
    let now = f.get(file, ACL_ACCESS).unwrap();
    assert_eq!(now, acl("u::rw-,u:5:rw-,g::r--,g:6:rw-,m::r--,o::---"));
}

#[test]
fn a_list_that_says_no_more_than_a_mode_becomes_one() {
    let mut f = Fixture::new();
    let file = f.file("f", 0o600);
    let before = f.attr(file);
    f.set(owner(), file, ACL_ACCESS, &acl("u::rw-,u:5:rw-,g::r--,m::rw-,o::---")).unwrap();
    let with = f.attr(file);
    assert!(with.extras.acl && with.extras.any && with.change > before.change);
    assert_eq!(f.count(file), 1);
    f.set(owner(), file, ACL_ACCESS, &acl("u::rwx,g::r-x,o::--x")).unwrap();
    let without = f.attr(file);
    assert_eq!((without.mode, without.extras.acl, without.extras.any), (0o751, false, false));
    assert_eq!((f.get(file, ACL_ACCESS), f.count(file), f.c.keys("x/")), (None, 0, 0));
    // What is not there may be removed, and removing leaves the mask in the mode.
    let remove = RemoveXattrRequest { file, name: ACL_ACCESS.into() };
    f.c.make(&mut f.admin, &remove).unwrap();
    f.set(owner(), file, ACL_ACCESS, &acl("u::rw-,u:5:rw-,g::r--,m::rw-,o::---")).unwrap();
    f.c.make(&mut f.admin, &remove).unwrap();
    assert_eq!((f.attr(file).mode, f.count(file)), (0o660, 0));
}

#[test]
fn only_owners_set_lists_and_only_where_there_can_be_one() {
    let mut f = Fixture::new();
    let (file, dir) = (f.file("f", 0o666), f.dir("d", 0o777));
    let list = acl("u::rw-,u:5:rw-,g::r--,m::rw-,o::---");
    let stranger = || user(12, 1, &[]);
    for (who, which, name, value, expected) in [
        (stranger(), file, ACL_ACCESS, &list[..], ErrorKind::NotPermitted),
        (stranger(), dir, ACL_DEFAULT, &list, ErrorKind::NotPermitted),
        (owner(), file, ACL_DEFAULT, &list, ErrorKind::AccessDenied),
        (owner(), file, ACL_ACCESS, &list[..11], ErrorKind::InvalidArgument),
        (owner(), file, b"system.other", &list, ErrorKind::Unsupported),
    ] {
        assert_eq!(kind(f.set(who, which, name, value)), expected);
    }
    let (parent, name, target) = (ROOT, b"l"[..].into(), b"f"[..].into());
    let link = f.c.make(&mut f.admin, &SymlinkRequest { parent, name, target }).unwrap().file;
    assert_eq!(kind(f.set(root(), link, ACL_ACCESS, &list)), ErrorKind::Unsupported);
    let asked = f.c.ask(&f.admin, &GetXattrRequest { file: link, name: ACL_ACCESS.into() });
    assert_eq!(kind(asked), ErrorKind::Unsupported);
    assert_eq!(f.set(owner(), file, ACL_DEFAULT, &[]), Ok(()), "none is none");
    // Who is not in the group cannot leave a program that runs as it.
    f.chmod(file, 0o2775);
    f.set(owner(), file, ACL_ACCESS, &list).unwrap();
    assert_eq!(f.attr(file).mode, 0o660);
    f.chmod(file, 0o2775);
    f.set(user(OWNER, GROUP, &[]), file, ACL_ACCESS, &list).unwrap();
    assert_eq!(f.attr(file).mode, 0o2660);
}

#[test]
fn new_files_get_the_default_of_their_directory_in_place_of_the_umask() {
    let mut f = Fixture::new();
    let dir = f.dir("d", 0o777);
    let default = acl("u::rwx,u:5:rwx,g::r-x,m::rwx,o::r-x");
    f.set(owner(), dir, ACL_DEFAULT, &default).unwrap();
    assert_eq!(f.attr(dir).mode, 0o777, "it is not for the directory itself");
    let asked = CreateRequest { mode: 0o664, umask: 0o077, ..create_request(dir, "f") };
    let made = f.c.make(&mut f.admin, &asked).unwrap().attr;
    assert_eq!(made.mode, 0o664);
    let list = f.get(made.file, ACL_ACCESS).unwrap();
    assert_eq!(list, acl("u::rw-,u:5:rwx,g::r-x,m::rw-,o::r--"));
    assert_eq!(f.get(made.file, ACL_DEFAULT), None);
    let name = b"sub"[..].into();
    let asked = MkdirRequest { parent: dir, name, mode: 0o2755, umask: 0o077 };
    let sub = f.c.make(&mut f.admin, &asked).unwrap();
    assert_eq!((sub.mode, sub.extras.acl, sub.extras.default_acl), (0o2755, true, true));
    assert_eq!(f.get(sub.file, ACL_DEFAULT).unwrap(), default);
    assert_eq!(f.get(sub.file, ACL_ACCESS).unwrap(), acl("u::rwx,u:5:rwx,g::r-x,m::r-x,o::r-x"));
    for asked in [
        CreateRequest { kind: FileKind::Fifo, umask: 0o777, ..create_request(dir, "pipe") },
        CreateRequest { umask: 0o777, ..create_request(dir, "") },
    ] {
        let made = f.c.make(&mut f.admin, &asked).unwrap().attr;
        assert!(made.extras.acl && made.mode == 0o644, "{made:?}");
    }
    // A default of three entries is only a mode for what is made.
    f.set(owner(), dir, ACL_DEFAULT, &acl("u::rwx,g::r--,o::---")).unwrap();
    let asked = CreateRequest { mode: 0o666, umask: 0o077, ..create_request(dir, "g") };
    let made = f.c.make(&mut f.admin, &asked).unwrap().attr;
    assert_eq!((made.mode, made.extras.any), (0o640, false));
    let (parent, name, target) = (dir, b"l"[..].into(), b"f"[..].into());
    let link = f.c.make(&mut f.admin, &SymlinkRequest { parent, name, target }).unwrap();
    assert_eq!((link.mode, link.extras.any), (0o777, false));
    // Without one the umask counts.
    f.set(owner(), dir, ACL_DEFAULT, &[]).unwrap();
    let asked = CreateRequest { mode: 0o666, umask: 0o027, ..create_request(dir, "h") };
    assert_eq!(f.c.make(&mut f.admin, &asked).unwrap().attr.mode, 0o640);
}

/// A close tells what was written of many files, and one transaction has to hold that.
#[test]
fn as_many_files_with_lists_as_a_close_names_are_closed_with_their_columns() {
    let mut f = Fixture::new();
    let dir = f.dir("d", 0o777);
    f.set(owner(), dir, ACL_DEFAULT, &acl("u::rwx,u:5:rwx,g::r-x,m::rwx,o::r-x")).unwrap();
    let mut files = Vec::new();
    for number in 0..MAX_WRITTEN_SEGMENTS {
        let made = f.c.create(&mut f.admin, dir, &format!("f{number}")).attr;
        assert!(made.extras.acl);
        files.push(made.file);
    }
    let first = || WrittenColumns { segment: SegmentIndex(0), start: 0, columns: Bytes(vec![1]) };
    let written = files.iter().map(|file| (*file, vec![first()])).collect();
    let close = CloseRequest { files: files.clone(), unconfirmed: vec![], written };
    f.c.make(&mut f.admin, &close).unwrap();
    assert_eq!(f.c.keys("w/"), MAX_WRITTEN_SEGMENTS);
    f.c.unlink(&mut f.admin, dir, "f0").unwrap();
    f.c.pass_ms(2000);
    assert_eq!(f.c.keys("w/"), MAX_WRITTEN_SEGMENTS - 1, "nobody has it open");
}

#[test]
fn directories_are_searched_by_lists_and_what_is_removed_takes_its_list_along() {
    let mut f = Fixture::new();
    let dir = f.dir("d", 0o700);
    f.c.create(&mut f.admin, dir, "there");
    f.set(owner(), dir, ACL_ACCESS, &acl("u::rwx,u:5:-wx,g::---,m::-wx,o::---")).unwrap();
    let mut five = f.c.client(user(5, 1, &[]));
    assert!(f.c.lookup(&five, dir, "there").is_ok());
    let list = ReaddirRequest {
        last: 0,
        dir,
        cookie: 0,
        max_entries: 9,
        attributes: false,
        layouts: false,
    };
    assert_eq!(kind(f.c.ask(&five, &list)), ErrorKind::AccessDenied);
    f.c.make(&mut five, &create_request(dir, "new")).unwrap();
    let six = f.c.client(user(6, 1, &[]));
    assert_eq!(kind(f.c.lookup(&six, dir, "there")), ErrorKind::AccessDenied);
    let file = f.file("f", 0o600);
    f.set(owner(), file, ACL_ACCESS, &acl("u::rw-,u:5:rw-,g::r--,m::rw-,o::---")).unwrap();
    assert_eq!(f.c.keys("x/"), 2);
    f.c.unlink(&mut f.admin, ROOT, "f").unwrap();
    for _ in 0..10 {
        f.c.pass_ms(1_000);
    }
    assert_eq!(f.c.keys("x/"), 1);
}

#[test]
fn a_squashed_client_is_judged_as_whom_it_is_taken_for() {
    let mut f = Fixture::new();
    let file = f.file("f", 0o600);
    let list = format!("u::rw-,u:{NOBODY}:r--,g::---,m::rw-,o::---");
    f.set(owner(), file, ACL_ACCESS, &acl(&list)).unwrap();
    let squashed = ClientId(77);
    f.c.set_client(squashed, Restrictions { squash: Squash::Root, ..Restrictions::NONE });
    let guest = f.c.session_of(squashed, root());
    assert!(f.c.ask(&guest, &OpenRequest { file, rights: Rights::READ }).is_ok());
    let writes = OpenRequest { file, rights: Rights::READ_WRITE };
    assert_eq!(kind(f.c.ask(&guest, &writes)), ErrorKind::AccessDenied);
    let mut guest = guest;
    let (name, value) = (ACL_ACCESS.into(), acl("u::rw-,g::rw-,o::rw-")[..].into());
    let set = SetXattrRequest { file, name, value, mode: XattrMode::Any };
    assert_eq!(kind(f.c.make(&mut guest, &set)), ErrorKind::NotPermitted);
    let reads = ClientId(78);
    f.c.set_client(reads, Restrictions { read_only: true, ..Restrictions::NONE });
    let mut reader = f.c.session_of(reads, root());
    assert_eq!(kind(f.c.make(&mut reader, &set)), ErrorKind::ReadOnly);
}
