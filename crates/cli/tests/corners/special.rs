//! Files that are no files, attributes, and times.

use super::{Log, checked};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use std::fs::{self, File, Permissions};
use std::io::{Read, Result, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

pub fn sockets(log: &mut Log, dir: &Path) {
    // The path of one has to be short.
    let path = dir.join("s");
    log.done("connect to nothing", UnixStream::connect(&path));
    let socket = UnixListener::bind(&path);
    log.done("bind", socket.as_ref().map_err(|e| std::io::Error::from(e.kind())));
    log.done("bind again", UnixListener::bind(&path));
    log.found("it is one", fs::metadata(&path).map(|m| m.file_type().is_socket()));
    let Ok(socket) = socket else { return };
    let talk = || -> Result<_> {
        let mut client = UnixStream::connect(&path)?;
        client.write_all(b"hello")?;
        drop(client);
        let mut heard = String::new();
        socket.accept()?.0.read_to_string(&mut heard)?;
        Ok(heard)
    };
    log.found("talk", talk());
    log.done("open it", File::open(&path));
    drop(socket);
    log.done("connect to nobody", UnixStream::connect(&path));
    log.done("remove it", fs::remove_file(&path));
}

pub fn devices(log: &mut Log, dir: &Path) {
    let kinds = [
        ("null", FileType::CharacterDevice, libc::makedev(1, 3)),
        ("big", FileType::CharacterDevice, libc::makedev(511, 70_000)),
        ("loop", FileType::BlockDevice, libc::makedev(7, 0)),
        ("pipe", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("plain", FileType::RegularFile, 0),
    ];
    for (name, kind, number) in kinds {
        let path = dir.join(name);
        log.sys(name, rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o604), number));
        let state = fs::symlink_metadata(&path).map(|m| (m.mode(), m.rdev(), m.nlink(), m.size()));
        log.found(name, state);
        log.done("link it", fs::hard_link(&path, dir.join(format!("{name}2"))));
    }
    let pipe = dir.join("pipe");
    let through = || -> Result<_> {
        let mut heard = String::new();
        std::thread::scope(|scope| -> Result<_> {
            let writer = scope.spawn(|| fs::write(dir.join("pipe2"), "through both names"));
            File::open(&pipe)?.read_to_string(&mut heard)?;
            writer.join().unwrap()
        })?;
        Ok(heard)
    };
    log.found("a pipe", through());
}

/// A capability of a program: to bind low ports, effective and permitted.
pub const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
pub const NAME: &str = "security.capability";

pub fn by_nobody<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let (uid, gid) = (rustix::fs::Uid::from_raw(65_534), rustix::fs::Gid::from_raw(65_534));
            rustix::thread::set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            what()
        });
        run.join().unwrap()
    })
}

pub fn attributes(log: &mut Log, dir: &Path) {
    let program = dir.join("program");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o6777)).unwrap();
    let set =
        |name: &str, value: &[u8]| rustix::fs::setxattr(&program, name, value, XattrFlags::empty());
    let has = |name: &str| {
        let mut value = [0; 64];
        rustix::fs::getxattr(&program, name, &mut value[..])
    };
    log.sys("give it a capability", set(NAME, &CAPABILITY));
    log.sys("it has it", has(NAME));
    let append =
        || -> Result<()> { File::options().append(true).open(&program)?.write_all(b"exit\n") };
    log.done("somebody else writes", by_nobody(append));
    log.sys("it has it", has(NAME));
    log.found("mode", fs::metadata(&program).map(|m| m.mode()));
    log.sys("give it a capability again", set(NAME, &CAPABILITY));
    log.done("give it away", std::os::unix::fs::chown(&program, Some(1), Some(1)));
    log.sys("it has it", has(NAME));
    log.sys("trusted", set("trusted.who", b"root"));
    log.sys("it has it", has("trusted.who"));
    log.sys("others see it", by_nobody(|| has("trusted.who")));
    log.sys("others set one", by_nobody(|| set("trusted.who", b"me")));
    log.sys("others set a security one", by_nobody(|| set("security.who", b"me")));
    log.sys("others set a user's", by_nobody(|| set("user.who", b"me")));
    log.sys("no namespace", set("who", b"me"));
    log.sys("one that is not there", set("system.who", b"me"));
    let link = dir.join("to-program");
    std::os::unix::fs::symlink("program", &link).unwrap();
    let on_link = rustix::fs::lsetxattr(&link, "user.who", b"me", XattrFlags::empty());
    log.sys("a user's of a link", on_link);
    log.sys("create one that is there", {
        rustix::fs::setxattr(&program, "user.who", b"me", XattrFlags::CREATE)
    });
    log.sys("replace one that is not there", {
        rustix::fs::setxattr(&program, "user.whom", b"me", XattrFlags::REPLACE)
    });
    let mut names = vec![0; 4096];
    let list = rustix::fs::listxattr(&program, &mut names).map(|len| {
        let names =
            names[..len].split(|b| *b == 0).map(|n| String::from_utf8_lossy(n).into_owned());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    });
    log.sys("all", list);
    log.sys("a name that is too long", set(&format!("user.{}", "x".repeat(251)), b""));
}

