//! Directories that another mount has moved or removed, and calls that meet them: they end as
//! on a local file system.

use crate::coherence_io::{Two, two};
use crate::harness::{self, Place, eventually, kernel_is, root};
use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, accessat,
    fchmod, fsync, futimens, linkat, mkdirat, mknodat, openat, readlinkat, renameat, renameat_with,
    stat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind};
use rustix::process::fchdir;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
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

/// How each call ends that works on a directory by its descriptor.
fn calls_on(dir: &File, beside: &Path) -> Vec<(&'static str, Result<(), Errno>)> {
    let mode = Mode::from(0o644);
    let made = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let look = OFlags::RDONLY | OFlags::CLOEXEC;
    let there = File::open(beside).unwrap();
    let now = Timestamps { last_access: UTIME, last_modification: UTIME };
    let ends = [
        ("create", openat(dir, "new", made, mode).map(drop)),
        ("open", openat(dir, "f", look, mode).map(drop)),
        ("open it", openat(dir, ".", look, mode).map(drop)),
        ("stat", statat(dir, "f", AtFlags::SYMLINK_NOFOLLOW).map(drop)),
        ("access", accessat(dir, "f", Access::READ_OK, AtFlags::empty())),
        ("mkdir", mkdirat(dir, "new", mode)),
        ("symlink", symlinkat("to", dir, "new")),
        ("readlink", readlinkat(dir, "f", []).map(drop)),
        ("mknod", mknodat(dir, "new", FileType::Fifo, mode, 0)),
        ("unlink", unlinkat(dir, "f", AtFlags::empty())),
        ("rmdir", unlinkat(dir, "f", AtFlags::REMOVEDIR)),
        ("rename into", renameat(&there, "file", dir, "new")),
        ("rename out of", renameat(dir, "f", &there, "new")),
        ("rename", renameat(dir, "f", dir, "new")),
        ("link into", linkat(&there, "file", dir, "new", AtFlags::empty())),
        ("link out of", linkat(dir, "f", &there, "new", AtFlags::empty())),
        ("chmod", fchmod(dir, Mode::from(0o750))),
        ("utimens", futimens(dir, &now)),
        ("fsync", fsync(dir)),
        ("chdir", CurrentDir::enter(dir).map(drop)),
    ];
    ends.into()
}

const UTIME: Timespec = Timespec { tv_sec: 7, tv_nsec: 0 };

/// In it for a moment: this thread alone.
struct CurrentDir;

impl CurrentDir {
    fn enter(dir: &File) -> Result<Self, Errno> {
        let done = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: this thread alone gets a current directory of its own.
                unsafe { unshare_unsafe(UnshareFlags::FS) }?;
                fchdir(dir)?;
                match stat("f") {
                    Err(Errno::NOENT) => Ok(()),
                    other => other.map(drop),
                }
            });
            thread.join().unwrap()
        });
        done.map(|()| Self)
    }
}

#[test]
fn a_directory_that_another_mount_has_removed_is_as_on_a_local_disk() {
    if !root() {
        return;
    }
    for options in ["", "consistency=relaxed", "consistency=none"] {
        let place = Place::new();
        let Two { cluster: _cluster, a, b } = two(&place, "removed", options);
        let local = place.path("local");
        fs::create_dir(&local).unwrap();
        let mut ends = Vec::new();
        for (here, elsewhere) in [(&local, &local), (&a, &a), (&a, &b)] {
            fs::create_dir_all(elsewhere.join("top/d")).unwrap();
            fs::write(elsewhere.join("top/file"), "in it").unwrap();
            fs::set_permissions(elsewhere.join("top/d"), Permissions::from_mode(0o711)).unwrap();
            let open = File::open(here.join("top/d")).unwrap();
            fs::remove_dir(elsewhere.join("top/d")).unwrap();
            // One has taken its place.
            fs::create_dir(elsewhere.join("top/d")).unwrap();
            fs::write(elsewhere.join("top/d/f"), "of another").unwrap();
            // Where attributes are believed for a while it is seen later.
            eventually("it is seen to be gone", || open.metadata().unwrap().nlink() == 0);
            let was = open.metadata().unwrap();
            assert_eq!((was.nlink(), was.mode() & 0o777), (0, 0o711), "{options} {here:?}");
            let listed = Dir::read_from(&open).unwrap().next().map(|entry| entry.map(drop));
            let ended = calls_on(&open, &here.join("top"));
            let is_now = open.metadata().unwrap();
            assert_eq!((is_now.mode() & 0o777, is_now.mtime()), (0o750, 7), "{options} {here:?}");
            ends.push((listed, ended));
            fs::remove_dir_all(elsewhere.join("top")).unwrap();
        }
        assert_eq!(ends[1], ends[0], "{options}: removed here");
        assert_eq!(ends[2], ends[0], "{options}: removed elsewhere");
    }
}

