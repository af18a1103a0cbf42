//! After a crash the engine has the state after some commit that includes all promised ones.

use crate::history::History;
use crate::room::{after_kill, after_power_cut, check, new_disk, open, work};
use std::cell::RefCell;
use weir_simhost::disk::SimDisk;

/// Minimum number of images per seed.
const POWER_CUTS: u64 = 4;

/// A life of several runs, each ended by a crash. After each crash several images of the disk are
/// checked and counted.
fn life(seed: u64, prepare: &dyn Fn(&SimDisk), images: &mut u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut disk = new_disk(seed);
    prepare(&disk);
    let history = RefCell::new(History::default());
    for run in 0..3 {
        // Sometimes the crash comes during creation or recovery, mostly later.
        let operations = match rng.u8(0..8) {
            0 => rng.u64(0..60),
            _ => rng.u64(0..600),
        };
        disk.crash_after(operations);
        let context = |what: String| format!("seed {seed}, run {run}: {what}");
        let ended = work(rng.u64(..), &disk, &history, 200).map_err(context)?;
        if let Some(error) = ended.filter(|_| !disk.is_frozen()) {
            return Err(context(format!("it failed on a sound disk: {error}")));
        }
        let told = history.borrow().clone();
        for number in 0..POWER_CUTS {
            let image = after_power_cut(&disk, &mut rng);
            let context = |what: String| context(format!("power cut {number}: {what}"));
            crash_in_recovery(&image, &mut rng);
            let image = if rng.bool() { after_power_cut(&image, &mut rng) } else { image };
            image.thaw();
            *images += 1;
            let last = check(rng.u64(..), &image, &told, told.synced).map_err(context)?;
            // A commit that was seen after a crash stays.
            *images += 1;
            let again = after_power_cut(&image, &mut rng);
            check(rng.u64(..), &again, &told, last)
                .map_err(|what| context(format!("the second time: {what}")))?;
        }
        *images += 1;
        let image = after_kill(&disk);
        crash_in_recovery(&image, &mut rng);
        let image = after_kill(&image);
        let last = check(rng.u64(..), &image, &told, told.flushed)
            .map_err(|what| context(format!("kill: {what}")))?;
        // The life continues after one of the two crashes.
        if rng.bool() {
            disk = image;
            history.borrow_mut().cut(last);
        } else {
            disk = after_power_cut(&disk, &mut rng);
            // Before the image is opened, nobody knows which commits are left.
            let mut history = history.borrow_mut();
            history.flushed = history.synced;
        }
    }
    Ok(())
}

/// In half of the cases the recovery is interrupted once or twice.
fn crash_in_recovery(image: &SimDisk, rng: &mut fastrand::Rng) {
    while rng.bool() {
        image.crash_after(rng.u64(0..40));
        weir_simhost::run(rng.u64(..), image, || drop(open()));
        image.thaw();
    }
}

/// Runs lives until there are `images` images, or one of them is wrong. A panic, for example of
/// redb, is wrong too.
pub fn lives(
    first_seed: u64,
    images: u64,
    prepare: &(dyn Fn(&SimDisk) + Sync),
) -> (u64, Result<(), String>) {
    let mut done = 0;
    for seed in first_seed.. {
        let life = || life(seed, prepare, &mut done);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(life)) {
            Ok(Ok(())) => {}
            Ok(Err(what)) => return (done, Err(what)),
            Err(_) => return (done, Err(format!("seed {seed}: a panic"))),
        }
        if done >= images {
            break;
        }
    }
    (done, Ok(()))
}

pub fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn after_any_crash_the_engine_is_what_some_commit_left_with_all_that_was_promised() {
    let (first, images) = match number_from("WEIR_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number_from("WEIR_CRASH_IMAGES").unwrap_or(2000)),
    };
    let threads = 2;
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(images))
            .map(|n| {
                scope.spawn(move || lives(first + (n << 32), images / threads.min(images), &|_| {}))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it counts")).collect()
    });
    let done: u64 = results.iter().map(|(images, _)| images).sum();
    println!("{done} images, seeds from {first} and from {}", first + (1 << 32));
    for (_, result) in results {
        result.expect("rerun with WEIR_SEED");
    }
}
