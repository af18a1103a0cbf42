//! How long a single failure delays clients: reads in progress ask the other copy, once, and writes
//! go on without the absent copy. On virtual time, with the usual settings.

use crate::few_or_all;
use std::time::Duration;
use weir_sim::failover::{Copy, Did, Failure, Point, Seen, try_point};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// How long a copy is waited for if another one can replace it (`FIRST_PATIENCE_MS`).
const PATIENCE: Duration = ms(1_000);
/// More than connecting to the other server and reading there take.
const READ: Duration = ms(30);
/// A target that is not heard of is offline by the map within this time: `target_timeout_ms`
/// (3.75 s), the second between two looks, and the time that a look takes.
const MISSED: Duration = ms(4_800);
/// Then writes go on within this time.
const GO_ON: Duration = ms(1_000);
/// More than a write takes when nothing is wrong.
const WRITE: Duration = ms(100);

fn tried(point: Point) -> Seen {
    try_point(point).unwrap_or_else(|what| panic!("{point:?}: {what}"))
}

fn was_under_way(did: &Did) -> bool {
    did.asked.is_zero()
}

#[test]
fn a_read_asks_the_other_copy_once_and_ends_within_a_second_when_a_server_fails_under_it() {
    for failure in [Failure::Kill, Failure::PowerCut, Failure::CutOff, Failure::Stop] {
        let mut failed_over = 0;
        for n in 0..few_or_all(8, 12) {
            let point =
                Point { seed: n, servers: 3, copy: Copy::First, failure, after: ms(57) * n as u32 };
            let seen = tried(point);
            for did in seen.reads.iter().flatten() {
                let what = format!("{point:?}: {did:?}");
                // A read that begins later may meet a copy that is not yet known to be away.
                let bound = if failure == Failure::Kill { READ } else { PATIENCE + READ };
                assert!(did.took <= bound, "{what}");
                assert!(did.failed <= 1 && did.requests <= 1 + did.failed, "{what}");
                if was_under_way(did) && did.failed == 1 {
                    failed_over += 1;
                    assert!((1..=2).contains(&did.requests), "{what}");
                }
            }
            // All of them went on.
            assert!(seen.reads.iter().all(|reads| reads.len() > 100), "{point:?}");
        }
        println!("{failure:?}: {failed_over} reads under way went to the other copy");
        assert!(failed_over > 5, "{failure:?}");
    }
}

#[test]
fn a_server_that_fails_is_missed_within_five_seconds_and_writes_go_on_a_second_later() {
    for failure in [Failure::Kill, Failure::PowerCut, Failure::CutOff, Failure::Stop] {
        for copy in [Copy::First, Copy::Second] {
            let (mut latest, mut longest) = (Duration::ZERO, Duration::ZERO);
            for n in 0..few_or_all(8, 20) {
                let servers = 2 + (n % 2) as u8;
                let point = Point { seed: n, servers, copy, failure, after: ms(103) * n as u32 };
                let seen = tried(point);
                latest = latest.max(seen.missed);
                assert!(seen.missed < MISSED, "{point:?}: missed after {:?}", seen.missed);
                let stalled = |did: &&Did| did.took > WRITE;
                let stalled: Vec<Did> = seen.writes.iter().filter(stalled).copied().collect();
                assert_eq!(stalled.len(), 1, "{point:?}: {stalled:?}");
                longest = longest.max(stalled[0].ended.saturating_sub(seen.missed));
                let in_time = stalled[0].ended <= seen.missed + GO_ON;
                assert!(in_time, "{point:?}: {stalled:?}, missed after {:?}", seen.missed);
            }
            println!("{failure:?} of {copy:?}: missed after {latest:?}, {longest:?} more at most");
        }
    }
}

/// No other server reports then, so only the metadata server's own clock decides.
#[test]
fn servers_that_all_fail_are_missed_within_five_seconds() {
    let latest = (0..few_or_all(20, 40)).map(|n| {
        let after = ms(25) * n as u32;
        tried(Point { seed: n, servers: 2, copy: Copy::Both, failure: Failure::Kill, after }).missed
    });
    let latest = latest.max().unwrap();
    println!("missed after {latest:?}");
    assert!(latest < MISSED);
}
