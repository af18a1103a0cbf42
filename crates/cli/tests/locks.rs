//! Locks of programs on two mounts of one cluster: `fcntl` (of processes and of
//! open files) and `flock`.

use crate::coherence_io::{Block, open_direct};
use crate::harness::{self, Cluster, Place, SOON, again, eventually, kill_and_wait, root};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SHARED: i32 = libc::F_RDLCK;
const EXCLUSIVE: i32 = libc::F_WRLCK;
const UNLOCK: i32 = libc::F_UNLCK;

/// A cluster with two mounts, `a` and `b`.
fn two_mounts(place: &Place) -> Cluster<'_> {
    let cluster = place.up("one", &["--targets", "2", "--mount", "a"]);
    std::fs::create_dir_all(place.path("b")).unwrap();
    cluster.weir(&["mount", "b"]).ok();
    cluster
}

fn open(path: PathBuf) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn describe(kind: i32, start: i64, len: i64) -> libc::flock {
    // SAFETY: all zeros is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = start;
    lock.l_len = len;
    lock
}

fn control(file: &File, command: i32, mut lock: libc::flock) -> io::Result<libc::flock> {
    // SAFETY: a valid descriptor and a valid `flock`.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result == 0 { Ok(lock) } else { Err(io::Error::last_os_error()) }
}

/// `fcntl(F_SETLK)`.
fn lock(file: &File, kind: i32, start: i64, len: i64) -> io::Result<()> {
    control(file, libc::F_SETLK, describe(kind, start, len)).map(drop)
}

/// `fcntl(F_SETLKW)`.
fn lock_wait(file: &File, kind: i32, start: i64, len: i64) -> io::Result<()> {
    control(file, libc::F_SETLKW, describe(kind, start, len)).map(drop)
}

