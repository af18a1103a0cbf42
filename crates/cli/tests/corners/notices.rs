//! Notifications of changes by others on the same machine.

use super::{Log, checked};
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

pub fn leases(log: &mut Log, dir: &Path) {
    let path = dir.join("leased");
    fs::write(&path, "x").unwrap();
    let file = File::open(&path).unwrap();
    // SAFETY: a descriptor that is open, and numbers.
    let lease =
        |kind: i32| checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) });
    // SAFETY: the same.
    let held = || checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) });
    // SAFETY: a signal that would end this program is ignored.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    // A program that another test of this process starts has this file open for writing, too, until
    // it runs.
    let begin = Instant::now();
    let is_early = |e: &Error| e.kind() == ErrorKind::WouldBlock && begin.elapsed() < PATIENCE;
    let mut to_read = lease(libc::F_RDLCK);
    while to_read.as_ref().is_err_and(is_early) {
        std::thread::sleep(Duration::from_millis(10));
        to_read = lease(libc::F_RDLCK);
    }
    log.found("a lease to read", to_read);
    log.found("which", held());
    log.done("others read", File::open(&path));
    let write = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
    log.done("others write", write());
    log.found("give it up", lease(libc::F_UNLCK));
    log.done("others write", write());
    log.found("which", held());
}

/// What an event says, and of which name.
fn events(inotify: &mut File) -> Result<Vec<(u32, String)>> {
    const HEAD: usize = 16;
    let mut bytes = vec![0; 64 << 10];
    let len = inotify.read(&mut bytes)?;
    let (mut rest, mut all) = (&bytes[..len], Vec::new());
    while rest.len() >= HEAD {
        let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
        let (mask, name) = (word(4), &rest[HEAD..HEAD + word(12) as usize]);
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        rest = &rest[HEAD + word(12) as usize..];
        all.push((mask, name));
    }
    Ok(all)
}

pub fn inotify(log: &mut Log, dir: &Path) {
    let dir = &dir.join("watched");
    fs::create_dir(dir).unwrap();
    let name = std::ffi::CString::new(dir.as_os_str().as_bytes()).unwrap();
    // SAFETY: a new descriptor, owned from here on, and a path that ends in zero.
    let mut inotify = unsafe {
        let new = libc::inotify_init1(libc::IN_NONBLOCK);
        libc::inotify_add_watch(new, name.as_ptr(), libc::IN_ALL_EVENTS);
        File::from_raw_fd(new)
    };
    let work = || -> Result<()> {
        let mut file = File::create(dir.join("a"))?;
        file.write_all(b"bytes")?;
        file.set_len(2)?;
        drop(file);
        fs::rename(dir.join("a"), dir.join("b"))?;
        fs::create_dir(dir.join("d"))?;
        fs::hard_link(dir.join("b"), dir.join("c"))?;
        fs::remove_file(dir.join("b"))?;
        fs::remove_dir(dir.join("d"))
    };
    log.done("work", work());
    log.found("events", events(&mut inotify));
    log.found("then", events(&mut inotify));
}
