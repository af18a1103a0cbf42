//! Two mounts behave as one machine: what one has done, the other sees at once.

use crate::coherence_io::{
    Block, LONG, Mapping, Two, next_data, next_hole, open, open_direct, punch, read_all, two,
    two_patient,
};
use crate::harness::{Place, noise, root};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_reader_elsewhere_sees_the_last_completed_write() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "last", "");
    const BYTES: usize = 64 << 10;
    fs::write(a.join("f"), vec![0; BYTES]).unwrap();
    let (file_a, file_b) = (open(&a.join("f")), open(&b.join("f")));
    let (direct_a, direct_b) = (open_direct(&a.join("f")), open_direct(&b.join("f")));
    let (map_a, map_b) = (Mapping::new(&file_a, BYTES), Mapping::new(&file_b, BYTES));
    for round in 0..60usize {
        let value = (round % 250 + 1) as u8;
        let page = round * 5 % (BYTES / 4096);
        let at = page * 4096;
        let (writer, direct, map) = if round % 2 == 0 {
            (&file_a, &direct_a, &map_a)
        } else {
            (&file_b, &direct_b, &map_b)
        };
        match round % 3 {
            0 => writer.write_all_at(&[value; 100], at as u64 + 30).unwrap(),
            1 => direct.write_all_at(&Block::of(value).0, at as u64).unwrap(),
            _ => {
                (30..130).for_each(|i| map.set(at + i, value));
                map.sync();
            }
        }
        for (who, file, direct, map) in
            [("a", &file_a, &direct_a, &map_a), ("b", &file_b, &direct_b, &map_b)]
        {
            let mut read = [0; 100];
            file.read_exact_at(&mut read, at as u64 + 30).unwrap();
            assert_eq!(read, [value; 100], "round {round}, {who}");
            let mut block = Block::of(0);
            direct.read_exact_at(&mut block.0, at as u64).unwrap();
            assert_eq!(block.0[30..130], [value; 100], "round {round}, {who}, direct");
            assert!((30..130).all(|i| map.get(at + i) == value), "round {round}, {who}, mapped");
        }
    }
}

#[test]
fn stores_into_a_shared_mapping_are_seen_elsewhere() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "stores", "");
    fs::write(a.join("f"), vec![0; 8192]).unwrap();
    let (file_a, file_b) = (open(&a.join("f")), open(&b.join("f")));
    let (map_a, map_b) = (Mapping::new(&file_a, 8192), Mapping::new(&file_b, 8192));
    for round in 1..40u8 {
        let (from, to) = if round % 2 == 0 { (&map_a, &map_b) } else { (&map_b, &map_a) };
        from.set(usize::from(round), round);
        from.set(5000 + usize::from(round), round);
        from.sync();
        assert_eq!((to.get(usize::from(round)), to.get(5000 + usize::from(round))), (round, round));
    }
    assert_eq!(read_all(&file_a), read_all(&file_b));
}

#[test]
fn sizes_and_times_are_seen_at_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "sizes", "");
    let (path_a, path_b) = (a.join("f"), b.join("f"));
    let (file_a, file_b) = (open(&path_a), open(&path_b));
    let mut size = 0u64;
    let mut last = (0, 0);
    for round in 0..50u64 {
        let writer = if round % 2 == 0 { &file_a } else { &file_b };
        match round % 5 {
            4 => {
                size /= 2;
                writer.set_len(size).unwrap();
            }
            _ => {
                let len = 1 + round * 37 % 5000;
                writer.write_all_at(&vec![7; len as usize], size).unwrap();
                size += len;
            }
        }
        let seen = [
            fs::metadata(&path_a).unwrap(),
            fs::metadata(&path_b).unwrap(),
            file_a.metadata().unwrap(),
            file_b.metadata().unwrap(),
        ];
        for meta in &seen {
            assert_eq!(meta.len(), size, "round {round}");
            let time = (meta.mtime(), meta.mtime_nsec());
            assert_eq!(time, (seen[0].mtime(), seen[0].mtime_nsec()), "round {round}");
            assert!(time >= last, "round {round}: the time went back");
        }
        last = (seen[0].mtime(), seen[0].mtime_nsec());
        let reader = if round % 2 == 0 { &file_b } else { &file_a };
        assert_eq!(read_all(reader).len() as u64, size, "round {round}");
    }
}

