//! Bugs planted in the standings of targets are found. In a process of its own: a bug
//! is planted in all of it.

use crate::copies::world::{random_run, the_last_copy_stays, the_last_one_stays};
use crate::harness::alone;
use weir_host::plant::{Bug, plant};

#[test]
fn each_planted_bug_is_found() {
    alone("copies_planted::each_planted_bug_is_found", || {
        assert!(plant(Some(Bug::MarkLastCopy)));
        assert!(!the_last_one_stays());
        assert!(!the_last_copy_stays());
        assert!(plant(Some(Bug::OnlineTooEarly)));
        let first = (0..1000).find(|seed| !random_run(*seed));
        assert!(plant(None));
        assert!(first.is_some());
    });
}
