//! Copies move while others come and go.

use super::servers::*;
use std::collections::BTreeSet;
use weir_types::TargetId;
use weir_wire::map::TargetState;
use weir_wire::targets::SetTargetRequest;

#[test]
fn what_had_to_be_made_on_a_target_that_is_drained_moves_when_another_is_back() {
    let mut s = Servers::new(3);
    s.dead.insert(3);
    s.pass(10);
    s.c.ask(&s.me, &SetTargetRequest { target: TargetId(2), draining: true }).unwrap();
    s.pass(5);
    let file = s.create("f", 2);
    assert_eq!(s.copies(&file)[0], BTreeSet::from([1, 2]));
    s.dead.clear();
    s.pass(20);
    assert_eq!(s.copies(&file)[0], BTreeSet::from([1, 3]));
}

#[test]
fn a_file_is_not_held_up_by_a_copy_that_is_filled_while_others_are_confirmed() {
    for quarters in 1..10 {
        let mut s = Servers::new(4);
        let file = s.create("f", 1);
        s.slow = Some(s.segments(&file)[0].columns[1].targets[0].0);
        s.set_copies(&file, 2);
        (0..quarters).for_each(|_| s.quarter());
        s.slow = None;
        let mut waited = 0;
        while !s.segments(&file)[0].filling.is_empty() {
            s.quarter();
            waited += 1;
        }
        assert!(waited < 8, "{quarters}: {waited} quarters of a second");
    }
}

#[test]
fn the_copy_that_is_left_is_not_dropped_just_when_the_other_goes_away() {
    for quarters in 0..4 {
        let mut s = Servers::new(3);
        (0..quarters).for_each(|_| s.quarter());
        let file = s.create("f", 2);
        let first = s.segments(&file)[0].columns[0].targets[0].0;
        let alive = *s.all.iter().find(|server| **server != first).unwrap();
        s.dead.insert(first);
        while s.state(alive, first) == TargetState::Online {
            s.quarter();
        }
        s.set_copies(&file, 1);
        s.pass(8);
        let columns = s.segments(&file)[0].columns.clone();
        let left =
            |targets: &[TargetId]| targets.iter().any(|t| *t != TargetId::NONE && t.0 != first);
        assert!(columns.iter().all(|column| left(&column.targets)), "{quarters}: {columns:?}");
    }
}
