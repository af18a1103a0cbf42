//! Who comes and goes is kept waiting, unless it may be needed.

use super::servers::*;
use weir_types::{LayoutSpec, TargetId};
use weir_wire::map::TargetState;
use weir_wire::peer::TargetReport;

/// Server 1 is started anew again and again: how many seconds it takes each time until its
/// target is online.
fn waits(s: &mut Servers) -> Vec<u64> {
    let mut waits = Vec::new();
    for _ in 0..7 {
        let own = TargetReport { gaps: vec![(TargetId(1), 1)], ..Model::report(1) };
        s.c.register_reports(1, vec![own]).unwrap();
        let begin_ms = s.c.now.monotonic_ms;
        while s.state(2, 1) != TargetState::Online {
            s.quarter();
            assert!(s.c.now.monotonic_ms - begin_ms < 60_000, "{waits:?}");
        }
        waits.push((s.c.now.monotonic_ms - begin_ms) / 1000);
        s.pass(2);
    }
    waits
}

#[test]
fn a_target_that_comes_and_goes_is_kept_waiting_though_a_disk_is_dead_that_has_nothing_any_more() {
    let mut s = Servers::new(4);
    let open = s.create("f", 2);
    s.dead.insert(4);
    s.pass(5 + REBUILD_AFTER_MS / 1000 + 10);
    assert!(s.copies(&open).iter().all(|column| !column.contains(&4)), "made elsewhere");
    let waits = waits(&mut s);
    assert!(waits[..3].iter().all(|wait| *wait < 3), "{waits:?}");
    assert!(waits[5] >= 10 && waits[6] >= 20, "{waits:?}");
}

#[test]
fn a_target_that_comes_and_goes_is_not_kept_waiting_while_one_is_away_that_may_have_had_the_other_copy()
 {
    let mut s = Servers::new(4);
    // Wherever the columns begin: some are on targets 1 and 4.
    for base in 0..4 {
        let spec = LayoutSpec { copies: 2, count: 2, base: Some(base), ..LayoutSpec::default() };
        s.create_of(&format!("f{base}"), spec);
    }
    s.idle = true;
    s.dead.insert(4);
    s.pass(5 + REBUILD_AFTER_MS / 1000 + 10);
    let waits = waits(&mut s);
    assert!(waits.iter().all(|wait| *wait < 3), "{waits:?}");
}

#[test]
fn the_only_target_that_a_copy_can_be_made_from_is_not_kept_waiting() {
    let mut s = Servers::new(3);
    let spec = LayoutSpec { count: 1, base: Some(0), ..LayoutSpec::default() };
    s.create("mirrored", 2);
    let open = s.create_of("f", spec);
    s.idle = true;
    s.set_copies(&open, 2);
    s.pass(5);
    assert_eq!(s.segments(&open)[0].filling.len(), 1);
    let waits = waits(&mut s);
    assert!(waits.iter().all(|wait| *wait < 3), "{waits:?}");
}
