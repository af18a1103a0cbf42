//! Names and attributes that clients keep.

use super::world::*;
use crate::harness::*;
use weir_types::{Attr, ErrorKind, FileId, FileKind};
use weir_wire::Rights;
use weir_wire::lease::*;
use weir_wire::meta::*;

const BOTH: u8 = KEEP_NAMES | KEEP_ATTRIBUTES;

#[test]
fn a_client_that_never_polls_is_given_nothing_to_keep() {
    let mut w = World::new();
    let mut a = w.relaxed();
    let file = w.heard(&mut a, &create_request(ROOT, "f"));
    assert_eq!(file.keep, 0);
    assert_eq!(w.heard(&mut a, &lookup("f")).keep, 0);
    let mut strict = w.mount();
    assert_eq!(w.heard(&mut strict, &lookup("f")).keep, BOTH);
}

#[test]
fn what_answers_may_be_kept() {
    let mut w = World::new();
    let a = &mut w.mount();
    let made = w.heard(a, &create_request(ROOT, "f"));
    assert_eq!(made.keep, BOTH | LEASE_WRITE | HAS_ALSO);
    let file = made.said.unwrap().attr.file;
    assert_eq!(w.heard(a, &lookup("nothing")).keep, KEEP_NAMES, "that there is none");
    assert_eq!(w.heard(a, &GetAttrRequest { file }).keep, KEEP_ATTRIBUTES);
    let list = ReaddirRequest {
        last: 0,
        dir: ROOT,
        cookie: 0,
        max_entries: 9,
        attributes: true,
        layouts: false,
    };
    assert_eq!(w.heard(a, &list).keep, BOTH);
    let xattr = GetXattrRequest { file, name: b"user.x"[..].into() };
    assert_eq!(w.heard(a, &xattr).keep, KEEP_ATTRIBUTES, "that there is none");
    assert_eq!(w.heard(a, &lookup("..")).keep, KEEP_ATTRIBUTES);
    assert_eq!(w.heard(a, &create_request(ROOT, "f")).keep, 0, "a refusal");
}

#[test]
fn a_change_tells_what_else_it_has_changed_as_it_is_now() {
    let mut w = World::new();
    let (a, other) = (&mut w.mount(), &mut w.relaxed());
    let mut as_now = |w: &mut World, also: Vec<Attr>, files: &[FileId]| {
        let mut told: Vec<FileId> = also.iter().map(|attr| attr.file).collect();
        told.sort_unstable();
        assert_eq!(told, files);
        for attr in also {
            assert_eq!(w.now(other, &GetAttrRequest { file: attr.file }), attr);
        }
    };
    let made = |name: &str| MkdirRequest {
        parent: ROOT,
        name: name.as_bytes().into(),
        mode: 0o755,
        umask: 0,
    };
    let [one, two] = ["one", "two"].map(|name| {
        let heard = w.heard(a, &made(name));
        as_now(&mut w, heard.also, &[ROOT]);
        heard.said.unwrap().file
    });
    let pipe = CreateRequest { kind: FileKind::Fifo, ..create_request(one, "f") };
    let heard = w.heard(a, &pipe);
    as_now(&mut w, heard.also, &[one]);
    let file = heard.said.unwrap().attr.file;
    let link = LinkRequest { file, parent: two, name: b"g"[..].into() };
    let heard = w.heard(a, &link);
    as_now(&mut w, heard.also, &[two]);
    let heard = w.heard(a, &rename_request((one, "f"), (two, "f")));
    as_now(&mut w, heard.also, &[one, two, file]);
    let heard = w.heard(a, &rename_request((two, "f"), (two, "g")));
    as_now(&mut w, heard.also, &[]);
    let heard = w.heard(a, &UnlinkRequest { parent: two, name: b"f"[..].into(), hold: false });
    as_now(&mut w, heard.also, &[two, file]);
    let heard = w.heard(a, &UnlinkRequest { parent: two, name: b"g"[..].into(), hold: false });
    as_now(&mut w, heard.also, &[two]);
    let heard = w.heard(a, &RmdirRequest { parent: ROOT, name: b"two"[..].into() });
    as_now(&mut w, heard.also, &[ROOT]);
    assert_eq!(w.heard(a, &made("one")).also, [], "a refusal");
}