/// Directories in directories, with files in each.
fn plant(top: &Path) {
    for dir in 0..24 {
        let at = top.join(format!("d{}/e{}/f{dir}", dir % 3, dir % 6));
        fs::create_dir_all(&at).unwrap();
        (0..6).for_each(|file| fs::write(at.join(format!("file{file}")), "in it").unwrap());
    }
}

/// Starts both at once, each on its mount, and waits for them.
fn both_at_once(a: (&Path, &str), b: (&Path, &str)) -> [(bool, String); 2] {
    let start = |(at, text): (&Path, &str)| {
        let mut command = Command::new("bash");
        command.args(["-c", text]).current_dir(at).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("LC_ALL", "C").spawn().unwrap()
    };
    [start(a), start(b)].map(|child| {
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    })
}

#[test]
fn programs_that_remove_one_tree_on_two_mounts_do_not_fail_each_other() {
    if !root() {
        return;
    }
    for options in ["", "consistency=none"] {
        let place = Place::new();
        let Two { cluster: _cluster, a, b } = two(&place, "removed-twice", options);
        let remove = "rm -rf tree";
        for round in 0..12 {
            plant(&a.join("tree"));
            for (ok, said) in both_at_once((&a, remove), (&b, remove)) {
                assert!(ok, "{options} round {round}: {said}");
            }
            assert!(!a.join("tree").exists() && !b.join("tree").exists());
        }
        let find = "find tree -depth -ignore_readdir_race -delete";
        for other in [find, "cp -a tree copy", "cat $(find tree -type f)", "ls -lR tree"] {
            for _ in 0..6 {
                plant(&b.join("tree"));
                let [(ok, said), (_, other_said)] = both_at_once((&a, remove), (&b, other));
                assert!(ok, "{options} beside {other}: {said}");
                assert!(!other_said.contains("Stale"), "{options} {other}: {other_said}");
                assert!(!a.join("tree").exists() && !b.join("tree").exists());
                fs::remove_dir_all(b.join("copy")).unwrap_or_default();
            }
        }
    }
}

/// What is mounted there is taken away, also when a check fails.
struct Bound<'a>(&'a Path);

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, UnmountFlags::DETACH);
    }
}

/// How many files without a name the metadata server keeps.
fn nameless(cluster: &harness::Cluster<'_>) -> u64 {
    let status = cluster.weir(&["status", "--json", "--counters"]).json();
    status["servers"]["meta"]["counters"]["orphans"].as_u64().unwrap_or_else(|| panic!("{status}"))
}

#[test]
fn a_file_that_is_in_use_without_being_open_stays_when_it_is_removed_or_replaced() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "in-use", "");
    let elsewhere = place.path("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    // The kernel has to be asked to forget what another mount removes.
    let removers = if kernel_is((6, 18)) { vec![&a, &b] } else { vec![&a] };
    for by in removers {
        for replaced in [true, false] {
            fs::write(a.join("conf"), "old").unwrap();
            mount_bind(a.join("conf"), &elsewhere).unwrap();
            let bound = Bound(&elsewhere);
            fs::write(a.join("held"), "old").unwrap();
            let held =
                openat(CWD, a.join("held"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
            for name in ["conf", "held"] {
                if replaced {
                    fs::write(by.join("new"), "new").unwrap();
                    fs::rename(by.join("new"), by.join(name)).unwrap();
                    assert_eq!(fs::read_to_string(a.join(name)).unwrap(), "new");
                } else {
                    fs::remove_file(by.join(name)).unwrap();
                    assert!(!a.join(name).exists());
                }
            }
            let through_path = format!("/proc/self/fd/{}", held.as_raw_fd());
            for _ in 0..3 {
                for at in [elsewhere.as_path(), Path::new(&through_path)] {
                    assert_eq!(fs::read_to_string(at).unwrap(), "old", "{at:?}");
                    assert_eq!(fs::metadata(at).unwrap().nlink(), 0, "{at:?}");
                }
                // The server may restart meanwhile.
                cluster.kill("meta");
                cluster.weir(&["up"]).ok();
            }
            assert_eq!(nameless(&cluster), 2);
            drop((bound, held));
            eventually("they go when nobody uses them", || nameless(&cluster) == 0);
        }
    }
    // What is looked at here and removed there is not held for long.
    plant(&a.join("tree"));
    assert_eq!(fs::read_dir(b.join("tree")).unwrap().count(), 3);
    let listed = Command::new("ls").arg("-lR").current_dir(&b).output().unwrap();
    assert!(listed.status.success());
    fs::remove_dir_all(a.join("tree")).unwrap();
    eventually("nothing of the tree is left", || nameless(&cluster) == 0);
}
