//! The life of a mount: interrupts, blocked operations, ends and new beginnings.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[allow(dead_code, reason = "each test program uses its part")]
mod fuse_support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fuse_support::memfs::{BLOCKS, CLOSES, MemFs, NOTIFIES, PANICS};
use fuse_support::{Mount, can_mount, eventually};
use rustix::process::{Pid, Signal, kill_process};
use weir_fuse::{Config, Errno, MountError, MountWith, Session};

/// Where the child of [`a_dead_mount_is_taken_over`] mounts.
const SERVE_AT: &str = "WEIR_TEST_SERVE_AT";

fn reader_of(path: &Path) -> Child {
    Command::new("cat").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Ends it as Ctrl-C would. (A shell's background jobs ignore SIGINT itself.)
fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).unwrap();
}

fn within(seconds: u64, what: &str, body: impl FnOnce()) {
    let start = Instant::now();
    body();
    assert!(start.elapsed() < Duration::from_secs(seconds), "{what} took {:?}", start.elapsed());
}

fn proc_mounts(path: &Path) -> Option<String> {
    let text = fs::read_to_string("/proc/mounts").unwrap();
    text.lines().find(|line| line.contains(path.to_str().unwrap())).map(str::to_owned)
}

#[test]
fn a_signal_ends_a_blocked_read() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(MemFs::new(), &Config::default());
    let probe = &mount.probe;
    let mut reader = reader_of(&mount.path(BLOCKS));
    eventually("the read blocks", || probe.blocked.load(Ordering::SeqCst) > 0);
    interrupt(&reader);
    within(3, "the end of the reader", || assert!(!reader.wait().unwrap().success()));
    eventually("the operation ends", || probe.blocked.load(Ordering::SeqCst) == 0);
    assert!(probe.interrupted.load(Ordering::SeqCst) > 0);
    fs::write(mount.path("after"), "works").unwrap();
    mount.end();
}

/// As on a local disk. PostgreSQL, for one, gives up when `open` fails so.
#[test]
fn a_signal_that_the_program_handles_does_not_end_its_read() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(MemFs::new(), &Config::default());
    let probe = &mount.probe;
    let program = "import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.siginterrupt(signal.SIGUSR1, True)
open(sys.argv[1], 'rb', buffering=0).read(1)";
    let mut command = Command::new("python3");
    command.args(["-c", program]).arg(mount.path(BLOCKS)).stderr(Stdio::null());
    let mut reader = command.spawn().unwrap();
    eventually("the read blocks", || probe.blocked.load(Ordering::SeqCst) > 0);
    for _ in 0..3 {
        kill_process(Pid::from_child(&reader), Signal::USR1).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(probe.interrupted.load(Ordering::SeqCst), 0);
    mount.release_blocked();
    within(3, "the end of the reader", || assert!(reader.wait().unwrap().success()));
    mount.end();
}

/// Reads into the page cache belong to the kernel: killing the reader ends the
/// reader, but not the operation. Unmounting must end it then.
#[test]
fn unmounting_ends_reads_whose_readers_are_gone() {
    if !can_mount() {
        return;
    }
    let mut fs = MemFs::new();
    fs.blocks_in_cache = true;
    let config = Config { drain_timeout: Duration::from_millis(300), ..Config::default() };
    let mount = Mount::new(fs, &config);
    let probe = std::sync::Arc::clone(&mount.probe);
    let mut reader = reader_of(&mount.path(BLOCKS));
    eventually("the read blocks", || probe.blocked.load(Ordering::SeqCst) > 0);
    interrupt(&reader);
    within(3, "the end of the reader", || assert!(!reader.wait().unwrap().success()));
    assert!(probe.blocked.load(Ordering::SeqCst) > 0, "nobody told the operation");
    within(3, "the end of the mount", || drop(mount.end()));
    assert_eq!(probe.blocked.load(Ordering::SeqCst), 0);
}

#[test]
fn blocked_operations_stall_nobody_else() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(MemFs::new(), &Config::default());
    let mut readers: Vec<Child> = (0..20).map(|_| reader_of(&mount.path(BLOCKS))).collect();
    let blocked = || mount.probe.blocked.load(Ordering::SeqCst);
    eventually("all reads block", || blocked() == 20);
    within(3, "work beside blocked reads", || {
        fs::write(mount.path("file"), vec![1; 3 << 20]).unwrap();
        assert_eq!(fs::read(mount.path("file")).unwrap().len(), 3 << 20);
        assert!(fs::read_dir(mount.dir.path()).unwrap().count() >= 4);
    });
    readers.iter().for_each(interrupt);
    within(5, "the end of the readers", || {
        for reader in &mut readers {
            assert!(!reader.wait().unwrap().success());
        }
    });
    mount.end();
}

