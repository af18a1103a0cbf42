//! When files were read: as the options of a mount say, without a message for each read.

use crate::harness::{Cluster, Place, eventually, root};
use crate::library;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, Timespec, Timestamps};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_client::{Client, Context};
use weir_types::FileId;

/// Longer than the clocks of two processes of one machine may differ by.
const WHILE: Duration = Duration::from_millis(30);

/// How often a mount tells what it has to tell (`TICK` of the client), and after how long without a
/// word it has nothing.
const TICK: Duration = Duration::from_millis(100);
const QUIET: Duration = Duration::from_secs(1);

fn read_at(path: &Path) -> (i64, i64) {
    let m = fs::symlink_metadata(path).unwrap();
    (m.atime(), m.atime_nsec())
}

fn set(path: &Path, seconds: i64) {
    let at = |tv_nsec| Timespec { tv_sec: seconds, tv_nsec };
    let times = Timestamps { last_access: at(7), last_modification: at(libc::UTIME_OMIT) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Whether the time of access changes when this is done, a while later.
fn changes(path: &Path, what: impl FnOnce()) -> bool {
    let before = read_at(path);
    std::thread::sleep(WHILE);
    what();
    let after = read_at(path);
    assert!(after >= before);
    after != before
}

/// How many times the metadata server has been told.
fn told(watcher: &Client) -> u64 {
    let counters = watcher.metadata_status().unwrap().counters;
    counters.iter().filter(|(name, _)| name == "op.accessed").map(|(_, value)| value).sum()
}

/// The same, after it was told of everything that has happened.
fn told_of_all(watcher: &Client) -> u64 {
    let (mut last, mut since) = (told(watcher), Instant::now());
    eventually("all is told", || {
        let now = told(watcher);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() >= QUIET
    });
    last
}

/// The time that the metadata server knows.
fn known(watcher: &Client, path: &Path) -> (i64, i64) {
    let file = FileId(fs::symlink_metadata(path).unwrap().ino());
    let attr = watcher.getattr(&Context::root(), file).unwrap();
    (attr.atime.seconds(), i64::from(attr.atime.nanos()))
}

/// How many names there are in a directory, with `.` and `..`.
fn count(dir: &Path, how: OFlags) -> usize {
    let opened = rustix::fs::open(dir, how | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut room = [MaybeUninit::uninit(); 1024];
    let (mut names, mut count) = (RawDir::new(&opened, &mut room), 0);
    while let Some(name) = names.next() {
        name.unwrap();
        count += 1;
    }
    count
}

struct Set<'a> {
    cluster: Cluster<'a>,
    at: PathBuf,
    watcher: Client,
}

fn mounted<'a>(place: &'a Place, options: &str) -> Set<'a> {
    let cluster = place.up("one", &["--targets", "1"]);
    let at = cluster.mount("m", options);
    let watcher = library::client(&cluster, false);
    fs::create_dir(at.join("d")).unwrap();
    fs::write(at.join("d/f"), vec![1; 100_000]).unwrap();
    symlink("f", at.join("d/l")).unwrap();
    std::thread::sleep(WHILE);
    Set { cluster, at, watcher }
}

