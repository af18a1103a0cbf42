//! A directory of 100,000 files on two mounts: listed on one while the other
//! changes it, and removed while it is listed. And one of a million, if that is asked for
//! (`make soak SOAK=names`): positions in it stay good while it changes.

use crate::dir_reader::Reader;
use crate::harness::{Cluster, Place, eventually, root};
use crate::library;
use crate::mounted::{Mounts, sh};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_client::{Client, Context};
use weir_types::{FileId, FileKind};

const FILES: usize = 100_000;
const CHANGING: usize = 200;
/// One program alone removes so many: the kernel lets it remove one at a time.
const LEFT_TO_RM: usize = 2_000;

/// Does something with the number of each file, by several clients at once.
fn for_each_file(
    cluster: &Cluster<'_>,
    numbers: std::ops::Range<usize>,
    call: impl Fn(&Client, &Context, &[u8]) + Sync,
) {
    let next = AtomicUsize::new(numbers.start);
    let clients = [library::client(cluster, false), library::client(cluster, false)];
    std::thread::scope(|scope| {
        for worker in 0..16 {
            let (client, next, call, numbers) = (&clients[worker % 2], &next, &call, &numbers);
            scope.spawn(move || {
                let taken = || Some(next.fetch_add(1, Ordering::Relaxed));
                for number in std::iter::from_fn(taken).take_while(|n| *n < numbers.end) {
                    call(client, &Context::root(), format!("stays{number}").as_bytes());
                }
            });
        }
    });
}

/// Lists a directory with what a program gets from `getdents`; each file that
/// stays has to be there once, and to be found again at the position where it was. Returns how
/// many others there were.
fn whole_listing(dir: &Path) -> usize {
    let mut seen = vec![false; FILES];
    let (mut others, mut kept) = (0, Vec::new());
    let reader = Reader::open(dir).unwrap();
    let keep = |number: usize| number.is_multiple_of(FILES / 200);
    while let Some((position, name)) = reader.next() {
        match number(&name) {
            Some(number) => {
                assert!(!std::mem::replace(&mut seen[number], true), "{name} twice");
                if keep(number) {
                    kept.push((position, number));
                }
            }
            None if name == "." || name == ".." => {}
            None => others += 1,
        }
    }
    let missing = seen.iter().position(|seen| !seen);
    assert_eq!(missing, None, "a file that stays was not listed");
    // Back and forth, each far from the one before.
    for step in 0..kept.len() {
        let (position, wanted) = kept[step * 89 % kept.len()];
        reader.seek(position);
        assert!(finds(&reader, wanted), "stays{wanted}");
    }
    others
}

/// Creates, renames, replaces and removes other files until told to stop. Returns how often.
fn change(dir: &Path, stop: &AtomicBool) -> usize {
    let name = |what: &str, number: usize| dir.join(format!("{what}{number}"));
    for round in 0.. {
        let number = round % CHANGING;
        File::create_new(name("comes", number)).unwrap();
        fs::rename(name("comes", number), name("goes", number)).unwrap();
        File::create_new(name("comes", number)).unwrap();
        fs::rename(name("comes", number), name("goes", number)).unwrap();
        if round >= CHANGING / 2 {
            fs::remove_file(name("goes", (round - CHANGING / 2) % CHANGING)).unwrap();
        }
        if stop.load(Ordering::SeqCst) {
            return round;
        }
    }
    unreachable!()
}

fn timed<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = call();
    eprintln!("{what}: {:?}", begin.elapsed());
    result
}

