use super::{Drive, Head, Kind, Zones};
use proptest::prelude::*;
use std::time::Duration;

/// The disk of River's experiments.
const PAPER: Drive = Drive {
    bytes_per_s: 5_450_000,
    positioning_us: 12_000,
    overhead_us: 300,
    streams: 1,
    prefetch_bytes: 128 << 10,
    zones: None,
};
const KIB: u64 = 1 << 10;

/// Rate of requests of one size, each issued when the previous one is complete; MB/s.
fn rate(drive: Drive, kind: Kind, length: u64, offsets: impl Iterator<Item = u64>) -> f64 {
    let (mut head, mut now, mut bytes) = (Head::new(drive), Duration::ZERO, 0);
    for offset in offsets {
        now = head.done(kind, offset, length, now);
        bytes += length;
    }
    bytes as f64 / now.as_secs_f64() / 1e6
}

#[test]
fn inner_tracks_give_less_than_outer_ones() {
    // River's disk: 5.45 MB/s outside, 3.18 MB/s inside; a part of the disk that begins in the
    // middle.
    let disk_bytes = 2 << 30;
    let of = |begin| {
        let zones = Some(Zones { inner_bytes_per_s: 3_180_000, disk_bytes, begin });
        let drive = Drive { zones, ..PAPER };
        rate(drive, Kind::Read, 64 * KIB, (0..500).map(|n| n * 64 * KIB))
    };
    let rates = [0, disk_bytes / 2, disk_bytes - (32 << 20)].map(of);
    let expected = [5.42, 4.29, 3.19];
    let near = rates.iter().zip(expected).all(|(rate, of)| (rate / of - 1.0).abs() < 0.02);
    assert!(near, "{rates:?}, not {expected:?}");
}

/// Two distant streams in turn.
fn in_turn(length: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| n % 2 * (1 << 30) + n / 2 * length)
}

#[test]
fn from_end_to_end_a_drive_gives_its_rate() {
    for (kind, length) in [(Kind::Read, 64 * KIB), (Kind::Read, 8 * KIB), (Kind::Write, 64 * KIB)] {
        let rate = rate(PAPER, kind, length, (0..500).map(|n| n * length));
        assert!((5.35..5.46).contains(&rate), "{kind:?} {length}: {rate}");
    }
}

#[test]
fn two_streams_in_turn_get_half_of_it_with_64_kib_at_a_time() {
    let together = rate(PAPER, Kind::Read, 64 * KIB, in_turn(64 * KIB, 400));
    assert!((2.6..2.8).contains(&together), "{together}");
    // The longer the requests, the less is lost.
    let long = rate(PAPER, Kind::Read, 1024 * KIB, in_turn(1024 * KIB, 100));
    assert!((5.0..5.2).contains(&long), "{long}");
}

#[test]
fn a_late_reader_finds_what_was_read_ahead_and_a_turn_loses_it() {
    let mut head = Head::new(PAPER);
    let first = head.done(Kind::Read, 0, 64 * KIB, Duration::ZERO);
    let late = first + Duration::from_millis(100);
    // Meanwhile 128 KiB have arrived: the whole read-ahead of the drive.
    let there = head.done(Kind::Read, 64 * KIB, 128 * KIB, late);
    assert_eq!(there - late, Duration::from_micros(PAPER.overhead_us));
    // The next request ends beyond the read-ahead.
    let more = head.done(Kind::Read, 192 * KIB, 64 * KIB, there);
    assert!(more - there > Duration::from_millis(10), "{:?}", more - there);

    // Another stream was served in between.
    let other = head.done(Kind::Read, 1 << 30, 64 * KIB, more + Duration::from_millis(100));
    let back = head.done(Kind::Read, 256 * KIB, 64 * KIB, other);
    assert!(back - other >= Duration::from_millis(24), "{:?}", back - other);
}

#[test]
fn a_drive_that_remembers_both_streams_keeps_what_it_read_ahead() {
    let drive = Drive { streams: 2, ..PAPER };
    let mut head = Head::new(drive);
    let now = head.done(Kind::Read, 0, 64 * KIB, Duration::ZERO) + Duration::from_millis(100);
    let now = head.done(Kind::Read, 1 << 30, 64 * KIB, now);
    let back = head.done(Kind::Read, 64 * KIB, 64 * KIB, now);
    assert_eq!(back - now, Duration::from_micros(drive.overhead_us));
}

