//! Names, positions in directories, and paths.

use super::Log;
use crate::dir_reader::Reader;
use rustix::fs::{CWD, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub fn bytes(log: &mut Log, dir: &Path) {
    let dir = &dir.join("names");
    fs::create_dir(dir).unwrap();
    let all: Vec<u8> = (1..=255).filter(|b| *b != b'/').collect();
    let longest = [&all[..], b"x"].concat();
    let long = [&longest[..], b"y"].concat();
    for name in [&all[..], &longest[..], &long[..], b"\xff", b" ", b"...", b"a\nb"] {
        let path = dir.join(OsStr::from_bytes(name));
        log.done(&format!("{} bytes", name.len()), fs::write(&path, name));
        log.found("read", fs::read(&path));
    }
    log.names(dir);
    let linked = std::os::unix::fs::symlink(OsStr::from_bytes(&longest), dir.join("link"));
    log.done("a link to it", linked);
    log.found("read it", fs::read(dir.join("link")));
    let target = |len: usize| OsString::from_vec(vec![b'x'; len]);
    for len in [1, 4095, 4096] {
        let link = dir.join(format!("to-{len}"));
        log.done(&format!("{len} bytes"), std::os::unix::fs::symlink(target(len), &link));
        log.found("its length", fs::read_link(&link).map(|to| to.as_os_str().len()));
    }
    log.done("a link to nothing", std::os::unix::fs::symlink("", dir.join("nothing")));
}

/// What a directory says of itself and of the one above is where they are.
pub fn dots(log: &mut Log, dir: &Path) {
    let top = dir.join("dots");
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::create_dir(top.join("c")).unwrap();
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    let mut look = |at: &Path| {
        let reader = Reader::open(at).unwrap();
        let all: Vec<(String, u64)> = std::iter::from_fn(|| reader.number()).collect();
        for (name, of) in [(".", number(at)), ("..", number(&at.join("..")))] {
            let said = all.iter().find(|(found, _)| found == name).map(|(_, said)| *said == of);
            log.found(&format!("{name} of {}", at.file_name().unwrap().display()), Ok(said));
        }
    };
    look(&top.join("a"));
    look(&top.join("a/b"));
    fs::rename(top.join("a/b"), top.join("c/b")).unwrap();
    look(&top.join("c/b"));
}

/// A position stays good whatever comes and goes.
pub fn positions(log: &mut Log, dir: &Path) {
    const NAMES: usize = 2_000;
    let dir = &dir.join("positions");
    fs::create_dir(dir).unwrap();
    let make = |n: usize| fs::write(dir.join(format!("name-{n}")), "");
    (0..NAMES).for_each(|n| make(n).unwrap());
    let reader = Reader::open(dir).unwrap();
    let all: Vec<(i64, String)> = std::iter::from_fn(|| reader.next()).collect();
    log.found("all", Ok(all.len()));
    let again = |(at, name): &(i64, String)| {
        reader.seek(*at);
        reader.next().is_some_and(|(_, found)| found == *name)
    };
    log.found("found again", Ok(all.iter().rev().step_by(7).all(again)));
    let kept: Vec<_> = all.iter().skip(3).step_by(2).cloned().collect();
    for (_, name) in all.iter().step_by(2).filter(|(_, name)| name.starts_with("name-")) {
        fs::remove_file(dir.join(name)).unwrap();
    }
    (NAMES..NAMES + 200).for_each(|n| make(n).unwrap());
    let mut seen = 0;
    for (at, name) in kept.iter().filter(|(_, name)| name.starts_with("name-")) {
        reader.seek(*at);
        seen += usize::from(reader.next().is_some_and(|(_, found)| found == *name));
    }
    // Where a removed name was the reader may be told of the next one; a local directory may
    // have its names in another order, so what is lost is counted, not which.
    log.found("lost", Ok(kept.len().saturating_sub(seen) <= 2));
}

pub fn depth(log: &mut Log, dir: &Path) {
    const LEVELS: usize = 300;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut at = rustix::fs::openat(CWD, dir, flags, Mode::empty()).unwrap();
    let name = "d".repeat(50);
    let mut deepest = 0;
    for level in 1..=LEVELS {
        let down = rustix::fs::mkdirat(&at, name.as_str(), Mode::RWXU)
            .and_then(|()| rustix::fs::openat(&at, name.as_str(), flags, Mode::empty()));
        let Ok(next) = down else { break };
        (at, deepest) = (next, level);
    }
    log.found("levels", Ok(deepest));
    let made = rustix::fs::openat(&at, "file", OFlags::CREATE | OFlags::RDWR, Mode::RUSR);
    log.sys("a file there", made.map(|_| ()));
    let path = vec![name.as_str(); LEVELS].join("/");
    log.done("by a path that is too long", fs::metadata(dir.join(path)));
    std::os::unix::fs::symlink("round", dir.join("round")).unwrap();
    log.done("a loop", fs::metadata(dir.join("round")));
    log.done(
        "remove all",
        std::process::Command::new("rm").arg("-rf").arg(dir.join(name)).status(),
    );
}
