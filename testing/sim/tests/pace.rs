//! Readers keep pace whatever some disks do, with the real code of clients and servers.

use crate::few_or_all;
use std::time::Duration;
use weir_client::ReadPolicy;
use weir_sim::pace::{Arena, Outcome, Race, Track};

const MIB: u64 = 1 << 20;
const DISKS: u8 = 8;
const FILE_MIB: u64 = 100;
const RATE_MIB: u64 = 20;

/// How long readers of such files take in the mean, which are striped over four disks, with a
/// second copy on four others or without.
fn mean_s(seed: u64, readers: u8, file_mib: u64, copies: u8) -> f64 {
    let (file_bytes, bytes_per_s) = (file_mib * MIB, RATE_MIB * MIB);
    let (disks, stripes, first_percent) = (DISKS, DISKS / 2, 0);
    let track =
        Track { seed, disks, readers, stripes, first_percent, copies, file_bytes, bytes_per_s };
    let outcome = Arena::new(track).unwrap().race(&race(0, ReadPolicy::Proportional, false));
    let ends = outcome.unwrap().ends;
    ends.iter().map(|end| end.as_secs_f64()).sum::<f64>() / ends.len() as f64
}

fn arena(seed: u64, file_mib: u64) -> Arena {
    let (file_bytes, bytes_per_s) = (file_mib * MIB, RATE_MIB * MIB);
    Arena::new(Track {
        seed,
        disks: DISKS,
        readers: DISKS,
        stripes: 0,
        first_percent: 0,
        copies: 2,
        file_bytes,
        bytes_per_s,
    })
    .unwrap()
}

/// A race with this many disks at half their speed, as far from each other as possible.
fn race(faults: u8, policy: ReadPolicy, job: bool) -> Race {
    let slow = (0..faults).map(|n| (n * DISKS / faults, 0.5)).collect();
    Race { policy, job, call_bytes: MIB, slow, turn: None, dies: None }
}

/// How near the slowest comes to all of them having the same of what the disks give.
fn of_ideal(outcome: &Outcome, faults: u8) -> f64 {
    let disks = f64::from(DISKS) - f64::from(faults) / 2.0;
    let ideal_s = (FILE_MIB * u64::from(DISKS)) as f64 / (RATE_MIB as f64 * disks);
    ideal_s / outcome.slowest().as_secs_f64()
}

#[test]
fn the_processes_of_a_job_end_together_whichever_disks_are_slow() {
    for seed in 1..=2 {
        let mut arena = arena(seed, FILE_MIB);
        for faults in [0, 1, 4, 8] {
            let outcome = arena.race(&race(faults, ReadPolicy::Proportional, true)).unwrap();
            let part = of_ideal(&outcome, faults);
            assert!(part > 0.94, "seed {seed}, {faults} slow: {part:.3} of the ideal, {outcome:?}");
            // Runs are long where few disks are slow, and heads have no reason to turn where none is.
            let least_mib =
                [FILE_MIB as f64 / 2.0, 2.5].get(usize::from(faults)).copied().unwrap_or(1.0);
            let run_mib = outcome.run_bytes() / MIB as f64;
            assert!(run_mib >= least_mib, "{faults} slow: runs of {run_mib:.2} MiB");
            let read: u64 = outcome.disk_bytes.iter().sum();
            // Checksums, and headers of objects.
            let most = FILE_MIB * MIB * u64::from(DISKS) * 102 / 100;
            assert!(read < most, "each byte once: {read}");
        }
    }
}

