//! What a disk that is slow does not do to its server.
#![allow(clippy::unwrap_used)]

use std::time::Duration;
use weir_sim::slow_disk::remove_all;

/// More than the time after which a server that is silent counts as away (`target_timeout_ms`,
/// 3.75 s).
const SYNC: Duration = Duration::from_secs(9);

#[test]
fn a_server_is_heard_of_while_it_removes_objects_from_a_slow_disk() {
    for seed in 0..5 {
        let seen = remove_all(seed, SYNC).unwrap();
        assert!(seen.away.is_empty(), "seed {seed}: first {:?}", seen.away[0]);
        assert!(seen.removed > 0 && seen.left.is_empty(), "seed {seed}: {seen:?}");
    }
}
