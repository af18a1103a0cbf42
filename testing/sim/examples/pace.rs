//! Races of readers on simulated disks: how near the policies come to the ideal. By variables of
//! the environment, all of them numbers:
//!
//! ```text
//! DISKS READERS MIB RATE COPIES STRIPES    the disks, and each reader's file (MiB, MiB/s)
//! FIRST=33                                 parts of one file, the first of each two of so many per cent
//! FAULTS=0,1,4                             so many disks have half of their speed (PERCENT=50),
//! ADJACENT=1                               side by side; else as far from each other as can be
//! TURN=2000                                for so many ms, then all of it for as long, and so on
//! JOB CALL POLICY SEED                     1: readers know of each other; KiB at once
//! COURSE=5                                 how far all are, each half second, and KiB that disks gave since
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Duration;
use weir_client::ReadPolicy;
use weir_policy::best_common_rate;
use weir_sim::pace::{Arena, Outcome, Race, Track};

fn main() {
    let disks = number("DISKS", 8);
    let (readers, mib, rate) = (number("READERS", disks), number("MIB", 80), number("RATE", 20));
    let copies = number("COPIES", 2);
    let track = Track {
        seed: number("SEED", 1),
        disks: disks as u8,
        readers: readers as u8,
        stripes: number("STRIPES", 0) as u8,
        first_percent: number("FIRST", 0) as u8,
        copies: copies as u8,
        file_bytes: mib << 20,
        bytes_per_s: rate << 20,
    };
    let faults = std::env::var("FAULTS").unwrap_or("0,1,2,4,8".into());
    let adjacent = number("ADJACENT", 0) == 1;
    let mut arena = Arena::new(track.clone()).unwrap();
    let left = number("PERCENT", 50) as f64 / 100.0;
    for faults in faults.split(',').map(|n| n.parse::<u64>().unwrap()) {
        let place = |n| if adjacent { n } else { n * disks / faults };
        let slow: Vec<_> = (0..faults).map(|n| (place(n) as u8, left)).collect();
        let policy = ReadPolicy::OF_ANY_READER[number("POLICY", 0) as usize];
        let (job, call_bytes) = (number("JOB", 1) == 1, number("CALL", 1024) << 10);
        let turn = Some(number("TURN", 0)).filter(|ms| *ms > 0).map(Duration::from_millis);
        let work: Vec<f64> = vec![mib as f64 / rate as f64; readers as usize];
        let speeds = (0..disks).map(|n| slow.iter().find(|(at, _)| u64::from(*at) == n));
        let speeds: Vec<f64> = speeds.map(|slow| slow.map_or(1.0, |(_, left)| *left)).collect();
        let outcome =
            arena.race(&Race { policy, job, call_bytes, slow, turn, dies: None }).unwrap();
        let all_work: f64 = work.iter().sum();
        // Of striped files each has all disks.
        let chained = Some(()).filter(|()| track.stripes == 0);
        let slow_disks =
            match chained.and_then(|()| best_common_rate(&work, &speeds, copies as usize)) {
                Some(rate) => rate * all_work,
                None => speeds.iter().sum(),
            };
        let ideal_s = ideal_s(all_work, (slow_disks, disks as f64), turn);
        show(faults, ideal_s, &outcome);
    }
}

/// When so much work is done by so many disks, or by more of them every second turn.
fn ideal_s(work: f64, (slow, all): (f64, f64), turn: Option<Duration>) -> f64 {
    let Some(turn_s) = turn.map(|turn| turn.as_secs_f64()) else { return work / slow };
    let rounds = (work / ((slow + all) * turn_s)).floor();
    let rest = work - rounds * (slow + all) * turn_s;
    let more = rest - slow * turn_s;
    2.0 * turn_s * rounds + if more > 0.0 { turn_s + more / all } else { rest / slow }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().unwrap())
}

fn show(faults: u64, ideal_s: f64, outcome: &Outcome) {
    let ends: Vec<f64> = outcome.ends.iter().map(|end| end.as_secs_f64()).collect();
    let slowest_s = outcome.slowest().as_secs_f64();
    let gave: Vec<u64> = outcome.disk_bytes.iter().map(|bytes| bytes >> 20).collect();
    println!(
        "{faults} slow: {slowest_s:.2} s, all disks for all {ideal_s:.2} s, {:.1} %; runs {:.2} MiB, ends {ends:.3?}, disks {gave:?}",
        100.0 * ideal_s / slowest_s,
        outcome.run_bytes() / 1_048_576.0,
    );
    let step = number("COURSE", 0) as usize;
    let len = outcome.course.iter().map(Vec::len).max().unwrap_or(0);
    for at in (0..len).step_by(step.max(1)).filter(|_| step > 0) {
        let had = |course: &Vec<u64>| course.get(at).or(course.last()).map_or(0, |had| had >> 20);
        let had: Vec<u64> = outcome.course.iter().map(had).collect();
        let gave = |course: &Vec<u64>| {
            let of = |n: usize| course.get(n).or(course.last()).copied().unwrap_or(0);
            (of(at + 1) - of((at + 1).saturating_sub(step))) >> 10
        };
        let gave: Vec<u64> = outcome.disk_course.iter().map(gave).collect();
        println!("  {:4.1} s {had:3?} {gave:5?}", at as f64 / 10.0);
    }
}