#[test]
fn names_are_seen_at_once_whether_they_come_or_go() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "names", "");
    fs::create_dir(a.join("d")).unwrap();
    for round in 0..30 {
        let (here, there) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let (old, new) = (format!("d/old{}", round % 3), format!("d/new{round}"));
        let is = |name: &str| (here.join(name).exists(), there.join(name).exists());
        assert_eq!(is(&old), (false, false));
        fs::write(here.join(&old), "1").unwrap();
        assert_eq!(is(&old), (true, true));
        assert_eq!(fs::read_to_string(there.join(&old)).unwrap(), "1");
        assert_eq!(is(&new), (false, false));
        fs::rename(here.join(&old), here.join(&new)).unwrap();
        assert_eq!((is(&old), is(&new)), ((false, false), (true, true)));
        fs::hard_link(there.join(&new), there.join("d/link")).unwrap();
        assert_eq!(fs::metadata(here.join(&new)).unwrap().nlink(), 2);
        assert_eq!(is("d/link"), (true, true));
        fs::remove_file(here.join("d/link")).unwrap();
        assert_eq!(fs::metadata(there.join(&new)).unwrap().nlink(), 1);
        assert_eq!(is("d/link"), (false, false));
        fs::remove_file(there.join(&new)).unwrap();
        assert_eq!(is(&new), (false, false));
        fs::create_dir(here.join("d/sub")).unwrap();
        fs::create_dir(there.join("d/sub/sub")).unwrap();
        assert!(fs::remove_dir(here.join("d/sub")).is_err(), "not empty");
        fs::remove_dir(here.join("d/sub/sub")).unwrap();
        fs::remove_dir(there.join("d/sub")).unwrap();
        assert_eq!(fs::read_dir(here.join("d")).unwrap().count(), 0);
    }
}

#[test]
fn modes_owners_and_extended_attributes_are_seen_at_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "modes", "");
    fs::write(a.join("f"), "").unwrap();
    let value = |path: &Path| {
        let mut value = [0; 64];
        let n = rustix::fs::getxattr(path, "user.mark", &mut value[..]).ok()?;
        Some(value[..n].to_vec())
    };
    for round in 0..30u32 {
        let (here, there) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let (here, there) = (here.join("f"), there.join("f"));
        let mode = 0o400 | round;
        fs::set_permissions(&here, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&there).unwrap().mode() & 0o7777, mode);
        std::os::unix::fs::chown(&here, Some(round), Some(round + 1)).unwrap();
        let meta = fs::metadata(&there).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (round, round + 1));
        assert_eq!(value(&there), None);
        let set = format!("{round}");
        rustix::fs::setxattr(&here, "user.mark", set.as_bytes(), rustix::fs::XattrFlags::empty())
            .unwrap();
        assert_eq!(value(&there), Some(set.into_bytes()));
        rustix::fs::removexattr(&there, "user.mark").unwrap();
        assert_eq!(value(&here), None);
    }
}

fn truncate(path: &Path, size: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(size).unwrap();
}

#[test]
fn an_exclusive_create_has_one_winner() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "excl", "");
    let won: Vec<AtomicUsize> = (0..60).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for at in [&a, &b, &a, &b] {
            let won = &won;
            scope.spawn(move || {
                for (i, won) in won.iter().enumerate() {
                    if File::create_new(at.join(format!("f{i}"))).is_ok() {
                        won.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(won.iter().all(|n| n.load(Ordering::SeqCst) == 1));
    let listed = |at: &Path| fs::read_dir(at).unwrap().count();
    assert_eq!((listed(&a), listed(&b)), (60, 60));
}

#[test]
fn truncation_by_path_and_writers_elsewhere_agree() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "cut", "");
    let (file_a, file_b) = (open(&a.join("f")), open(&b.join("f")));
    let data = noise(50_000, 3);
    for cut in [0u64, 1, 4095, 4096, 10_001, 50_000, 70_000] {
        file_a.write_all_at(&data, 0).unwrap();
        assert!(read_all(&file_b) == data);
        truncate(&b.join("f"), cut);
        let mut want = data.clone();
        want.resize(cut as usize, 0);
        assert!(read_all(&file_a) == want, "cut at {cut}, seen by who has it open");
        file_a.write_all_at(b"beyond", cut + 5000).unwrap();
        want.resize(cut as usize + 5000, 0);
        want.extend_from_slice(b"beyond");
        assert!(read_all(&file_b) == want, "cut at {cut}, then written");
        file_b.set_len(0).unwrap();
    }
    // And at the same time.
    let end = Instant::now() + Duration::from_secs(4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in (1..=255).cycle().take_while(|_| Instant::now() < end) {
                file_a.write_all_at(&[value; 9000], u64::from(value) * 100).unwrap();
            }
        });
        scope.spawn(|| {
            for cut in (0..).map(|i| i * 7919 % 40_000).take_while(|_| Instant::now() < end) {
                file_b.set_len(cut).unwrap();
                assert!(read_all(&file_b).len() <= 255 * 100 + 9000 + 40_000);
            }
        });
    });
    let (here, there) = (read_all(&file_a), read_all(&file_b));
    assert!(here == there, "{} and {} bytes", here.len(), there.len());
    // A thread that drops a page which one write after another locks may wait for a long time.
    let drops = cluster.threads_of_mount(&a, "weir-drop");
    assert!(drops <= 16, "{drops} threads wait for pages");
    assert_eq!(here.len() as u64, fs::metadata(a.join("f")).unwrap().len());
}

