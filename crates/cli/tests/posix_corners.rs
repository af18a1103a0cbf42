//! Corners of POSIX and Linux on a mount: each ends as on a local directory, call for call.
#![allow(clippy::unwrap_used)] // A failed helper fails the test.

mod corners;
mod dir_reader;
mod harness;
mod library;

use harness::{Place, root};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};

#[test]
fn corners_of_posix_end_as_on_a_local_directory() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    // Others have to get there.
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
    let [local, mount] = ["local", "m/here"].map(|name| place.path(name));
    fs::create_dir(&local).unwrap();
    fs::create_dir(&mount).unwrap();
    let (expected, real) = (corners::everything(&local), corners::everything(&mount));
    assert_eq!(expected.len(), real.len(), "{expected:#?}\n{real:#?}");
    let differ: Vec<String> = expected
        .iter()
        .zip(&real)
        .filter(|(local, mount)| local != mount)
        .map(|(local, mount)| format!("{local}; on the mount {mount}"))
        .collect();
    println!("{} calls", expected.len());
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

/// The kernel leaves that to the mount where its pages are passed.
#[test]
fn a_write_past_the_kernels_pages_takes_capabilities_away() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    let local = place.path("local");
    fs::create_dir(&local).unwrap();
    let expected = corners::capabilities(&local);
    let watcher = library::client(&cluster, false);
    let asked = || {
        let counters = watcher.metadata_status().unwrap().counters;
        counters.into_iter().find(|(name, _)| name == "op.getxattr").map(|(_, times)| times)
    };
    for (name, options) in [("d", "direct_io"), ("n", "consistency=none")] {
        let at = cluster.mount(name, options).join(format!("of-{name}"));
        fs::create_dir(&at).unwrap();
        assert_eq!(corners::capabilities(&at), expected, "{options}");
        // Nobody is asked about files that have none.
        let mut plain = File::create(at.join("plain")).unwrap();
        let before = asked();
        assert!(before.is_some());
        (0..50).for_each(|_| plain.write_all(b"bytes").unwrap());
        assert_eq!(asked(), before, "{options}");
    }
}

/// Local file systems end far below.
#[test]
fn a_file_may_have_two_to_the_62nd_bytes() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    let (path, size) = (place.path("m/big"), 1u64 << 62);
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(size).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    let mut end = [1; 5];
    file.read_exact_at(&mut end, size - 5).unwrap();
    assert_eq!(end, [0; 5]);
    let more = file.set_len(size + 1).unwrap_err();
    assert_eq!(more.raw_os_error(), Some(libc::EFBIG));
    file.set_len(3).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [0; 3]);
}
