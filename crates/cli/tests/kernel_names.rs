//! The kernel uses names without asking, and never after another mount has changed them.

use crate::coherence_io::{Two, two};
use crate::harness::{Cluster, Place, root};
use crate::kernel_attributes::asked;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Everything that has to come about does so within this time.
const BOUND: Duration = Duration::from_secs(60);

/// Runs threads that look at these paths all the time, and threads that list the directory, until
/// `work` is done.
fn looked_at_meanwhile(dir: &Path, paths: &[&Path], work: impl FnOnce()) {
    /// Stops them, also if something is wrong.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let goes_on = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for path in paths {
            scope.spawn(move || {
                while goes_on() {
                    let _ = fs::symlink_metadata(path);
                }
            });
        }
        scope.spawn(move || {
            while goes_on() {
                for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                    let _ = entry.metadata();
                }
            }
        });
        let _stop = Stop(&stop);
        work();
    });
}

#[test]
fn what_is_listed_the_kernel_does_not_look_up() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster: Cluster<'_> = place.up("listed", &["--targets", "1", "--metrics"]);
    let mnt = cluster.mount("m", "");
    let dir = mnt.join("a/b");
    fs::create_dir_all(&dir).unwrap();
    (0..100).for_each(|n| fs::write(dir.join(format!("f{n}")), "text").unwrap());
    let look = || {
        for entry in fs::read_dir(&dir).unwrap() {
            // By the whole path, as `ls -R` does.
            assert!(fs::metadata(entry.unwrap().path()).unwrap().len() == 4);
        }
    };
    let begin = Instant::now();
    // A lifetime may just be over.
    loop {
        look();
        let before = asked(&cluster, "lookup");
        look();
        let spent = asked(&cluster, "lookup") - before;
        if spent < 50 {
            break;
        }
        assert!(begin.elapsed() < BOUND, "still {spent} lookups");
    }
}

#[test]
fn what_another_mount_does_to_names_that_are_looked_at_is_seen_at_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "looked", "");
    for round in 0..40 {
        // Lifetimes begin anew in each directory.
        let dir = format!("d{round}");
        let on = |mount: &Path, name: &str| mount.join(&dir).join(name);
        fs::create_dir(a.join(&dir)).unwrap();
        fs::write(on(&a, "f"), "old").unwrap();
        fs::create_dir(on(&a, "sub")).unwrap();
        fs::write(on(&a, "sub/inside"), "").unwrap();
        let paths = ["f", "new", "sub", "sub/inside", "moved/inside"].map(|name| on(&b, name));
        let paths: Vec<&Path> = paths.iter().map(|path| &**path).collect();
        looked_at_meanwhile(&b.join(&dir), &paths, || {
            assert!(on(&b, "f").exists() && !on(&b, "new").exists());
            match round % 4 {
                0 => {
                    fs::write(on(&a, "new"), "new").unwrap();
                    assert_eq!(fs::read_to_string(on(&b, "new")).unwrap(), "new");
                }
                1 => {
                    fs::write(on(&a, "tmp"), "newer").unwrap();
                    fs::rename(on(&a, "tmp"), on(&a, "f")).unwrap();
                    assert_eq!(fs::read_to_string(on(&b, "f")).unwrap(), "newer");
                }
                2 => {
                    fs::rename(on(&a, "sub"), on(&a, "moved")).unwrap();
                    assert!(on(&b, "moved/inside").exists() && !on(&b, "sub").exists());
                    assert!(!on(&b, "sub/inside").exists());
                }
                _ => {
                    fs::remove_file(on(&a, "f")).unwrap();
                    assert!(!on(&b, "f").exists());
                }
            }
            fs::remove_file(on(&a, "sub/inside")).ok();
            fs::remove_dir(on(&a, "sub")).ok();
            assert!(!on(&b, "sub").exists());
        });
    }
}

#[test]
fn what_this_mount_renames_another_one_replaces_at_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "renamed", "");
    for round in 0..40 {
        let dir = format!("d{round}");
        let on = |mount: &Path, name: &str| mount.join(&dir).join(name);
        fs::create_dir(a.join(&dir)).unwrap();
        for name in ["one", "other"] {
            fs::write(on(&a, name), name).unwrap();
        }
        let listed: Vec<_> = fs::read_dir(b.join(&dir)).unwrap().collect();
        assert_eq!(listed.len(), 2);
        // What the kernel has of it moves with its lifetime, while the other mount changes the name.
        std::thread::scope(|scope| {
            scope.spawn(|| fs::rename(on(&b, "one"), on(&b, "here")).unwrap());
            fs::rename(on(&a, "other"), on(&a, "here")).unwrap();
        });
        let seen = [&a, &b].map(|mount| fs::read_to_string(on(mount, "here")).unwrap());
        assert_eq!(seen[0], seen[1], "round {round}");
        fs::remove_file(on(&a, "here")).unwrap();
        assert!(!on(&b, "here").exists());
    }
}