#[test]
fn a_directory_of_100000_files_is_listed_whole_while_it_changes_and_can_be_removed() {
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "large", 2);
    let (a, b) = (all.at[0].join("d"), all.at[1].join("d"));
    fs::create_dir(&a).unwrap();
    let dir = FileId(fs::metadata(&a).unwrap().ino());
    timed("made", || {
        for_each_file(&all.cluster, 0..FILES, |client, ctx, name| {
            client.mknod(ctx, dir, name, FileKind::File, (0o644, 0), 0).unwrap();
        });
    });
    assert_eq!(timed("listed cold", || whole_listing(&b)), 0);
    assert_eq!(timed("listed again", || whole_listing(&b)), 0);

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (changes, stop) = (a.clone(), &stop);
        let changing = scope.spawn(move || change(&changes, stop));
        for mount in [&b, &b, &a] {
            let others = timed("listed while it changes", || whole_listing(mount));
            eprintln!("{others} others");
        }
        let count = timed("ls -f", || sh(&b, "ls -f | wc -l"));
        let count: usize = count.trim().parse().unwrap();
        assert!(count >= FILES + 2, "{count}");
        stop.store(true, Ordering::SeqCst);
        eprintln!("{} rounds of changes", changing.join().unwrap());
    });
    // The files that come and go have gone, on both.
    sh(&a, "ls -f | grep goes | xargs rm -f");
    for mount in [&a, &b] {
        assert_eq!(whole_listing(mount), 0);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| {
            let mut last = usize::MAX;
            while !stop.load(Ordering::SeqCst) {
                // What is left, each once, until the directory itself has gone.
                let Ok(entries) = fs::read_dir(&b) else { continue };
                let mut count = 0;
                for entry in entries {
                    match entry {
                        Ok(_) => count += 1,
                        Err(e)
                            if [Some(libc::ENOENT), Some(libc::ESTALE)]
                                .contains(&e.raw_os_error()) =>
                        {
                            break;
                        }
                        Err(e) => panic!("a listing fails while files go: {e}"),
                    }
                }
                assert!(count <= last, "{count} files after {last}");
                last = count;
                // So that removing is not slowed down by listing all the time.
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        timed("removed", || {
            for_each_file(&all.cluster, LEFT_TO_RM..FILES, |client, ctx, name| {
                assert!(client.unlink(ctx, dir, name).unwrap().is_some());
            });
        });
        // It says so if a name was left when its listing had ended.
        timed("rm -r", || sh(&all.at[0], "rm -r d"));
        stop.store(true, Ordering::SeqCst);
        listing.join().unwrap();
    });
    for mount in &all.at {
        assert_eq!(fs::metadata(mount.join("d")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::read_dir(mount).unwrap().count(), 0);
    }
}

/// The number in the name of a file that stays.
fn number(name: &str) -> Option<usize> {
    name.strip_prefix("stays")?.parse().ok()
}

/// The next one of the files that stay has the number that is given: others may come before it.
fn finds(reader: &Reader, wanted: usize) -> bool {
    std::iter::from_fn(|| reader.next()).find_map(|(_, name)| number(&name)) == Some(wanted)
}

/// Names of a directory as the kernel gives them, a few at a time. Before each request for more,
/// `waits` is called.
fn listing_in_pieces(dir: &Path, mut waits: impl FnMut(), most: usize) -> Vec<String> {
    let dir = File::open(dir).unwrap();
    // Some eight.
    let mut buffer = [std::mem::MaybeUninit::uninit(); 256];
    let mut entries = rustix::fs::RawDir::new(&dir, &mut buffer);
    let mut names = Vec::new();
    loop {
        if entries.is_buffer_empty() {
            waits();
        }
        let Some(entry) = entries.next() else { return names };
        names.push(entry.unwrap().file_name().to_string_lossy().into_owned());
        assert!(names.len() <= most, "{} names, and no end", names.len());
    }
}

#[test]
fn a_listing_ends_while_each_entry_is_renamed_and_renamed_back() {
    const RENAMED: usize = 500;
    const STAYING: usize = 50;
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "renamed", 2);
    let dirs: Vec<_> = all.at.iter().map(|at| at.join("d")).collect();
    fs::create_dir(&dirs[0]).unwrap();
    (0..RENAMED).for_each(|n| drop(File::create_new(dirs[0].join(format!("moves{n}"))).unwrap()));
    (0..STAYING).for_each(|n| drop(File::create_new(dirs[0].join(format!("stays{n}"))).unwrap()));
    let (stop, renames) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (from, stop, renames) = (&dirs[0], &stop, &renames);
        let renaming = scope.spawn(move || {
            for n in (0..RENAMED).cycle().take_while(|_| !stop.load(Ordering::SeqCst)) {
                let name = from.join(format!("moves{n}"));
                fs::rename(&name, from.join("T")).unwrap();
                fs::rename(from.join("T"), &name).unwrap();
                renames.fetch_add(2, Ordering::SeqCst);
            }
        });
        let _stopping = Stopping(stop);
        for dir in &dirs {
            let waits = || {
                let before = renames.load(Ordering::SeqCst);
                eventually("some are renamed", || {
                    assert!(!renaming.is_finished(), "no renames");
                    renames.load(Ordering::SeqCst) >= before + 16
                });
            };
            // Each entry, once more where it has moved, and the directory and its parent.
            let most = 2 * RENAMED + STAYING + 2;
            let names = listing_in_pieces(dir, waits, most);
            let staying = |name: &&String| name.starts_with("stays");
            let stays: BTreeSet<_> = names.iter().filter(staying).collect();
            assert_eq!(stays.len(), STAYING);
            assert_eq!(names.iter().filter(staying).count(), STAYING, "one was listed twice");
            eprintln!("{} names, {} renames so far", names.len(), renames.load(Ordering::SeqCst));
        }
    });
    for dir in &dirs {
        assert_eq!(fs::read_dir(dir).unwrap().count(), RENAMED + STAYING);
    }
}