#[test]
fn what_was_written_is_not_read_from_memory_and_a_gap_ahead_is_passed_over() {
    let mut head = Head::new(PAPER);
    let now = head.done(Kind::Read, 0, 64 * KIB, Duration::ZERO) + Duration::from_millis(100);
    let now = head.done(Kind::Write, 64 * KIB, 4 * KIB, now);
    let read = head.done(Kind::Read, 64 * KIB, 4 * KIB, now);
    assert!(read - now >= Duration::from_millis(12), "{:?}", read - now);
    // 4 KiB further: 0.75 ms instead of 12.
    let skipped = head.done(Kind::Write, 72 * KIB, 4 * KIB, read);
    assert!(skipped - read < Duration::from_millis(2), "{:?}", skipped - read);
}

#[derive(Clone, Debug)]
struct Asked {
    kind: Kind,
    offset: u64,
    length: u64,
    pause_us: u64,
}

fn asked() -> impl Strategy<Value = Vec<Asked>> {
    let kind = prop_oneof![3 => Just(Kind::Read), 1 => Just(Kind::Write)];
    let one = (kind, 0..1u64 << 22, 1..1u64 << 18, 0..40_000u64);
    let one =
        one.prop_map(|(kind, offset, length, pause_us)| Asked { kind, offset, length, pause_us });
    prop::collection::vec(one, 1..60)
}

fn drive() -> impl Strategy<Value = Drive> {
    let numbers = (1_000_000..500_000_000u64, 0..20_000u64, 0..1_000u64, 1..5usize, 0..1u64 << 20);
    numbers.prop_map(|(bytes_per_s, positioning_us, overhead_us, streams, prefetch_bytes)| Drive {
        bytes_per_s,
        positioning_us,
        overhead_us,
        streams,
        prefetch_bytes,
        zones: None,
    })
}

proptest! {
    #[test]
    fn answers_come_in_order_and_each_takes_what_it_must(drive in drive(), asked in asked()) {
        let (mut head, mut now, mut last) = (Head::new(drive), Duration::ZERO, Duration::ZERO);
        let (overhead, positioning) =
            (Duration::from_micros(drive.overhead_us), Duration::from_micros(drive.positioning_us));
        for one in &asked {
            now += Duration::from_micros(one.pause_us);
            let busy = last.max(now);
            let done = head.done(one.kind, one.offset, one.length, now);
            prop_assert!(done >= last && done >= now + overhead);
            // Once its turn has come, no request costs more than a seek and its bytes.
            prop_assert!(done <= busy + overhead.max(positioning + drive.time(one.offset, one.length)) + overhead);
            if one.kind == Kind::Write {
                prop_assert!(done >= now + drive.time(one.offset, one.length));
            }
            last = done;
        }
    }

    #[test]
    fn nobody_reads_from_end_to_end_faster_than_the_head(drive in drive(), asked in asked()) {
        let (mut head, mut now, mut bytes) = (Head::new(drive), Duration::ZERO, 0);
        for one in &asked {
            now = head.done(Kind::Read, bytes, one.length, now + Duration::from_micros(one.pause_us));
            bytes += one.length;
            prop_assert!(now >= drive.time(0, bytes).saturating_sub(Duration::from_micros(1)));
        }
    }

    #[test]
    fn with_one_stream_each_turn_costs_a_move(drive in drive(), turns in 2..50u64) {
        let drive = Drive { streams: 1, ..drive };
        let mut head = Head::new(drive);
        let mut now = Duration::ZERO;
        for offset in in_turn(4096, turns) {
            now = head.done(Kind::Read, offset, 4096, now);
        }
        // The first request begins at the head's position.
        let moves = Duration::from_micros(drive.positioning_us) * (turns as u32 - 1);
        let passing = drive.time(0, 1 << 29);
        prop_assume!(passing > Duration::from_micros(drive.positioning_us));
        prop_assert!(now >= moves);
    }
}