#[test]
fn a_file_that_is_open_goes_on_when_it_is_removed_or_replaced_elsewhere() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "gone", "");
    fs::write(a.join("f"), "one").unwrap();
    let file = open(&b.join("f"));
    fs::remove_file(a.join("f")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all_at(b"two, longer", 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 11);
    assert_eq!(read_all(&file), b"two, longer");
    assert!(!b.join("f").exists());

    fs::write(a.join("old"), "old").unwrap();
    fs::write(a.join("new"), "new one").unwrap();
    let (old, new) = (open(&b.join("old")), open(&b.join("new")));
    fs::rename(a.join("new"), a.join("old")).unwrap();
    assert_eq!(read_all(&old), b"old");
    assert_eq!(old.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read(b.join("old")).unwrap(), b"new one");
    new.write_all_at(b"NEW", 0).unwrap();
    assert_eq!(fs::read(a.join("old")).unwrap(), b"NEW one");
    old.write_all_at(b"OLD", 0).unwrap();
    assert_eq!(read_all(&old), b"OLD");
}

#[test]
fn holes_are_seen_at_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "holes", "");
    let (file_a, file_b) = (open(&a.join("f")), open(&b.join("f")));
    const MIB: u64 = 1 << 20;
    file_a.write_all_at(&noise(100_000, 1), 3 * MIB).unwrap();
    assert_eq!(next_data(&file_b, 0), Some(3 * MIB));
    let end = 3 * MIB + 100_000;
    assert_eq!(next_hole(&file_b, 3 * MIB), Some(end));
    let mut bytes = vec![1; 8192];
    file_b.read_exact_at(&mut bytes, MIB).unwrap();
    assert!(bytes.iter().all(|b| *b == 0));
    file_b.write_all_at(&noise(8192, 2), MIB).unwrap();
    assert_eq!((next_data(&file_a, 0), next_hole(&file_a, MIB)), (Some(MIB), Some(MIB + 8192)));
    file_a.read_exact_at(&mut bytes, MIB).unwrap();
    assert!(bytes == noise(8192, 2));
    punch(&file_b, MIB, 8192);
    file_a.read_exact_at(&mut bytes, MIB).unwrap();
    assert!(bytes.iter().all(|b| *b == 0), "what was punched is cached elsewhere");
    assert_eq!(next_data(&file_a, 0), Some(3 * MIB));
}

#[test]
fn who_may_only_write_finds_holes_of_what_another_mount_writes() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "write-only", "");
    let file_b = open(&b.join("f"));
    for mib in [1, 2] {
        let at = mib << 20;
        file_b.write_all_at(b"x", at).unwrap();
        let only = OpenOptions::new().write(true).open(a.join("f")).unwrap();
        assert_eq!(next_data(&only, at - 4096), Some(at));
        assert_eq!((next_hole(&only, 0), next_hole(&only, at)), (Some(0), Some(at + 1)));
        let mut byte = [0];
        let read = only.read_at(&mut byte, at).unwrap_err();
        assert_eq!(read.raw_os_error(), Some(libc::EBADF));
    }
}

