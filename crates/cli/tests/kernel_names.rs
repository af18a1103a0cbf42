//! The kernel uses names without asking for a moment, and never after another mount, or another thread of this one,
//! has changed them.

use crate::coherence_io::{Two, two};
use crate::harness::{Cluster, Place, eventually, root};
use crate::kernel_attributes::{asked_for, looked_at_meanwhile};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const NOBODY: u32 = 65_534;

fn lookups(cluster: &Cluster<'_>) -> u64 {
    asked_for(cluster, "lookup")
}

#[test]
fn a_path_that_is_walked_again_and_again_costs_few_requests() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("names", &["--targets", "1", "--metrics"]);
    let mnt = cluster.mount("m", "");
    let dir = mnt.join("a/b/c");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("f"), "text").unwrap();
    // A machine that does not run this for some time only makes it ask again.
    eventually("the kernel asks no more", || {
        let before = lookups(&cluster);
        (0..100).for_each(|_| assert_eq!(fs::metadata(dir.join("f")).unwrap().len(), 4));
        lookups(&cluster) - before < 100
    });
}

#[test]
fn what_another_mount_does_to_a_name_that_the_kernel_uses_is_seen_at_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "elsewhere", "");
    for round in 0..40 {
        // A new one has names with lifetimes.
        let (here, there) = (a.join(format!("d{round}")), b.join(format!("d{round}")));
        fs::create_dir(&here).unwrap();
        fs::write(here.join("f"), "old").unwrap();
        let file = there.join("f");
        looked_at_meanwhile(&[&file, &there], || {
            let old = fs::metadata(&file).unwrap().ino();
            assert_eq!(fs::metadata(&file).unwrap().ino(), old);
            match round % 4 {
                0 => {
                    fs::remove_file(here.join("f")).unwrap();
                    assert_eq!(fs::metadata(&file).unwrap_err().kind(), ErrorKind::NotFound);
                }
                1 => {
                    fs::rename(here.join("f"), here.join("g")).unwrap();
                    assert_eq!(fs::metadata(&file).unwrap_err().kind(), ErrorKind::NotFound);
                    assert_eq!(fs::metadata(there.join("g")).unwrap().ino(), old);
                }
                2 => {
                    fs::write(here.join("new"), "newer").unwrap();
                    fs::rename(here.join("new"), here.join("f")).unwrap();
                    assert_ne!(fs::metadata(&file).unwrap().ino(), old);
                    assert_eq!(fs::read_to_string(&file).unwrap(), "newer");
                }
                _ => {
                    let moved = a.join(format!("moved{round}"));
                    fs::rename(&here, &moved).unwrap();
                    assert_eq!(fs::metadata(&file).unwrap_err().kind(), ErrorKind::NotFound);
                    fs::create_dir(&here).unwrap();
                    assert_eq!(fs::metadata(&file).unwrap_err().kind(), ErrorKind::NotFound);
                    let there = b.join(format!("moved{round}/f"));
                    assert_eq!(fs::metadata(there).unwrap().ino(), old);
                }
            }
        });
    }
}

#[test]
fn a_name_that_this_kernel_moved_ends_at_once_where_it_is_now() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "moved", "");
    for round in 0..20 {
        let dirs = [format!("from{round}"), format!("to{round}")];
        dirs.iter().for_each(|dir| fs::create_dir(b.join(dir)).unwrap());
        let [from, to] = dirs.each_ref().map(|dir| b.join(dir));
        fs::write(from.join("f"), "x").unwrap();
        // The kernel has the name with a lifetime, moves it, and is asked to forget it there.
        (0..3).for_each(|_| assert!(fs::metadata(from.join("f")).is_ok()));
        fs::rename(from.join("f"), to.join("f")).unwrap();
        assert!(fs::metadata(to.join("f")).is_ok());
        fs::remove_file(a.join(&dirs[1]).join("f")).unwrap();
        let gone = fs::metadata(to.join("f")).unwrap_err().kind();
        assert_eq!(gone, ErrorKind::NotFound, "round {round}");
        assert!(!from.join("f").exists());
    }
}

/// The kernel of the first mount removes a name, and has not done so itself when another mount sees it.
#[test]
fn what_another_mount_has_seen_gone_no_thread_of_this_one_finds() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "seen", "");
    for round in 0..60 {
        let name = format!("d{round}/f");
        fs::create_dir(a.join(format!("d{round}"))).unwrap();
        fs::write(a.join(&name), "x").unwrap();
        let (here, there) = (a.join(&name), b.join(&name));
        // Walks that begin before it is gone may find it.
        let gone_since = AtomicU64::new(u64::MAX);
        let walks = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let walk = walks.fetch_add(1, Ordering::SeqCst);
                        let found = fs::metadata(&here).is_ok();
                        let since = gone_since.load(Ordering::SeqCst);
                        assert!(!found || walk < since, "round {round}");
                        if walk >= since {
                            break;
                        }
                    }
                });
            }
            scope.spawn(|| {
                while fs::metadata(&there).is_ok() {}
                gone_since.store(walks.load(Ordering::SeqCst), Ordering::SeqCst);
            });
            scope.spawn(|| fs::remove_file(&here).unwrap());
        });
    }
}

/// Does something as another user, on a thread of its own.
fn as_nobody<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: changes the user of this thread alone.
            unsafe { libc::setfsuid(NOBODY) };
            what()
        });
        thread.join().unwrap()
    })
}

#[test]
fn a_user_who_may_not_search_a_directory_finds_nothing_in_it_though_the_kernel_has_its_names() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "users", "");
    let mode = |dir: &Path, mode| fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    for round in 0..20 {
        let name = format!("d{round}");
        let (here, there) = (a.join(&name), b.join(&name));
        fs::create_dir(&here).unwrap();
        fs::write(here.join("f"), "x").unwrap();
        mode(&here, 0o700);
        let refused = |dir: &Path| {
            let error = as_nobody(|| fs::metadata(dir.join("f"))).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::ACCESS.raw_os_error()), "round {round}");
        };
        // Root has the kernel know the name.
        looked_at_meanwhile(&[&there.join("f")], || {
            assert!(fs::metadata(there.join("f")).is_ok());
            refused(&there);
            // Another mount, and this one, permit and refuse.
            for changed_on in [&here, &there] {
                mode(changed_on, 0o711);
                as_nobody(|| fs::metadata(there.join("f")).unwrap());
                mode(changed_on, 0o700);
                refused(&there);
            }
        });
    }
}
