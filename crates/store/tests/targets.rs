//! Target directories: identity, exclusion, listing, removal.

use crate::support::*;
use std::collections::BTreeMap;
use weir_store::{Target, TargetIdentity, TargetOptions};
use weir_types::{ErrorKind, TargetId};

#[test]
fn a_target_remembers_who_it_is() {
    let store = TestTarget::new().reopen();
    assert_eq!(store.target.identity(), IDENTITY);
    assert_eq!(store.target.id(), TargetId(3));
    assert_eq!(store.target.name(), format!("target 3 ({})", store.dir.path().display()));
    assert_eq!(store.target.dir(), store.dir.path());
}

#[test]
fn one_directory_is_never_served_twice() {
    let store = TestTarget::new();
    let error = Target::open(store.dir.path()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Busy);
    assert_eq!(
        error.message,
        format!(
            "target directory {} is already served by another process",
            store.dir.path().display()
        )
    );
    drop(store.target);
    Target::open(store.dir.path()).unwrap();
}

#[test]
fn directories_that_are_no_target_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Target::open(dir.path().join("missing")).err().unwrap();
    assert_eq!(missing.kind, ErrorKind::NotFound);
    assert!(missing.message.contains("is missing"), "{missing}");
    let empty = Target::open(dir.path()).err().unwrap();
    assert_eq!(empty.kind, ErrorKind::NotFound);
    assert!(empty.message.contains("holds no target"), "{empty}");
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert_eq!(Target::open(&file).err().unwrap().kind, ErrorKind::NotDirectory);
}

#[test]
fn a_target_is_not_made_over_another() {
    let store = TestTarget::new();
    let path = store.dir.path().to_path_buf();
    assert_eq!(Target::create(&path, IDENTITY).unwrap_err().kind, ErrorKind::Busy);
    write(&store.target.object_or_create(object_id(1)).unwrap(), 0, b"precious");
    drop(store.target);
    let other = TargetIdentity { target: TargetId(4), ..IDENTITY };
    assert_eq!(Target::create(&path, other).unwrap_err().kind, ErrorKind::Exists);
    std::fs::remove_file(path.join("superblock")).unwrap();
    assert_eq!(Target::create(&path, other).unwrap_err().kind, ErrorKind::NotEmpty);
}

#[test]
fn a_damaged_superblock_is_not_believed() {
    let store = TestTarget::new();
    drop(store.target);
    let path = store.dir.path().join("superblock");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[33] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let error = Target::open(store.dir.path()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.message.contains(store.dir.path().to_str().unwrap()), "{error}");
}

#[test]
fn objects_are_listed_with_their_lengths_and_strangers_reported() {
    let store = TestTarget::new();
    let mut expected = BTreeMap::new();
    for i in 0..50u64 {
        let mut id = object_id(i * i);
        id.segment = (i as u32).into();
        let object = store.target.object_or_create(id).unwrap();
        let len = write(&object, i * 200_000, b"end");
        expected.insert(id, len);
    }
    assert!(store.target.objects().all(|item| item.is_ok()));
    let store = store.reopen();
    let listed: BTreeMap<_, _> = store.target.objects().map(Result::unwrap).collect();
    assert_eq!(listed, expected);
    // An unknown file, and an object in the wrong directory.
    let hash_dirs = || std::fs::read_dir(store.dir.path().join("objects")).unwrap();
    let (a, b) = (hash_dirs().next().unwrap().unwrap(), hash_dirs().nth(1).unwrap().unwrap());
    std::fs::write(a.path().join("note.txt"), b"hello").unwrap();
    let moved = std::fs::read_dir(b.path()).unwrap().next().unwrap().unwrap();
    std::fs::rename(moved.path(), a.path().join(moved.file_name())).unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = store.target.objects().partition(|item| item.is_ok());
    assert_eq!((good.len(), bad.len()), (49, 2));
    assert!(bad.iter().any(|e| e.as_ref().unwrap_err().message.contains("note.txt")));
}

#[test]
fn removing_is_final_and_may_be_repeated() {
    let store = TestTarget::new();
    let id = object_id(1);
    store.target.remove(id).unwrap();
    let held = store.target.object_or_create(id).unwrap();
    write(&held, 0, b"old");
    store.target.remove(id).unwrap();
    store.target.remove(id).unwrap();
    assert!(store.target.object(id).unwrap().is_none());
    assert!(store.target.open_object(id).is_none());
    // A request in progress does not reach the new object.
    let new = store.target.object_or_create(id).unwrap();
    write(&held, 0, b"late");
    held.sync().unwrap();
    assert!(new.is_empty());
    store.target.sync_all().unwrap();
}

#[test]
fn few_descriptors_serve_many_objects() {
    alone("targets::few_descriptors_serve_many_objects", serve_many_objects);
}

fn serve_many_objects() {
    let dir = tempfile::tempdir().unwrap();
    Target::create(dir.path(), IDENTITY).unwrap();
    let options = TargetOptions { max_open_objects: 16, ..TargetOptions::default() };
    let target = Target::open_with(dir.path(), options).unwrap();
    let held = target.object_or_create(object_id(0)).unwrap();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for i in 0..500 {
        write(&target.object_or_create(object_id(i)).unwrap(), 0, &i.to_le_bytes());
    }
    assert!(descriptors() < before + 100, "descriptors are not given back");
    for i in 0..500 {
        let object = target.object(object_id(i)).unwrap().unwrap();
        assert_eq!(read(&object, 0, 100), i.to_le_bytes());
    }
    // The object in use is still the same one, so that its length has one owner.
    write(&held, 8, b"more");
    assert_eq!(target.object(object_id(0)).unwrap().unwrap().len(), 12);
}

#[test]
fn threads_that_open_and_remove_one_object_agree_on_it() {
    let dir = tempfile::tempdir().unwrap();
    Target::create(dir.path(), IDENTITY).unwrap();
    let target = Target::open_with(
        dir.path(),
        TargetOptions { max_open_objects: 2, ..TargetOptions::default() },
    )
    .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let target = &target;
            scope.spawn(move || {
                for i in 0..300u64 {
                    let id = object_id((i + thread) % 5);
                    let object = target.object_or_create(id).unwrap();
                    write(&object, thread * 5000, &pattern(thread, 5000));
                    assert_eq!(read(&object, thread * 5000, 5000), pattern(thread, 5000));
                    if i % 7 == thread {
                        target.remove(id).unwrap();
                    }
                }
            });
        }
    });
    for item in target.objects() {
        let (id, len) = item.unwrap();
        let object = target.object(id).unwrap().unwrap();
        assert_eq!(object.len(), len);
        assert_eq!(read(&object, 0, len).len() as u64, len);
    }
}

#[test]
fn free_space_is_told() {
    let store = TestTarget::new();
    let usage = store.target.usage().unwrap();
    assert!(usage.total_bytes >= usage.free_bytes && usage.free_bytes > 0);
    assert!(usage.total_files >= usage.free_files);
}
