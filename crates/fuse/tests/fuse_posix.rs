//! What programs may do on a mount, each through the kernel.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[allow(dead_code, reason = "each test program uses its part")]
mod fuse_support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use fuse_support::memfs::MemFs;
use fuse_support::{Mount, can_mount};
use weir_fuse::Config;

fn mount() -> Option<Mount> {
    can_mount().then(|| Mount::new(MemFs::new(), &Config::default()))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Bytes without any period that a page or a stripe could hide.
fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn files_keep_what_is_written_to_them() {
    let Some(mount) = mount() else { return };
    let path = mount.path("file");
    let mut expected = pattern(5_000_001);
    fs::write(&path, &expected).unwrap();
    assert!(fs::read(&path).unwrap() == expected);

    let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"in the middle", 1_234_567).unwrap();
    expected[1_234_567..1_234_580].copy_from_slice(b"in the middle");
    file.seek(SeekFrom::Start(6_000_000)).unwrap();
    file.write_all(b"beyond a hole").unwrap();
    expected.resize(6_000_000, 0);
    expected.extend_from_slice(b"beyond a hole");
    file.sync_all().unwrap();
    assert!(fs::read(&path).unwrap() == expected);

    file.set_len(10).unwrap();
    assert_eq!(fs::read(&path).unwrap(), expected[..10]);
    let mut appender = OpenOptions::new().append(true).open(&path).unwrap();
    appender.write_all(b"end").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 13);
    File::create(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
    drop((file, appender));
    mount.end();
}

#[test]
fn direct_io_and_odd_sizes_read_the_same_bytes() {
    if !can_mount() {
        return;
    }
    let mut fs = MemFs::new();
    fs.direct_io = true;
    let mount = Mount::new(fs, &Config::default());
    let expected = pattern(3_333_333);
    let path = mount.path("file");
    fs::write(&path, &expected).unwrap();
    assert!(fs::read(&path).unwrap() == expected);
    let copy = mount.path("copy");
    let (input, output) = (format!("if={}", path.display()), format!("of={}", copy.display()));
    run(Command::new("dd").args([&input, &output, "bs=77777", "status=none"]));
    assert!(fs::read(&copy).unwrap() == expected);
    mount.end();
}

