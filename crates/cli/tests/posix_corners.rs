//! Corners of POSIX and Linux on a mount: each ends as on a local directory, call for call.

use crate::corners;
use crate::harness::{self, Place, root};
use crate::library;
use rustix::fs::{FallocateFlags, fallocate, ioctl_ficlone};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

#[test]
fn corners_of_posix_end_as_on_a_local_directory() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    // Others have to get there.
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
    let [local, mount] = ["local", "m/here"].map(|name| place.path(name));
    fs::create_dir(&local).unwrap();
    fs::create_dir(&mount).unwrap();
    let (expected, real) = (corners::everything(&local), corners::everything(&mount));
    assert_eq!(expected.len(), real.len(), "{expected:#?}\n{real:#?}");
    let differ: Vec<String> = expected
        .iter()
        .zip(&real)
        .filter(|(local, mount)| local != mount)
        .map(|(local, mount)| format!("{local}; on the mount {mount}"))
        .collect();
    println!("{} calls", expected.len());
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

/// The kernel leaves that to the mount where its pages are passed.
#[test]
fn a_write_past_the_kernels_pages_takes_capabilities_away() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    let local = place.path("local");
    fs::create_dir(&local).unwrap();
    let expected = corners::capabilities(&local);
    let watcher = library::client(&cluster, false);
    let asked = || {
        let counters = watcher.metadata_status().unwrap().counters;
        counters.into_iter().find(|(name, _)| name == "op.getxattr").map(|(_, times)| times)
    };
    for (name, options) in [("d", "direct_io"), ("n", "consistency=none")] {
        let at = cluster.mount(name, options).join(format!("of-{name}"));
        fs::create_dir(&at).unwrap();
        assert_eq!(corners::capabilities(&at), expected, "{options}");
        // No server is asked about files without holes.
        let mut plain = File::create(at.join("plain")).unwrap();
        let before = asked();
        assert!(before.is_some());
        (0..50).for_each(|_| plain.write_all(b"bytes").unwrap());
        assert_eq!(asked(), before, "{options}");
    }
}

/// Local file systems end far below, but tmpfs: its targets are there.
#[test]
fn a_file_may_have_two_to_the_62nd_bytes() {
    if !root() {
        return;
    }
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = Place::new();
    symlink(memory.path(), place.path("state")).unwrap();
    let cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    let (path, size) = (place.path("m/big"), 1u64 << 62);
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(size).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    let mut end = [1; 5];
    file.read_exact_at(&mut end, size - 5).unwrap();
    assert_eq!(end, [0; 5]);
    // The last byte, which is data as any other.
    file.write_all_at(&[7], size - 1).unwrap();
    file.sync_all().unwrap();
    file.read_exact_at(&mut end, size - 5).unwrap();
    assert_eq!(end, [0, 0, 0, 0, 7]);
    drop(file);
    cluster.umount("m");
    cluster.weir(&["mount", "m"]).ok();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.read_exact_at(&mut end, size - 5).unwrap();
    assert_eq!(end, [0, 0, 0, 0, 7]);
    let is_too_big = |e: std::io::Error| e.raw_os_error() == Some(libc::EFBIG);
    assert!(is_too_big(file.write_all_at(&[7], size).unwrap_err()));
    assert!(is_too_big(file.set_len(size + 1).unwrap_err()));
    file.set_len(3).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [0; 3]);
}

/// As `docs/semantics.md` says, each with the error that programs know it by.
#[test]
fn what_is_not_offered_is_refused_as_is_documented() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = place.up("one", &["--targets", "1", "--mount", "m"]);
    let (path, bytes) = (place.path("m/f"), harness::noise(4 * 4096, 5));
    fs::write(&path, &bytes).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let (collapse, insert) = (FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE);
    for mode in [collapse, insert, FallocateFlags::UNSHARE_RANGE] {
        assert_eq!(fallocate(&file, mode, 4096, 4096), Err(Errno::OPNOTSUPP), "{mode:?}");
    }
    let clone = File::create(place.path("m/clone")).unwrap();
    assert_eq!(ioctl_ficlone(&clone, &file), Err(Errno::OPNOTSUPP));
    assert_eq!(fs::read(&path).unwrap(), bytes);

    // No flags, generations, ids nor labels.
    let (uuid, label) = (libc::_IOR::<[u8; 17]>(0x15, 0), libc::_IOR::<[u8; 256]>(0x94, 49));
    let dir = File::open(place.path("m")).unwrap();
    for open in [&file, &dir] {
        let asked = [libc::FS_IOC_GETFLAGS, libc::FS_IOC_SETFLAGS, libc::FS_IOC_GETVERSION];
        for request in asked.into_iter().chain([uuid, label]) {
            let mut buffer = [0u8; 256];
            // SAFETY: none of these writes or reads more than that.
            let done = unsafe { libc::ioctl(open.as_raw_fd(), request, buffer.as_mut_ptr()) };
            let error = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((done, error), (-1, Some(libc::ENOTTY)), "{request:#x}");
        }
        let (quota, mut buffer) = (libc::Q_GETQUOTA << 8, [0u8; 256]);
        // SAFETY: a quota is shorter than that.
        let done = unsafe {
            libc::syscall(libc::SYS_quotactl_fd, open.as_raw_fd(), quota, 0, buffer.as_mut_ptr())
        };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((done, error), (-1, Some(libc::ENOSYS)));
    }
    let (quota, name) = (libc::Q_GETQUOTA << 8, CString::new(path.to_str().unwrap()).unwrap());
    let mut buffer = [0; 256];
    // SAFETY: a quota is shorter than that.
    let done = unsafe { libc::quotactl(quota, name.as_ptr(), 0, buffer.as_mut_ptr()) };
    let error = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((done, error), (-1, Some(libc::ENOTBLK)));
}