#[test]
fn what_another_change_is_about_to_change_is_not_told_with_one() {
    let mut w = World::new();
    let (mut a, mut b, mut c) = (w.mount(), w.mount(), w.mount());
    let made = |name: &str| MkdirRequest {
        parent: ROOT,
        name: name.as_bytes().into(),
        mode: 0o755,
        umask: 0,
    };
    w.heard(&mut c, &lookup("x"));
    let pending = [w.waits(&mut a, &made("x")), w.waits(&mut b, &made("y"))];
    w.obey(&mut c);
    let heard = pending.map(|pending| w.later::<MkdirRequest>(pending));
    // The one that is done first waits for nobody; the other may still wait for it.
    let first = heard.into_iter().flatten().next().unwrap();
    assert!(first.said.is_ok());
    assert_eq!(first.also, [], "the other waits");
}

/// Each change of a name waits until the other client has forgotten it, and
/// has not happened before.
#[test]
fn a_name_changes_when_nobody_believes_in_it_any_more() {
    type Change = fn(&mut World, &mut Mount) -> Pending;
    let changes: [(&str, Change); 6] = [
        ("new", |w, a| w.waits(a, &create_request(ROOT, "new"))),
        ("new", |w, a| {
            w.waits(
                a,
                &MkdirRequest { parent: ROOT, name: b"new"[..].into(), mode: 0o755, umask: 0 },
            )
        }),
        ("new", |w, a| {
            let (parent, name) = (ROOT, b"new"[..].into());
            w.waits(a, &SymlinkRequest { parent, name, target: b"f"[..].into() })
        }),
        ("f", |w, a| w.waits(a, &unlink("f"))),
        ("d", |w, a| w.waits(a, &RmdirRequest { parent: ROOT, name: b"d"[..].into() })),
        ("f", |w, a| w.waits(a, &rename_request((ROOT, "f"), (ROOT, "new")))),
    ];
    for (name, change) in changes {
        let mut w = World::new();
        let (mut a, mut b) = (w.mount(), w.mount());
        let file = w.create(&mut a, "f");
        w.close(&mut a, file);
        w.now(&mut a, &MkdirRequest { parent: ROOT, name: b"d"[..].into(), mode: 0o755, umask: 0 });
        let before = w.heard(&mut b, &lookup(name));
        assert_ne!(before.keep & KEEP_NAMES, 0);
        let pending = change(&mut w, &mut a);
        // It has not happened, and what is said of it now is not kept.
        let still = w.heard(&mut b, &lookup(name));
        assert_eq!(still.said.is_ok(), before.said.is_ok(), "{name}");
        assert_eq!(still.keep & KEEP_NAMES, 0);
        assert!(w.asked(&mut b).contains(&name_of(ROOT, name)));
        b.have = 0;
        assert!(!w.obey(&mut b).is_empty(), "asked again until it has obeyed");
        w.answered(pending).unwrap().unwrap();
        let after = match w.send(&mut b, &lookup(name)) {
            Ok(after) => after,
            Err(pending) => {
                w.obey(&mut a);
                w.later::<LookupRequest>(pending).unwrap()
            }
        };
        assert_ne!(after.said.is_ok(), before.said.is_ok(), "{name}");
        assert_ne!(after.keep & KEEP_NAMES, 0, "kept again");
    }
}

#[test]
fn a_file_that_is_linked_moved_or_removed_is_forgotten_too() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let (file, old) = (w.create(&mut a, "f"), w.create(&mut a, "old"));
    for file in [file, old] {
        w.close(&mut a, file);
        assert_eq!(w.heard(&mut b, &GetAttrRequest { file }).keep, KEEP_ATTRIBUTES);
    }
    let link = LinkRequest { file, parent: ROOT, name: b"g"[..].into() };
    let pending = w.waits(&mut a, &link);
    assert_eq!(w.obey(&mut b), [attributes_of(file)]);
    assert_eq!(w.later::<LinkRequest>(pending).unwrap().said.unwrap().nlink, 2);
    // It has forgotten the file, so it is not asked again.
    w.now(&mut a, &unlink("g"));
    assert_eq!(w.heard(&mut b, &GetAttrRequest { file }).keep, KEEP_ATTRIBUTES);
    let pending = w.waits(&mut a, &rename_request((ROOT, "f"), (ROOT, "old")));
    assert_eq!(w.obey(&mut b), [attributes_of(file), removal_of(old)]);
    assert!(w.later::<RenameRequest>(pending).unwrap().said.is_ok());
}

