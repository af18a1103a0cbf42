//! The decisions of the policies in a model of the papers' machines: 16 disks of 5.45 MB/s whose
//! seeks take 12 ms, and 150 MB for each reader. The papers' curves are measured with disks and
//! networks (docs/figures.md).

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod ring;

use ring::{Outcome, Ring};
use weir_policy::{Limits, ReadPolicy, Watermarks, best_common_rate};

const DISKS: usize = 16;
const WORK: u64 = 150 << 20;
const MIB: u64 = 1 << 20;
const KIB: u32 = 1 << 10;

/// Reads as the papers' programs do: without runs, two requests at each disk.
fn as_the_papers(policy: ReadPolicy, block_bytes: u32, slow: &[usize]) -> Ring {
    let mut bytes_per_s = vec![5.45e6; DISKS];
    slow.iter().for_each(|disk| bytes_per_s[*disk] /= 2.0);
    Ring {
        policy,
        copies: 2,
        block_bytes,
        work_bytes: vec![WORK; DISKS],
        bytes_per_s,
        seek_us: 12_000.0,
        window_bytes: 0,
        run_bytes: 1,
        marks: Watermarks { high: 0.02, low: 0.005, adapts: false, request_bytes: 0 },
        push_us: 100_000,
        comes_and_goes: None,
    }
}

/// Reads as Weir does for any program: pieces of 64 KiB, and runs at each disk.
fn as_weir(slow: &[usize]) -> Ring {
    Ring {
        window_bytes: 2 * Limits::default().run_bytes,
        run_bytes: Limits::default().run_bytes,
        marks: Watermarks::default(),
        ..as_the_papers(ReadPolicy::Proportional, 64 * KIB, slow)
    }
}

fn evenly(faults: usize) -> Vec<usize> {
    (0..faults).map(|fault| fault * DISKS / faults).collect()
}

/// The rate of one run as a share of the bound, and its outcome.
fn of_bound(ring: &Ring) -> (f64, Outcome) {
    let work: Vec<f64> = ring.work_bytes.iter().map(|bytes| *bytes as f64).collect();
    let bound = best_common_rate(&work, &ring.bytes_per_s, ring.copies).unwrap();
    let outcome = ring.run();
    assert!(outcome.is_complete, "each block exactly once");
    let served: u64 = outcome.disk_bytes.iter().sum();
    assert_eq!(served, ring.work_bytes.iter().sum::<u64>());
    (1.0 / (outcome.slowest_s * bound), outcome)
}

#[test]
fn without_faults_nobody_reads_other_disks_and_basic_reads_half_there() {
    for block in [4 * KIB, 64 * KIB, 1024 * KIB] {
        for policy in [ReadPolicy::GraduatedPrimary, ReadPolicy::Proportional] {
            let (share, outcome) = of_bound(&as_the_papers(policy, block, &[]));
            assert_eq!(outcome.diverted, 0.0, "{policy:?}");
            assert!(share > 0.999, "{policy:?}: {share}");
        }
        let (_, basic) = of_bound(&as_the_papers(ReadPolicy::Graduated, block, &[]));
        assert!((basic.diverted - 0.5).abs() < 0.01, "{basic:?}");
    }
}

#[test]
fn one_slow_disk_halves_who_reads_one_copy_and_hardly_slows_who_graduates() {
    let rate = |policy, block| of_bound(&as_the_papers(policy, block, &[5])).0;
    // One of 16 disks at half speed: the bound is 15.5/16 of their sum.
    assert!(rate(ReadPolicy::Primary, 64 * KIB) < 0.52);
    assert!(rate(ReadPolicy::GraduatedPrimary, 64 * KIB) > 0.88);
    // Two readers that alternate block by block cost a seek for each block.
    assert!(rate(ReadPolicy::Graduated, 64 * KIB) < 0.55);
    assert!(rate(ReadPolicy::Graduated, 1024 * KIB) > 0.87);
    assert!(rate(ReadPolicy::GraduatedPrimary, 1024 * KIB) > 0.94);
}

#[test]
fn the_default_is_near_the_bound_for_any_number_of_slow_disks() {
    for faults in 0..=DISKS {
        let (share, outcome) = of_bound(&as_weir(&evenly(faults)));
        // Seeking to another reader's data after each run costs a slow disk up to 6 %.
        assert!(share > 0.965, "{faults} slow disks: {share:.3} of the bound, {outcome:?}");
        for (bytes, turns) in outcome.disk_bytes.iter().zip(&outcome.turns) {
            assert!(bytes / (turns + 1) > MIB / 2, "a disk turned too often: {outcome:?}");
        }
    }
}