#[test]
fn a_file_counts_as_read_once_after_a_change_and_once_a_day() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Set { cluster, at, watcher } = mounted(&place, "rw");
    let (file, dir, link) = (at.join("d/f"), at.join("d"), at.join("d/l"));
    let read = || drop(fs::read(&file).unwrap());
    let list = || assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
    assert!(changes(&file, read), "it was not read since it was written");
    assert!(!changes(&file, read), "it was");
    assert!(changes(&dir, list) && !changes(&dir, list));
    assert!(changes(&link, || drop(fs::read_link(&link).unwrap())));
    for path in [&file, &dir, &link] {
        // What was shown is what is kept, to the nanosecond.
        let shown = read_at(path);
        eventually("the server is told", || known(&watcher, path) >= shown);
        assert_eq!((known(&watcher, path), read_at(path)), (shown, shown));
    }
    // A thousand reads, by as many opens, cost nothing.
    let before = told_of_all(&watcher);
    for _ in 0..1_000 {
        File::open(&file).unwrap().read_exact(&mut [0; 100]).unwrap();
    }
    assert_eq!(told_of_all(&watcher), before, "nothing is to be told");
    fs::write(&file, vec![2; 100_000]).unwrap();
    std::thread::sleep(WHILE);
    for _ in 0..1_000 {
        File::open(&file).unwrap().read_exact(&mut [0; 100]).unwrap();
    }
    let messages = told_of_all(&watcher) - before;
    assert!(messages <= 2, "{messages} messages");
    // Nor does the end of a file, where the kernel asks for its size: of 64 files that are read
    // whole, and have just been written, the times go together.
    let many = at.join("many");
    fs::create_dir(&many).unwrap();
    (0..64).for_each(|n| fs::write(many.join(n.to_string()), "text").unwrap());
    std::thread::sleep(WHILE);
    let (before, begin) = (told_of_all(&watcher), Instant::now());
    for n in 0..64 {
        fs::read(many.join(n.to_string())).unwrap();
    }
    let most = 16 + begin.elapsed().div_duration_f64(TICK) as u64;
    let messages = told_of_all(&watcher) - before;
    assert!(messages <= most, "{messages} messages, {most} at most");
    // What a program sets stays, until it is read again: that time is more than a day ago.
    read();
    set(&file, 1_000_000_000);
    assert_eq!(read_at(&file), (1_000_000_000, 7));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(read_at(&file), (1_000_000_000, 7));
    assert_eq!(known(&watcher, &file), (1_000_000_000, 7));
    let no_atime = OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(&file);
    no_atime.unwrap().read_exact(&mut [0; 100]).unwrap();
    assert_eq!(read_at(&file), (1_000_000_000, 7), "O_NOATIME");
    set(&dir, 1_000_000_000);
    assert_eq!(count(&dir, OFlags::NOATIME), 4);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(read_at(&dir), (1_000_000_000, 7), "O_NOATIME of a directory");
    assert_eq!(count(&dir, OFlags::empty()), 4);
    assert!(read_at(&dir) > (1_000_000_000, 7));
    assert!(changes(&file, read));
    // What the kernel has cached counts when it is closed.
    set(&file, 1_000_000_000);
    let kept = File::open(&file).unwrap();
    assert!(changes(&file, || fs::read(&file).map(drop).unwrap()));
    drop(kept);
    // What the servers copy among themselves was read.
    let copy = || {
        let (from, to) = (File::open(&file).unwrap(), File::create(at.join("copy")).unwrap());
        let copied = rustix::fs::copy_file_range(&from, None, &to, None, 50_000).unwrap();
        assert!(copied > 0);
    };
    set(&file, 1_000_000_000);
    assert!(changes(&file, copy) && !changes(&file, copy));
    // The last reads are reported when the mount ends.
    set(&file, 1_000_000_000);
    read();
    let number = FileId(fs::metadata(&file).unwrap().ino());
    cluster.umount(&at);
    let ended = || watcher.getattr(&Context::root(), number).unwrap().atime.seconds();
    eventually("the mount has told it", || ended() > 1_000_000_000);
    // Of two that exclude each other the last one counts, as with mount(8).
    let again = cluster.mount("again", "noatime,relatime");
    fs::write(again.join("d/f"), "new").unwrap();
    std::thread::sleep(WHILE);
    assert!(changes(&again.join("d/f"), || drop(fs::read(again.join("d/f")).unwrap())));
}

#[test]
fn noatime_strictatime_and_nodiratime_are_what_mount_says() {
    if !root() {
        return;
    }
    for (options, files, dirs) in [
        ("noatime", false, false),
        ("strictatime", true, true),
        ("strictatime,nodiratime", true, false),
    ] {
        let place = Place::new();
        let Set { at, cluster, watcher } = mounted(&place, options);
        let (file, dir) = (at.join("d/f"), at.join("d"));
        for round in 0..3 {
            let read = || drop(fs::read(&file).unwrap());
            assert_eq!(changes(&file, read), files, "{options}, round {round}");
            let list = || assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
            assert_eq!(changes(&dir, list), dirs, "{options}, round {round}");
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts.lines().find(|l| l.contains(at.to_str().unwrap())).unwrap();
        assert_eq!(line.contains("noatime"), options == "noatime", "{line}");
        if options == "noatime" {
            assert_eq!(told(&watcher), 0);
        }
        drop(cluster);
    }
}

#[test]
fn what_an_option_sets_its_opposite_takes_back() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Set { at, cluster, watcher: _watcher } = mounted(&place, "rw");
    for (number, options) in [
        "noatime,atime",
        "strictatime,nostrictatime",
        "strictatime,norelatime",
        "nodiratime,diratime",
    ]
    .into_iter()
    .enumerate()
    {
        // As without all of them: once after a change, files and directories alike.
        fs::write(at.join("d/f"), options).unwrap();
        fs::File::create(at.join("d/new")).unwrap();
        fs::remove_file(at.join("d/new")).unwrap();
        std::thread::sleep(WHILE);
        let mount = cluster.mount(&format!("m{number}"), options);
        let (file, dir) = (mount.join("d/f"), mount.join("d"));
        let read = || drop(fs::read(&file).unwrap());
        let list = || assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
        assert!(changes(&file, read) && !changes(&file, read), "{options}");
        assert!(changes(&dir, list) && !changes(&dir, list), "{options}");
    }
}

#[test]
fn a_descriptor_that_says_so_changes_nothing() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Set { at, cluster: _cluster, .. } = mounted(&place, "strictatime");
    let file = at.join("d/f");
    let flags = OFlags::RDONLY | OFlags::NOATIME;
    let open = rustix::fs::open(&file, flags, rustix::fs::Mode::empty()).unwrap();
    let read = || assert_eq!(rustix::io::read(&open, &mut [0u8; 50]), Ok(50));
    assert!(!changes(&file, read));
}
