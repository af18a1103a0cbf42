//! What changes with a file beside what was asked for: its times, and setuid and setgid.

use super::Log;
use super::special::by_nobody;
use rustix::fs::{FallocateFlags, Mode, OFlags, XattrFlags, fallocate, fsetxattr};
use std::fs::{self, File, Permissions};
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

type Times = ((i64, i64), (i64, i64));

fn times(file: &File) -> Result<Times> {
    let state = file.metadata()?;
    Ok(((state.mtime(), state.mtime_nsec()), (state.ctime(), state.ctime_nsec())))
}

/// Whether a call changes the times of contents and of attributes.
fn changes<T>(file: &File, call: impl FnOnce() -> Result<T>) -> Result<(bool, bool)> {
    let before = times(file)?;
    // The kernel's clock for files goes in steps.
    std::thread::sleep(Duration::from_millis(20));
    call()?;
    let after = times(file)?;
    Ok((before.0 != after.0, before.1 != after.1))
}

pub fn all_times(log: &mut Log, dir: &Path) {
    let path = dir.join("changes");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.unwrap();
    file.write_all_at(b"bytes", 0).unwrap();
    let reserve = |flags, to| Ok(fallocate(&file, flags, 0, to)?);
    let keep = FallocateFlags::KEEP_SIZE;
    log.found("reserve", changes(&file, || reserve(FallocateFlags::empty(), 100)));
    log.found("reserve it again", changes(&file, || reserve(FallocateFlags::empty(), 100)));
    log.found("reserve past the end", changes(&file, || reserve(keep, 9999)));
    log.found("punch", changes(&file, || reserve(keep | FallocateFlags::PUNCH_HOLE, 10)));
    log.found("owner", changes(&file, || std::os::unix::fs::chown(&path, Some(1), None)));
    log.found("no owner", changes(&file, || std::os::unix::fs::chown(&path, None, None)));
    let no_list = || Ok(rustix::fs::removexattr(&path, "system.posix_acl_access")?);
    log.found("no list", changes(&file, no_list));
    let both = || fsetxattr(&file, "user.both", b"1", XattrFlags::CREATE | XattrFlags::REPLACE);
    log.sys("create and replace", both());
    fsetxattr(&file, "user.both", b"1", XattrFlags::empty()).unwrap();
    log.sys("create and replace what is there", both());
    (&file).write_all(b"more").unwrap();
    let written = times(&file).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    drop(file);
    log.found("what closing changes", File::open(&path).and_then(|f| Ok(times(&f)? == written)));
}

pub fn privileges(log: &mut Log, dir: &Path) {
    let path = dir.join("privileged");
    fs::write(&path, "bytes").unwrap();
    let open = || File::options().read(true).write(true).open(&path);
    let mut left = |what: &str, mode: u32, call: &mut dyn FnMut() -> Result<()>| {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let done = call();
        log.found(what, done.and_then(|()| Ok(fs::metadata(&path)?.mode())));
    };
    let reserve = |flags, to| Ok(fallocate(open()?, flags, 0, to)?);
    let (keep, punch) = (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE);
    left("root reserves", 0o6777, &mut || reserve(keep, 100));
    left("another reserves", 0o6777, &mut || by_nobody(|| reserve(keep, 100)));
    left("another punches", 0o6777, &mut || by_nobody(|| reserve(keep | punch, 100)));
    left("another cuts it", 0o6777, &mut || {
        by_nobody(|| File::options().write(true).truncate(true).open(&path).map(drop))
    });
    let nobody = || std::os::unix::fs::chown(&path, None, None);
    left("given to nobody else", 0o6755, &mut || nobody());
    left("given to another", 0o6755, &mut || std::os::unix::fs::chown(&path, Some(1_000), None));
    left("and back", 0o6755, &mut || std::os::unix::fs::chown(&path, Some(0), Some(0)));
    left("a mark for the group stays", 0o2745, &mut || nobody());
}

/// `chown` with no owner and no group, by somebody else.
pub fn privileges_of_others(log: &mut Log, dir: &Path) {
    for mode in [0o755, 0o1755, 0o4755, 0o2755, 0o2745] {
        let path = dir.join(format!("of-root-{mode:o}"));
        // Never open to be written.
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL;
        rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        log.done("nobody else", by_nobody(|| std::os::unix::fs::chown(&path, None, None)));
        log.found("mode", fs::metadata(&path).map(|m| m.mode()));
    }
    let group = dir.join("group");
    fs::create_dir(&group).unwrap();
    fs::set_permissions(&group, Permissions::from_mode(0o2755)).unwrap();
    log.done("a directory", by_nobody(|| std::os::unix::fs::chown(&group, None, None)));
    log.found("mode", fs::metadata(&group).map(|m| m.mode()));
}
