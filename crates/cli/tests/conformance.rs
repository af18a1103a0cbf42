//! The one conformance suite, on every layout, through the library and through
//! the mount.

use crate::harness::{Place, root};
use crate::library::client;
use std::path::Path;
use std::sync::Arc;
use weir_client::Context;
use weir_conformance::{LibraryFile, PosixFile, Random, layouts, run_suite};
use weir_types::FileId;

#[test]
fn the_library_keeps_every_layout() {
    let place = Place::new();
    let cluster = place.up("lib", &[]);
    for (cached, seed) in [(true, Random::seed_of_run()), (false, 7)] {
        let client = Arc::new(client(&cluster, cached));
        for (name, layout) in layouts() {
            let fresh = |check: &str| {
                let file = format!("{name} {check}");
                LibraryFile::create(client.clone(), &file, layout.clone()).unwrap()
            };
            run_suite(fresh, seed).unwrap_or_else(|e| panic!("{name}, cache {cached}: {e}"));
        }
    }
}

#[test]
fn the_mount_keeps_every_layout() {
    if !root() {
        return;
    }
    let place = Place::new();
    let at = place.path("mnt");
    let cluster = place.up("mnt", &["--mount", at.to_str().unwrap()]);
    let client = client(&cluster, true);
    let seed = Random::seed_of_run();
    for (i, (name, layout)) in layouts().into_iter().enumerate() {
        // New files inherit the layout of their directory.
        let ctx = Context::root();
        let dir = client.mkdir(&ctx, FileId::ROOT, format!("d{i}").as_bytes(), 0o755).unwrap();
        client.set_layout(&ctx, dir.file, Some(layout)).unwrap();
        let fresh = |check: &str| {
            let path = at.join(format!("d{i}")).join(check.replace(' ', "-"));
            PosixFile::create(path).unwrap()
        };
        run_suite(fresh, seed).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn what_the_mount_writes_the_library_reads() {
    if !root() {
        return;
    }
    let place = Place::new();
    let at = place.path("mnt");
    let cluster = place.up("both", &["--mount", at.to_str().unwrap()]);
    let data = Random::new(3).bytes(3_000_000);
    std::fs::write(at.join("f"), &data).unwrap();
    let client = client(&cluster, true);
    let ctx = Context::root();
    let attr = client.resolve(&ctx, b"/f", true).unwrap();
    let (file, _) = client.open(&ctx, attr.file, weir_wire::Rights::READ_WRITE).unwrap();
    let mut read = vec![0; data.len() + 1];
    assert_eq!(file.read_at(&ctx, 0, &mut read).unwrap(), data.len());
    assert!(read[..data.len()] == data);
    file.write_at(&ctx, 10, b"from the library").unwrap();
    file.close(&ctx).unwrap();
    // Close-to-open: an open after the close sees it.
    let seen = std::fs::read(Path::new(&at).join("f")).unwrap();
    assert_eq!(&seen[10..26], b"from the library");
}