fn flock(file: &File, operation: i32) -> io::Result<()> {
    // SAFETY: a valid descriptor.
    let result = unsafe { libc::flock(file.as_raw_fd(), operation) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn errno(result: io::Result<()>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

/// Runs `wait` on a thread of its own, and says when it is over.
fn meanwhile<T: Send + 'static>(
    wait: impl FnOnce() -> T + Send + 'static,
) -> mpsc::Receiver<(T, Instant)> {
    let (done, waits) = mpsc::channel();
    std::thread::spawn(move || {
        let result = wait();
        let _ = done.send((result, Instant::now()));
    });
    waits
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn ranges_locked_through_one_mount_are_locked_for_the_other() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = two_mounts(&place);
    let (a, b) = (open(place.path("a/f")), open(place.path("b/f")));
    lock(&a, EXCLUSIVE, 100, 100).unwrap();
    assert_eq!(errno(lock(&b, SHARED, 150, 1)), Some(libc::EAGAIN));
    lock(&b, EXCLUSIVE, 0, 100).unwrap();
    lock(&b, EXCLUSIVE, 200, 0).unwrap();

    // The conflicting lock's owner and range.
    let found = control(&b, libc::F_GETLK, describe(EXCLUSIVE, 0, 0)).unwrap();
    assert_eq!((found.l_type, found.l_start, found.l_len), (EXCLUSIVE as i16, 100, 100));
    let free = control(&a, libc::F_GETLK, describe(EXCLUSIVE, 120, 10)).unwrap();
    assert_eq!(free.l_type, UNLOCK as i16, "a process does not stand in its own way");

    // The middle goes, the ends stay; an exclusive lock becomes a shared one.
    lock(&a, UNLOCK, 140, 20).unwrap();
    lock(&b, EXCLUSIVE, 140, 20).unwrap();
    assert_eq!(errno(lock(&b, SHARED, 139, 1)), Some(libc::EAGAIN));
    lock(&a, SHARED, 100, 10).unwrap();
    lock(&b, SHARED, 100, 10).unwrap();
    assert_eq!(errno(lock(&b, EXCLUSIVE, 100, 1)), Some(libc::EAGAIN));
}

#[test]
fn who_waits_for_a_lock_gets_it_when_the_other_mount_unlocks() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = two_mounts(&place);
    let (a, b) = (open(place.path("a/f")), open(place.path("b/f")));
    lock(&a, EXCLUSIVE, 0, 0).unwrap();
    let other = open(place.path("b/f"));
    let waits = meanwhile(move || lock_wait(&b, EXCLUSIVE, 0, 10));
    // Longer than a server lets a request wait at a time.
    assert!(waits.recv_timeout(Duration::from_secs(12)).is_err());
    let unlocked = Instant::now();
    lock(&a, UNLOCK, 0, 0).unwrap();
    let (result, at) = waits.recv_timeout(LONG).unwrap();
    result.unwrap();
    assert!(at - unlocked < Duration::from_secs(8), "{:?}", at - unlocked);
    drop(other);
}

extern "C" fn nothing(_: i32) {}

/// A signal that ends system calls and nothing else.
fn interruptible() {
    // SAFETY: the handler does nothing; no SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_lock_and_leaves_no_lock_behind() {
    if !root() {
        return;
    }
    interruptible();
    let place = Place::new();
    let _cluster = two_mounts(&place);
    let (a, b) = (open(place.path("a/f")), open(place.path("b/f")));
    lock(&a, EXCLUSIVE, 0, 0).unwrap();
    let (tell, thread) = mpsc::channel();
    let waits = meanwhile(move || {
        // SAFETY: no arguments.
        tell.send(unsafe { libc::pthread_self() }).unwrap();
        let result = lock_wait(&b, EXCLUSIVE, 0, 10);
        (result, b)
    });
    let thread = thread.recv().unwrap();
    // Whenever the signal comes, before the call or during it: until it ends.
    let ((result, _b), _) = loop {
        // SAFETY: the thread lives until it has answered.
        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        if let Ok(done) = waits.recv_timeout(Duration::from_millis(200)) {
            break done;
        }
    };
    assert_eq!(errno(result), Some(libc::EINTR));
    lock(&a, UNLOCK, 0, 0).unwrap();
    lock(&a, EXCLUSIVE, 0, 0).unwrap();
}

#[test]
fn two_that_wait_for_each_other_are_told() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = two_mounts(&place);
    let (a, b) = (open(place.path("a/f")), open(place.path("b/f")));
    lock(&a, EXCLUSIVE, 0, 1).unwrap();
    lock(&b, EXCLUSIVE, 1, 1).unwrap();
    let (again_a, again_b) = (a.try_clone().unwrap(), b.try_clone().unwrap());
    // The descriptors come back: to close one would unlock the file.
    let first = meanwhile(move || (lock_wait(&again_a, EXCLUSIVE, 1, 1), again_a));
    let second = meanwhile(move || (lock_wait(&again_b, EXCLUSIVE, 0, 1), again_b));
    // One of them is refused; the other gets its lock when the first one gives up.
    let refused = |result: io::Result<()>| errno(result) == Some(libc::EDEADLK);
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < LONG, "neither was told");
        if let Ok(((result, _again), _)) = first.recv_timeout(Duration::from_millis(50)) {
            assert!(refused(result));
            lock(&a, UNLOCK, 0, 1).unwrap();
            second.recv_timeout(LONG).unwrap().0.0.unwrap();
            break;
        }
        if let Ok(((result, _again), _)) = second.recv_timeout(Duration::from_millis(50)) {
            assert!(refused(result));
            lock(&b, UNLOCK, 1, 1).unwrap();
            first.recv_timeout(LONG).unwrap().0.0.unwrap();
            break;
        }
    }
}

