//! Effects that a slow disk must not have on its server.

use crate::few_or_all;
use std::time::Duration;
use weir_sim::slow_disk::{hang, hang_and_go_on, remove_all};

/// More than the time after which a server that is silent counts as away (`target_timeout_ms`,
/// 3.75 s).
const SYNC: Duration = Duration::from_secs(9);

/// Longer than what counts as a hang (10 s).
const HANG: Duration = Duration::from_secs(25);

#[test]
fn it_is_said_of_a_disk_that_hangs_for_how_long_until_it_answers() {
    let second = Duration::from_secs(1);
    for seed in 0..5 {
        let told = hang(seed, HANG).unwrap();
        let (first, age) = told.hangs.first().copied().unwrap_or_default();
        // By a report each half second.
        assert!(first > 10 * second && first < 13 * second, "seed {seed}: {told:?}");
        assert!(age >= 10 * second && age < 11 * second, "seed {seed}: {told:?}");
        let longest = told.hangs.iter().map(|(_, age)| *age).max().unwrap_or_default();
        assert!(longest > HANG - second && longest < HANG + second, "seed {seed}: {longest:?}");
        let last = told.hangs.last().map_or(Duration::MAX, |(at, _)| *at);
        assert!(last < 2 * HANG + second, "seed {seed}: {last:?}");
    }
}

#[test]
fn a_server_is_heard_of_while_it_removes_objects_from_a_slow_disk() {
    for seed in 0..5 {
        let seen = remove_all(seed, SYNC).unwrap();
        assert!(seen.away.is_empty(), "seed {seed}: first {:?}", seen.away[0]);
        assert!(seen.removed > 0 && seen.left.is_empty(), "seed {seed}: {seen:?}");
    }
}

/// Calls fail after 30 s.
#[test]
fn who_writes_goes_on_without_a_disk_that_hangs_and_it_comes_back_with_all() {
    let second = Duration::from_secs(1);
    for seed in 0..few_or_all(2, 5) {
        let went = hang_and_go_on(seed, 40 * second).unwrap();
        println!("seed {seed}: {went:?}");
        assert!(went.longest < 18 * second, "seed {seed}: {:?}", went.longest);
        assert!(went.writes > 100, "seed {seed}: {}", went.writes);
        // If the target is not the primary, others go on without it after some seconds, else after
        // 15.
        let (first, last) = went.away.unwrap_or_default();
        assert!(first > second && first < 18 * second, "seed {seed}: away at {first:?}");
        // Operations that began last during the hang end this much later.
        assert!(last < 95 * second, "seed {seed}: back after {last:?}");
        let differ = went.files.iter().filter(|(written, read)| written != read);
        assert_eq!(differ.count(), 0, "seed {seed}: {:?}", went.files);
    }
}
