//! What becomes of an open file when it is closed or leased while calls by it are under way.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod c_file;
mod cluster;

use c_file::{connect, done};
use cluster::Cluster;
use std::ffi::CStr;
use weir::files::{weir_close, weir_open};
use weir::fs::{weir_disconnect, weir_options_t};
use weir::handles::{weir_file_t, weir_fs_t};
use weir::names::weir_unlink;
use weir::queue::weir_completion_t;
use weir::queues::{weir_queue_close, weir_queue_open, weir_reap, weir_submit_pwrite};

const CALLS: u64 = 256;

fn open(fs: weir_fs_t, path: &CStr) -> weir_file_t {
    let mut file = 0;
    // SAFETY: all pointers are of values that live until it returns.
    done(unsafe { weir_open(fs, path.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600, &mut file) })
        .unwrap();
    file
}

fn queue(depth: u32) -> u64 {
    let mut queue = 0;
    // SAFETY: the pointer is of a value that lives until it returns.
    done(unsafe { weir_queue_open(depth, &mut queue) }).unwrap();
    queue
}

/// Takes out the completions that there are.
fn reap(queue: u64) -> Vec<weir_completion_t> {
    let mut all = Vec::with_capacity(CALLS as usize);
    // SAFETY: there is room for so many.
    unsafe {
        let count = weir_reap(queue, all.as_mut_ptr(), all.capacity(), 0);
        all.set_len(usize::try_from(count).unwrap());
    }
    all
}

#[test]
fn a_close_waits_for_queued_writes_and_nothing_opens_the_file_again() {
    let cluster = Cluster::up();
    let fs = connect(&cluster.credential(), &weir_options_t::default());
    let (path, queue) = (c"/closed", queue(CALLS as u32));
    let file = open(fs, path);
    let data = vec![7_u8; 16 << 10];
    for tag in 0..CALLS {
        let (at, len) = (tag * data.len() as u64, data.len());
        // SAFETY: the data stays until the queue is closed.
        done(unsafe { weir_submit_pwrite(queue, file, data.as_ptr().cast(), len, at, tag) })
            .unwrap();
    }
    // Who opens it again finds nothing.
    // SAFETY: the path is a string.
    done(unsafe { weir_unlink(fs, path.as_ptr()) }).unwrap();
    done(weir_close(file)).unwrap();
    // The completion of a call may come a moment after its end.
    let mut results = Vec::new();
    while results.len() < CALLS as usize {
        results.extend(reap(queue).iter().map(|done| done.result));
        std::thread::yield_now();
    }
    assert!(results.iter().all(|bytes| *bytes == data.len() as i64), "{results:?}");
    // SAFETY: as above.
    let late = unsafe { weir_submit_pwrite(queue, file, data.as_ptr().cast(), 1, 0, 0) };
    assert_eq!(late, -libc::EBADF);
    done(weir_queue_close(queue)).unwrap();
    done(weir_disconnect(fs)).unwrap();
}
