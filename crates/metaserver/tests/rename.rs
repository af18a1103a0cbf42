//! Corner cases of rename.

use crate::harness::*;
use weir_metaserver::schema::{self, Inode, key};
use weir_metastore::{Tx, transact};
use weir_types::limits::MAX_LINKS;
use weir_types::{Error, ErrorKind, FileId, FileKind};
use weir_wire::meta::*;

const ROOT: FileId = FileId::ROOT;

#[test]
fn a_file_moves_over_another_which_goes_and_keeps_its_place_in_listings() {
    let mut c = Cluster::new(2);
    let me = &mut c.client(root());
    let dir = c.mkdir(me, ROOT, "d");
    let a = c.create(me, ROOT, "a").attr.file;
    let b = c.create(me, dir, "b").attr.file;
    c.create(me, dir, "z");
    for file in [a, b] {
        c.close(me, file);
    }
    let removed = c.make(me, &rename_request((ROOT, "a"), (dir, "b"))).unwrap();
    let gone = removed.attr.unwrap();
    assert_eq!((gone.file, gone.nlink), (b, 0));
    assert_eq!(c.lookup(me, dir, "b").unwrap().file, a);
    assert_eq!(kind(c.lookup(me, ROOT, "a")), ErrorKind::NotFound);
    assert_eq!(kind(c.getattr(me, b)), ErrorKind::Stale);
    assert_eq!(c.list(me, dir), ["b", "z"]);
    assert_eq!(c.keys("g/"), 2, "both objects of the old file are garbage");
}

#[test]
fn two_names_of_one_file_stay_as_they_are() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let file = c.create(me, ROOT, "a").attr.file;
    c.make(me, &LinkRequest { file, parent: ROOT, name: b"b"[..].into() }).unwrap();
    let removed = c.make(me, &rename_request((ROOT, "a"), (ROOT, "b"))).unwrap();
    assert_eq!(removed.attr, None);
    assert_eq!(c.list(me, ROOT), ["a", "b"]);
    assert_eq!(c.getattr(me, file).unwrap().nlink, 2);
}

#[test]
fn kinds_must_fit_and_directories_be_empty() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let full = c.mkdir(me, ROOT, "full");
    c.mkdir(me, full, "x");
    c.mkdir(me, ROOT, "empty");
    c.mkdir(me, ROOT, "moving");
    c.create(me, ROOT, "file");
    let mut go = |from: &str, to: &str| c.make(me, &rename_request((ROOT, from), (ROOT, to)));
    assert_eq!(kind(go("file", "empty")), ErrorKind::IsDirectory);
    assert_eq!(kind(go("empty", "file")), ErrorKind::NotDirectory);
    assert_eq!(kind(go("moving", "full")), ErrorKind::NotEmpty);
    assert_eq!(kind(go("nothing", "file")), ErrorKind::NotFound);
    go("moving", "empty").unwrap();
    assert_eq!(c.getattr(me, ROOT).unwrap().nlink, 4, "the root, full, and empty");
    let dir = c.lookup(me, ROOT, "empty").unwrap();
    assert_eq!(dir.nlink, 2);
}

#[test]
fn a_directory_does_not_move_into_itself_or_below() {
    let mut c = Cluster::new(0);
    let me = &mut c.client(root());
    let a = c.mkdir(me, ROOT, "a");
    let b = c.mkdir(me, a, "b");
    let deep = c.mkdir(me, b, "c");
    for (dir, name) in [(a, "x"), (b, "x"), (deep, "x")] {
        let error = c.make(me, &rename_request((ROOT, "a"), (dir, name)));
        assert_eq!(kind(error), ErrorKind::InvalidArgument);
    }
    // And an ancestor cannot be replaced by what is in it.
    let error = c.make(me, &rename_request((b, "c"), (ROOT, "a")));
    assert_eq!(kind(error), ErrorKind::NotEmpty);
    // `..` follows.
    c.make(me, &rename_request((b, "c"), (ROOT, "c"))).unwrap();
    assert_eq!(c.lookup(me, deep, "..").unwrap().file, ROOT);
    assert_eq!(c.getattr(me, b).unwrap().nlink, 2);
    assert_eq!(c.getattr(me, ROOT).unwrap().nlink, 4);
}

