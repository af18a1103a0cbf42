//! Tests of [`super`].

use super::*;
use proptest::prelude::*;
use weir_wire::lease::LeaseMode::{Read, Write};

const T: Duration = Duration::from_secs(5);

fn entered(enter: Enter) -> u64 {
    match enter {
        Enter::Entered(id) => id,
        other => panic!("{other:?}"),
    }
}

fn leased(mode: LeaseMode) -> FileLease {
    let mut lease = FileLease::default();
    lease.grant(0, TO_THE_END, mode);
    lease
}

#[test]
fn a_call_without_a_lease_is_told_what_is_missing_and_one_asks_for_all() {
    let mut lease = FileLease::default();
    let call = [4096..3 * 4096];
    let missing = Enter::Missing { start: 4096, end: 3 * 4096 };
    assert_eq!(lease.enter(T, &call, CallKind::Read, false), missing);
    let asking = lease.ask(4096, 3 * 4096, None);
    assert_eq!(lease.enter(T, &call, CallKind::Read, false), Enter::Wait(None));
    lease.grant(4096, 2 * 4096, Read);
    lease.asked(asking);
    let missing = Enter::Missing { start: 2 * 4096, end: 3 * 4096 };
    assert_eq!(lease.enter(T, &call, CallKind::Read, false), missing);
    lease.grant(2 * 4096, TO_THE_END, Read);
    entered(lease.enter(T, &call, CallKind::Read, false));
    let missing = Enter::Missing { start: 4096, end: 3 * 4096 };
    assert_eq!(lease.enter(T, &call, CallKind::Write, false), missing);
    lease.grant(0, TO_THE_END, Write);
    assert_eq!(lease.on_whole(), Some(Write));
}

#[test]
fn a_lease_is_given_up_when_the_calls_under_it_have_ended_and_new_ones_wait() {
    let mut lease = leased(Write);
    let call = entered(lease.enter(T, &[0..4096], CallKind::Write, false));
    let elsewhere = entered(lease.enter(T, &[8192..12288], CallKind::Write, false));
    lease.begin_recall(0, 4096, Write);
    assert!(!lease.is_quiet());
    assert_eq!(lease.enter(T, &[0..4096], CallKind::Read, false), Enter::Wait(None));
    entered(lease.enter(T, &[4096..8192], CallKind::Write, false));
    assert!(lease.leave(call));
    assert!(lease.is_quiet());
    lease.close();
    lease.give_up();
    assert_eq!(lease.enter(T, &[0..4096], CallKind::Read, false), Enter::Wait(None));
    lease.end_recall();
    let missing = Enter::Missing { start: 0, end: 4096 };
    assert_eq!(lease.enter(T, &[0..8192], CallKind::Read, false), missing);
    assert!(!lease.leave(elsewhere));
}

#[test]
fn a_lease_that_is_wanted_back_at_once_is_used_by_the_call_that_got_it() {
    let mut lease = leased(Write);
    lease.begin_recall(0, 4096, Write);
    assert_eq!(lease.enter(T, &[0..4096], CallKind::Write, false), Enter::Wait(None));
    let call = entered(lease.enter(T, &[0..4096], CallKind::Write, true));
    assert!(!lease.is_quiet());
    lease.leave(call);
    lease.begin_round(T);
    entered(lease.enter(T, &[0..4096], CallKind::Read, true));
    assert!(lease.end_round(), "what it reads is dropped again");
    lease.begin_round(T);
    assert!(!lease.end_round());
    assert_eq!(lease.enter(T, &[0..4096], CallKind::Read, true), Enter::Wait(None));
}

#[test]
fn who_gives_up_the_right_to_write_goes_on_reading() {
    let mut lease = leased(Write);
    let writer = entered(lease.enter(T, &[0..4096], CallKind::Write, false));
    entered(lease.enter(T, &[0..4096], CallKind::Read, false));
    lease.begin_recall(0, TO_THE_END, Read);
    entered(lease.enter(T, &[0..4096], CallKind::Read, false));
    assert_eq!(lease.enter(T, &[0..4096], CallKind::Write, false), Enter::Wait(None));
    assert!(!lease.is_quiet());
    lease.leave(writer);
    assert!(lease.is_quiet());
    lease.close();
    lease.give_up();
    lease.end_recall();
    assert_eq!(lease.on_whole(), Some(Read));
}

#[test]
fn what_is_read_while_pages_are_dropped_is_dropped_again() {
    let mut lease = leased(Write);
    lease.begin_recall(0, TO_THE_END, Write);
    assert_eq!(lease.enter(T, &[0..4096], CallKind::Read, false), Enter::Wait(None));
    // A page that the recall would wait for is not held up.
    entered(lease.enter(T, &[0..4096], CallKind::Page, false));
    assert!(lease.is_quiet());
    assert_eq!(lease.begin_round(T), [0..TO_THE_END]);
    entered(lease.enter(T, &[4096..8192], CallKind::Read, false));
    assert!(lease.end_round(), "what was read has to be dropped");
    assert_eq!(lease.begin_round(T), [4096..8192]);
    let wait = lease.enter(T + HOLD_BACK / 2, &[4096..8192], CallKind::Read, false);
    assert_eq!(wait, Enter::Wait(Some(HOLD_BACK / 2)));
    entered(lease.enter(T, &[4096..8192], CallKind::Page, false));
    entered(lease.enter(T + HOLD_BACK, &[0..4096], CallKind::Read, false));
    assert!(lease.end_round());
    assert_eq!(lease.begin_round(T), [0..4096]);
    assert!(!lease.end_round());
    let late = lease.enter(T + HOLD_BACK, &[0..4096], CallKind::Read, true);
    assert_eq!(late, Enter::Wait(None), "what it reads would not be dropped");
    assert_eq!(lease.enter(T, &[0..4096], CallKind::Page, false), Enter::Wait(None));
    assert!(!lease.is_quiet(), "pages are written back before the lease is given up");
}

