//! Open files that are closed or leased while calls on them are under way.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod c_file;
mod cluster;

use c_file::{connect, done};
use cluster::Cluster;
use std::ffi::CStr;
use weir::error::weir_errmsg;
use weir::files::{weir_close, weir_fsync, weir_open};
use weir::fs::{weir_disconnect, weir_options_t};
use weir::handles::{weir_file_t, weir_fs_t};
use weir::io::{weir_pread, weir_pwrite};
use weir::leases::{weir_layout_lease, weir_lease_check, weir_lease_return};
use weir::lists::{weir_memory_t, weir_region_t, weir_submit_write_list};
use weir::names::{weir_stat, weir_stat_t};
use weir::queue::weir_completion_t;
use weir::queues::{
    weir_queue_close, weir_queue_open, weir_reap, weir_submit_pread, weir_submit_pwrite,
};

const CALLS: u64 = 256;
/// Number of calls of a queue that run at the same time.
const THREADS: usize = 16;

fn open(fs: weir_fs_t, path: &CStr) -> weir_file_t {
    let mut file = 0;
    // SAFETY: all pointers refer to values that outlive the call.
    done(unsafe { weir_open(fs, path.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600, &mut file) })
        .unwrap();
    file
}

fn stat(fs: weir_fs_t, path: &CStr) -> weir_stat_t {
    let mut stat = weir_stat_t::default();
    // SAFETY: all pointers refer to values that outlive the call.
    done(unsafe { weir_stat(fs, path.as_ptr(), &mut stat) }).unwrap();
    stat
}

fn queue(depth: u32) -> u64 {
    let mut queue = 0;
    // SAFETY: the pointer refers to a value that outlives the call.
    done(unsafe { weir_queue_open(depth, &mut queue) }).unwrap();
    queue
}

/// Takes all completions.
fn reap(queue: u64) -> Vec<weir_completion_t> {
    let mut all = Vec::with_capacity(CALLS as usize);
    // SAFETY: there is room for that many entries.
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
        let region = weir_region_t { offset: at, size: len as u64, stride: 0, count: 1 };
        let memory = weir_memory_t { base: data.as_ptr().cast_mut().cast(), len };
        // SAFETY: the data outlives the queue, and is only read.
        let submitted = unsafe {
            match tag % 2 {
                0 => weir_submit_pwrite(queue, file, data.as_ptr().cast(), len, at, tag),
                _ => weir_submit_write_list(queue, file, &region, 1, &memory, 1, tag),
            }
        };
        done(submitted).unwrap();
    }
    done(weir_close(file)).unwrap();
    // All calls have ended. A completion may arrive a moment later: one of each thread.
    let mut results: Vec<_> = reap(queue).iter().map(|done| done.result).collect();
    assert!(results.len() >= CALLS as usize - THREADS, "{} have ended", results.len());
    while results.len() < CALLS as usize {
        results.extend(reap(queue).iter().map(|done| done.result));
        std::thread::yield_now();
    }
    assert!(results.iter().all(|bytes| *bytes == data.len() as i64), "{results:?}");
    // SAFETY: the data outlives the queue.
    let late = unsafe { weir_submit_pwrite(queue, file, data.as_ptr().cast(), 1, 0, 0) };
    assert_eq!(late, -libc::EBADF);
    // Another client sees the data that the close has reported.
    let other = connect(&cluster.credential(), &weir_options_t::default());
    assert_eq!(stat(other, path).size, CALLS * data.len() as u64);
    done(weir_disconnect(other)).unwrap();
    done(weir_queue_close(queue)).unwrap();
    done(weir_disconnect(fs)).unwrap();
}