#[test]
fn a_job_of_striped_files_is_not_as_slow_as_its_slowest_disk() {
    // Files over all disks, as they are by default: who is behind waits for the slow disk, and
    // not for the others.
    for (seed, disks, file_mib, left, least) in
        [(1, DISKS, 80, 0.5, 0.92), (2, DISKS, 80, 0.5, 0.92), (3, 4, 24, 0.25, 0.66)]
    {
        let mut arena = Arena::new(Track {
            seed,
            disks,
            readers: disks,
            stripes: disks,
            first_percent: 0,
            copies: 2,
            file_bytes: file_mib * MIB,
            bytes_per_s: RATE_MIB * MIB,
        })
        .unwrap();
        let ideal_s = |left: f64| {
            let speed = (f64::from(disks) - 1.0 + left) * RATE_MIB as f64;
            (file_mib * u64::from(disks)) as f64 / speed
        };
        let mut part = |slow, policy| {
            let left = if slow { left } else { 1.0 };
            let race = Race { slow: vec![(0, left)], ..race(0, policy, true) };
            ideal_s(left) / arena.race(&race).unwrap().slowest().as_secs_f64()
        };
        let well = part(false, ReadPolicy::Proportional);
        let (first, default) =
            (part(true, ReadPolicy::Primary), part(true, ReadPolicy::Proportional));
        assert!(well > 0.93, "seed {seed}: {well:.3} of the ideal without a fault");
        assert!(default > least && first < 0.6, "seed {seed}: {default:.3}, {first:.3}");
    }
}

#[test]
fn a_job_reads_its_bytes_though_a_server_dies_under_its_pieces() {
    const MIB_EACH: u64 = 32;
    // The slow disk's own server, with pieces that wait for it, or a neighbour that helps.
    for (seed, server) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
        let dies = Some((server, Duration::from_millis(300 * seed)));
        let race = Race { dies, ..race(1, ReadPolicy::Proportional, true) };
        // The bytes of each reader are checked as they arrive.
        let outcome = arena(seed, MIB_EACH).race(&race).unwrap();
        let left = f64::from(DISKS) - 1.5;
        let ideal_s = (MIB_EACH * u64::from(DISKS)) as f64 / (RATE_MIB as f64 * left);
        let slowest_s = outcome.slowest().as_secs_f64();
        assert!(slowest_s < 1.7 * ideal_s + 2.0, "seed {seed}, {server} dies: {outcome:?}");
    }
}

#[test]
fn without_a_fault_each_reads_its_own_disk() {
    let mut arena = arena(3, FILE_MIB);
    for job in [true, false] {
        let outcome = arena.race(&race(0, ReadPolicy::Proportional, job)).unwrap();
        for bytes in &outcome.disk_bytes {
            let off = bytes.abs_diff(FILE_MIB * MIB) as f64 / (FILE_MIB * MIB) as f64;
            assert!(off < 0.035, "job: {job}, {outcome:?}");
        }
    }
}

#[test]
fn the_first_copies_alone_are_as_slow_as_the_slowest_disk() {
    let mut arena = arena(4, FILE_MIB);
    let outcome = arena.race(&race(1, ReadPolicy::Primary, true)).unwrap();
    let part = of_ideal(&outcome, 1);
    assert!((0.45..0.60).contains(&part), "{part:.3}, {outcome:?}");
    // Readers that know nothing of each other do better, though not as well as a job.
    let outcome = arena.race(&race(1, ReadPolicy::Proportional, false)).unwrap();
    let part = of_ideal(&outcome, 1);
    assert!(part > 0.75, "{part:.3}, {outcome:?}");
}

#[test]
fn two_copies_give_what_their_disks_do() {
    // Of a file over four disks each has 16 or 64 pieces of 256 KiB, and with two copies of it
    // half as many; one more, which nobody else can take from it at the end, makes 16 to 9, or 64
    // to 33: 1.78 and 1.94. A single reader has to connect to twice as many servers, too.
    for (readers, file_mib, least) in [(1, 16, 1.65), (1, 64, 1.9), (8, 16, 1.75), (8, 64, 1.92)] {
        let of = |copies| {
            (1..=few_or_all(1, 3)).map(|seed| mean_s(seed, readers, file_mib, copies)).sum::<f64>()
        };
        let times = of(1) / of(2);
        assert!(times > least, "{readers} readers of {file_mib} MiB: {times:.2} times as fast");
    }
}
