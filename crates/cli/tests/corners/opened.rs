//! What a user may do by what he has open, or may execute, and not otherwise.

use super::Log;
use super::special::{CAPABILITY, NAME, by_nobody};
use rustix::fs::{FallocateFlags, Mode, OFlags, RawDir, XattrFlags, copy_file_range, fallocate};
use std::fs::{self, File, Permissions};
use std::io::{Result, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65_534;
/// By which the kernel says that a file is opened to be executed; programs cannot say so.
const FOR_EXEC: i32 = 0x20;

/// A file that can be executed at once: this process never has it open to write, and so neither
/// has a program that another test has just started.
fn made(how: &str, path: &Path) {
    assert!(Command::new("sh").args(["-c", how]).arg(path).status().unwrap().success());
}

/// Programs that may be executed, or read, or both.
pub fn programs(log: &mut Log, dir: &Path) {
    let (program, script) = (dir.join("to-run"), dir.join("to-read"));
    made("cp /bin/true $0", &program);
    made("printf '#!/bin/sh\\nexit 3\\n' > $0", &script);
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

/// Directories that a process has open, and may not read any longer.
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

/// What the superuser does takes the capabilities of a program, and no more.
pub fn capabilities(log: &mut Log, dir: &Path) {
    let (path, other) = (dir.join("capable"), dir.join("source"));
    fs::write(&path, "#!/bin/sh\n").unwrap();
    fs::write(&other, "exit\n").unwrap();
    let append = || File::options().append(true).open(&path);
    let write = || File::options().write(true).open(&path);
    let mut left = |what: &str, mode: u32, call: &dyn Fn() -> Result<()>| {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        rustix::fs::setxattr(&path, NAME, &CAPABILITY, XattrFlags::empty()).unwrap();
        log.done(what, call());
        let mut value = [0; 64];
        log.sys("capability", rustix::fs::getxattr(&path, NAME, &mut value[..]));
        log.found("mode", fs::metadata(&path).map(|m| m.mode()));
    };
    left("nothing", 0o6755, &|| Ok(()));
    left("append", 0o6755, &|| append()?.write_all(b"exit\n"));
    left("write", 0o755, &|| write()?.write_all(b"exit\n"));
    left("cut", 0o755, &|| write()?.set_len(3));
    left("write anew", 0o755, &|| fs::write(&path, "exit\n"));
    left("reserve", 0o755, &|| Ok(fallocate(write()?, FallocateFlags::empty(), 0, 9_000)?));
    left("copy", 0o755, &|| {
        Ok(copy_file_range(File::open(&other)?, None, write()?, None, 5).map(|_| ())?)
    });
    // Given while it is open, and open while it was given.
    let open = append().unwrap();
    left("append again", 0o6755, &|| (&open).write_all(b"exit\n"));
    left("and once more", 0o755, &|| (&open).write_all(b"exit\n"));
}