#[test]
fn a_directory_moves_however_deep_it_is() {
    let mut c = Cluster::new(0);
    let me = &mut c.client(root());
    let mut dir = ROOT;
    for _ in 0..10_000 {
        dir = c.mkdir(me, dir, "d");
    }
    let moved = c.mkdir(me, ROOT, "m");
    c.make(me, &rename_request((ROOT, "m"), (dir, "m"))).unwrap();
    assert_eq!(c.lookup(me, moved, "..").unwrap().file, dir);
}

#[test]
fn directories_change_places_also_where_no_more_can_be_made() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let [one, two] = ["one", "two"].map(|name| c.mkdir(me, ROOT, name));
    let [a, b] = [one, two].map(|dir| c.mkdir(me, dir, "sub"));
    transact(c.machine.engine_mut(), |tx: &mut Tx<'_>| {
        for dir in [one, two] {
            let bytes = tx.get(&key::inode(dir))?.unwrap();
            let inode: Inode = schema::decode(&bytes, "").unwrap();
            let full = Inode { nlink: MAX_LINKS, ..inode };
            tx.put(&key::inode(dir), &schema::encode(&full))?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    let swap = RenameRequest { exchange: true, ..rename_request((one, "sub"), (two, "sub")) };
    c.make(me, &swap).unwrap();
    assert_eq!(c.lookup(me, one, "sub").unwrap().file, b);
    assert_eq!(c.lookup(me, two, "sub").unwrap().file, a);
    for dir in [one, two] {
        assert_eq!(c.getattr(me, dir).unwrap().nlink, MAX_LINKS);
    }
    // One more is one too many, on either side.
    c.create(me, one, "file");
    c.create(me, two, "file");
    for (from, to) in [(one, two), (two, one)] {
        let more = RenameRequest { exchange: true, ..rename_request((from, "sub"), (to, "file")) };
        assert_eq!(kind(c.make(me, &more)), ErrorKind::TooManyLinks);
        let more = RenameRequest { exchange: true, ..rename_request((from, "file"), (to, "sub")) };
        assert_eq!(kind(c.make(me, &more)), ErrorKind::TooManyLinks);
    }
}

#[test]
fn exchange_swaps_a_file_and_a_directory_of_two_directories() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let one = c.mkdir(me, ROOT, "one");
    let two = c.mkdir(me, ROOT, "two");
    let file = c.create(me, one, "f").attr.file;
    let sub = c.mkdir(me, two, "s");
    let swap = RenameRequest { exchange: true, ..rename_request((one, "f"), (two, "s")) };
    c.make(me, &swap).unwrap();
    assert_eq!(c.lookup(me, one, "f").unwrap().file, sub);
    assert_eq!(c.lookup(me, two, "s").unwrap().file, file);
    assert_eq!(c.getattr(me, one).unwrap().nlink, 3);
    assert_eq!(c.getattr(me, two).unwrap().nlink, 2);
    assert_eq!(c.lookup(me, sub, "..").unwrap().file, one);
    let swap = RenameRequest { exchange: true, ..rename_request((one, "f"), (two, "none")) };
    assert_eq!(kind(c.make(me, &swap)), ErrorKind::NotFound);
    let inner = c.mkdir(me, sub, "inner");
    let loops = RenameRequest { exchange: true, ..rename_request((sub, "inner"), (ROOT, "one")) };
    assert_eq!(kind(c.make(me, &loops)), ErrorKind::InvalidArgument);
    assert_eq!(c.lookup(me, inner, "..").unwrap().file, sub);
}