#[test]
fn who_holds_a_file_that_another_removes_has_it_until_it_closes_it() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let files = ["f", "g"].map(|name| {
        let file = w.create(&mut a, name);
        w.close(&mut a, file);
        assert_eq!(w.heard(&mut b, &GetAttrRequest { file }).keep, KEEP_ATTRIBUTES);
        file
    });
    // It believes nothing of the first any more, but says that it still knows it.
    let pending = w.waits(&mut a, &chmod(files[0], 0o600));
    assert_eq!(w.obey_holding(&mut b), [attributes_of(files[0])]);
    assert!(w.later::<SetAttrRequest>(pending).unwrap().said.is_ok());
    w.now(&mut a, &chmod(files[0], 0o640));
    let pending = w.waits(&mut a, &unlink("f"));
    assert_eq!(w.obey_holding(&mut b), [removal_of(files[0])]);
    assert!(w.later::<UnlinkRequest>(pending).unwrap().said.is_ok());
    let over = RenameRequest { hold: true, ..rename_request((ROOT, "new"), (ROOT, "g")) };
    let new = w.create(&mut a, "new");
    w.close(&mut a, new);
    let pending = w.waits(&mut a, &over);
    assert_eq!(w.obey_holding(&mut b), [removal_of(files[1])]);
    assert!(w.later::<RenameRequest>(pending).unwrap().said.is_ok());
    assert_eq!(w.counter("orphans"), 2);
    for file in files {
        assert_eq!(w.now(&mut b, &GetAttrRequest { file }).nlink, 0);
        w.close(&mut b, file);
    }
    w.pass(1000, &mut [&mut a, &mut b]);
    assert_eq!(w.counter("orphans"), 1, "the second is held by who has removed it as well");
    w.close(&mut a, files[1]);
    w.pass(1000, &mut [&mut a, &mut b]);
    assert_eq!(w.counter("orphans"), 0);
    let gone = w.heard(&mut b, &GetAttrRequest { file: files[0] }).said.unwrap_err();
    assert_eq!(gone.kind, ErrorKind::Stale);
}

#[test]
fn attributes_change_when_nobody_believes_in_them() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    w.close(&mut a, file);
    let name = || b"user.x"[..].into();
    let believe = |w: &mut World, b: &mut Mount| {
        assert_eq!(w.heard(b, &GetAttrRequest { file }).keep, KEEP_ATTRIBUTES);
    };
    believe(&mut w, &mut b);
    let pending = w.waits(&mut a, &chmod(file, 0o600));
    assert_eq!(w.now(&mut b, &GetAttrRequest { file }).mode, 0o644);
    assert_eq!(w.obey(&mut b), [attributes_of(file)]);
    assert_eq!(w.later::<SetAttrRequest>(pending).unwrap().said.unwrap().attr.mode, 0o600);
    believe(&mut w, &mut b);
    let set = SetXattrRequest { file, name: name(), value: name(), mode: XattrMode::Any };
    let pending = w.waits(&mut a, &set);
    assert_eq!(w.obey(&mut b), [attributes_of(file)]);
    assert!(w.later::<SetXattrRequest>(pending).unwrap().said.is_ok());
    believe(&mut w, &mut b);
    let pending = w.waits(&mut a, &RemoveXattrRequest { file, name: name() });
    assert_eq!(w.obey(&mut b), [attributes_of(file)]);
    assert!(w.later::<RemoveXattrRequest>(pending).unwrap().said.is_ok());
    believe(&mut w, &mut b);
    let pending = w.waits(&mut a, &SetLayoutRequest { file, layout: None });
    assert_eq!(w.obey(&mut b), [attributes_of(file)]);
    assert!(w.later::<SetLayoutRequest>(pending).unwrap().said.is_ok());
    believe(&mut w, &mut b);
    // One that keeps nothing itself asks as well.
    let mut relaxed = w.relaxed();
    let pending = w.waits(&mut relaxed, &chmod(file, 0o640));
    assert_eq!(w.obey(&mut b), [attributes_of(file)]);
    assert_eq!(w.obey(&mut a), [attributes_of(file)], "whose own change it was before");
    assert!(w.later::<SetAttrRequest>(pending).unwrap().said.is_ok());
}

#[test]
fn a_client_that_has_forgotten_a_directory_costs_no_more_messages() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    w.send(&mut b, &lookup("x")).unwrap().said.unwrap_err();
    let pending = w.waits(&mut a, &create_request(ROOT, "1"));
    w.obey(&mut b);
    assert!(w.later::<CreateRequest>(pending).is_some());
    let pending = w.waits(&mut a, &create_request(ROOT, "2"));
    let number = w.poll(&mut b).events[0].number;
    w.ack(&mut b, number, true);
    assert!(w.later::<CreateRequest>(pending).is_some());
    for name in ["3", "4"] {
        w.create(&mut a, name);
    }
}

