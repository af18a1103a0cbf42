//! What a user may do by what he has open, or may execute, and not otherwise.

use super::Log;
use super::special::by_nobody;
use rustix::fs::{Mode, OFlags, RawDir};
use std::fs::{self, File, Permissions};
use std::mem::MaybeUninit;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65_534;
/// By which the kernel says that a file is opened to be executed; programs cannot say so.
const FOR_EXEC: i32 = 0x20;

/// Programs that may be executed, or read, or both.
pub fn programs(log: &mut Log, dir: &Path) {
    let (program, script) = (dir.join("to-run"), dir.join("to-read"));
    fs::copy("/bin/true", &program).unwrap();
    fs::write(&script, "#!/bin/sh\nexit 3\n").unwrap();
    let open = |flags| File::options().read(true).custom_flags(flags).open(&program);
    for (mode, owner) in [(0o111, 0), (0o100, NOBODY), (0o110, 0), (0o444, 0), (0o555, 0)] {
        for path in [&program, &script] {
            chown(path, Some(owner), Some(0)).unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            let run = Command::new(path).uid(NOBODY).gid(NOBODY).stderr(Stdio::null()).status();
            log.found("run it", run.map(|status| status.to_string()));
        }
        log.done("read it", by_nobody(|| fs::read(&program)));
        log.done("pretend to run it", by_nobody(|| open(FOR_EXEC)));
    }
}

/// Directories that may not be read any more by who has them open.
pub fn listings(log: &mut Log, dir: &Path) {
    let shut = dir.join("shut");
    fs::create_dir(&shut).unwrap();
    fs::write(shut.join("name"), "").unwrap();
    let open = || rustix::fs::open(&shut, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty());
    let count = |fd: &rustix::fd::OwnedFd| {
        let mut room = [MaybeUninit::uninit(); 1024];
        let mut names = RawDir::new(fd, &mut room);
        let mut count = 0;
        while let Some(name) = names.next() {
            name?;
            count += 1;
        }
        rustix::io::Result::Ok(count)
    };
    fs::set_permissions(&shut, Permissions::from_mode(0o700)).unwrap();
    let of_root = open().unwrap();
    log.sys("opened by root, listed by another", by_nobody(|| count(&of_root)));
    chown(&shut, Some(NOBODY), Some(NOBODY)).unwrap();
    by_nobody(|| {
        let own = open().unwrap();
        fs::set_permissions(&shut, Permissions::from_mode(0o000)).unwrap();
        log.sys("list it", count(&own));
        log.sys("open it again", open().map(|_| ()));
    });
    fs::set_permissions(&shut, Permissions::from_mode(0o700)).unwrap();
}
