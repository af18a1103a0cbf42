//! The kernel uses attributes without asking for as long as they are leased, and never any longer.

use crate::coherence_io::{Two, two};
use crate::harness::{Cluster, Place, eventually, root};
use rustix::fs::{Mode, OFlags, XattrFlags, fstat, getxattr, setxattr};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often the kernel of the only mount has asked for attributes.
fn asked(cluster: &Cluster<'_>) -> u64 {
    asked_for(cluster, "getattr")
}

/// How often the kernel of the only mount has made such a request.
pub fn asked_for(cluster: &Cluster<'_>, what: &str) -> u64 {
    let status = cluster.weir(&["status", "--json"]).json();
    let address = status["mount_daemons"][0]["metrics"].as_str().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let name = format!("weir_mount_operation_duration_seconds_count{{op=\"{what}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[test]
fn what_is_leased_the_kernel_does_not_ask_for_again() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1", "--metrics"]);
    let mnt = cluster.mount("m", "");
    let dir = mnt.join("a/b");
    fs::create_dir_all(&dir).unwrap();
    (0..50).for_each(|n| fs::write(dir.join(format!("f{n}")), "text").unwrap());
    let open = fs::File::open(&dir).unwrap();
    let look = || {
        for entry in fs::read_dir(&dir).unwrap() {
            assert!(fs::metadata(entry.unwrap().path()).unwrap().len() == 4);
        }
        assert!(open.metadata().unwrap().is_dir());
    };
    // A lease may just end.
    eventually("the kernel asks no more", || {
        look();
        let before = asked(&cluster);
        look();
        // (The root's attributes are asked for each second.)
        asked(&cluster) - before < 10
    });
}

/// Runs threads that look at a path until `work` is done.
pub fn looked_at_meanwhile(paths: &[&Path], work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for path in paths.iter().chain(paths) {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs::metadata(path);
                }
            });
        }
        work();
        stop.store(true, Ordering::Relaxed);
    });
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_long_listing_asks_for_the_label_of_no_more_than_one_file() {
    const FILES: u64 = 50;
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("label", &["--targets", "1", "--metrics"]);
    let dir = cluster.mount("m", "").join("d");
    fs::create_dir(&dir).unwrap();
    (0..FILES).for_each(|n| fs::write(dir.join(format!("f{n}")), "text").unwrap());
    let list =
        || assert!(Command::new("ls").arg("-l").arg(&dir).output().unwrap().status.success());
    list();
    let before = asked_for(&cluster, "xattr");
    list();
    let asked = asked_for(&cluster, "xattr") - before;
    // The access control list of each file, and of the directory.
    assert!(asked <= FILES + 10, "{asked} extended attributes");
    let (labelled, name) = (dir.join("f1"), "security.selinux");
    setxattr(&labelled, name, b"a:b:c", XattrFlags::empty()).unwrap();
    let mut label = [0; 64];
    let length = getxattr(&labelled, name, &mut label[..]).unwrap();
    assert_eq!(&label[..length], b"a:b:c");
    let none = getxattr(dir.join("f2"), name, &mut label[..]);
    assert_eq!(none, Err(Errno::OPNOTSUPP));
}

#[test]
fn a_change_elsewhere_ends_attributes_that_are_just_being_asked_for() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "asked", "");
    for round in 0..150 {
        // New to the kernel of the other mount, which gets to know it while it changes.
        let name = format!("f{round}");
        let (path_a, path_b) = (a.join(&name), b.join(&name));
        match round % 2 {
            0 => fs::write(&path_a, "text").unwrap(),
            _ => fs::create_dir(&path_a).unwrap(),
        }
        looked_at_meanwhile(&[&path_b], || {
            for bits in [0o700, 0o711, 0o755] {
                mode(&path_a, bits);
                let seen = fs::metadata(&path_b).unwrap().mode() & 0o777;
                assert_eq!(seen, bits, "round {round}");
            }
        });
        let held = rustix::fs::open(&path_b, OFlags::PATH, Mode::empty()).unwrap();
        for bits in [0o700, 0o750] {
            mode(&path_a, bits);
            assert_eq!(fstat(&held).unwrap().st_mode & 0o777, bits, "round {round}");
        }
    }
}

#[test]
fn a_change_here_ends_attributes_that_are_just_being_asked_for() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("own", &["--targets", "1"]);
    let mnt = cluster.mount("m", "");
    let (dir, file) = (mnt.join("d"), mnt.join("f"));
    fs::create_dir(&dir).unwrap();
    fs::write(&file, "").unwrap();
    let of = |path: &Path| fs::metadata(path).unwrap();
    looked_at_meanwhile(&[&dir, &file], || {
        let mut last = of(&dir);
        for round in 0..100 {
            let (one, other) = (dir.join("one"), dir.join("other"));
            let changed = |last: &mut fs::Metadata, what| {
                let now = of(&dir);
                let time = |of: &fs::Metadata| (of.mtime(), of.mtime_nsec());
                assert!(time(&now) > time(last), "round {round}, {what}");
                *last = now;
            };
            fs::create_dir(&one).unwrap();
            changed(&mut last, "mkdir");
            assert_eq!(last.nlink(), 3);
            fs::rename(&one, &other).unwrap();
            changed(&mut last, "rename");
            fs::remove_dir(&other).unwrap();
            changed(&mut last, "rmdir");
            assert_eq!(last.nlink(), 2);
            fs::hard_link(&file, &one).unwrap();
            changed(&mut last, "link");
            assert_eq!(of(&file).nlink(), 2, "round {round}");
            fs::remove_file(&one).unwrap();
            changed(&mut last, "unlink");
            assert_eq!(of(&file).nlink(), 1, "round {round}");
            fs::write(&file, vec![1; round]).unwrap();
            assert_eq!(of(&file).len(), round as u64);
            mode(&file, 0o600 | (round as u32 % 8));
            assert_eq!(of(&file).mode() & 0o777, 0o600 | (round as u32 % 8));
        }
    });
}

#[test]
fn bind_mounts_and_working_directories_stay_while_another_mount_changes_all_around() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "around", "");
    fs::create_dir_all(a.join("d/bound")).unwrap();
    fs::create_dir_all(a.join("source")).unwrap();
    fs::write(a.join("source/inside"), "text").unwrap();
    let bound = b.join("d/bound");
    rustix::mount::mount_bind(b.join("source"), &bound).unwrap();
    let open = fs::File::open(b.join("d")).unwrap();
    let seen = std::panic::catch_unwind(|| {
        for round in 0..30 {
            let path = a.join(format!("d/n{round}"));
            fs::write(&path, "x").unwrap();
            mode(&a.join("d"), 0o700 | (round % 8));
            assert_eq!(fs::read_to_string(bound.join("inside")).unwrap(), "text");
            let below =
                format!("/proc/self/fd/{}/n{round}", std::os::fd::AsRawFd::as_raw_fd(&open));
            assert_eq!(fs::read_to_string(below).unwrap(), "x");
            fs::rename(&path, a.join("d/last")).unwrap();
            let place =
                fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open)));
            assert_eq!(place.unwrap(), b.join("d"));
        }
    });
    rustix::mount::unmount(&bound, rustix::mount::UnmountFlags::DETACH).unwrap();
    seen.unwrap();
}