#[test]
fn names_can_be_made_moved_linked_and_removed() {
    let Some(mount) = mount() else { return };
    let at = |name: &str| mount.path(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("dir/a"), "a").unwrap();
    assert_eq!(fs::create_dir(at("dir")).unwrap_err().raw_os_error(), Some(libc::EEXIST));
    assert_eq!(fs::remove_dir(at("dir")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    assert_eq!(fs::read(at("none")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    let long = "x".repeat(256);
    assert_eq!(fs::read(at(&long)).unwrap_err().raw_os_error(), Some(libc::ENAMETOOLONG));

    fs::rename(at("dir/a"), at("b")).unwrap();
    assert!(!at("dir/a").exists());
    fs::hard_link(at("b"), at("c")).unwrap();
    assert_eq!(fs::metadata(at("c")).unwrap().nlink(), 2);
    fs::remove_file(at("b")).unwrap();
    assert_eq!(fs::read(at("c")).unwrap(), b"a");
    std::os::unix::fs::symlink("c", at("link")).unwrap();
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("c"));
    assert_eq!(fs::read(at("link")).unwrap(), b"a");
    run(Command::new("mkfifo").arg(at("fifo")));
    assert!(fs::symlink_metadata(at("fifo")).unwrap().file_type().is_fifo());

    let (from, to) = (at("c"), at("link"));
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    let refused = rustix::fs::renameat_with(rustix::fs::CWD, &from, rustix::fs::CWD, &to, flags);
    assert_eq!(refused, Err(rustix::io::Errno::EXIST));
    fs::remove_dir(at("dir")).unwrap();

    let mut unnamed = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(mount.dir.path())
        .unwrap();
    unnamed.write_all(b"nameless").unwrap();
    unnamed.rewind().unwrap();
    let mut text = String::new();
    unnamed.read_to_string(&mut text).unwrap();
    assert_eq!(text, "nameless");
    drop(unnamed);
    mount.end();
}

#[test]
fn attributes_times_and_space_are_told() {
    let Some(mount) = mount() else { return };
    let path = mount.path("file");
    let file = File::create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    let early = UNIX_EPOCH - Duration::from_millis(1500);
    file.set_modified(early).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.uid(), metadata.gid()), (0o751, 12, 34));
    assert_eq!(metadata.modified().unwrap(), early);
    let space = rustix::fs::statvfs(&path).unwrap();
    assert_eq!((space.f_blocks * space.f_frsize, space.f_namemax), (1 << 30, 255));
    drop(file);
    mount.end();
}

#[test]
fn extended_attributes_fit_or_say_how_long_they_are() {
    use rustix::fs::{XattrFlags, getxattr, getxattr_query, listxattr, removexattr, setxattr};
    let Some(mount) = mount() else { return };
    let path = mount.path("file");
    File::create(&path).unwrap();
    let big = pattern(65_536);
    setxattr(&path, "user.small", b"value", XattrFlags::empty()).unwrap();
    setxattr(&path, "user.big", &big, XattrFlags::empty()).unwrap();
    let mut space = vec![0u8; 65_536];
    assert_eq!(getxattr_query(&path, "user.small"), Ok(5));
    assert_eq!(getxattr(&path, "user.small", &mut space[..4]), Err(rustix::io::Errno::RANGE));
    assert_eq!(getxattr(&path, "user.small", &mut space), Ok(5));
    assert_eq!(&space[..5], b"value");
    assert_eq!(getxattr(&path, "user.big", &mut space), Ok(65_536));
    assert!(space == big);
    let length = listxattr(&path, &mut space).unwrap();
    assert_eq!(&space[..length], b"user.big\0user.small\0");
    removexattr(&path, "user.big").unwrap();
    assert_eq!(getxattr(&path, "user.big", &mut space), Err(rustix::io::Errno::NODATA));
    mount.end();
}

#[test]
fn a_large_directory_is_listed_whole() {
    let Some(mount) = mount() else { return };
    fs::create_dir(mount.path("many")).unwrap();
    let mut expected: Vec<String> = (0..3000).map(|i| format!("entry-number-{i:06}")).collect();
    for name in &expected {
        File::create(mount.path("many").join(name)).unwrap();
    }
    let mut listed: Vec<String> = fs::read_dir(mount.path("many"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    let text = run(Command::new("ls").arg("-la").arg(mount.path("many")));
    assert_eq!(text.lines().count(), 3000 + 3);
    mount.end();
}

#[test]
fn everyday_programs_work() {
    let Some(mount) = mount() else { return };
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir_all(tree.path().join("one/two")).unwrap();
    fs::write(tree.path().join("one/data"), pattern(2_000_000)).unwrap();
    fs::write(tree.path().join("one/two/script"), "#!/bin/sh\necho it runs\n").unwrap();
    fs::set_permissions(tree.path().join("one/two/script"), fs::Permissions::from_mode(0o755))
        .unwrap();
    std::os::unix::fs::symlink("two/script", tree.path().join("one/link")).unwrap();

    run(Command::new("cp").arg("-a").arg(tree.path().join("one")).arg(mount.path("copy")));
    run(Command::new("diff").arg("-r").arg(tree.path().join("one")).arg(mount.path("copy")));
    let times = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(times(&tree.path().join("one/data")), times(&mount.path("copy/data")));
    assert_eq!(run(&mut Command::new(mount.path("copy/link"))), "it runs\n");
    let archive = mount.path("archive.tar");
    run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(mount.path("copy")).arg("."));
    let listing = run(Command::new("tar").arg("-tf").arg(&archive));
    assert!(listing.contains("./two/script"));
    run(Command::new("rm").arg("-r").arg(mount.path("copy")));
    assert!(!mount.path("copy").exists());
    mount.end();
}

#[test]
fn locks_are_kept_by_the_kernel_unless_asked_for() {
    let Some(mount) = mount() else { return };
    let path = mount.path("file");
    let first = File::create(&path).unwrap();
    let second = File::open(&path).unwrap();
    first.lock().unwrap();
    assert!(second.try_lock().is_err());
    first.unlock().unwrap();
    second.try_lock().unwrap();
    drop((first, second));
    mount.end();
}
