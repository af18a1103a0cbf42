use super::*;

fn fail(kind: ErrorKind) -> Result<(), Error> {
    Err(kind.into())
}

#[test]
fn all_parts_are_sent_before_the_first_answer_is_awaited() {
    let mut t = Transfer::new(2, 1000);
    assert_eq!(t.next(0), Next::Send(0));
    assert_eq!(t.next(0), Next::Send(1));
    assert_eq!(t.next(0), Next::Receive(0));
    t.on_result(0, Ok(()), 0);
    assert_eq!(t.next(0), Next::Receive(1));
    t.on_result(1, Ok(()), 0);
    assert_eq!(t.next(0), Next::Done);
}

#[test]
fn what_has_no_room_waits_for_an_answer_or_for_the_next_look_and_is_not_forgotten() {
    let mut t = Transfer::new(3, 1000);
    assert_eq!(t.next(0), Next::Send(0));
    for part in [1, 2] {
        assert_eq!(t.next(0), Next::Send(part));
        assert_eq!(t.others_in_flight(part).collect::<Vec<_>>(), [0]);
        t.defer(part);
    }
    assert_eq!(t.next(0), Next::Receive(0));
    t.retry_deferred();
    assert_eq!(t.next(0), Next::Send(1));
    t.defer(1);
    t.on_result(0, Ok(()), 0);
    assert_eq!(t.next(0), Next::Send(1));
    t.defer(1);
    assert_eq!(t.next(0), Next::Send(2), "and nothing is outstanding any more");
    t.no_copy(2, ErrorKind::Unreachable.into(), false, 0);
    assert_eq!(t.deferred(), [1]);
    assert_eq!(t.next(0), Next::Send(1), "who waits for a time does not hold it up");
    t.on_result(1, Ok(()), 0);
    assert_eq!(t.next(1000), Next::Send(2));
    t.on_result(2, Ok(()), 1000);
    assert_eq!(t.next(1000), Next::Done);
}

#[test]
fn answers_of_reads_with_copies_are_taken_as_they_come_and_others_part_by_part() {
    let mut t = Transfer::new(3, 1000);
    (0..3).for_each(|part| assert_eq!(t.next(0), Next::Send(part)));
    assert_eq!(t.awaited(0), [0]);
    (0..3).for_each(|part| t.chosen(part, Some((CopyIndex(0), Purpose::Read))));
    assert_eq!(t.awaited(0), [0, 1, 2]);
    t.on_result(1, Ok(()), 0);
    assert_eq!(t.awaited(0), [0, 2]);
    t.chosen(0, Some((CopyIndex(0), Purpose::Change)));
    assert_eq!(t.awaited(0), [0]);
}

#[test]
fn who_cannot_be_reached_does_not_keep_others_from_being_asked() {
    let mut t = Transfer::new(3, 10_000);
    for part in 0..3 {
        assert_eq!(t.next(100 * part as u64), Next::Send(part));
        if part < 2 {
            t.on_result(part, fail(ErrorKind::TimedOut), 100 * (part as u64 + 1));
        }
    }
    assert_eq!(t.in_flight(), [2]);
    assert_eq!(t.next(300), Next::Send(0));
}

#[test]
fn a_new_capability_is_tried_at_once_though_the_server_was_away_for_long() {
    let mut t = Transfer::new(1, 10_000);
    let mut now = 0;
    for _ in 0..8 {
        while let Next::Sleep { until_ms } = t.next(now) {
            now = until_ms;
        }
        t.on_result(0, fail(ErrorKind::Unreachable), now);
    }
    while let Next::Sleep { until_ms } = t.next(now) {
        now = until_ms;
    }
    t.on_result(0, fail(ErrorKind::BadCapability), now);
    assert_eq!(t.next(now), Next::Refresh);
    t.refreshed(Ok(()));
    assert_eq!(t.next(now), Next::Send(0));
    t.on_result(0, fail(ErrorKind::BadCapability), now);
    assert_eq!(t.next(now), Next::Refresh);
    t.refreshed(Ok(()));
    assert!(matches!(t.next(now), Next::Sleep { .. }), "but not again and again");
}

