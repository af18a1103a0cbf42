//! Records that two mounts append: each is there whole, once, and seen at once.

use crate::coherence_io::{Two, line, lines, open, open_direct, read_all, two};
use crate::harness::{Place, noise, root};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn appends_of_two_mounts_and_several_threads_are_all_there_whole() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "append", "");
    const EACH: usize = 60;
    let start = std::sync::Barrier::new(6);
    std::thread::scope(|scope| {
        for writer in 0..6 {
            let path = if writer % 2 == 0 { a.join("log") } else { b.join("log") };
            let start = &start;
            scope.spawn(move || {
                start.wait();
                let mut log = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for number in 0..EACH {
                    log.write_all(&line(writer, number)).unwrap();
                }
            });
        }
    });
    for mount in [&a, &b] {
        let found = lines(&fs::read(mount.join("log")).unwrap(), 6);
        for numbers in found {
            assert_eq!(numbers, (0..EACH).collect::<Vec<_>>());
        }
    }
}

/// As shells do with `>>`: the answer to an open may be from before another process
/// closed the file, and it must not write where that one did.
#[test]
fn records_that_processes_append_with_an_open_each_are_all_there() {
    const PROCESSES: usize = 3;
    const EACH: usize = 12;
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, .. } = two(&place, "shells", "");
    for round in 0..150 {
        let path = a.join(format!("log{round}"));
        std::thread::scope(|scope| {
            for writer in 0..PROCESSES {
                let path = &path;
                scope.spawn(move || {
                    for i in 0..EACH {
                        let mut log =
                            OpenOptions::new().append(true).create(true).open(path).unwrap();
                        log.write_all(format!("{writer} {i:04}\n").as_bytes()).unwrap();
                    }
                });
            }
        });
        let found = fs::read_to_string(&path).unwrap();
        assert_eq!(found.lines().count(), PROCESSES * EACH, "round {round}: {found}");
    }
}

/// One reads through the page cache, one maps, some ask for attributes, while
/// others append: on the same mount or on another.
fn appends_are_read_without_gaps(appender: &Path, reader: &Path, each: usize) {
    let (log, seen) = (appender.join("log"), reader.join("log"));
    fs::write(&log, "").unwrap();
    let done = AtomicBool::new(false);
    let left = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (log, done, left) = (&log, &done, &left);
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).open(log).unwrap();
                for number in 0..each {
                    log.write_all(&line(writer, number)).unwrap();
                }
                if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    done.store(true, Ordering::SeqCst);
                }
            });
        }
        for how in 0..2 {
            let (done, seen) = (&done, &seen);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    match how {
                        0 => drop(fs::metadata(seen).unwrap()),
                        _ => {
                            let dir = fs::read_dir(seen.parent().unwrap()).unwrap();
                            dir.for_each(|entry| drop(entry.unwrap().metadata()));
                        }
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
        }
        let mut last = false;
        let file = File::open(&seen).unwrap();
        let mut all: Vec<u8> = Vec::new();
        loop {
            // What was there stays; what is new follows without gaps.
            let from = all.len().saturating_sub(5000);
            let mut buffer = vec![0; 16 << 10];
            let n = file.read_at(&mut buffer, from as u64).unwrap();
            assert!(from + n >= all.len(), "the file shrank: {from} + {n} < {}", all.len());
            assert_eq!(buffer[..all.len() - from], all[from..], "bytes changed");
            all.truncate(from);
            all.extend_from_slice(&buffer[..n]);
            let whole = all[from..].iter().position(|b| *b == b'\n').map_or(n, |at| at + 1);
            if from == 0 {
                lines(&all, 2)
            } else {
                lines(&all[from + whole..], 2)
            };
            let size = file.metadata().unwrap().len() as usize;
            assert!(size >= all.len(), "stat knows {size}, and {} were read", all.len());
            if last && all.len() == size {
                break;
            }
            last = done.load(Ordering::SeqCst);
        }
        assert_eq!(lines(&all, 2), vec![(0..each).collect::<Vec<_>>(); 2]);
    });
}

#[test]
fn nobody_sees_zeros_within_the_size_while_others_append() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("tail", &["--targets", "2"]);
    let a = cluster.mount("a", "");
    appends_are_read_without_gaps(&a, &a, 2000);
}

#[test]
fn a_log_is_followed_from_another_mount() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "follow", "");
    appends_are_read_without_gaps(&a, &b, 200);
}

#[test]
fn an_append_after_a_cut_elsewhere_is_seen_at_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "cut", "");
    fs::write(a.join("f"), "").unwrap();
    let (file_a, file_b) = (open(&a.join("f")), open(&b.join("f")));
    let mut appender = OpenOptions::new().append(true).open(b.join("f")).unwrap();
    for round in 0..4 {
        let long = noise(400_000, round);
        file_a.write_all_at(&long, 0).unwrap();
        assert!(read_all(&file_b) == long);
        file_a.set_len(100_000).unwrap();
        let record = noise(30_000, round + 10);
        appender.write_all(&record).unwrap();
        let mut seen = vec![0; record.len()];
        file_a.read_exact_at(&mut seen, 100_000).unwrap();
        assert!(seen == record, "round {round}");
    }
}

