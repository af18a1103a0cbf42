//! What administrators ask of a data server, over real sockets, and that nobody
//! else gets it (CVE-2021-39232: an ordinary client calls an administrator's
//! operation).

use crate::cluster::*;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weir_types::limits::{MAX_OBJECT_PAGE, MAX_SCRUB_BYTES};
use weir_types::{ErrorKind, FileId, ObjectId, SessionId, TargetId};
use weir_wire::capability::ANY_FILE;
use weir_wire::data::*;
use weir_wire::{Capability, Rights};

const T: TargetId = TARGETS[0];

fn list(access: AdminAccess) -> ListObjectsRequest {
    ListObjectsRequest { access, after: None, max_objects: 100 }
}

fn scrub(access: AdminAccess, cursor: Option<ScrubCursor>) -> ScrubRequest {
    ScrubRequest { access, cursor, budget_bytes: MAX_SCRUB_BYTES }
}

fn remove(access: AdminAccess, objects: Vec<ObjectId>) -> RemoveObjectsRequest {
    RemoveObjectsRequest { access, objects }
}

/// A target signed for, the object's file in the capability, and so on.
fn stat(capability: Capability) -> StatObjectRequest {
    StatObjectRequest { access: access_with(T, 1, capability) }
}

fn object_files(dir: &Path) -> Vec<PathBuf> {
    let objects = dir.join(format!("target{T}/objects"));
    let hashes = std::fs::read_dir(objects).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<PathBuf> = hashes
        .flat_map(|hash| std::fs::read_dir(hash).unwrap().map(|e| e.unwrap().path()))
        .collect();
    files.sort();
    files
}

#[test]
fn an_ordinary_capability_administers_nothing() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    client.write(&access(1), 0, &pattern(100)).unwrap();
    let admin = || Capability::of_administrator(SESSION, 1, weir_types::KeyGeneration(1), FOREVER);
    let forged = AdminAccess {
        capability: Capability { rights: Rights::ADMIN, ..capability(1, Rights::READ_WRITE) },
        ..admin_access_with(T, capability(1, Rights::READ_WRITE))
    };
    let cases = [
        ("not_signed", forged),
        ("not_signed", AdminAccess { target: TARGETS[1], ..admin_access(T) }),
        ("for_other_file", admin_access_with(T, capability(1, Rights::READ_WRITE))),
        // Signed, but for a file: no server makes such a one.
        ("for_other_file", admin_access_with(T, Capability { file: FileId(1), ..admin() })),
        ("without_right", admin_access_with(T, capability(ANY_FILE.0, Rights::READ_WRITE))),
        ("of_other_session", admin_access_with(T, Capability { session: SessionId(5), ..admin() })),
        ("expired", admin_access_with(T, Capability { expires_unix_ms: 1, ..admin() })),
    ];
    for (reason, bad) in cases {
        let counter = format!("refused.capability_{reason}");
        let before = server.counter(&counter);
        let errors = [
            client.ask(&list(bad.clone())).unwrap_err(),
            client.ask(&scrub(bad.clone(), None)).unwrap_err(),
            client.ask(&remove(bad, vec![object(1)])).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind, ErrorKind::BadCapability, "{reason}: {error}");
        }
        assert_eq!(server.counter(&counter), before + 3, "{reason}");
    }
    assert_eq!(client.read(&access(1), 0, 100).unwrap(), pattern(100));
}

#[test]
fn an_administrator_reads_and_writes_no_data() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    client.write(&access(1), 0, &pattern(100)).unwrap();
    let admin = Capability::of_administrator(SESSION, 1, weir_types::KeyGeneration(1), FOREVER);
    for file in [1, ANY_FILE.0] {
        let bad = access_with(T, file, admin.clone());
        let cut = TruncateRequest { access: bad.clone(), len: 0 };
        let sync = SyncRequest { access: bad.clone() };
        let errors = [
            client.read(&bad, 0, 100).unwrap_err(),
            client.write(&bad, 0, b"evil").unwrap_err(),
            client.ask(&cut).unwrap_err(),
            client.ask(&sync).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind, ErrorKind::BadCapability, "file {file}: {error}");
        }
    }
    assert_eq!(client.ask(&stat(admin)).unwrap().len, 100, "but knows how long it is");
    assert_eq!(client.read(&access(1), 0, 100).unwrap(), pattern(100));
}