#[test]
fn no_replace_spares_what_is_there() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    c.create(me, ROOT, "a");
    let b = c.create(me, ROOT, "b").attr.file;
    let request = RenameRequest { no_replace: true, ..rename_request((ROOT, "a"), (ROOT, "b")) };
    assert_eq!(kind(c.make(me, &request)), ErrorKind::Exists);
    assert_eq!(c.lookup(me, ROOT, "b").unwrap().file, b);
    let both = RenameRequest { exchange: true, ..request };
    assert_eq!(kind(c.make(me, &both)), ErrorKind::InvalidArgument);
}

#[test]
fn sticky_directories_protect_names_and_moved_directories_need_write_permission() {
    let mut c = Cluster::new(1);
    let admin = &mut c.client(root());
    let tmp = c.mkdir(admin, ROOT, "tmp");
    c.make(admin, &SetAttrRequest { mode: Some(0o1777), ..set_nothing(tmp) }).unwrap();
    let alice = &mut c.client(user(10, 10, &[]));
    let bob = &mut c.client(user(11, 11, &[]));
    c.create(alice, tmp, "hers");
    c.create(bob, tmp, "his");
    let request = rename_request((tmp, "hers"), (tmp, "x"));
    assert_eq!(kind(c.make(bob, &request)), ErrorKind::NotPermitted);
    let over = rename_request((tmp, "his"), (tmp, "hers"));
    assert_eq!(kind(c.make(bob, &over)), ErrorKind::NotPermitted);
    c.make(alice, &request).unwrap();

    let open = c.mkdir(admin, ROOT, "open");
    let closed = c.mkdir(admin, open, "closed");
    c.make(admin, &SetAttrRequest { mode: Some(0o777), ..set_nothing(open) }).unwrap();
    let to = c.mkdir(admin, ROOT, "to");
    c.make(admin, &SetAttrRequest { mode: Some(0o777), ..set_nothing(to) }).unwrap();
    // Within one directory its `..` stays; to another one it changes.
    c.make(bob, &rename_request((open, "closed"), (open, "c"))).unwrap();
    let away = rename_request((open, "c"), (to, "c"));
    assert_eq!(kind(c.make(bob, &away)), ErrorKind::AccessDenied);
    assert_eq!(c.lookup(admin, closed, "..").unwrap().file, open);
}

#[test]
fn a_whiteout_takes_the_place_of_what_is_moved_away() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let (one, two) = (c.mkdir(me, ROOT, "one"), c.mkdir(me, ROOT, "two"));
    let file = c.create(me, one, "a").attr.file;
    let sub = c.mkdir(me, one, "sub");
    c.create(me, one, "z");
    let away = |from: &str, to: &str| RenameRequest {
        whiteout: true,
        ..rename_request((one, from), (two, to))
    };
    c.make(me, &away("a", "b")).unwrap();
    assert_eq!(c.lookup(me, two, "b").unwrap().file, file);
    let mark = c.lookup(me, one, "a").unwrap();
    let shown = (mark.kind, mark.mode, mark.rdev, mark.nlink, mark.uid);
    assert_eq!(shown, (FileKind::CharDevice, 0, 0, 1, 0));
    assert_eq!(c.list(me, one), ["a", "sub", "z"], "in its place");
    c.make(me, &away("sub", "sub")).unwrap();
    let links = |c: &mut Cluster<_>, dir| c.getattr(me, dir).unwrap().nlink;
    assert_eq!((links(&mut c, one), links(&mut c, two)), (2, 3));
    assert_eq!(c.lookup(me, two, "sub").unwrap().file, sub);
    c.make(me, &RenameRequest { no_replace: true, ..away("z", "z") }).unwrap();
    let both = RenameRequest { exchange: true, ..away("a", "b") };
    assert_eq!(kind(c.make(me, &both)), ErrorKind::InvalidArgument);
    // Done twice by a client that has not heard the answer, it is done once.
    let (request, sequence) = (away("a", "again"), me.next);
    me.next += 1;
    c.make_as(me, 0, sequence, &request).unwrap();
    let mark = c.lookup(me, one, "a").unwrap().file;
    c.make_as(me, 0, sequence, &request).unwrap();
    assert_eq!(c.lookup(me, one, "a").unwrap().file, mark);
}