/// What was locked through a file is free before the rest of its end, which may take a while.
#[test]
fn whoever_asks_for_a_lock_does_not_wait_for_the_whole_end_of_a_file() {
    if !can_mount() {
        return;
    }
    let config = Config { flock_locks: true, ..Config::default() };
    let mount = Mount::new(MemFs::new(), &config);
    let file = fs::File::open(mount.path(CLOSES)).unwrap();
    drop(fs::File::open(mount.path(CLOSES)).unwrap());
    eventually("a file is closed", || mount.probe.blocked.load(Ordering::SeqCst) == 1);
    within(3, "the answer that it is locked", || {
        assert!(matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)));
    });
    mount.release_blocked();
    drop(file);
    mount.end();
}

/// More blocked operations than threads: those that wait in the queue are
/// interruptible, too, and the mount recovers.
#[test]
fn interrupts_come_through_when_every_thread_is_blocked() {
    if !can_mount() {
        return;
    }
    let config = Config { waiting_workers: 2, max_workers: 4, ..Config::default() };
    let mount = Mount::new(MemFs::new(), &config);
    let mut readers: Vec<Child> = (0..12).map(|_| reader_of(&mount.path(BLOCKS))).collect();
    let blocked = || mount.probe.blocked.load(Ordering::SeqCst);
    eventually("three threads block", || blocked() == 3);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(blocked(), 3, "the fourth keeps reading requests");
    readers.iter().rev().for_each(interrupt);
    within(5, "the end of the readers", || {
        for reader in &mut readers {
            assert!(!reader.wait().unwrap().success());
        }
    });
    within(3, "work afterwards", || fs::write(mount.path("after"), "works").unwrap());
    mount.end();
}

/// More blocked operations than threads and places in the queue: no thread is
/// left to hear of signals, and whoever is killed is gone all the same.
#[test]
fn a_kill_comes_through_even_when_no_thread_is_left_to_hear_of_it() {
    if !can_mount() {
        return;
    }
    let config = Config { waiting_workers: 2, max_workers: 4, ..Config::default() };
    let mount = Mount::new(MemFs::new(), &config);
    let mut readers: Vec<Child> = (0..320).map(|_| reader_of(&mount.path(BLOCKS))).collect();
    let blocked = || mount.probe.blocked.load(Ordering::SeqCst);
    eventually("every thread blocks", || blocked() >= 4);
    std::thread::sleep(Duration::from_millis(300));
    readers.iter_mut().for_each(|reader| reader.kill().unwrap());
    // Not for ever, is what is shown: they are many for two busy cores.
    within(30, "the end of the readers", || {
        for reader in &mut readers {
            assert!(!reader.wait().unwrap().success());
        }
    });
    within(3, "work afterwards", || fs::write(mount.path("after"), "works").unwrap());
    mount.end();
}

#[test]
fn an_operation_that_panics_answers_an_error() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(MemFs::new(), &Config::default());
    let error = fs::read(mount.path(PANICS)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    fs::write(mount.path("after"), "works").unwrap();
    mount.end();
}

#[test]
fn a_mount_is_listed_under_its_name_and_can_be_made_again() {
    if !can_mount() {
        return;
    }
    let config = Config { source: "weir:test".into(), ..Config::default() };
    let mut dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let mount = Mount::at(dir, MemFs::new(), &config);
        fs::write(mount.path("file"), "x").unwrap();
        let line = proc_mounts(mount.dir.path()).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!((words[0], words[2]), ("weir:test", "fuse.weir"));
        assert!(words[3].contains("nosuid,nodev") && words[3].contains("default_permissions"));
        let probe = std::sync::Arc::clone(&mount.probe);
        dir = mount.end();
        assert_eq!(probe.destroyed.load(Ordering::SeqCst), 1);
        assert_eq!(proc_mounts(dir.path()), None);
    }
}

#[test]
fn an_unmount_from_outside_ends_the_session() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(MemFs::new(), &Config::default());
    let open = fs::File::open(mount.path(BLOCKS)).unwrap();
    assert_eq!(
        mount.handle.unmount(false),
        Err(MountError::InUse(fs::canonicalize(mount.dir.path()).unwrap()))
    );
    drop(open);
    // See `Mount::end`.
    eventually("not in use", || {
        Command::new("umount").arg(mount.dir.path()).status().unwrap().success()
    });
    mount.join().unwrap();
    assert_eq!(mount.probe.destroyed.load(Ordering::SeqCst), 1);
    assert!(matches!(mount.handle.unmount(false), Err(MountError::NotMounted(_))));
}