#[test]
fn dropping_does_not_wait_for_a_read_that_waits_for_a_lease() {
    let mut lease = FileLease::default();
    lease.grant(0, 8192, Write);
    let range = 4096..12288;
    let missing = Enter::Missing { start: 8192, end: 12288 };
    assert_eq!(lease.enter(T, std::slice::from_ref(&range), CallKind::Read, false), missing);
    let id = lease.begin_waiting(std::slice::from_ref(&range), CallKind::Read);
    lease.begin_recall(0, TO_THE_END, Write);
    assert_eq!(lease.begin_round(T), [0..4096]);
    lease.end_waiting(id);
    lease.end_recall();
    lease.begin_recall(0, TO_THE_END, Write);
    assert_eq!(lease.begin_round(T), [0..8192]);
}

/// As those of a copy and of `lseek`: the layer above has not locked any pages.
#[test]
fn who_only_looks_keeps_no_pages_from_being_dropped() {
    let mut lease = FileLease::default();
    lease.grant(0, 8192, Write);
    let id = lease.begin_waiting(&[4096..12288], CallKind::Look);
    lease.begin_recall(0, TO_THE_END, Write);
    assert_eq!(lease.begin_round(T), [0..8192]);
    lease.end_waiting(id);
}

#[test]
fn read_ahead_ends_where_the_lease_does_or_is_wanted_back() {
    let mut lease = FileLease::default();
    assert_eq!(lease.reach(100), 100);
    lease.grant(0, 8192, Write);
    lease.grant(8192, 16384, Read);
    assert_eq!(lease.reach(100), 16384);
    lease.begin_recall(12288, 16384, Write);
    assert_eq!(lease.reach(100), 12288);
    lease.end_recall();
    lease.begin_recall(0, 4096, Read);
    assert_eq!(lease.reach(100), 16384);
    assert!(lease.lose());
    assert_eq!(lease.reach(100), 100);
}

/// As when a truncation has failed half way: the server does not know, and another client wants
/// to write.
#[test]
fn what_is_kept_under_a_lease_that_was_lost_is_dropped_when_that_is_wanted_back() {
    let mut lease = leased(Write);
    assert!(lease.lose());
    // Some of it has come again.
    lease.grant(4096, 8192, Write);
    lease.begin_recall(0, 12288, Write);
    assert_eq!(lease.begin_round(T), [0..12288]);
    assert!(!lease.end_round());
    lease.give_up();
    lease.end_recall();
    lease.begin_recall(0, 16384, Read);
    lease.close();
    lease.give_up();
    lease.end_recall();
    lease.begin_recall(0, TO_THE_END, Write);
    assert_eq!(lease.begin_round(T), [12288..TO_THE_END], "it could be read until now");
    lease.end_round();
    lease.give_up();
    lease.end_recall();
    lease.begin_recall(0, TO_THE_END, Write);
    assert!(lease.begin_round(T).is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Call(u64, u64, bool),
    Leave(usize),
    Grant(u64, u64, bool),
    Recall(u64, u64, bool),
    GoOn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..8u64, 1..8u64, any::<bool>());
    let step = prop_oneof![
        3 => range().prop_map(|(at, len, w)| Step::Call(at, at + len, w)),
        3 => (0..8usize).prop_map(Step::Leave),
        2 => range().prop_map(|(at, len, w)| Step::Grant(at, at + len, w)),
        2 => range().prop_map(|(at, len, w)| Step::Recall(at, at + len, w)),
        3 => Just(Step::GoOn),
    ];
    proptest::collection::vec(step, 0..60)
}

fn mode(write: bool) -> LeaseMode {
    if write { Write } else { Read }
}

proptest! {
    /// Whatever happens in whatever order: calls are under way only under
    /// a lease, also while it is being given up.
    #[test]
    fn calls_are_always_covered(steps in steps()) {
        let mut lease = FileLease::default();
        let mut calls: Vec<(u64, Range<u64>, LeaseMode)> = Vec::new();
        let mut recall: Option<u32> = None;
        for step in steps {
            match step {
                Step::Call(start, end, write) => {
                    let kind = if write { CallKind::Write } else { CallKind::Read };
                    let range = start * 4096..end * 4096;
                    if let Enter::Entered(id) = lease.enter(T, std::slice::from_ref(&range), kind, false) {
                        calls.push((id, range, kind.mode()));
                    }
                }
                Step::Leave(at) if at < calls.len() => drop(lease.leave(calls.remove(at).0)),
                Step::Leave(_) => {}
                Step::Grant(start, end, write) if recall.is_none() => {
                    lease.grant(start * 4096, end * 4096, mode(write));
                }
                Step::Grant(..) => {}
                Step::Recall(start, end, write) if recall.is_none() => {
                    lease.begin_recall(start * 4096, end * 4096, mode(write));
                    recall = Some(0);
                }
                Step::Recall(..) => {}
                Step::GoOn => match recall {
                    Some(0) if lease.is_quiet() => {
                        lease.begin_round(T);
                        recall = Some(1);
                    }
                    Some(1) if lease.end_round() => drop(lease.begin_round(T - HOLD_BACK)),
                    Some(1) => recall = Some(2),
                    Some(2) if lease.is_quiet() => {
                        lease.give_up();
                        recall = Some(3);
                    }
                    Some(3) => {
                        lease.end_recall();
                        recall = None;
                    }
                    _ => {}
                },
            }
            for (_, range, mode) in &calls {
                prop_assert_eq!(lease.held().missing(range.start, range.end, *mode), None);
            }
        }
    }
}