/// When a file was made; it does not change.
pub fn birth(log: &mut Log, dir: &Path) {
    let (file, moved) = (dir.join("born"), dir.join("reborn"));
    let begin = std::time::SystemTime::now();
    let born = |path: &Path| fs::metadata(path).and_then(|m| m.created());
    fs::write(&file, "1").unwrap();
    let at_first = born(&file);
    // The kernel's clock for files is a little behind.
    let recent = at_first.as_ref().is_ok_and(|at| {
        let early = begin - std::time::Duration::from_secs(1);
        *at >= early && *at <= std::time::SystemTime::now()
    });
    log.found("it was made just now", Ok(recent));
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&file, "more").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    fs::rename(&file, &moved).unwrap();
    log.found("and still was", Ok(born(&moved).ok() == at_first.ok()));
    log.found("a directory too", born(dir).map(|at| at <= begin));
}

pub fn times(log: &mut Log, dir: &Path) {
    let file = dir.join("times");
    fs::write(&file, "").unwrap();
    let all = [(0, 1), (1, 999_999_999), (-1, 5), (-2_000_000_000, 123_456_789), (1 << 33, 7)];
    for (tv_sec, tv_nsec) in all {
        let at = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: at, last_modification: at };
        log.sys("set", rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()));
        let found =
            fs::metadata(&file).map(|m| ((m.atime(), m.atime_nsec()), (m.mtime(), m.mtime_nsec())));
        log.found("times", found);
    }
    let omit = Timespec { tv_sec: 9, tv_nsec: libc::UTIME_OMIT };
    let times =
        Timestamps { last_access: omit, last_modification: Timespec { tv_sec: 5, tv_nsec: 6 } };
    log.sys("one of them", rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()));
    log.found("times", fs::metadata(&file).map(|m| (m.atime(), m.mtime(), m.mtime_nsec())));
    let name = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
    // SAFETY: a path that ends in zero, and times that are ignored.
    log.found(
        "a time that is none",
        checked(unsafe {
            let bad = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
            libc::utimensat(libc::AT_FDCWD, name.as_ptr(), [bad, bad].as_ptr(), 0)
        }),
    );
}

/// What `stat` tells of sizes. How large a directory is differs
/// among local file systems; that it is not empty does not.
pub fn sizes(log: &mut Log, dir: &Path) {
    let sub = dir.join("sizes");
    log.done("make", fs::create_dir(&sub));
    fs::write(sub.join("name"), "").unwrap();
    log.found("a directory has a size", fs::metadata(&sub).map(|m| m.size() > 0));
    let mut entries = fs::read_dir(dir).unwrap().flatten();
    let listed = entries.find(|e| e.file_name() == "sizes").unwrap();
    log.found("and in a listing", listed.metadata().map(|m| m.size() > 0));
    let told = |path: &Path| fs::symlink_metadata(path).map(|m| (m.size(), m.blocks()));
    fs::write(sub.join("byte"), "1").unwrap();
    fs::File::open(sub.join("byte")).and_then(|file| file.sync_all()).unwrap();
    let blocks = fs::metadata(sub.join("byte")).map(|m| (m.blocks() > 0, m.blocks() % 8));
    log.found("a file takes whole blocks", blocks);
    log.done("link", std::os::unix::fs::symlink("name", sub.join("link")));
    log.found("a symbolic link", told(&sub.join("link")));
    let mode = Mode::from_raw_mode(0o600);
    log.sys("pipe", rustix::fs::mknodat(CWD, sub.join("pipe"), FileType::Fifo, mode, 0));
    log.found("a pipe", told(&sub.join("pipe")));
}
