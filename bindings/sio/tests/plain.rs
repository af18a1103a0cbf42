//! The whole interface on plain files.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod c_program;
mod suite;

use sio::core::codes::Code;
use suite::Over;

/// A process can attach only one file system, so this is one test.
#[test]
fn every_function_over_plain_files() {
    let directory = tempfile::tempdir().unwrap();
    let files = format!("plain:{}", directory.path().display());
    let over = Over { files: files.leak(), servers: 0 };
    suite::run(over);
    suite::attached(over, || {
        // Beyond the largest offset of the local file system.
        let fd = suite::create("far");
        let mut byte = [1];
        let list = [suite::in_file(1 << 61, 1, 0, 1)];
        let ended = suite::transfer(true, fd, &list, &suite::all_of(&mut byte));
        assert_eq!(ended, (Code::IoFailed, 0));
        assert!(suite::last_error().contains("far"), "{}", suite::last_error());
        suite::drop_file(fd, "far");
    });
    what_is_read_once_is_not_kept();
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Measured by the bytes that this process has read from the disk.
fn what_is_read_once_is_not_kept() {
    const BYTES: usize = 1 << 20;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("once");
    std::fs::write(&path, vec![1; BYTES]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    // Dirty pages cannot be dropped.
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let fetched = |read: &dyn Fn()| {
        let so_far = || {
            let text = std::fs::read_to_string("/proc/self/io").unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap();
            line.parse::<usize>().unwrap()
        };
        let before = so_far();
        read();
        so_far() - before
    };
    let files = format!("plain:{}", directory.path().display());
    suite::attached(Over { files: files.leak(), servers: 0 }, || {
        let fd = suite::open("once", sio::constants::MODE_READ);
        let read = || assert!(suite::read(fd, 0, BYTES) == vec![1; BYTES]);
        if fetched(&read) < BYTES {
            println!("skipped: {} is not on a disk", directory.path().display());
            return suite::close(fd);
        }
        assert_eq!(fetched(&read), 0, "without the hint the kernel keeps it");
        let hint = suite::hints::hint(sio::constants::HINT_READ_ONCE, &mut []);
        let given = suite::hints::give(fd, sio::constants::HINT_CLASS_ORDERED, &[hint]);
        assert_eq!(given, Code::Success);
        read();
        assert!(fetched(&read) >= BYTES, "it was kept");
        suite::close(fd);
    });
}

#[test]
fn a_c_program_over_plain_files() {
    let directory = tempfile::tempdir().unwrap();
    c_program::run(directory.path(), &format!("plain:{}", directory.path().display()), &[]);
}