#[test]
fn a_listing_is_whole_while_another_mount_changes_the_directory() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "list", "");
    fs::create_dir(a.join("d")).unwrap();
    for i in 0..2500 {
        File::create_new(a.join(format!("d/stays{i}"))).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in (0..100).cycle() {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                let name = a.join(format!("d/moves{i}"));
                if fs::remove_file(&name).is_err() {
                    File::create_new(&name).unwrap();
                }
                let _ = fs::rename(&name, a.join(format!("d/moved{i}")));
            }
        });
        for _ in 0..4 {
            let names: Vec<_> =
                fs::read_dir(b.join("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
            let stay = |name: &&std::ffi::OsString| name.as_encoded_bytes().starts_with(b"stays");
            let stable: Vec<_> = names.iter().filter(stay).collect();
            let once: BTreeSet<_> = stable.iter().collect();
            assert_eq!((stable.len(), once.len()), (2500, 2500));
        }
        done.store(true, Ordering::SeqCst);
    });
}

/// For 4 s; on a busy machine until more than `least` is done, within a minute.
fn goes_on(begin: Instant, done: &AtomicUsize, least: usize) -> bool {
    let passed = begin.elapsed();
    let few = done.load(Ordering::SeqCst) <= least;
    passed < Duration::from_secs(4) || (few && passed < Duration::from_secs(60))
}

#[test]
fn small_records_in_the_same_blocks_are_never_lost_nor_old() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two_patient(&place, "slots");
    // None of them over the border of pages: reads of two pages are not atomic anywhere.
    const SLOTS: usize = 40;
    fs::write(a.join("f"), vec![0; 4 * SLOTS * 128]).unwrap();
    let longest = std::sync::Mutex::new(Duration::ZERO);
    // What each writer has written at least, by slot.
    let written: Vec<AtomicUsize> = (0..4 * SLOTS).map(|_| AtomicUsize::new(0)).collect();
    let (begin, done) = (Instant::now(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = if writer % 2 == 0 { a.join("f") } else { b.join("f") };
            let (longest, written, done) = (&longest, &written, &done);
            scope.spawn(move || {
                let file = open(&path);
                for round in (1..).take_while(|_| goes_on(begin, done, 200)) {
                    let begin = Instant::now();
                    let own = (round * 7 % SLOTS) * 4 + writer;
                    let value = written[own].load(Ordering::SeqCst) + 1;
                    file.write_all_at(&[value as u8; 128], own as u64 * 128).unwrap();
                    written[own].store(value, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                    for slot in [own, (round * 13) % (4 * SLOTS)] {
                        let least = written[slot].load(Ordering::SeqCst);
                        let mut read = [0; 128];
                        file.read_exact_at(&mut read, slot as u64 * 128).unwrap();
                        let most = written[slot].load(Ordering::SeqCst) + 1;
                        let is = (least..=most).any(|value| read == [value as u8; 128]);
                        assert!(is, "slot {slot}: {} is not {least} to {most}", read[0]);
                    }
                    let mut longest = longest.lock().unwrap();
                    *longest = begin.elapsed().max(*longest);
                }
            });
        }
    });
    let longest = *longest.lock().unwrap();
    let total: usize = written.iter().map(|value| value.load(Ordering::SeqCst)).sum();
    eprintln!("{total} writes, the longest call {longest:?}");
    assert!(longest < LONG, "a call waited {longest:?}");
    assert!(total > 200, "only {total} writes");
    let (here, there) = (fs::read(a.join("f")).unwrap(), fs::read(b.join("f")).unwrap());
    assert!(here == there);
    for (slot, bytes) in here.chunks(128).enumerate() {
        assert_eq!(bytes, [written[slot].load(Ordering::SeqCst) as u8; 128]);
    }
}