#[test]
fn all_objects_are_listed_page_by_page_and_removed_for_good() {
    let (_guard, dir) = scratch();
    let config = prepare(&dir);
    let server = Running::start(config.clone());
    let mut client = server.connect();
    for file in 1..=300 {
        client.write(&access(file), 0, &pattern(file as usize)).unwrap();
    }
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let request = ListObjectsRequest { after, max_objects: 7, ..list(admin_access(T)) };
        let page = client.ask(&request).unwrap();
        assert!(page.objects.len() <= 7 && page.strays.is_empty());
        found.extend(page.objects);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut lens: Vec<u64> = found.iter().map(|e| e.len).collect();
    lens.sort_unstable();
    assert_eq!(lens, (1..=300).collect::<Vec<_>>());
    assert!(found.iter().all(|e| e.object == object(e.len)), "each has its own length");

    let gone: Vec<ObjectId> = (1..=299).map(object).collect();
    client.ask(&remove(admin_access(T), gone.clone())).unwrap();
    client.ask(&remove(admin_access(T), gone)).unwrap();
    assert_eq!(client.ask(&list(admin_access(T))).unwrap().objects.len(), 1);
    let many = vec![object(1); MAX_OBJECT_PAGE + 1];
    let error = client.ask(&remove(admin_access(T), many)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
    client.ask(&remove(admin_access(T), vec![object(1); MAX_OBJECT_PAGE])).unwrap();
    drop(client);
    drop(server);
    assert_eq!(object_files(&dir).len(), 1);
}

#[test]
fn a_file_that_is_no_object_is_told_of_once() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    client.write(&access(1), 0, &pattern(10)).unwrap();
    client.write(&access(2), 0, &pattern(10)).unwrap();
    let stray = object_files(&dir)[0].with_file_name("notes.txt");
    std::fs::write(&stray, "hello").unwrap();
    let (mut strays, mut after) = (Vec::new(), None);
    for _ in 0..2 {
        let request = ListObjectsRequest { after, max_objects: 1, ..list(admin_access(T)) };
        let page = client.ask(&request).unwrap();
        strays.extend(page.strays);
        after = page.next;
    }
    assert_eq!((strays.len(), after), (1, None), "{strays:?}");
    assert!(strays[0].contains("notes.txt"));
}

#[test]
fn verification_finds_every_block_that_was_changed_in_slices() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    // Larger than a slice, and small ones.
    let large = pattern(4 << 20);
    for part in 0..3u64 {
        client.write(&access(1), part << 22, &large).unwrap();
    }
    for file in 2..50 {
        client.write(&access(file), 0, &pattern(5000)).unwrap();
    }
    for file in 1..50 {
        client.ask(&SyncRequest { access: access(file) }).unwrap();
    }
    let all = |client: &mut Client| {
        let (mut findings, mut bytes, mut objects, mut slices) = (Vec::new(), 0, 0, 0);
        let mut cursor = None;
        loop {
            let page = client.ask(&scrub(admin_access(T), cursor)).unwrap();
            assert!(page.bytes <= u64::from(MAX_SCRUB_BYTES) + (4 << 20), "{}", page.bytes);
            findings.extend(page.findings);
            (bytes, objects, slices) = (bytes + page.bytes, objects + page.objects, slices + 1);
            cursor = page.next;
            if cursor.is_none() {
                return (findings, bytes, objects, slices);
            }
        }
    };
    let (findings, bytes, objects, slices) = all(&mut client);
    assert_eq!(findings, []);
    assert_eq!((bytes, objects), ((12 << 20) + 48 * 5000, 49));
    assert!(slices >= 3, "{slices}");

    // A byte of the data of three blocks, in the second slice too.
    let path = object_files(&dir)
        .into_iter()
        .find(|path| std::fs::metadata(path).unwrap().len() > 1 << 20)
        .unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    for block in [40u64, 1000, 2500] {
        let at = block * 4096 + 77;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }
    let (findings, ..) = all(&mut client);
    assert_eq!(findings.len(), 3, "{findings:?}");
    for finding in &findings {
        assert_eq!((finding.object, finding.len), (Some(object(1)), 4096));
        assert_eq!(finding.damage, Damage::Block);
        let error = client.read(&access(1), finding.offset, 10).unwrap_err();
        assert_eq!((error.kind, error.at), (ErrorKind::Corrupt, Some(finding.offset)));
    }
    assert_eq!(server.counter("scrub.findings"), 3);
}
