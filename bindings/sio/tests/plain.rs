//! The whole interface on plain files.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod c_program;
mod suite;

use sio::constants::*;
use sio::core::codes::Code;
use std::process::Command;
use suite::Over;

/// What only a disk that is full, read-only or without attributes says.
const OF_DISKS: [(&str, &str); 7] = [
    ("sio_open", "NO_SPACE"),
    ("sio_sg_write", "NO_SPACE"),
    ("sio_unlink", "INCORRECT_MODE"),
    ("sio_rename", "INCORRECT_MODE"),
    ("FastCopy", "NO_SPACE"),
    ("GetLabel", "OP_UNSUPPORTED"),
    ("SetLabel", "OP_UNSUPPORTED"),
];

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
    let nowhere = format!("plain:{}/nowhere", directory.path().display());
    assert_eq!(suite::attach(&nowhere), Code::FileNotFound, "{}", suite::last_error());
    // A plain file has no layout to set.
    let of_layouts = ["SUCCESS", "CONTROLS_CLASH", "CONTROL_WOULD_HAVE_SUCCEEDED"];
    let mut absent = of_layouts.map(|code| ("SetLayout", code)).to_vec();
    if rustix::process::geteuid().is_root() {
        what_a_disk_refuses_has_its_code();
    } else {
        println!("skipped: disks that are full, read-only or without attributes need root");
        absent.extend(OF_DISKS);
    }
    suite::promised::check(&absent);
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

/// A file system of the kernel's memory, mounted on a directory.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(kind: &str, options: &str) -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        Self::run(Command::new("mount").args(["-t", kind, "-o", options, kind]).arg(disk.0.path()));
        disk
    }

    fn run(command: &mut Command) {
        assert!(command.status().unwrap().success(), "{command:?}");
    }

    fn attached(&self, then: impl FnOnce()) {
        let files = format!("plain:{}", self.0.path().display());
        suite::attached(Over { files: files.leak(), servers: 0 }, then);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A panic of its own would hide what has failed.
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn what_a_disk_refuses_has_its_code() {
    let create = MODE_READ | MODE_WRITE | MODE_CREATE;
    // The root, two files, and one MiB.
    let small = Disk::mount("tmpfs", "size=1m,nr_inodes=3");
    small.attached(|| {
        let (from, to) = (suite::create("from"), suite::create("to"));
        let more = suite::files::opened("more", create, &mut []);
        assert_eq!(more, Err(Code::NoSpace), "{}", suite::last_error());
        let mut bytes = 2u64 << 20;
        let mut ops = [suite::op(CTL_SET_SIZE, &mut bytes)];
        assert_eq!(suite::control(from, &mut ops), Code::Success);
        let mut copy = sio::sio_fast_copy_t {
            source: from,
            source_offset: 0,
            offset: 0,
            size: 2 << 20,
            copied: 0,
        };
        let mut ops = [suite::op(CTL_FAST_COPY, &mut copy)];
        assert_eq!(suite::control(to, &mut ops), Code::Success);
        assert_eq!(suite::results(&ops), [Code::NoSpace]);
        let mut data = vec![1; 2 << 20];
        let list = [suite::in_file(0, 2 << 20, 0, 1)];
        let (ended, total) = suite::transfer(true, from, &list, &suite::all_of(&mut data));
        assert_eq!((ended, total), (Code::NoSpace, 0));
        assert!(suite::last_error().contains("from"), "{}", suite::last_error());
        suite::close(from);
        suite::drop_file(to, "to");
    });
    Disk::run(Command::new("mount").args(["-o", "remount,ro"]).arg(small.0.path()));
    small.attached(|| {
        assert_eq!(suite::files::opened("from", MODE_WRITE, &mut []), Err(Code::IncorrectMode));
        assert_eq!(suite::unlink("from"), Code::IncorrectMode);
        assert_eq!(suite::files::rename("from", "new"), Code::IncorrectMode);
        suite::close(suite::open("from", MODE_READ));
    });
    Disk::mount("ramfs", "mode=700").attached(|| {
        let fd = suite::create("no attributes");
        let mut text = *b"text";
        let mut label = sio::sio_label_t { size: 4, data: text.as_mut_ptr().cast() };
        for op_code in [CTL_SET_LABEL, CTL_GET_LABEL] {
            let mut ops = [suite::op(op_code, &mut label)];
            assert_eq!(suite::control(fd, &mut ops), Code::Success);
            assert_eq!(suite::results(&ops), [Code::OpUnsupported], "{}", suite::last_error());
        }
        suite::drop_file(fd, "no attributes");
    });
}

#[test]
fn a_c_program_over_plain_files() {
    let directory = tempfile::tempdir().unwrap();
    c_program::run(directory.path(), &format!("plain:{}", directory.path().display()), &[]);
}