/// Else the process would be gone before the file system has said that it ends.
#[test]
fn the_file_system_is_gone_when_the_session_has_ended() {
    if !can_mount() {
        return;
    }
    let config = Config { flock_locks: true, ..Config::default() };
    let mut mount = Mount::new(MemFs::new(), &config);
    mount.probe.slow_lock_waits.store(true, Ordering::SeqCst);
    let mut waits = Command::new("flock").arg(mount.path(BLOCKS)).arg("true").spawn().unwrap();
    eventually("it waits", || mount.probe.blocked.load(Ordering::SeqCst) == 1);
    // It fails, as the file is still open, but cuts the connection.
    assert!(Command::new("umount").arg("-f").arg(mount.dir.path()).output().is_ok());
    waits.wait().unwrap();
    mount.join().unwrap();
    assert_eq!(std::sync::Arc::strong_count(&mount.probe), 1, "a thread has the file system");
}

#[test]
fn a_forced_unmount_interrupts_what_still_runs() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(MemFs::new(), &Config::default());
    let mut reader = reader_of(&mount.path(BLOCKS));
    eventually("the read blocks", || mount.probe.blocked.load(Ordering::SeqCst) > 0);
    // It fails, as the reader is still there, but cuts the connection.
    assert!(Command::new("umount").arg("-f").arg(mount.dir.path()).output().is_ok());
    within(4, "the end", || {
        reader.wait().unwrap();
        mount.join().unwrap();
    });
    assert_eq!(proc_mounts(mount.dir.path()), None);
}

#[test]
fn an_occupied_mountpoint_names_what_is_there() {
    if !can_mount() {
        return;
    }
    let config = Config { source: "weir:first".into(), ..Config::default() };
    let mount = Mount::new(MemFs::new(), &config);
    let Err(error) = Session::mount(MemFs::new(), mount.dir.path(), &config) else {
        panic!("mounted twice")
    };
    let text = error.to_string();
    assert!(text.contains("weir:first") && text.contains("fuse.weir"), "{text}");
    assert!(text.contains(mount.dir.path().to_str().unwrap()), "{text}");
    mount.end();
}

/// Not a test of its own: the process that another test kills.
#[test]
fn served_for_the_tests_that_need_a_process() {
    let Some(dir) = std::env::var_os(SERVE_AT) else { return };
    let config = Config { source: "weir:victim".into(), ..Config::default() };
    Session::mount(MemFs::new(), Path::new(&dir), &config).unwrap().run().unwrap();
}

/// A process that serves until it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Most often it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve_in_process(mut command: Command, dir: &Path) -> Server {
    command
        .args(["--exact", "served_for_the_tests_that_need_a_process", "--nocapture"])
        .env(SERVE_AT, dir)
        .stdout(Stdio::null());
    let server = Server(command.spawn().unwrap());
    eventually("the child mounts", || proc_mounts(dir).is_some());
    server
}

#[test]
fn a_dead_mount_is_taken_over() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let command = Command::new(std::env::current_exe().unwrap());
    let server = serve_in_process(command, dir.path());
    fs::write(dir.path().join("lost"), "x").unwrap();
    drop(server);
    let error = fs::read_dir(dir.path()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));

    let config = Config { source: "weir:heir".into(), ..Config::default() };
    let mount = Mount::at(dir, MemFs::new(), &config);
    assert!(!mount.path("lost").exists());
    fs::write(mount.path("new"), "y").unwrap();
    assert!(proc_mounts(mount.dir.path()).unwrap().starts_with("weir:heir "));
    let dir = mount.end();
    assert_eq!(proc_mounts(dir.path()), None);
}

#[test]
fn the_helper_mounts_and_unmounts() {
    if !can_mount() || Command::new("fusermount3").arg("-V").output().is_err() {
        return;
    }
    let config =
        Config { source: "weir:helped".into(), mount_with: MountWith::Helper, ..Config::default() };
    let mount = Mount::new(MemFs::new(), &config);
    fs::write(mount.path("file"), "x").unwrap();
    assert!(proc_mounts(mount.dir.path()).unwrap().starts_with("weir:helped "));
    let open = fs::File::open(mount.path("file")).unwrap();
    assert!(matches!(mount.handle.unmount(false), Err(MountError::InUse(_))));
    drop(open);
    mount.end();
}

/// Without root: `fusermount3` mounts, and workers share one descriptor where
/// `/dev/fuse` cannot be opened.
#[test]
fn an_ordinary_user_can_mount() {
    if !can_mount() || Command::new("fusermount3").arg("-V").output().is_err() {
        return;
    }
    if fs::metadata("/dev/fuse").unwrap().permissions().mode() & 0o006 != 0o006 {
        eprintln!("skipped: needs a /dev/fuse that everyone may open");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    // By a program: had this process it open to write, so would whatever another test has just
    // started, for a moment, and nobody could execute it.
    let mut copy = Command::new("cp");
    copy.arg(std::env::current_exe().unwrap()).arg(&program);
    assert!(copy.status().unwrap().success());
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    for path in [dir.path(), &home] {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    }
    let nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command
    };
    let mut command = nobody();
    command.arg(&program);
    let mut server = serve_in_process(command, &home);
    let script = "ls home && fusermount3 -u home";
    let output = nobody().args(["sh", "-c", script]).current_dir(dir.path()).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "blocks\ncloses\nnotifies\npanics\n",
        "{output:?}"
    );
    within(5, "the end", || assert!(server.0.wait().unwrap().success()));
}

