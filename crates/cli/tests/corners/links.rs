//! Renames, links, and files that are found again without a name.

use super::special::by_nobody;
use super::{Log, checked};
use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{Read, Result};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

pub fn renames(log: &mut Log, dir: &Path) {
    let dir = &dir.join("renames");
    fs::create_dir(dir).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(dir.join(name), name).unwrap();
    }
    fs::create_dir_all(dir.join("d/e")).unwrap();
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, dir.join(from), CWD, dir.join(to), flags)
    };
    let (keep, swap, white) =
        (RenameFlags::NOREPLACE, RenameFlags::EXCHANGE, RenameFlags::WHITEOUT);
    log.sys("over one that is there", rename("a", "b", keep));
    log.sys("to a new name", rename("a", "n", keep));
    log.sys("exchange", rename("n", "d", swap));
    log.sys("exchange with nothing", rename("n", "none", swap));
    log.sys("exchange with what is in it", rename("n", "n/e", swap));
    log.sys("both at once", rename("b", "c", keep | swap));
    log.sys("whiteout and exchange", rename("c", "d", white | swap));
    log.sys("leave a whiteout", rename("c", "w", white));
    log.sys("over one that is there", rename("w", "b", white));
    log.sys("but not over it", rename("b", "w", white | keep));
    log.sys("of a directory", rename("n", "moved", white));
    log.sys("out of one", rename("moved/e", "e", white));
    log.sys("over a whiteout", rename("e", "w", white));
    log.sys("over a directory", rename("b", "moved", white));
    fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
    log.sys("by anybody", by_nobody(|| rename("b", "mine", white)));
    let device = |name: &str, number| {
        let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0));
        rustix::fs::mknodat(CWD, dir.join(name), kind, mode, number)
    };
    log.sys("anybody makes one", by_nobody(|| device("made", 0)));
    log.sys("and no other", by_nobody(|| device("null", libc::makedev(1, 3))));
    log.names(dir);
    for name in ["a", "b", "c", "d", "e", "n", "w", "moved", "moved/e", "mine", "made", "."] {
        let state = fs::symlink_metadata(dir.join(name))
            .map(|m| (m.mode(), m.rdev(), m.nlink(), m.uid(), m.gid()));
        log.found(name, state);
    }
}

pub fn many(log: &mut Log, dir: &Path) {
    const LINKS: usize = 2_000;
    let dir = &dir.join("many");
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("0"), "x").unwrap();
    let made = (1..LINKS).filter(|n| fs::hard_link(dir.join("0"), dir.join(n.to_string())).is_ok());
    log.found("links", Ok(made.count()));
    log.found("count", fs::metadata(dir.join("7")).map(|m| m.nlink()));
    log.done(
        "remove all but one",
        (1..LINKS).try_for_each(|n| fs::remove_file(dir.join(n.to_string()))),
    );
    log.found("count", fs::metadata(dir.join("0")).map(|m| m.nlink()));
    log.done("of a directory", fs::hard_link(dir, dir.join("dir")));
}

/// What a server of another network file system keeps of a file.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    id: [u8; 128],
}

fn handle_of(path: &Path) -> Result<Handle> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let (mut handle, mut mount) = (Handle { bytes: 128, kind: 0, id: [0; 128] }, 0);
    // SAFETY: a path that ends in zero, and a handle with room for as much as it says.
    checked(unsafe {
        let to = (&raw mut handle).cast();
        libc::name_to_handle_at(libc::AT_FDCWD, name.as_ptr(), to, &raw mut mount, 0)
    })?;
    Ok(handle)
}

fn open_handle(mount: &File, handle: &mut Handle) -> Result<File> {
    // SAFETY: an open directory, a handle as it was filled in; the descriptor is owned from here on.
    unsafe {
        let to = std::ptr::from_mut(handle).cast();
        let opened = libc::open_by_handle_at(mount.as_raw_fd(), to, libc::O_RDONLY);
        checked(opened).map(|fd| File::from_raw_fd(fd))
    }
}

pub fn handles(log: &mut Log, dir: &Path) {
    let mount = &File::open(dir).unwrap();
    let dir = &dir.join("handles");
    fs::create_dir_all(dir.join("sub")).unwrap();
    let (file, sub) = (dir.join("sub/file"), dir.join("sub"));
    fs::write(&file, "bytes").unwrap();
    let mut handle = handle_of(&file).unwrap();
    let mut of_dir = handle_of(&sub).unwrap();
    let mut read = || -> Result<String> {
        let mut text = String::new();
        open_handle(mount, &mut handle)?.read_to_string(&mut text)?;
        Ok(text)
    };
    log.found("read by its handle", read());
    fs::rename(&file, dir.join("moved")).unwrap();
    log.found("also when it has moved", read());
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    log.found("and the kernel has forgotten it", read());
    fs::remove_file(dir.join("moved")).unwrap();
    // It is gone when the last that has it open has closed it, of which a mount hears afterwards.
    let end = Instant::now() + Duration::from_secs(5);
    while read().is_ok() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    log.found("not when it is gone", read());
    log.done("a directory", open_handle(mount, &mut of_dir));
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    let parent = |of: &File| fs::canonicalize(format!("/proc/self/fd/{}/..", of.as_raw_fd()));
    let up = open_handle(mount, &mut of_dir).and_then(|dir| parent(&dir));
    log.found("its parent", up.map(|path| path.file_name().map(|name| name.to_owned())));
}
