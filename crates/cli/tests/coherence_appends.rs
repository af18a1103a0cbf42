//! Records that two mounts append: each is there whole, once, and seen at once.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod coherence_io;
mod harness;

use coherence_io::{Two, line, lines, open, read_all, two};
use harness::{Place, noise, root};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
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