#[test]
fn nobody_believes_in_what_another_client_may_write() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    // Who may write is asked for the size each time.
    let pending = w.waits(&mut b, &GetAttrRequest { file });
    assert_eq!(w.asked(&mut a), [EventKind::Report { file }]);
    let commit = |size| CommitSizeRequest {
        file,
        size,
        generation: weir_types::Generation(1),
        mtime: None,
        written: vec![],
        ranges: vec![],
        sparse: false,
        durable: false,
    };
    w.now(&mut a, &commit(10));
    let number = a.have;
    w.ack(&mut a, number, false);
    let told = w.later::<GetAttrRequest>(pending).unwrap();
    assert_eq!((told.said.unwrap().size, told.keep), (10, 0));
    // Two who ask get a report each: more may have been written in between.
    let first = w.waits(&mut b, &lookup("f"));
    let second = w.waits(&mut b, &GetAttrRequest { file });
    assert_eq!(w.asked(&mut a).len(), 2);
    let number = a.have;
    w.ack(&mut a, number, false);
    assert!(w.later::<LookupRequest>(first).is_none());
    assert!(w.later::<GetAttrRequest>(second).is_some());
    w.ack(&mut a, number - 1, false);
    assert_eq!(w.later::<LookupRequest>(first).unwrap().keep, KEEP_NAMES);
    // A listing says nothing of it, and does not wait.
    let list = ReaddirRequest {
        last: 0,
        dir: ROOT,
        cookie: 0,
        max_entries: 9,
        attributes: true,
        layouts: false,
    };
    assert_eq!(w.now(&mut b, &list).entries[0].attr, None);
    assert!(w.now(&mut a, &list).entries[0].attr.is_some(), "its writer knows");
    // When it is closed there is nobody to ask.
    w.close(&mut a, file);
    assert_eq!(w.heard(&mut b, &GetAttrRequest { file }).keep, KEEP_ATTRIBUTES);
}

#[test]
fn a_listing_leaves_out_what_is_about_to_change() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    w.close(&mut a, file);
    w.now(&mut b, &GetAttrRequest { file });
    w.waits(&mut a, &chmod(file, 0o600));
    let list = ReaddirRequest {
        last: 0,
        dir: ROOT,
        cookie: 0,
        max_entries: 9,
        attributes: true,
        layouts: false,
    };
    let page = w.heard(&mut b, &list);
    assert_eq!(page.said.unwrap().entries[0].attr, None);
}

#[test]
fn a_change_of_a_file_that_is_gone_meanwhile_is_refused_and_not_done_to_another() {
    let mut w = World::new();
    let (mut a, mut b, mut c) = (w.mount(), w.mount(), w.mount());
    let first = w.create(&mut a, "f");
    w.close(&mut a, first);
    w.now(&mut b, &GetAttrRequest { file: first });
    // This waits for B, because B believes in the file.
    let pending = w.waits(&mut a, &unlink("f"));
    // Meanwhile the name comes to stand for another file, in which C believes.
    let moved = w.waits(&mut a, &rename_request((ROOT, "f"), (ROOT, "g")));
    w.obey(&mut b);
    assert!(w.later::<UnlinkRequest>(pending).unwrap().said.is_ok());
    let refused = w.later::<RenameRequest>(moved).unwrap().said.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotFound);
    let second = w.create(&mut a, "f");
    w.close(&mut a, second);
    w.now(&mut c, &GetAttrRequest { file: second });
    let pending = w.waits(&mut a, &unlink("f"));
    assert_eq!(w.obey(&mut c), [removal_of(second)]);
    assert!(w.later::<UnlinkRequest>(pending).unwrap().said.is_ok());
}

#[test]
fn opening_for_reading_gives_a_lease_on_the_whole_file() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file: FileId = w.create(&mut a, "f");
    w.close(&mut a, file);
    assert_eq!(w.open(&mut a, file, Rights::READ).keep, KEEP_ATTRIBUTES | LEASE_READ);
    assert_eq!(w.open(&mut b, file, Rights::READ).keep, KEEP_ATTRIBUTES | LEASE_READ);
    assert_eq!(w.open(&mut b, file, Rights::WRITE).keep, KEEP_ATTRIBUTES | LEASE_READ);
    w.close(&mut a, file);
    // A keeps its attributes, so B has to ask for the right to write.
    assert_eq!(w.open(&mut b, file, Rights::WRITE).keep, KEEP_ATTRIBUTES | LEASE_READ);
    let pending = w.waits(&mut b, &acquire(range(file, 0, 1, LeaseMode::Write)));
    assert_eq!(w.obey(&mut a), [attributes_of(file)]);
    let granted = w.later::<AcquireRequest>(pending).unwrap().said.unwrap();
    assert_eq!(granted.lease, whole(file, LeaseMode::Write));
    assert_eq!(w.open(&mut b, file, Rights::WRITE).keep, KEEP_ATTRIBUTES | LEASE_WRITE);
}
