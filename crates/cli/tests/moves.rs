//! Directories that another mount has moved, and calls that meet them: on a
//! local file system none would fail.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod coherence_io;
mod harness;

use coherence_io::{Two, two};
use harness::{Place, root};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn exchange(one: &Path, two: &Path) {
    renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE).unwrap();
}

#[test]
fn what_another_mount_has_moved_can_be_renamed_and_replaced() {
    if root() {
        meet_what_another_has_moved("");
        meet_what_another_has_moved("consistency=none");
    }
}

fn meet_what_another_has_moved(options: &str) {
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "moves", options);
    ["q", "r", "p/d/below"].iter().for_each(|dir| fs::create_dir_all(b.join(dir)).unwrap());
    fs::write(b.join("p/d/below/f"), "in it").unwrap();
    let number = inode(&a.join("p/d"));
    let places = ["p", "q", "r"].map(|dir| Path::new(dir).join("d"));
    for round in 0..30 {
        let [at, to, next] = [0, 1, 2].map(|i| &places[(2 * round + i) % 3]);
        assert_eq!(inode(&a.join(at).join("below")), inode(&b.join(at).join("below")));
        // Where `a` has it at `at`.
        fs::rename(b.join(at), b.join(to)).unwrap();
        fs::rename(a.join(to), a.join(next)).unwrap();
        for mount in [&a, &b] {
            assert_eq!(inode(&mount.join(next)), number);
            assert_eq!(fs::read_to_string(mount.join(next).join("below/f")).unwrap(), "in it");
            assert!(!mount.join(at).exists() && !mount.join(to).exists());
        }
        // An empty directory that `a` has elsewhere is replaced.
        fs::create_dir(a.join(at)).unwrap();
        fs::rename(b.join(at), b.join(to)).unwrap();
        fs::rename(a.join(next), a.join(to)).unwrap();
        fs::create_dir(b.join(at)).unwrap();
        fs::rename(b.join(to), b.join(next)).unwrap();
        exchange(&a.join(at), &a.join(next));
        exchange(&b.join(at), &b.join(next));
        fs::remove_dir(a.join(at)).unwrap();
        assert_eq!(inode(&b.join(next)), number);
    }
}

#[test]
fn a_directory_that_was_turned_inside_out_is_found() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "inside-out", "");
    fs::create_dir_all(b.join("top/outer/inner")).unwrap();
    fs::write(b.join("top/outer/inner/f"), "in it").unwrap();
    let (mut outer, mut inner) = ("outer", "inner");
    for round in 0..20 {
        let top = |mount: &Path| mount.join("top").join(outer);
        assert_eq!(fs::read_dir(top(&a)).unwrap().count(), 1 + round % 2);
        fs::rename(top(&b).join(inner), b.join("top").join(inner)).unwrap();
        fs::rename(top(&b), b.join("top").join(inner).join(outer)).unwrap();
        // To `a` this is a directory within itself.
        let turned = a.join("top").join(inner).join(outer);
        assert_eq!(inode(&turned), inode(&b.join("top").join(inner).join(outer)));
        let moved = a.join("top").join(inner).join("moved");
        fs::rename(&turned, &moved).unwrap();
        fs::rename(&moved, &turned).unwrap();
        (outer, inner) = (inner, outer);
    }
}

#[test]
fn who_has_a_directory_open_goes_on_when_another_mount_moves_it() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "open-moved", "");
    ["q", "p/d"].iter().for_each(|dir| fs::create_dir_all(b.join(dir)).unwrap());
    let open = File::open(a.join("p/d")).unwrap();
    let make = |name: &str| {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        File::from(openat(&open, name, flags, Mode::from(0o644)).unwrap())
    };
    for round in 0..10 {
        let (from, to) = if round % 2 == 0 { ("p/d", "q/d") } else { ("q/d", "p/d") };
        fs::rename(b.join(from), b.join(to)).unwrap();
        let name = format!("f{round}");
        make(&name).write_all(b"made").unwrap();
        // To the kernel it is where it was.
        let shown = fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).unwrap();
        assert!(shown.to_str().unwrap().starts_with(a.join("p/d").to_str().unwrap()), "{shown:?}");
        // By its new place it is the same directory.
        assert_eq!(inode(&a.join(to)), open.metadata().unwrap().ino());
        assert_eq!(fs::read_dir(a.join(to)).unwrap().count(), round + 1);
        fs::rename(a.join(to).join(&name), a.join(to).join("named")).unwrap();
        let mut text = String::new();
        make("named").read_to_string(&mut text).unwrap();
        assert_eq!(text, "made");
        fs::rename(b.join(to).join("named"), b.join(to).join(&name)).unwrap();
    }
}

#[test]
fn no_call_fails_while_two_mounts_move_the_same_directories() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "moved-at-once", "");
    for dir in ["p", "q", "r"] {
        fs::create_dir_all(b.join(dir).join("slot/below")).unwrap();
        fs::write(b.join(dir).join("slot/below/f"), "in it").unwrap();
    }
    let until = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        for (i, mount) in [&a, &b, &a, &b].into_iter().enumerate() {
            scope.spawn(move || {
                // Every name stands for some directory at any moment.
                let slot = |n: usize| mount.join(["p", "q", "r"][n % 3]).join("slot");
                let mut round = i;
                while Instant::now() < until {
                    exchange(&slot(round), &slot(round + 1));
                    assert!(slot(round + 2).is_dir());
                    assert_eq!(fs::read_dir(slot(round).parent().unwrap()).unwrap().count(), 1);
                    round += 1;
                }
                assert!(round > 20, "mount {i} hardly moved");
            });
        }
    });
    for dir in ["p", "q", "r"] {
        let below = [&a, &b].map(|mount| mount.join(dir).join("slot/below/f"));
        assert_eq!(below.map(|file| fs::read_to_string(file).unwrap()), ["in it", "in it"]);
    }
}

#[test]
fn a_name_that_is_replaced_all_the_time_is_always_found() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "replaced", "");
    fs::write(b.join("f"), "whole").unwrap();
    let until = Instant::now() + Duration::from_secs(3);
    let goes_on = || Instant::now() < until;
    let replace = |i: usize| {
        while goes_on() {
            let new = b.join(format!("new{i}"));
            fs::write(&new, "whole").unwrap();
            fs::rename(&new, b.join("f")).unwrap();
        }
    };
    let name = a.join("f");
    let look = |read: fn(&Path)| {
        let mut found = 0;
        while goes_on() {
            read(&name);
            found += 1;
        }
        assert!(found > 100, "found only {found} times");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| replace(0));
        scope.spawn(|| replace(1));
        scope.spawn(|| look(|name| assert_eq!(fs::metadata(name).unwrap().len(), 5)));
        scope.spawn(|| look(|name| assert_eq!(fs::read(name).unwrap(), b"whole")));
    });
}