#[test]
fn a_directory_that_is_open_at_its_old_place_shows_what_is_changed_by_its_new_one() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "aliased", "");
    for round in 0..20 {
        let [old, new] = ["old", "new"].map(|parent| format!("{parent}{round}/d"));
        fs::create_dir_all(a.join(&old)).unwrap();
        fs::create_dir(a.join(&new).parent().unwrap()).unwrap();
        fs::write(a.join(&old).join("there"), "").unwrap();
        let open = fs::File::open(b.join(&old)).unwrap();
        let at = |name: &str| {
            let at = format!("/proc/self/fd/{}/{name}", std::os::fd::AsRawFd::as_raw_fd(&open));
            fs::symlink_metadata(at).is_ok()
        };
        let look = || (at("there"), at("made"));
        assert_eq!(look(), (true, false));
        fs::rename(a.join(&old), a.join(&new)).unwrap();
        // The kernel has it by two numbers from now on.
        looked_at_meanwhile(&b.join(&new), &[], || {
            assert_eq!(look(), (true, false));
            fs::write(b.join(&new).join("made"), "").unwrap();
            fs::remove_file(b.join(&new).join("there")).unwrap();
            assert_eq!(look(), (false, true), "round {round}");
        });
    }
}

#[test]
fn two_mounts_that_take_names_from_one_directory_do_not_wait_for_each_other() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "taken", "");
    for name in ["queue", "a", "b"] {
        fs::create_dir(a.join(name)).unwrap();
    }
    const JOBS: usize = 60;
    (0..JOBS).for_each(|n| fs::write(a.join(format!("queue/{n}")), "").unwrap());
    let begin = Instant::now();
    let take = |mount: &Path, to: &str| {
        let mut taken = 0;
        // Each knows all the names when the other takes them.
        for entry in fs::read_dir(mount.join("queue")).unwrap() {
            let name = entry.unwrap().file_name();
            let to = mount.join(to).join(&name);
            taken += usize::from(fs::rename(mount.join("queue").join(&name), to).is_ok());
        }
        taken
    };
    let taken = std::thread::scope(|scope| {
        let other = scope.spawn(|| take(&b, "b"));
        take(&a, "a") + other.join().unwrap()
    });
    assert_eq!(taken, JOBS, "each is taken once");
    assert!(begin.elapsed() < BOUND);
}

#[test]
fn what_is_mounted_or_in_use_inside_stays_while_names_around_it_change() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "inside", "");
    fs::create_dir_all(a.join("d/bound")).unwrap();
    fs::create_dir_all(a.join("source")).unwrap();
    fs::write(a.join("source/inside"), "text").unwrap();
    fs::write(a.join("d/file"), "below").unwrap();
    let (bound, file) = (b.join("d/bound"), b.join("d/file"));
    rustix::mount::mount_bind(b.join("source"), &bound).unwrap();
    rustix::mount::mount_bind(b.join("source/inside"), &file).unwrap();
    let open = fs::File::open(b.join("d")).unwrap();
    let place_of = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
    let seen = std::panic::catch_unwind(|| {
        for round in 0..30 {
            let path = a.join(format!("d/n{round}"));
            assert_eq!(fs::read_dir(b.join("d")).unwrap().count(), 2 + round.min(1));
            fs::write(&path, "x").unwrap();
            // Such changes do not come about, but are told of.
            assert!(fs::create_dir(a.join("d/bound")).is_err());
            assert!(fs::remove_dir(a.join("d")).is_err());
            assert_eq!(fs::read_to_string(bound.join("inside")).unwrap(), "text");
            assert_eq!(fs::read_to_string(&file).unwrap(), "text");
            fs::rename(&path, a.join("d/last")).unwrap();
            assert_eq!(fs::read_link(&place_of).unwrap(), b.join("d"));
        }
    });
    for mounted in [&bound, &file] {
        rustix::mount::unmount(mounted, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
    seen.unwrap();
}
