//! Targets that come back while others make the copies that are to replace theirs.

use std::time::Duration;
use weir_sim::comes_back::try_return;

/// The duration of a sync where the copies are made, and the time after which the server dies. With
/// these, many copies have been begun when it is back, and all end soon.
const TIMES_MS: [(u64, u64); 3] = [(100, 300), (200, 300), (100, 600)];

#[test]
fn a_copy_that_was_only_begun_when_another_server_came_back_is_not_taken_for_whole() {
    for (sync, dies) in TIMES_MS {
        for seed in 0..4 {
            let ms = Duration::from_millis;
            let wrong = try_return(seed, ms(sync), ms(dies)).unwrap();
            assert!(wrong.is_empty(), "seed {seed}, {sync} ms, {dies} ms: files {wrong:?}");
        }
    }
}
