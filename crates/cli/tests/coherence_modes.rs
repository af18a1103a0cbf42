//! What it costs mounts to behave as one machine, and what they do when they are
//! asked for less.

use crate::coherence_io::{Two, open, two};
use crate::harness::{Place, SOON, noise, root};
use crate::library;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Requests of some kinds that the metadata server has answered.
fn asked(client: &weir_client::Client, kinds: &[&str]) -> u64 {
    let status = client.metadata_status().unwrap();
    let is = |name: &str| kinds.iter().any(|kind| name == format!("op.{kind}"));
    status.counters.iter().filter(|(name, _)| is(name)).map(|(_, value)| value).sum()
}

fn acquired(client: &weir_client::Client) -> u64 {
    asked(client, &["acquire"])
}

#[test]
fn what_nobody_shares_costs_no_messages() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "alone", "");
    let watcher = library::client(&cluster, false);
    fs::write(b.join("other"), "1").unwrap();
    let file = open(&a.join("f"));
    file.write_all_at(&noise(100_000, 1), 0).unwrap();
    assert!(fs::metadata(a.join("f")).unwrap().len() == 100_000);
    let kinds = ["acquire", "getattr", "lookup", "get_xattr", "report", "commit_size"];
    let before = asked(&watcher, &kinds);
    for i in 0..200u64 {
        file.write_all_at(&[1; 700], i * 311).unwrap();
        let mut read = [0; 700];
        file.read_exact_at(&mut read, i * 311).unwrap();
        assert_eq!(read, [1; 700]);
        assert_eq!(fs::metadata(a.join("f")).unwrap().len(), 100_000);
        assert!(!a.join("nothing").exists());
    }
    // (What was written is reported twice a second.)
    let now = asked(&watcher, &kinds);
    assert!(now - before < 20, "{} requests for 800 calls", now - before);
}

#[test]
fn disjoint_ranges_are_written_and_read_side_by_side() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "ranges", "");
    let watcher = library::client(&cluster, false);
    const HALF: u64 = 8 << 20;
    let (file_a, file_b) = (open(&a.join("f")), open(&b.join("f")));
    file_a.set_len(2 * HALF).unwrap();
    let before = acquired(&watcher);
    std::thread::scope(|scope| {
        for (file, from) in [(&file_a, 0), (&file_b, HALF)] {
            scope.spawn(move || {
                for i in 0..HALF / 65_536 {
                    let data = noise(65_536, from + i);
                    file.write_all_at(&data, from + i * 65_536).unwrap();
                    let mut read = vec![0; 65_536];
                    file.read_exact_at(&mut read, from + i * 65_536).unwrap();
                    assert!(read == data);
                }
            });
        }
    });
    let asked = acquired(&watcher) - before;
    assert!(asked <= 40, "{asked} leases for 256 writes and as many reads");
    for (file, from) in [(&file_b, 0), (&file_a, HALF)] {
        for i in 0..HALF / 65_536 {
            let mut read = vec![0; 65_536];
            file.read_exact_at(&mut read, from + i * 65_536).unwrap();
            assert!(read == noise(65_536, from + i));
        }
    }
}

#[test]
fn relaxed_mounts_see_a_file_that_was_closed_when_they_open_it() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "relaxed", "consistency=relaxed,ttl=1");
    for round in 0..10 {
        let text = format!("round {round}");
        fs::write(a.join("f"), &text).unwrap();
        assert_eq!(fs::read_to_string(b.join("f")).unwrap(), text, "open after close");
    }
    // Names and attributes within a second.
    fs::write(a.join("new"), "x").unwrap();
    let seen = Instant::now();
    while !b.join("new").exists() {
        assert!(seen.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(20));
    }
    // And no leases.
    let watcher = library::client(&cluster, false);
    let file = open(&b.join("f"));
    file.write_all_at(b"more", 0).unwrap();
    assert_eq!(acquired(&watcher), 0);
}

/// Runs an action as a user who owns nothing.
fn as_user<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        let uid = rustix::fs::Uid::from_raw(4321);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        what()
    });
    thread.join().unwrap()
}

/// A write clears bits of the present mode, not of a cached older one.
#[test]
fn a_write_to_a_setuid_program_does_not_undo_a_chmod_elsewhere() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "setuid", "consistency=relaxed,ttl=60");
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    for (before, elsewhere, left) in [(0o4777, 0o4700, 0o700), (0o6777, 0o6750, 0o750)] {
        let (here, there) = (a.join(format!("{left:o}")), b.join(format!("{left:o}")));
        fs::write(&here, "program").unwrap();
        fs::set_permissions(&here, Permissions::from_mode(before)).unwrap();
        assert_eq!(mode(&here), before);
        let file = as_user(move || fs::File::options().write(true).open(here).unwrap());
        fs::set_permissions(&there, Permissions::from_mode(elsewhere)).unwrap();
        as_user(move || match elsewhere {
            0o4700 => fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4096).unwrap(),
            _ => file.write_all_at(b"changed", 0).unwrap(),
        });
        // As the server has it.
        let path = format!("weir:/{left:o}");
        let status = cluster.weir(&["stat", &path]).ok();
        assert!(status.contains(&format!("({left:04o}/")), "{status}");
    }
}

#[test]
fn without_caches_every_call_goes_to_the_servers() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "none", "consistency=none");
    let watcher = library::client(&cluster, false);
    let (file_a, file_b) = (open(&a.join("f")), open(&b.join("f")));
    let reads = || -> u64 {
        [1, 2]
            .map(|target| watcher.data_status(weir_types::TargetId(target), 5000).unwrap())
            .iter()
            .flat_map(|status| status.counters.clone())
            .filter(|(name, _)| name == "op.read")
            .map(|(_, value)| value)
            .sum()
    };
    for round in 0..20u8 {
        file_a.write_all_at(&[round; 3000], 0).unwrap();
        let before = reads();
        for _ in 0..2 {
            let mut read = [0; 3000];
            file_b.read_exact_at(&mut read, 0).unwrap();
            assert_eq!(read, [round; 3000]);
        }
        assert_eq!(reads() - before, 2, "read twice, asked twice");
        assert_eq!(fs::metadata(b.join("f")).unwrap().len(), 3000);
    }
    let before = asked(&watcher, &["getattr", "lookup"]);
    for _ in 0..10 {
        fs::metadata(b.join("f")).unwrap();
    }
    assert!(asked(&watcher, &["getattr", "lookup"]) - before >= 10);
    assert_eq!(acquired(&watcher), 0);
}
