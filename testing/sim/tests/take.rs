//! Blocks that any process may read, with the real code of clients and servers.

use weir_sim::take::{Course, RECORD, Seen, take};

const MIB: u64 = 1 << 20;
/// Of each file: 60 MiB.
const RECORDS: u64 = 960;

fn course(seed: u64, mib: &[u64], copies: u8) -> Course {
    Course {
        seed,
        rates: mib.iter().map(|mib| mib * MIB).collect(),
        copies,
        records: RECORDS,
        striped: false,
        block_bytes: MIB / 2,
    }
}

fn taken(course: &Course) -> Seen {
    let seen = take(course).unwrap();
    let mut all = seen.records.concat();
    all.sort_unstable();
    let records = course.records * course.rates.len() as u64;
    assert!(all == (0..records).collect::<Vec<_>>(), "{} of {records} records", all.len());
    for (records, summary) in seen.records.iter().zip(&seen.summaries) {
        assert_eq!(records.len() as u64 * RECORD, summary.bytes);
    }
    seen
}

/// The time until the last process ended, relative to what all disks together need.
fn part(course: &Course, seen: &Seen) -> f64 {
    let bytes = course.records * RECORD * course.rates.len() as u64;
    let ideal = bytes as f64 / course.rates.iter().sum::<u64>() as f64;
    seen.ends.iter().max().unwrap().as_secs_f64() / ideal
}

#[test]
fn each_reads_its_own_disk_and_nothing_over_the_network_while_disks_are_even() {
    let course = course(1, &[20, 20, 20, 20], 2);
    let seen = taken(&course);
    assert!(seen.summaries.iter().all(|of| of.other_bytes == 0), "{:?}", seen.summaries);
    for bytes in &seen.disk_bytes {
        let off = bytes.abs_diff(RECORDS * RECORD) as f64 / (RECORDS * RECORD) as f64;
        // Checksums, and headers of objects.
        assert!(off < 0.02, "{:?}", seen.disk_bytes);
    }
    let part = part(&course, &seen);
    assert!(part < 1.07, "{part:.3} of the ideal time, {:?}", seen.ends);
}

#[test]
fn what_a_slow_disk_cannot_give_in_time_comes_from_its_copies_and_all_end_together() {
    for (seed, rates, copies) in [(2, [10, 20, 20, 20], 2), (3, [20, 10, 20, 20], 3)] {
        let course = course(seed, &rates, copies);
        let seen = taken(&course);
        let part = part(&course, &seen);
        assert!(part < 1.06, "seed {seed}: {part:.3} of the ideal time, {:?}", seen.ends);
        let other: u64 = seen.summaries.iter().map(|of| of.other_bytes).sum();
        // Blocks at the very end, at the most.
        assert!(other <= 3 * MIB, "seed {seed}: {other} bytes, {:?}", seen.summaries);
    }
}

#[test]
fn files_that_are_striped_or_have_one_copy_are_read_from_their_disks_too() {
    let striped = Course { striped: true, ..course(5, &[20, 20, 20], 2) };
    let seen = taken(&striped);
    assert!(seen.summaries.iter().all(|of| of.other_bytes == 0), "{:?}", seen.summaries);
    let part = part(&striped, &seen);
    assert!(part < 1.07, "{part:.3} of the ideal time, {:?}", seen.ends);
    // Blocks that are no multiple of a record, nor of a stripe.
    let odd =
        Course { records: 101, block_bytes: 300_000, striped: true, ..course(6, &[20, 20], 1) };
    taken(&odd);
}
