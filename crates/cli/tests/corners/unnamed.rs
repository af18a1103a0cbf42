//! Files without a name.

use super::Log;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::File;
use std::io::{Read, Result, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn open(dir: &Path, flags: OFlags) -> rustix::io::Result<File> {
    rustix::fs::open(dir, OFlags::TMPFILE | flags, Mode::from_raw_mode(0o640)).map(File::from)
}

fn give_name(file: &File, to: &Path) -> rustix::io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    rustix::fs::linkat(CWD, path, CWD, to, AtFlags::SYMLINK_FOLLOW)
}

pub fn unnamed(log: &mut Log, dir: &Path) {
    let dir = &dir.join("unnamed");
    std::fs::create_dir(dir).unwrap();
    log.sys("no name, to read", open(dir, OFlags::RDONLY).map(|_| ()));
    std::fs::write(dir.join("file"), "").unwrap();
    log.sys("no name in a file", open(&dir.join("file"), OFlags::RDWR).map(|_| ()));
    let mut file = open(dir, OFlags::RDWR).unwrap();
    let state = |file: &File| -> Result<_> {
        let m = file.metadata()?;
        Ok((m.nlink(), format!("{:o}", m.mode()), m.uid(), m.len()))
    };
    log.done("write", file.write_all(b"bytes"));
    log.found("it", state(&file));
    log.names(dir);
    log.sys("give it a name that is there", give_name(&file, &dir.join("file")));
    log.sys("give it a name", give_name(&file, &dir.join("named")));
    log.sys("give it another", give_name(&file, &dir.join("named2")));
    log.found("it", state(&file));
    log.done("write more", file.write_all(b" and more"));
    drop(file);
    log.found("read", std::fs::read(dir.join("named")));
    log.names(dir);

    let private = open(dir, OFlags::RDWR | OFlags::EXCL).unwrap();
    log.sys("a private one gets none", give_name(&private, &dir.join("private")));
    let mut gone = File::options().read(true).open(dir.join("named2")).unwrap();
    log.done("remove a name", std::fs::remove_file(dir.join("named")));
    log.done("remove the last", std::fs::remove_file(dir.join("named2")));
    log.sys("one that had names gets none", give_name(&gone, &dir.join("again")));
    let mut text = String::new();
    log.done("read it", gone.read_to_string(&mut text));
    log.found("it", state(&gone));
    log.names(dir);
}