/// Stops the programs, also when the test panics.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
#[ignore = "takes six minutes on two busy processors: make soak SOAK=names"]
fn positions_in_a_directory_of_a_million_files_stay_good_while_it_changes() {
    const MILLION: usize = 1_000_000;
    const GONE: usize = 20_000;
    let goes = |number: usize| number.is_multiple_of(50);
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "million", 2);
    let (a, b) = (all.at[0].join("d"), all.at[1].join("d"));
    fs::create_dir(&a).unwrap();
    let dir = FileId(fs::metadata(&a).unwrap().ino());
    let make = |client: &Client, ctx: &Context, name: &[u8]| {
        client.mknod(ctx, dir, name, FileKind::File, (0o644, 0), 0).unwrap();
    };
    timed("made", || for_each_file(&all.cluster, 0..MILLION, make));
    let reader = Reader::open(&b).unwrap();
    let read = || std::iter::from_fn(|| reader.next());
    let mut at = vec![None; MILLION];
    timed("listed, with positions", || {
        for (position, name) in read() {
            if let Some(number) = number(&name) {
                assert!(at[number].replace(position).is_none(), "{name} twice");
            }
        }
    });
    assert!(at.iter().all(Option::is_some), "all are there");
    timed("20,000 removed and 20,000 made", || {
        // Every fiftieth goes.
        for_each_file(&all.cluster, 0..GONE, |client, ctx, name| {
            let number: usize = number(std::str::from_utf8(name).unwrap()).unwrap() * 50;
            let name = format!("stays{number}");
            assert!(client.unlink(ctx, dir, name.as_bytes()).unwrap().is_some());
        });
        for_each_file(&all.cluster, MILLION..MILLION + GONE, make);
    });
    let stays: Vec<usize> = (0..MILLION).filter(|number| !goes(*number)).collect();
    timed("10,000 positions", || {
        // Far from one to the next.
        for step in 0..10_000 {
            let wanted = stays[step * 611_953 % stays.len()];
            reader.seek(at[wanted].unwrap());
            assert!(finds(&reader, wanted), "stays{wanted}");
        }
    });
    let mut seen = vec![false; MILLION + GONE];
    timed("listed again", || {
        reader.seek(0);
        for number in read().filter_map(|(_, name)| number(&name)) {
            assert!(!std::mem::replace(&mut seen[number], true), "stays{number} twice");
        }
    });
    let wrong = (0..MILLION + GONE).find(|n| seen[*n] == (*n < MILLION && goes(*n)));
    assert_eq!(wrong, None, "each that is there once, and none that is gone");
    timed("removed", || {
        for_each_file(&all.cluster, 0..MILLION + GONE, |client, ctx, name| {
            let gone = client.unlink(ctx, dir, name).is_err();
            let number = number(std::str::from_utf8(name).unwrap()).unwrap();
            assert_eq!(gone, number < MILLION && goes(number), "stays{number}");
        });
    });
    fs::remove_dir(&a).unwrap();
}