#[test]
fn a_lost_connection_is_tried_again_at_once_then_later_until_the_deadline() {
    let mut t = Transfer::new(1, 500);
    let mut now = 0;
    let mut sends = 0;
    let failure = loop {
        match t.next(now) {
            Next::Send(0) => {
                sends += 1;
                t.on_result(0, fail(ErrorKind::Unreachable), now);
            }
            Next::Sleep { until_ms } => now = until_ms,
            Next::Fail(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(failure.kind, ErrorKind::Unreachable);
    assert!(now < 500 && sends > 4, "{sends} sends until {now} ms");
}

#[test]
fn a_mismatch_is_read_again_under_the_lock_and_only_then_called_rot() {
    let mut t = Transfer::new(1, 1000);
    assert_eq!(t.next(0), Next::Send(0));
    t.on_result(0, fail(ErrorKind::ChecksumMismatch), 0);
    assert_eq!(t.next(0), Next::Send(0));
    assert!(t.locked(0));
    t.on_result(0, fail(ErrorKind::ChecksumMismatch), 0);
    assert!(matches!(t.next(0), Next::Fail(e) if e.kind == ErrorKind::Corrupt));
}

#[test]
fn a_refused_capability_is_refreshed_once_all_answers_are_in() {
    let mut t = Transfer::new(2, 1000);
    assert_eq!((t.next(0), t.next(0)), (Next::Send(0), Next::Send(1)));
    t.on_result(0, fail(ErrorKind::BadCapability), 0);
    assert_eq!(t.next(0), Next::Receive(1));
    t.on_result(1, Ok(()), 0);
    assert_eq!(t.next(0), Next::Refresh);
    t.refreshed(Ok(()));
    assert_eq!(t.next(0), Next::Send(0));
}

const READ: Purpose = Purpose::Read;

fn sent(t: &mut Transfer, now: u64, copy: u8, purpose: Purpose) {
    assert_eq!(t.next(now), Next::Send(0));
    assert!(t.may_choose(0, true));
    assert!(!t.tried(0).contains(&CopyIndex(copy)));
    t.chosen(0, Some((CopyIndex(copy), purpose)));
}

#[test]
fn a_read_goes_to_another_copy_at_once_and_begins_anew_when_all_have_failed() {
    let mut t = Transfer::new(1, 30_000);
    let mut patience = Vec::new();
    let mut now = 0;
    for _ in 0..3 {
        while let Next::Sleep { until_ms } = t.next(now) {
            now = until_ms;
        }
        t.parts[0].state = PartState::Ready;
        sent(&mut t, now, 0, READ);
        t.on_result(0, fail(ErrorKind::Io), now);
        sent(&mut t, now, 1, READ);
        patience.push(t.patience_ms(0));
        now += 1;
        t.on_result(0, fail(ErrorKind::TimedOut), now);
        assert_eq!(t.next(now), Next::Send(0));
        assert_eq!(t.tried(0), [CopyIndex(0), CopyIndex(1)]);
        t.no_copy(0, ErrorKind::NotCurrent.into(), false, now);
        assert!(matches!(t.next(now), Next::Sleep { .. }), "not in a circle");
    }
    assert_eq!(patience, [1000, 2000, 4000]);
    assert_eq!(t.told(0).len(), 2);
}

#[test]
fn a_slow_copy_is_waited_for_as_long_as_it_is_expected_to_take_and_a_dead_one_not_for_ever() {
    let mut t = Transfer::new(1, 30_000);
    assert_eq!(t.next(0), Next::Send(0));
    t.chosen(0, Some((CopyIndex(0), READ)));
    let patience = |t: &mut Transfer, expected_ms| {
        t.expect(0, expected_ms);
        t.patience_ms(0)
    };
    assert_eq!(patience(&mut t, 0), 1_000);
    assert_eq!(patience(&mut t, 100), 1_000);
    assert_eq!(patience(&mut t, 500), 2_000);
    assert_eq!(patience(&mut t, u64::MAX), 2_500);
    t.on_result(0, fail(ErrorKind::TimedOut), 5_000);
    assert_eq!(t.patience_ms(0), 1_000, "the next one is another");
}

#[test]
fn damage_is_called_so_only_when_it_was_read_twice_and_then_another_copy_is_read() {
    let mut t = Transfer::new(1, 1000);
    sent(&mut t, 0, 0, READ);
    t.on_result(0, fail(ErrorKind::ChecksumMismatch), 0);
    assert_eq!(t.next(0), Next::Send(0));
    assert!(t.locked(0) && !t.may_choose(0, true), "the same one");
    t.on_result(0, fail(ErrorKind::ChecksumMismatch), 0);
    sent(&mut t, 0, 1, READ);
    assert!(!t.locked(0));
    t.on_result(0, Ok(()), 0);
    assert_eq!(t.next(0), Next::Done);
}

#[test]
fn nobody_waits_where_all_copies_are_damaged() {
    let mut t = Transfer::new(1, 1000);
    assert_eq!(t.next(0), Next::Send(0));
    t.no_copy(0, ErrorKind::Corrupt.into(), true, 0);
    assert!(matches!(t.next(0), Next::Fail(e) if e.kind == ErrorKind::Corrupt));
}

#[test]
fn what_is_wrong_with_the_request_is_so_for_all_copies() {
    let mut t = Transfer::new(1, 1000);
    sent(&mut t, 0, 0, READ);
    t.on_result(0, fail(ErrorKind::AccessDenied), 0);
    assert!(matches!(t.next(0), Next::Fail(e) if e.kind == ErrorKind::AccessDenied));
    assert_eq!(t.failed(), None);
}

#[test]
fn a_change_waits_for_another_primary_until_the_deadline() {
    let kinds = [ErrorKind::NotCurrent, ErrorKind::Io, ErrorKind::TimedOut];
    let mut t = Transfer::new(1, 5_000);
    let (mut now, mut sends) = (0, 0);
    let error = loop {
        match t.next(now) {
            Next::Send(0) => {
                assert!(t.tried(0).is_empty(), "changes are for the primary");
                t.chosen(0, Some((CopyIndex(0), Purpose::Change)));
                t.on_result(0, fail(kinds[sends % 3]), now);
                sends += 1;
            }
            Next::Refresh => t.refreshed(Ok(())),
            Next::Sleep { until_ms } => now = until_ms,
            Next::Fail(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert!(kinds.contains(&error.kind) && t.failed() == Some(0));
    assert!(now > 3_000 && now < 5_000 && sends > 6, "{sends} sends until {now} ms");
    let mut full = Transfer::new(1, 5_000);
    sent(&mut full, 0, 0, Purpose::Change);
    full.on_result(0, fail(ErrorKind::NoSpace), 0);
    assert!(matches!(full.next(0), Next::Fail(e) if e.kind == ErrorKind::NoSpace));
}

#[test]
fn a_new_primary_is_asked_again_soon_however_long_the_old_one_was_away() {
    let mut t = Transfer::new(1, 30_000);
    let ask = |t: &mut Transfer, now: &mut u64, copy| {
        loop {
            match t.next(*now) {
                Next::Sleep { until_ms } => *now = until_ms,
                Next::Refresh => t.refreshed(Ok(())),
                next => break assert_eq!(next, Next::Send(0)),
            }
        }
        t.chosen(0, Some((CopyIndex(copy), Purpose::Change)));
        t.on_result(0, fail(ErrorKind::NotCurrent), *now);
    };
    let mut now = 0;
    for _ in 0..12 {
        ask(&mut t, &mut now, 0);
    }
    ask(&mut t, &mut now, 1);
    let learns = now + 300;
    let mut asked = 0;
    while now < learns {
        asked += 1;
        ask(&mut t, &mut now, 1);
    }
    assert!(asked <= 8, "{asked} times");
    assert!(now < learns + 160, "{} ms late", now - learns);
}

#[test]
fn an_error_that_stays_fails_the_call_and_what_is_still_on_its_way_is_known() {
    let mut t = Transfer::new(2, 1000);
    assert_eq!((t.next(0), t.next(0)), (Next::Send(0), Next::Send(1)));
    t.on_result(0, fail(ErrorKind::NoSpace), 0);
    assert!(matches!(t.next(0), Next::Fail(e) if e.kind == ErrorKind::NoSpace));
    assert_eq!(t.outstanding().collect::<Vec<_>>(), [1]);
    let mut t = Transfer::new(2, 1000);
    assert_eq!((t.next(0), t.next(0)), (Next::Send(0), Next::Send(1)));
    t.on_result(1, fail(ErrorKind::TimedOut), 0);
    t.on_result(0, fail(ErrorKind::NoSpace), 0);
    assert_eq!(t.outstanding().collect::<Vec<_>>(), [1]);
}