#[test]
fn locks_of_open_files_and_flock_wait_for_each_other_as_on_a_local_disk() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = two_mounts(&place);
    let names = ["f", "g"];
    let [a, b] = ["a", "b"].map(|at| names.map(|name| place.path(at).join(name)));
    let set = |file: &File, kind, wait| {
        let command = if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
        control(file, command, describe(kind, 0, 0)).map(drop)
    };
    let flocks = |file: &File, kind, wait| {
        let operation = if kind == UNLOCK { libc::LOCK_UN } else { libc::LOCK_EX };
        flock(file, operation | if wait { 0 } else { libc::LOCK_NB })
    };
    type Way<'a> = &'a (dyn Fn(&File, i32, bool) -> io::Result<()> + Sync);
    for way in [&set as Way<'_>, &flocks] {
        // Each has one, and wants the other one's.
        let (mine, yours) = ([open(a[0].clone()), open(a[1].clone())], b.clone().map(open));
        way(&mine[0], EXCLUSIVE, false).unwrap();
        way(&yours[1], EXCLUSIVE, false).unwrap();
        std::thread::scope(|scope| {
            let (mine, yours) = (&mine, &yours);
            let waits =
                [&mine[1], &yours[0]].map(|file| scope.spawn(move || way(file, EXCLUSIVE, true)));
            // Neither is refused, whichever asks last.
            std::thread::sleep(Duration::from_millis(500));
            assert!(waits.iter().all(|wait| !wait.is_finished()));
            way(&yours[1], UNLOCK, false).unwrap();
            let [first, second] = waits;
            first.join().unwrap().unwrap();
            way(&mine[0], UNLOCK, false).unwrap();
            second.join().unwrap().unwrap();
        });
    }
}

#[test]
fn flock_holds_between_mounts_and_apart_from_fcntl() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = two_mounts(&place);
    let (a, b) = (open(place.path("a/f")), open(place.path("b/f")));
    flock(&a, libc::LOCK_SH).unwrap();
    flock(&b, libc::LOCK_SH | libc::LOCK_NB).unwrap();
    assert_eq!(errno(flock(&b, libc::LOCK_EX | libc::LOCK_NB)), Some(libc::EAGAIN));
    lock(&b, EXCLUSIVE, 0, 0).unwrap();
    // Two openings of one file on one mount are two owners.
    let other = open(place.path("a/f"));
    assert_eq!(errno(flock(&other, libc::LOCK_EX | libc::LOCK_NB)), Some(libc::EAGAIN));
    let waits = meanwhile(move || flock(&b, libc::LOCK_EX));
    flock(&a, libc::LOCK_UN).unwrap();
    waits.recv_timeout(LONG).unwrap().0.unwrap();
    // The last close of the opening has unlocked it.
    harness::eventually("the lock is free", || {
        flock(&other, libc::LOCK_EX | libc::LOCK_NB).is_ok()
    });
}

#[test]
fn locks_of_open_files_belong_to_the_opening_and_go_with_it() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = two_mounts(&place);
    let (one, two) = (open(place.path("a/f")), open(place.path("a/f")));
    let b = open(place.path("b/f"));
    let set = |file: &File, kind| control(file, libc::F_OFD_SETLK, describe(kind, 0, 10)).map(drop);
    set(&one, EXCLUSIVE).unwrap();
    assert_eq!(errno(set(&two, SHARED)), Some(libc::EAGAIN));
    assert_eq!(errno(set(&b, SHARED)), Some(libc::EAGAIN));
    // Closing another descriptor of the file does not touch them, unlike
    // those of processes.
    drop(two);
    assert_eq!(errno(set(&b, SHARED)), Some(libc::EAGAIN));
    drop(one);
    harness::eventually("the lock went with its opening", || set(&b, EXCLUSIVE).is_ok());
}