#[test]
fn the_first_read_behind_the_old_end_finds_what_was_appended_elsewhere() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "end", "");
    fs::write(a.join("f"), "").unwrap();
    let file = open(&a.join("f"));
    let mut appender = OpenOptions::new().append(true).open(b.join("f")).unwrap();
    let mut size = 0;
    for round in 0..40u64 {
        let record = noise(700 + round as usize * 90, round);
        appender.write_all(&record).unwrap();
        let mut seen = vec![0; record.len()];
        let read = file.read_at(&mut seen, size).unwrap();
        assert_eq!(read, record.len(), "round {round}: what a single call reads");
        assert!(seen == record, "round {round}");
        size += record.len() as u64;
        assert_eq!(file.metadata().unwrap().len(), size);
    }
}

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

/// One write of `io_submit(2)`, waited for. The kernel sends its pieces side by side.
fn submit(file: &File, bytes: &[u8]) -> i64 {
    const WRITE: u16 = 1;
    let mut context = 0u64;
    let mut event = [0i64; 4];
    let (buffer, len) = (bytes.as_ptr().addr() as u64, bytes.len() as u64);
    let fd = file.as_raw_fd() as u32;
    let iocb = Iocb { opcode: WRITE, fd, buffer, bytes: len, ..Default::default() };
    let list = [&raw const iocb];
    // SAFETY: all that is pointed to lives until the write is done, which is waited for.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_io_setup, 1, &raw mut context), 0);
        assert_eq!(libc::syscall(libc::SYS_io_submit, context, 1, list.as_ptr()), 1);
        let no_limit = std::ptr::null::<libc::timespec>();
        let event = event.as_mut_ptr();
        assert_eq!(libc::syscall(libc::SYS_io_getevents, context, 1, 1, event, no_limit), 1);
        libc::syscall(libc::SYS_io_destroy, context);
    }
    event[2]
}

#[test]
fn a_large_append_that_nobody_waits_for_lands_in_order() {
    const MIB: usize = 1 << 20;
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "large", "");
    let whole = |first: usize| (0..8 * MIB).map(|at| (first + at / MIB) as u8).collect::<Vec<_>>();
    for round in 0..12 {
        let path = a.join(format!("f{round}"));
        let file = match round % 2 {
            0 => OpenOptions::new().create(true).append(true).open(&path).unwrap(),
            _ => {
                fs::write(&path, "").unwrap();
                let file = open_direct(&path);
                let flags = libc::O_APPEND | libc::O_DIRECT;
                // SAFETY: a valid descriptor.
                assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) }, 0);
                file
            }
        };
        let mut all = whole(1);
        assert_eq!(submit(&file, &all), all.len() as i64);
        assert!(fs::read(&path).unwrap() == all, "round {round}");
        // The kernel knows nothing of what another mount has appended or cut.
        if round % 3 == 0 {
            let mut other =
                OpenOptions::new().append(true).open(b.join(format!("f{round}"))).unwrap();
            other.write_all(&[99; 5000]).unwrap();
            all.extend([99; 5000]);
        } else {
            open(&b.join(format!("f{round}"))).set_len(3 * MIB as u64).unwrap();
            all.truncate(3 * MIB);
        }
        assert_eq!(submit(&file, &whole(20)), 8 * MIB as i64);
        all.extend(whole(20));
        let found = fs::read(&path).unwrap();
        assert!(found == all, "round {round}: {:?}", found.iter().step_by(MIB).collect::<Vec<_>>());
    }
}

/// However long the first piece takes, the others come after it.
#[test]
fn a_large_append_lands_in_order_though_the_data_server_stands_still() {
    const MIB: usize = 1 << 20;
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, .. } = two(&place, "stopped", "");
    let path = a.join("f");
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let whole: Vec<u8> = (0..16 * MIB).map(|at| (at / MIB) as u8).collect();
    for round in 1..4 {
        let stopped = cluster.stopped(&["data-1"]);
        std::thread::scope(|scope| {
            let append = scope.spawn(|| submit(&file, &whole));
            // Longer than other requests wait for earlier ones.
            std::thread::sleep(Duration::from_secs(7));
            drop(stopped);
            assert_eq!(append.join().unwrap(), whole.len() as i64);
        });
        let found = fs::read(&path).unwrap();
        let order = found.iter().step_by(MIB).collect::<Vec<_>>();
        assert!(found == whole.repeat(round), "round {round}: {order:?}");
    }
}
