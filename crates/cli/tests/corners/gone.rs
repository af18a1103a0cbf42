//! What is in use while it is removed, or asked to be cut.

use super::Log;
use super::special::by_nobody;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, RawDir, Timespec, Timestamps};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

/// A directory that somebody is in.
pub fn directories(log: &mut Log, dir: &Path) {
    let here = dir.join("removed");
    fs::create_dir(&here).unwrap();
    let inside = File::open(&here).unwrap();
    log.done("remove it", fs::remove_dir(&here));
    of_removed(log, &inside);
    let (old, new) = (dir.join("replaced"), dir.join("replacing"));
    fs::create_dir(&old).unwrap();
    fs::create_dir(&new).unwrap();
    let inside = File::open(&old).unwrap();
    log.done("replace it", fs::rename(&new, &old));
    of_removed(log, &inside);
}

/// A directory of root's in which another process is.
pub fn of_others(log: &mut Log, dir: &Path) {
    let here = dir.join("of-others");
    fs::create_dir(&here).unwrap();
    let inside = by_nobody(|| File::open(&here)).unwrap();
    log.done("remove it", fs::remove_dir(&here));
    by_nobody(|| of_removed(log, &inside));
}

/// What is changed and asked by a descriptor alone.
pub fn by_descriptor(log: &mut Log, dir: &Path) {
    let path = dir.join("held");
    let mode = Mode::from_raw_mode(0o6711);
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
    let pipe = File::options().read(true).write(true).open(&path).unwrap();
    log.done("remove it", fs::remove_file(&path));
    change_removed(log, &pipe);
    fs::create_dir(&path).unwrap();
    let inside = File::open(&path).unwrap();
    log.done("remove it", fs::remove_dir(&path));
    change_removed(log, &inside);
}

fn change_removed(log: &mut Log, held: &File) {
    let state = || rustix::fs::fstat(held).map(|s| (s.st_mode, s.st_uid, s.st_gid, s.st_nlink));
    let times = || {
        let state = held.metadata()?;
        Ok(((state.atime(), state.atime_nsec()), (state.mtime(), state.mtime_nsec())))
    };
    let set = |at| Timestamps { last_access: at, last_modification: at };
    let changed = held.metadata().map(|m| (m.ctime(), m.ctime_nsec())).ok();
    // The kernel's clock for files goes in steps.
    std::thread::sleep(std::time::Duration::from_millis(20));
    log.sys("change the mode", rustix::fs::fchmod(held, Mode::from_raw_mode(0o6751)));
    log.sys("it is", state());
    log.found("it has changed", {
        held.metadata().map(|m| Some((m.ctime(), m.ctime_nsec())) != changed)
    });
    log.done("give it away", std::os::unix::fs::fchown(held, Some(1), Some(2)));
    log.sys("it is", state());
    let at = Timespec { tv_sec: 5, tv_nsec: 6 };
    log.sys("set its times", rustix::fs::futimens(held, &set(at)));
    log.found("they are", times());
    let now = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
    log.sys("set them to now", rustix::fs::futimens(held, &set(now)));
    log.found("they are not what they were", times().map(|t| t != ((5, 6), (5, 6))));
    let by_another = || rustix::fs::fchmod(held, Mode::from_raw_mode(0o777));
    log.sys("another changes the mode", by_nobody(by_another));
    let mut value = [0; 64];
    for name in ["user.who", "trusted.who", "security.capability", "system.posix_acl_access"] {
        log.sys(name, rustix::fs::fgetxattr(held, name, &mut value[..]));
    }
    log.sys("all", rustix::fs::flistxattr(held, &mut value[..]));
}

fn of_removed(log: &mut Log, inside: &File) {
    let mode = Mode::from_raw_mode(0o755);
    let open = |name, flags| rustix::fs::openat(inside, name, flags, mode).map(|_| "done");
    log.sys("make a file", open("file", OFlags::CREATE | OFlags::RDWR));
    log.sys("look for one", open("file", OFlags::RDONLY));
    log.sys("open it again", open(".", OFlags::RDONLY));
    log.sys("make a directory", rustix::fs::mkdirat(inside, "sub", mode));
    log.sys("make a link", rustix::fs::symlinkat("to", inside, "link"));
    log.sys("make a pipe", rustix::fs::mknodat(inside, "pipe", FileType::Fifo, mode, 0));
    log.sys("may it be read", {
        rustix::fs::accessat(inside, ".", Access::READ_OK, AtFlags::empty())
    });
    let state = rustix::fs::fstat(inside).map(|state| (state.st_mode, state.st_nlink));
    log.sys("what it is", state);
    let mut room = [MaybeUninit::uninit(); 1024];
    let first = RawDir::new(inside, &mut room).next().map(|name| name.map(|_| "a name"));
    log.sys("list it", first.transpose());
}

/// Files that are held by their name alone when they lose it.
pub fn files(log: &mut Log, dir: &Path) {
    let [path, other, new] = ["unlinked", "linked", "put"].map(|name| dir.join(name));
    let state = |file: &File| rustix::fs::fstat(file).map(|state| (state.st_nlink, state.st_size));
    let hold = || File::options().read(true).custom_flags(libc::O_PATH).open(&path).unwrap();
    fs::write(&path, "bytes").unwrap();
    fs::hard_link(&path, &other).unwrap();
    let held = hold();
    log.done("remove a name", fs::remove_file(&path));
    log.sys("what it is", state(&held));
    log.done("remove the last", fs::remove_file(&other));
    log.sys("what it is", state(&held));
    log.sys("again", state(&held));
    fs::write(&path, "bytes").unwrap();
    fs::write(&new, "more").unwrap();
    let held = hold();
    log.done("replace it", fs::rename(&new, &path));
    log.sys("what it is", state(&held));
}

/// A program that runs is not cut, whichever way it is tried.
pub fn programs(log: &mut Log, dir: &Path) {
    let program = dir.join("sleep");
    // By a program: see `made` in `opened.rs`.
    assert!(Command::new("cp").arg("/bin/sleep").arg(&program).status().unwrap().success());
    let mut run = Command::new(&program).arg("60").spawn().unwrap();
    let mut how = File::options();
    log.done("open it to write", how.write(true).open(&program));
    let cut = libc::O_RDONLY | libc::O_TRUNC;
    log.done("cut it on the way", File::options().read(true).custom_flags(cut).open(&program));
    let same = fs::read(&program).and_then(|now| Ok(now == fs::read("/bin/sleep")?));
    log.found("it is whole", same);
    run.kill().unwrap();
    log.found("it ran until then", run.wait().map(|status| status.to_string()));
    log.done("cut it", File::options().read(true).custom_flags(cut).open(&program));
    log.found("it is empty", fs::metadata(&program).map(|m| m.len()));
}