#[test]
fn the_locks_of_a_process_go_with_any_close_and_with_its_death() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = two_mounts(&place);
    let (a, again) = (open(place.path("a/f")), open(place.path("a/f")));
    let b = open(place.path("b/f"));
    lock(&a, EXCLUSIVE, 0, 0).unwrap();
    drop(again);
    harness::eventually("unlocked by a close", || lock(&b, EXCLUSIVE, 0, 0).is_ok());
    lock(&b, UNLOCK, 0, 0).unwrap();

    let mut child = Command::new("flock")
        .arg("-x")
        .arg(place.path("a/f"))
        .args(["sleep", "1000"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    harness::eventually("the program has its lock", || {
        let taken = flock(&b, libc::LOCK_EX | libc::LOCK_NB);
        let _ = flock(&b, libc::LOCK_UN);
        taken.is_err()
    });
    // The program and the one it has started hold the lock together.
    let tasks = format!("/proc/{0}/task/{0}/children", child.id());
    let mut started = String::new();
    harness::eventually("it has started the other one", || {
        started = std::fs::read_to_string(&tasks).unwrap();
        !started.is_empty()
    });
    for pid in started.split_whitespace() {
        Command::new("kill").args(["-9", pid]).status().unwrap();
    }
    let _ = child.kill();
    child.wait().unwrap();
    harness::eventually("unlocked by death", || flock(&b, libc::LOCK_EX | libc::LOCK_NB).is_ok());
}

#[test]
fn locks_and_those_who_wait_survive_a_restart_of_the_metadata_server() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = two_mounts(&place);
    let (a, b) = (open(place.path("a/f")), open(place.path("b/f")));
    lock(&a, EXCLUSIVE, 0, 10).unwrap();
    flock(&a, libc::LOCK_EX).unwrap();
    let waiting = b.try_clone().unwrap();
    let waits = meanwhile(move || lock_wait(&waiting, EXCLUSIVE, 5, 10));
    std::thread::sleep(Duration::from_millis(300)); // So that it waits; or else it will.
    cluster.kill("meta");
    cluster.weir(&["up"]).ok();
    assert_eq!(errno(lock(&b, SHARED, 0, 1)), Some(libc::EAGAIN));
    assert_eq!(errno(flock(&b, libc::LOCK_SH | libc::LOCK_NB)), Some(libc::EAGAIN));
    assert!(waits.recv_timeout(Duration::from_millis(500)).is_err());
    lock(&a, UNLOCK, 0, 0).unwrap();
    waits.recv_timeout(LONG).unwrap().0.unwrap();
}

#[test]
fn the_locks_of_a_mount_that_was_killed_are_free_after_its_lease() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = two_mounts(&place);
    let b = open(place.path("b/f"));
    let holder = open(place.path("a/f"));
    lock(&holder, EXCLUSIVE, 0, 0).unwrap();
    kill_and_wait(cluster.mount_pid(&place.path("a")));
    let begin = Instant::now();
    lock_wait(&b, EXCLUSIVE, 0, 0).unwrap();
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn many_who_wait_for_a_lock_leave_the_mount_to_others() {
    /// More than there are threads that serve requests.
    const WAITING: usize = 200;
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = two_mounts(&place);
    let holder = open(place.path("b/f"));
    flock(&holder, libc::LOCK_EX).unwrap();
    let waiting: Vec<_> = (0..WAITING)
        .map(|_| {
            let file = open(place.path("a/f"));
            meanwhile(move || {
                flock(&file, libc::LOCK_EX).and_then(|()| flock(&file, libc::LOCK_UN))
            })
        })
        .collect();
    let path = place.path("a/f");
    let seen = meanwhile(move || std::fs::metadata(path).map(drop));
    seen.recv_timeout(LONG).unwrap().0.unwrap();
    assert!(waiting.iter().all(|wait| wait.try_recv().is_err()), "it is locked");
    let unlocked = meanwhile(move || flock(&holder, libc::LOCK_UN));
    unlocked.recv_timeout(LONG).unwrap().0.unwrap();
    for wait in waiting {
        wait.recv_timeout(LONG).unwrap().0.unwrap();
    }
}

#[test]
fn a_lock_whose_owner_died_while_the_metadata_server_was_away_is_free_afterwards() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2", "--mount", "a"]);
    std::fs::create_dir_all(place.path("b")).unwrap();
    cluster.weir(&["mount", "b", "-o", "timeout=2"]).ok();
    let file = open(place.path("a/f"));
    let mut holder = Command::new("flock")
        .arg("-o")
        .arg(place.path("b/f"))
        .args(["sleep", "1000"])
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let try_lock = || flock(&file, libc::LOCK_EX | libc::LOCK_NB);
    eventually("it is locked", || match try_lock() {
        Ok(()) => {
            flock(&file, libc::LOCK_UN).unwrap();
            false
        }
        Err(_) => true,
    });
    cluster.kill("meta");
    // SAFETY: the group of a child that was not waited for.
    unsafe { libc::kill(-(holder.id() as i32), libc::SIGKILL) };
    holder.wait().unwrap();
    // Longer than its mount tries to tell the server.
    std::thread::sleep(Duration::from_secs(4));
    place.weir(&["up", "--name", &cluster.name]).ok();
    eventually("it is free", || try_lock().is_ok());
}