/// Counts a thread when it ends, also by a panic.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A request tells how its file is open when it is sent, which says nothing of how its call began:
/// a buffered write that holds its page may come with `O_DIRECT`, and a direct one without.
#[test]
fn o_direct_that_comes_and_goes_stalls_nobody_and_shows_nothing_old() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two_patient(&place, "switched");
    const SLOT: usize = 512;
    const SLOTS: usize = 3 * 8;
    fs::write(a.join("f"), vec![0; SLOTS * SLOT]).unwrap();
    let (shared, elsewhere) = (open(&a.join("f")), open(&b.join("f")));
    let (longest, done) = (std::sync::Mutex::new(Duration::ZERO), AtomicUsize::new(0));
    let written: Vec<AtomicUsize> = (0..SLOTS).map(|_| AtomicUsize::new(0)).collect();
    let (begin, ended) = (Instant::now(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let file = if writer < 2 { &shared } else { &elsewhere };
            let (longest, written, done, ended) = (&longest, &written, &done, &ended);
            scope.spawn(move || {
                let _ended = Ended(ended);
                for round in (1..).take_while(|_| goes_on(begin, done, 1000)) {
                    let begin = Instant::now();
                    let own = (round * 5 % (SLOTS / 3)) * 3 + writer;
                    let value = written[own].load(Ordering::SeqCst) + 1;
                    file.write_all_at(&[value as u8; SLOT], (own * SLOT) as u64).unwrap();
                    written[own].store(value, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                    for slot in [own, round * 7 % SLOTS] {
                        let least = written[slot].load(Ordering::SeqCst);
                        let mut read = [0; SLOT];
                        file.read_exact_at(&mut read, (slot * SLOT) as u64).unwrap();
                        let most = written[slot].load(Ordering::SeqCst) + 1;
                        let is = (least..=most).any(|value| read == [value as u8; SLOT]);
                        assert!(is, "slot {slot}: {} is not {least} to {most}", read[0]);
                    }
                    let mut longest = longest.lock().unwrap();
                    *longest = begin.elapsed().max(*longest);
                }
            });
        }
        scope.spawn(|| {
            let flags = rustix::fs::fcntl_getfl(&shared).unwrap();
            while ended.load(Ordering::SeqCst) < 3 {
                rustix::fs::fcntl_setfl(&shared, flags | rustix::fs::OFlags::DIRECT).unwrap();
                std::thread::yield_now();
                rustix::fs::fcntl_setfl(&shared, flags).unwrap();
                std::thread::yield_now();
            }
        });
    });
    let longest = *longest.lock().unwrap();
    eprintln!("{} writes, the longest call {longest:?}", done.load(Ordering::SeqCst));
    assert!(longest < LONG, "a call waited {longest:?}");
    // The drop of a page that its own caller holds ends in no other way, however fast the machine is.
    let logs = fs::read_dir(cluster.dir().join("log")).unwrap().flatten().map(|log| log.path());
    let said: String = logs.map(|log| fs::read_to_string(log).unwrap()).collect();
    let gave_up = said.lines().filter(|line| line.contains("the kernel did not drop its pages"));
    assert_eq!(gave_up.collect::<Vec<_>>(), [""; 0]);
    let (here, there) = (fs::read(a.join("f")).unwrap(), fs::read(b.join("f")).unwrap());
    assert!(here == there);
    for (slot, bytes) in here.chunks(SLOT).enumerate() {
        assert_eq!(bytes, [written[slot].load(Ordering::SeqCst) as u8; SLOT]);
    }
}

/// Reads begin and end at every moment of the other mount's recalls, and fill pages while
/// they are dropped; those past the page cache lock no pages that would hold a drop up.
#[test]
fn no_reader_elsewhere_keeps_a_page_that_is_older_than_a_completed_write() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "pages", "");
    const PAGES: usize = 4;
    fs::write(a.join("f"), vec![0; PAGES * 4096]).unwrap();
    let written: Vec<AtomicUsize> = (0..PAGES).map(|_| AtomicUsize::new(0)).collect();
    let value_in = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let check = |page: usize, least: usize, bytes: &[u8], who: &str| {
        let value = value_in(bytes);
        assert!(value >= least, "page {page}, {who}: {value}, and {least} was written before");
    };
    let (begin, done) = (Instant::now(), AtomicUsize::new(0));
    let (file_b, direct_b) = (open(&b.join("f")), open_direct(&b.join("f")));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = open(&a.join("f"));
            for round in (1usize..).take_while(|_| goes_on(begin, &done, 300)) {
                let page = round % PAGES;
                file.write_all_at(&round.to_le_bytes(), (page * 4096) as u64).unwrap();
                written[page].store(round, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
            }
        });
        for reader in 0..3 {
            let (written, done, file_b, direct_b) = (&written, &done, &file_b, &direct_b);
            scope.spawn(move || {
                let mut blocks = Block::of(0);
                for round in (reader..).take_while(|_| goes_on(begin, done, 300)) {
                    let page = round * 3 % PAGES;
                    let least = written[page].load(Ordering::SeqCst);
                    if reader == 0 {
                        direct_b.read_exact_at(&mut blocks.0, (page * 4096) as u64).unwrap();
                        check(page, least, &blocks.0, "direct");
                        continue;
                    }
                    let mut read = [0; 8];
                    file_b.read_exact_at(&mut read, (page * 4096) as u64).unwrap();
                    check(page, least, &read, "buffered");
                }
            });
        }
    });
    // What a page holds now it holds for good.
    for (page, last) in written.iter().enumerate() {
        let mut read = [0; 8];
        file_b.read_exact_at(&mut read, (page * 4096) as u64).unwrap();
        check(page, last.load(Ordering::SeqCst), &read, "in the end");
    }
    eprintln!("{} writes", done.load(Ordering::SeqCst));
}

