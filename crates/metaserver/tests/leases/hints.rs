//! Files that say how far changes are to be seen.

use super::world::*;
use crate::harness::*;
use weir_types::{CONSISTENCY_XATTR, Consistency, ErrorKind, FileId};
use weir_wire::Rights;
use weir_wire::lease::*;
use weir_wire::meta::*;

const LEASES: u8 = LEASE_READ | LEASE_WRITE;

fn hint(file: FileId, value: &[u8]) -> SetXattrRequest {
    let name = CONSISTENCY_XATTR.into();
    SetXattrRequest { file, name, value: value.into(), mode: XattrMode::Any }
}

#[test]
fn a_hint_is_inherited_and_comes_with_the_open_instead_of_a_lease() {
    let mut w = World::new();
    let mut a = w.mount();
    let refused = w.heard(&mut a, &hint(ROOT, b"never")).said;
    assert_eq!(kind(refused), ErrorKind::InvalidArgument);
    w.now(&mut a, &hint(ROOT, b"relaxed"));
    let dir = MkdirRequest { parent: ROOT, name: b"d"[..].into(), mode: 0o755, umask: 0 };
    let dir = w.now(&mut a, &dir).file;
    let made = w.heard(&mut a, &create_request(dir, "f"));
    assert_eq!(made.keep & LEASES, 0);
    let made = made.said.unwrap();
    assert_eq!(made.consistency, Some(Consistency::Relaxed));
    let file = made.attr.file;
    w.close(&mut a, file);
    let open = OpenRequest { file, rights: Rights::READ_WRITE };
    let opened = w.heard(&mut a, &open);
    assert_eq!(opened.keep, KEEP_ATTRIBUTES);
    assert_eq!(opened.said.unwrap().consistency, Some(Consistency::Relaxed));
    w.close(&mut a, file);
    for (value, lease) in [(&b"none"[..], 0), (b"strict", LEASE_WRITE)] {
        w.now(&mut a, &hint(file, value));
        let opened = w.heard(&mut a, &open);
        assert_eq!(opened.keep & LEASES, lease);
        assert_eq!(opened.said.unwrap().consistency, Consistency::from_name(value));
        w.close(&mut a, file);
    }
    let name = CONSISTENCY_XATTR.into();
    w.now(&mut a, &RemoveXattrRequest { file, name });
    assert_eq!(w.now(&mut a, &open).consistency, None);
    let listed = w.now(&mut a, &ListXattrRequest { file: dir });
    assert_eq!(listed, [CONSISTENCY_XATTR.into()]);
}

#[test]
fn who_held_a_lease_before_the_hint_writes_back_when_others_open() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let mine = w.now(&mut a, &create_request(ROOT, "f"));
    let file = mine.attr.file;
    w.now(&mut a, &hint(file, b"relaxed"));
    // What it says of its own leases waits for nobody.
    w.now(&mut a, &commit(&mine, 5));
    let everything = |mode| EventKind::Recall(whole(file, mode));
    let pending = w.waits(&mut b, &OpenRequest { file, rights: Rights::READ });
    assert!(w.obey(&mut a).contains(&everything(LeaseMode::Read)));
    let opened = w.later::<OpenRequest>(pending).unwrap();
    assert_eq!((opened.keep & LEASES, opened.said.unwrap().attr.size), (0, 5));
    let pending = w.waits(&mut b, &OpenRequest { file, rights: Rights::READ_WRITE });
    assert!(w.obey(&mut a).contains(&everything(LeaseMode::Write)));
    let opened = w.later::<OpenRequest>(pending).unwrap().said.unwrap();
    // A has it open as before, and asks for leases as before.
    w.now(&mut a, &acquire(whole(file, LeaseMode::Read)));
    let pending = w.waits(&mut b, &commit(&opened, 77));
    assert!(w.obey(&mut a).contains(&everything(LeaseMode::Write)));
    assert_eq!(w.later::<CommitSizeRequest>(pending).unwrap().said.unwrap().size, 77);
    assert_eq!(w.now(&mut a, &GetAttrRequest { file }).size, 77);
}