#[test]
fn notifications_undo_what_the_kernel_believes() {
    if !can_mount() {
        return;
    }
    let mut fs = MemFs::new();
    fs.ttl = Duration::from_secs(3600);
    let config = Config { negative_ttl: fs.ttl, explicit_inval_data: true, ..Config::default() };
    let mount = Mount::new(fs.clone(), &config);
    let notifier = mount.handle.notifier();
    let path = mount.path("file");
    fs::write(&path, "old").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    let node = fs.change_secretly("file", b"new");
    assert_eq!(fs::read(&path).unwrap(), b"old", "the kernel's cache serves");
    notifier.inval_inode(node, 0, 0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");

    assert!(!mount.path("moved").exists());
    fs.rename_secretly("file", "moved");
    assert!(path.exists() && !mount.path("moved").exists(), "the kernel's cache serves");
    let root = weir_fuse::ROOT;
    notifier.inval_entry(root, b"file", false).unwrap();
    notifier.inval_entry(root, b"moved", true).unwrap();
    assert!(!path.exists() && mount.path("moved").exists());
    fs.rename_secretly("moved", "gone");
    notifier.delete(root, node, b"moved").unwrap();
    assert!(!mount.path("moved").exists());

    notifier.inval_inode(999_999, 0, 0).unwrap();
    notifier.inval_entry(999_999, b"nothing", false).unwrap();
    assert_eq!(notifier.inval_entry(root, b"", false), Err(Errno::EINVAL));
    mount.end();
}

/// What the kernel takes a file's size for, without asking.
fn size_believed(path: &Path) -> u64 {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::SIZE).unwrap().stx_size
}

#[test]
fn a_size_is_raised_at_once_even_behind_a_page_that_is_being_read() {
    if !can_mount() {
        return;
    }
    let mut fs = MemFs::new();
    fs.ttl = Duration::from_secs(3600);
    fs.blocks_in_cache = true;
    let mount = Mount::new(fs.clone(), &Config { explicit_inval_data: true, ..Config::default() });
    let notifier = mount.handle.notifier();
    let path = mount.path("file");
    fs::write(&path, "old").unwrap();
    assert_eq!((fs::read(&path).unwrap(), size_believed(&path)), (b"old".to_vec(), 3));
    let node = fs.change_secretly("file", b"older than before");
    notifier.inval_inode(node, 0, 0).unwrap();
    notifier.raise_size(node, 9, 8).unwrap();
    assert_eq!(size_believed(&path), 9);
    notifier.raise_size(node, 5, 0).unwrap();
    assert_eq!(size_believed(&path), 9, "it is not cut");
    assert_eq!(fs::read(&path).unwrap(), b"older than before", "no byte of a page is touched");
    assert_eq!(notifier.raise_size(node, 5, 5), Err(Errno::EINVAL));
    assert_eq!(notifier.raise_size(999_999, 5, 4), Ok(()));

    let blocks = mount.path(BLOCKS);
    let mut reader = reader_of(&blocks);
    eventually("the read blocks", || mount.probe.blocked.load(Ordering::SeqCst) > 0);
    let node = fs::metadata(&blocks).unwrap().ino();
    let size = size_believed(&blocks) + 1;
    let raising = std::thread::spawn(move || notifier.raise_size(node, size, 0));
    eventually("the size is raised", || size_believed(&blocks) == size);
    assert!(!raising.is_finished(), "it waits for the page that is locked");
    mount.release_blocked();
    raising.join().unwrap().unwrap();
    reader.wait().unwrap();
    mount.end();
}

#[test]
fn a_thread_that_serves_a_request_may_not_notify() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(MemFs::new(), &Config::default());
    fs::read(mount.path(NOTIFIES)).unwrap();
    assert_eq!(*mount.probe.notify_answer.lock().unwrap(), Some(Err(Errno::EDEADLK)));
    mount.end();
}

#[test]
fn read_ahead_is_what_was_configured() {
    if !can_mount() {
        return;
    }
    let config = Config { read_ahead_kib: 2048, ..Config::default() };
    let mount = Mount::new(MemFs::new(), &config);
    let device = rustix::fs::stat(mount.dir.path()).unwrap().st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    assert_eq!(fs::read_to_string(path).unwrap().trim(), "2048");
    mount.end();
}
