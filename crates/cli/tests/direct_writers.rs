//! Writers with `O_DIRECT` of one file.

use crate::harness::{Place, eventually, kernel_is, root};
use crate::metrics::scrape;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const BLOCK: usize = 4096;

/// A block at an address that `O_DIRECT` allows.
#[repr(align(4096))]
struct Block([u8; BLOCK]);

fn open(path: &Path) -> File {
    OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

fn write(file: &File, value: u8, at: usize) {
    let (block, at) = (Block([value; BLOCK]), at as libc::off_t);
    // SAFETY: the block is there until the call returns.
    let sent = unsafe { libc::pwrite(file.as_raw_fd(), block.0.as_ptr().cast(), BLOCK, at) };
    assert_eq!(sent, BLOCK as isize, "{}", std::io::Error::last_os_error());
}

#[test]
fn the_kernel_sends_writes_of_several_threads_although_none_is_answered() {
    // Before that it lets one pass at a time.
    if !root() || !kernel_is((6, 2)) {
        return;
    }
    let place = Place::new();
    let cluster = place.up("direct", &["--targets", "1"]);
    let path = cluster.mount("m", "metrics=127.0.0.1:0,timeout=60").join("f");
    fs::write(&path, [0; 8 * BLOCK]).unwrap();
    let status = cluster.weir(&["status", "--json"]).json();
    let address = status["mount_daemons"][0]["metrics"].as_str().unwrap();
    let open = [open(&path), open(&path), open(&path)];
    let stopped = cluster.stopped(&["data-1"]);
    std::thread::scope(|scope| {
        for (number, file) in open.iter().enumerate() {
            scope.spawn(move || write(file, 1 + number as u8, number * BLOCK));
        }
        eventually("all of them wait in the mount", || {
            scrape(address).contains("\nweir_mount_operations_in_progress 3\n")
        });
        drop(stopped);
    });
    let bytes = fs::read(&path).unwrap();
    for (number, block) in bytes.chunks(BLOCK).enumerate() {
        let value = if number < 3 { 1 + number as u8 } else { 0 };
        assert_eq!(block, [value; BLOCK], "block {number}");
    }
}
