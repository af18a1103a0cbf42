//! A directory of 100,000 files on two mounts: listed on one while the other
//! changes it, and removed while it is listed.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod harness;
mod library;
mod mounted;

use harness::{Cluster, Place, root};
use mounted::{Mounts, sh};
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
    from: usize,
    call: impl Fn(&Client, &Context, &[u8]) + Sync,
) {
    let next = AtomicUsize::new(from);
    let clients = [library::client(cluster, false), library::client(cluster, false)];
    std::thread::scope(|scope| {
        for worker in 0..16 {
            let (client, next, call) = (&clients[worker % 2], &next, &call);
            scope.spawn(move || {
                let numbers = || Some(next.fetch_add(1, Ordering::Relaxed));
                for number in std::iter::from_fn(numbers).take_while(|n| *n < FILES) {
                    call(client, &Context::root(), format!("stays{number}").as_bytes());
                }
            });
        }
    });
}

/// Lists a directory with what a program gets from `getdents`; each file that
/// stays has to be there once. Returns how many others there were.
fn whole_listing(dir: &Path) -> usize {
    let mut seen = vec![false; FILES];
    let mut others = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        match name.strip_prefix("stays") {
            Some(number) => {
                let number: usize = number.parse().unwrap();
                assert!(!std::mem::replace(&mut seen[number], true), "{name} twice");
            }
            None => others += 1,
        }
    }
    let missing = seen.iter().position(|seen| !seen);
    assert_eq!(missing, None, "a file that stays was not listed");
    others
}

/// Creates, renames, replaces and removes other files until told to stop; how often.
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
        for_each_file(&all.cluster, 0, |client, ctx, name| {
            client.mknod(ctx, dir, name, FileKind::File, 0o644, 0).unwrap();
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
            for_each_file(&all.cluster, LEFT_TO_RM, |client, ctx, name| {
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
