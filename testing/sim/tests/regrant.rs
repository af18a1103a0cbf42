//! Who is back is read from when everybody knows it: the one that ordered without it may not yet. In a
//! process of its own: a bug is planted in it.

use crate::alone::alone;
use std::ops::Range;
use std::time::Duration;
use weir_host::plant::{Bug, plant};
use weir_sim::regrant::{Seen, try_once};

/// When the other server becomes deaf, counted from the restart of the first one, which is back
/// after 2 to 3 s.
const DEAF_MS: Range<u64> = 2_300..2_800;
const STEP_MS: usize = 10;

fn all() -> Vec<Seen> {
    let run = |ms| try_once(ms, Duration::from_millis(ms)).unwrap();
    DEAF_MS.step_by(STEP_MS).map(run).collect()
}

#[test]
fn who_is_back_is_not_read_before_everybody_knows_it_unless_by_a_bug() {
    alone("regrant::who_is_back_is_not_read_before_everybody_knows_it_unless_by_a_bug", come_back);
}

fn come_back() {
    let seen = all();
    assert!(!seen.iter().any(|seen| seen.stale), "{seen:?}");
    let met = seen.iter().filter(|seen| seen.acknowledged && seen.read).count();
    assert!(met > 0, "it does not come to that: {seen:?}");
    if !plant(Some(Bug::RegrantBeforeReconcile)) {
        println!("skipped: planting needs a build with debug assertions");
        return;
    }
    let planted = all();
    plant(None);
    let first = planted.iter().position(|seen| seen.stale);
    println!(
        "of {} runs {met} come to that; with the bug: run {:?}",
        seen.len(),
        first.map(|at| at + 1)
    );
    assert!(first.is_some(), "{planted:?}");
}