#[test]
fn slow_disks_side_by_side_are_used_up_to_their_bound_and_a_third_copy_helps() {
    let mut rates = Vec::new();
    for copies in [2, 3] {
        let ring = Ring { copies, ..as_weir(&[4, 5, 6]) };
        let (share, outcome) = of_bound(&ring);
        assert!(share > 0.95, "{copies} copies: {share:.3}, {outcome:?}");
        rates.push(outcome.slowest_s);
    }
    assert!(rates[1] < rates[0], "{rates:?}");
}

#[test]
fn readers_with_more_to_do_are_done_at_the_same_time() {
    for alternating in [true, false] {
        let mut ring = as_weir(&[2]);
        let large = |reader: usize| if alternating { reader % 2 == 1 } else { reader >= 8 };
        ring.work_bytes = (0..DISKS).map(|n| if large(n) { 200 } else { 100 } * MIB).collect();
        let (share, outcome) = of_bound(&ring);
        assert!(share > 0.95, "alternating: {alternating}, {share:.3}, {outcome:?}");
    }
}

#[test]
fn who_disturbs_a_disk_every_other_two_seconds_slows_all_alike() {
    let ring = Ring { comes_and_goes: Some((7, 2.0, 2_000_000)), ..as_weir(&[]) };
    let outcome = ring.run();
    assert!(outcome.is_complete);
    // The changing disk has three quarters of its speed on average.
    let ideal = WORK as f64 * 16.0 / (5.45e6 * 15.75);
    assert!(outcome.slowest_s < ideal * 1.05, "{outcome:?}, ideal {ideal:.2} s");
}

#[test]
fn small_blocks_lose_to_seeks_and_too_large_ones_make_progress_unequal() {
    let of = |kib: u32| {
        let (share, outcome) = of_bound(&as_the_papers(ReadPolicy::Graduated, kib * KIB, &[5]));
        (share, outcome.fastest_s / outcome.slowest_s)
    };
    let [(small, small_even), (right, right_even), (large, large_even)] = [64, 1024, 16384].map(of);
    assert!(small < 0.55 && small_even > 0.99, "64 KiB: {small:.3}, {small_even:.3}");
    assert!(right > 0.9 && right_even > 0.9, "1 MiB: {right:.3}, {right_even:.3}");
    // Nine blocks for each reader. A slow disk is busy with two of them while another reads four.
    assert!(large < 0.75 && large_even < 0.7, "16 MiB: {large:.3}, {large_even:.3}");
    // Without a fault, readers of first copies divert nothing to other disks.
    for kib in [16, 32768] {
        let (share, _) = of_bound(&as_the_papers(ReadPolicy::GraduatedPrimary, kib * KIB, &[]));
        assert!(share > 0.999, "{kib} KiB: {share:.3}");
    }
}

#[test]
fn a_high_mark_that_falls_ends_sooner_than_a_fixed_one_with_one_slow_disk() {
    let own = Watermarks::default();
    // With Weir's own marks there is less to gain.
    let own = (own.high, own.low, 0.005);
    for (high, low, gain) in [own, (0.02, 0.005, 0.02), (0.05, 0.005, 0.02), (0.1, 0.01, 0.02)] {
        let share = |adapts| {
            let marks = Watermarks { high, low, adapts, request_bytes: 0 };
            let of = as_the_papers(ReadPolicy::GraduatedPrimary, 64 * KIB, &[5]);
            of_bound(&Ring { marks, ..of }).0
        };
        let (fixed, falls) = (share(false), share(true));
        assert!(falls > fixed + gain, "{high}: {falls:.3} of the bound, fixed {fixed:.3}");
    }
}

#[test]
fn large_and_small_parts_in_turn_end_sooner_than_side_by_side() {
    let slowest = |policy, alternating| {
        let mut ring = as_the_papers(policy, 1024 * KIB, &[]);
        let large = |reader: usize| if alternating { reader % 2 == 1 } else { reader >= 8 };
        ring.work_bytes = (0..DISKS).map(|n| if large(n) { 200 } else { 100 } * MIB).collect();
        of_bound(&ring).1.slowest_s
    };
    for policy in [ReadPolicy::Graduated, ReadPolicy::GraduatedPrimary] {
        let (in_turn, aside) = (slowest(policy, true), slowest(policy, false));
        // Nine disks have the copies of eight large adjacent parts: 8 x 200 / 9 to 150.
        assert!(in_turn < aside * 0.9, "{policy:?}: {in_turn:.1} s, side by side {aside:.1} s");
    }
    let (in_turn, aside) =
        (slowest(ReadPolicy::Primary, true), slowest(ReadPolicy::Primary, false));
    assert!((in_turn / aside - 1.0).abs() < 0.01, "of one copy it is all the same");
}
