//! Room that cannot be reserved on all copies, and a metadata disk that is full for a while.

use weir_sim::generate;
use weir_sim::history::{Outcome, What};
use weir_sim::plan::EngineKind;
use weir_sim::reserved::try_reservation;
use weir_sim::run;
use weir_types::ErrorKind;

#[test]
fn room_that_is_refused_takes_nothing_from_what_is_there() {
    for full in [&[1][..], &[0], &[0, 1]] {
        let seen = try_reservation(1, full).unwrap();
        assert_eq!(seen.told, [Some(ErrorKind::NoSpace); 2], "{full:?}");
        assert_eq!(seen.lacking, [0, 0], "{full:?}");
        assert_eq!((seen.byte, seen.told_of_written, seen.zeros), (1, [None; 2], true), "{full:?}");
    }
}

/// Under all kinds of faults. A server that ended because of the full disk would be a violation.
#[test]
fn a_metadata_disk_that_is_full_for_a_while_loses_nothing_and_stops_nobody() {
    let mut told = 0;
    for seed in 1..=40 {
        let mut plan = generate::plan(seed, 10_000);
        plan.shape.engine = EngineKind::Embedded;
        generate::fill_metadata_disk(&mut plan, &mut fastrand::Rng::with_seed(seed));
        let (report, history) = run::run_with(&plan, false);
        assert!(report.violations.is_empty(), "seed {seed}: {}", report.violations[0]);
        let full = history.entries.iter().filter(|entry| match &entry.what {
            What::End { outcome: Outcome::Unknown(error), .. } => error.kind == ErrorKind::NoSpace,
            _ => false,
        });
        told += full.count();
    }
    println!("{told} calls were told");
    assert!(told > 0);
}
