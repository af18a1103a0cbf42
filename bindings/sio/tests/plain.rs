//! The whole interface over plain files.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod c_program;
mod suite;

use sio::core::codes::Code;
use suite::Over;

/// One process has one file system attached, so it is one test.
#[test]
fn every_function_over_plain_files() {
    let directory = tempfile::tempdir().unwrap();
    let files = format!("plain:{}", directory.path().display());
    let over = Over { files: files.leak(), servers: 0 };
    suite::run(over);
    suite::attached(over, || {
        // More than the local file system has room to number.
        let fd = suite::create("far");
        let mut byte = [1];
        let list = [suite::in_file(1 << 61, 1, 0, 1)];
        let ended = suite::transfer(true, fd, &list, &suite::all_of(&mut byte));
        assert_eq!(ended, (Code::IoFailed, 0));
        assert!(suite::last_error().contains("far"), "{}", suite::last_error());
        suite::drop_file(fd, "far");
    });
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_c_program_over_plain_files() {
    let directory = tempfile::tempdir().unwrap();
    c_program::run(directory.path(), &format!("plain:{}", directory.path().display()), &[]);
}