/// Not a test: locks the file that it has as its standard input, and reads it.
#[test]
fn reader_process() {
    if std::env::var_os("WEIR_TEST_READER").is_none() {
        return;
    }
    let file = File::from(io::stdin().as_fd().try_clone_to_owned().unwrap());
    lock(&file, EXCLUSIVE, 0, 0).unwrap();
    file.read_exact_at(&mut Block::of(0).0, 0).unwrap();
}

/// Whether a thread of the process is in a call that reads at a position.
fn is_reading(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let call = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("syscall"));
    let is_read = |call: String| call.starts_with(&format!("{} ", libc::SYS_pread64));
    tasks.map(call).any(|call| call.is_ok_and(is_read))
}

#[test]
fn the_lock_of_a_killed_process_is_free_though_its_parent_keeps_the_same_open_file() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = two_mounts(&place);
    std::fs::write(place.path("a/f"), [7; 4096]).unwrap();
    let b = open(place.path("b/f"));
    let file = open_direct(&place.path("a/f"));
    let stopped = cluster.stopped(&["data-1", "data-2"]);
    let mut reader = again("locks::reader_process")
        .env("WEIR_TEST_READER", "")
        .stdin(Stdio::from(file.try_clone().unwrap()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // It reads when it has its lock.
    eventually("it waits for the data server", || is_reading(reader.id()));
    assert_eq!(errno(lock(&b, SHARED, 0, 0)), Some(libc::EAGAIN));
    reader.kill().unwrap();
    reader.wait().unwrap();
    eventually("the lock is free", || lock(&b, EXCLUSIVE, 0, 0).is_ok());
    drop(stopped);
    // The file was open all the while, and is.
    let mut block = Block::of(0);
    file.read_exact_at(&mut block.0, 0).unwrap();
    assert_eq!(block.0, [7; 4096]);
}

/// The kernel does not wait for the end of an open file when its last descriptor is closed.
///
/// In a process of its own: one that is forked by another test has all open files of this one,
/// too, until it executes a program.
#[test]
fn locks_are_free_when_the_last_close_has_returned() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    let output = again("locks::closing_process")
        .env("WEIR_TEST_CLOSES_IN", place.path("m"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Not a test: locks files and closes them.
#[test]
fn closing_process() {
    let Some(directory) = std::env::var_os("WEIR_TEST_CLOSES_IN").map(PathBuf::from) else {
        return;
    };
    let whole = describe(EXCLUSIVE, 0, 0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let path = directory.join(format!("f{thread}"));
            scope.spawn(move || {
                for round in 0..1000 {
                    let file = open(path.clone());
                    let held = flock(&file, libc::LOCK_EX | libc::LOCK_NB);
                    held.unwrap_or_else(|error| panic!("{round}: flock: {error}"));
                    let held = control(&file, libc::F_OFD_SETLK, whole);
                    held.unwrap_or_else(|error| panic!("{round}: lock of an open file: {error}"));
                }
            });
        }
    });
    let path = directory.join("f0");
    for round in 0..200 {
        let mut child = Command::new("flock");
        child.arg(&path).arg("true");
        assert!(child.status().unwrap().success());
        let held = flock(&open(path.clone()), libc::LOCK_EX | libc::LOCK_NB);
        held.unwrap_or_else(|error| panic!("{round}: a child held it: {error}"));
    }
    // A present holder is reported at once.
    let (holder, other) = (open(path.clone()), open(path));
    flock(&holder, libc::LOCK_EX).unwrap();
    let begin = Instant::now();
    assert_eq!(errno(flock(&other, libc::LOCK_EX | libc::LOCK_NB)), Some(libc::EAGAIN));
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
}