#[test]
fn streams_and_scattered_writes_on_two_mounts_do_not_block_each_other() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two_patient(&place, "streams");
    const REGION: usize = 300_000;
    const REGIONS: usize = 12;
    fs::write(a.join("f"), vec![0; REGION * REGIONS]).unwrap();
    let longest = std::sync::Mutex::new(Duration::ZERO);
    let timed = |call: &dyn Fn()| {
        let begin = Instant::now();
        call();
        let mut longest = longest.lock().unwrap();
        *longest = begin.elapsed().max(*longest);
    };
    let begin = Instant::now();
    let rounds = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (who, mount) in [&a, &b].into_iter().enumerate() {
            let (timed, rounds) = (&timed, &rounds);
            scope.spawn(move || {
                let file = open(&mount.join("f"));
                for round in (1..).take_while(|_| goes_on(begin, rounds, 40)) {
                    let region = (round * 5 % (REGIONS / 2)) * 2 + who;
                    let (skip, len) = (round * 7919 % 100_000, 1 + round * 104_729 % 200_000);
                    let data = noise(len, round as u64);
                    let at = (region * REGION + skip) as u64;
                    timed(&|| file.write_all_at(&data, at).unwrap());
                    let mut read = vec![0; len];
                    timed(&|| file.read_exact_at(&mut read.clone(), at).unwrap());
                    file.read_exact_at(&mut read, at).unwrap();
                    assert!(read == data, "own bytes");
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            scope.spawn(move || {
                // Different offsets each time, with read-ahead: reads across the border of leases.
                while goes_on(begin, rounds, 40) {
                    let file = File::open(mount.join("f")).unwrap();
                    for i in 0..(REGION * REGIONS) as u64 / 100_000 {
                        timed(&|| {
                            assert!(file.read_at(&mut vec![0; 100_000], i * 100_000).is_ok())
                        });
                    }
                }
            });
        }
    });
    let (longest, rounds) = (*longest.lock().unwrap(), rounds.into_inner());
    eprintln!("{rounds} writes, the longest call {longest:?}");
    assert!(longest < LONG, "a call waited {longest:?}");
    assert!(rounds > 40, "only {rounds} writes");
    assert!(fs::read(a.join("f")).unwrap() == fs::read(b.join("f")).unwrap());
}

#[test]
fn what_is_stored_into_a_mapping_is_kept_when_another_mount_writes_beside_it() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two_patient(&place, "beside");
    fs::write(a.join("f"), vec![0; 8192]).unwrap();
    let (file_a, file_b) = (open(&a.join("f")), open(&b.join("f")));
    let (map_a, map_b) = (Mapping::new(&file_a, 8192), Mapping::new(&file_b, 8192));
    for round in 1..20u8 {
        // Both have the page, to read.
        let at = usize::from(round);
        assert_eq!((map_a.get(at), map_b.get(at)), (0, 0));
        map_a.set(at, round);
        let begin = Instant::now();
        file_b.write_all_at(&[round], 4000 + u64::from(round)).unwrap();
        assert!(begin.elapsed() < LONG, "waited {:?}", begin.elapsed());
        assert_eq!((map_a.get(at), map_b.get(at)), (round, round));
        assert_eq!((map_a.get(4000 + at), map_b.get(4000 + at)), (round, round));
    }
}