#[test]
fn a_layout_lease_outlasts_the_own_writes_of_its_holder_and_the_close_of_its_file() {
    let cluster = Cluster::up();
    let mine = connect(&cluster.credential(), &weir_options_t::default());
    let other = connect(&cluster.credential(), &weir_options_t::default());
    let (path, queue) = (c"/leased", queue(1));
    let write = |file, at| {
        // SAFETY: the data outlives the call.
        assert_eq!(unsafe { weir_pwrite(file, [7_u8; 8].as_ptr().cast(), 8, at) }, 8);
    };
    let file = open(mine, path);
    let mut lease = 0;
    // SAFETY: the pointer refers to a value that outlives the call.
    done(unsafe { weir_layout_lease(file, queue, &mut lease) }).unwrap();
    write(file, 0);
    assert!(reap(queue).is_empty(), "its own write wants the lease back");
    done(weir_lease_check(lease)).unwrap();
    done(weir_close(file)).unwrap();
    done(weir_lease_check(lease)).unwrap();
    // The lease still protects: another writer causes a recall.
    let writer = std::thread::spawn(move || {
        let file = open(other, path);
        // SAFETY: the data outlives the call.
        assert_eq!(unsafe { weir_pwrite(file, [8_u8; 8].as_ptr().cast(), 8, 0) }, 8);
        done(weir_close(file)).unwrap();
    });
    let mut wanted = weir_completion_t { tag: 0, result: 0, kind: 0, message: [0; 256] };
    // SAFETY: there is room for one entry.
    assert_eq!(unsafe { weir_reap(queue, &mut wanted, 1, 60_000) }, 1);
    assert_eq!((wanted.tag, wanted.result), (lease, 0));
    done(weir_lease_return(lease)).unwrap();
    writer.join().unwrap();
    done(weir_queue_close(queue)).unwrap();
    for fs in [mine, other] {
        done(weir_disconnect(fs)).unwrap();
    }
}

#[test]
fn a_lease_that_is_not_given_back_in_time_is_stale() {
    let cluster = Cluster::up();
    let mine = connect(&cluster.credential(), &weir_options_t::default());
    let other = connect(&cluster.credential(), &weir_options_t::default());
    let (path, queue) = (c"/kept", queue(1));
    let file = open(mine, path);
    let mut lease = 0;
    // SAFETY: the pointer refers to a value that outlives the call.
    done(unsafe { weir_layout_lease(file, queue, &mut lease) }).unwrap();
    let theirs = open(other, path);
    // The first write waits for the lease, later ones do not.
    // SAFETY: the data outlives the call.
    assert_eq!(unsafe { weir_pwrite(theirs, [8_u8; 8].as_ptr().cast(), 8, 0) }, 8);
    done(weir_fsync(theirs)).unwrap();
    assert_eq!(weir_lease_check(lease), -libc::ESTALE);
    assert_eq!(weir_lease_return(lease), -libc::ESTALE);
    for file in [file, theirs] {
        done(weir_close(file)).unwrap();
    }
    done(weir_queue_close(queue)).unwrap();
    for fs in [mine, other] {
        done(weir_disconnect(fs)).unwrap();
    }
}

#[test]
fn an_error_names_the_server_and_the_target() {
    let cluster = Cluster::up();
    let options = weir_options_t { request_timeout_ms: 2_000, ..weir_options_t::default() };
    let fs = connect(&cluster.credential(), &options);
    let (file, queue) = (open(fs, c"/lost"), queue(1));
    let mut data = vec![7_u8; 1 << 20];
    // SAFETY: the data outlives the call.
    assert_eq!(unsafe { weir_pwrite(file, data.as_ptr().cast(), data.len(), 0) }, 1 << 20);
    done(weir_fsync(file)).unwrap();
    cluster.kill("data-2");
    // SAFETY: the buffer outlives the call.
    let read = unsafe { weir_pread(file, data.as_mut_ptr().cast(), data.len(), 0) };
    assert!(read < 0);
    // SAFETY: the text is valid until the next error of this thread.
    let said = unsafe { CStr::from_ptr(weir_errmsg()) }.to_string_lossy().into_owned();
    assert!(said.contains("target 2") && said.contains("server"), "{said}");
    // SAFETY: the data outlives the queue.
    let submitted =
        unsafe { weir_submit_pread(queue, file, data.as_mut_ptr().cast(), data.len(), 0, 1) };
    done(submitted).unwrap();
    let mut end = weir_completion_t { tag: 0, result: 0, kind: 0, message: [0; 256] };
    // SAFETY: there is room for one entry.
    assert_eq!(unsafe { weir_reap(queue, &mut end, 1, 60_000) }, 1);
    // SAFETY: the library ends the text with a zero byte.
    let said = unsafe { CStr::from_ptr(end.message.as_ptr()) }.to_string_lossy().into_owned();
    assert!(end.result < 0 && said.contains("target 2") && said.contains("server"), "{said}");
    done(weir_queue_close(queue)).unwrap();
    weir_close(file);
    done(weir_disconnect(fs)).unwrap();
}
