mod speeds;

use super::*;
use crate::core::job::Member;
use crate::core::pace::Report;
use weir_types::{JobId, Rank};

const A: TargetId = TargetId(1);
const B: TargetId = TargetId(2);
const COLUMN: ColumnKey = (SegmentIndex(1), ColumnIndex(0));
const MIB: u64 = 1 << 20;
const POLICY: ReadPolicy = ReadPolicy::Proportional;

fn report(us_per_mib: u32, in_flight: u16) -> Report {
    Report { us_per_mib, in_flight, who: None, behind: None }
}

fn wanted(mib: u64) -> Wanted {
    Wanted {
        column: COLUMN,
        offset: mib * MIB,
        len_bytes: MIB,
        rest_bytes: u64::MAX,
        since: 0,
        reader: None,
    }
}

fn both(a: bool, b: bool) -> [Candidate; 2] {
    let of = |target, is_usable| Candidate { target, is_usable };
    [of(A, a), of(B, b)]
}

/// By somebody who might have waited.
fn asked(copy: usize) -> Asked {
    Asked { column: COLUMN, who: None, copy, len_bytes: MIB, waited: true }
}

fn at(choice: Choice) -> Option<usize> {
    if let Choice::Copy(chosen) = choice { Some(chosen.at) } else { None }
}

/// For who does not wait.
fn choose(
    choices: &mut Choices,
    paces: &mut Paces,
    (mib, usable, now): (u64, [Candidate; 2], Micros),
) -> Option<usize> {
    at(choices.choose(POLICY, &wanted(mib), &usable, paces, (now, Patience::Ahead)).0)
}

/// What is chosen for runs one after another when nothing is outstanding.
fn chosen(paces: &mut Paces, policy: ReadPolicy, copies: [Candidate; 2]) -> Vec<Option<usize>> {
    let mut choices = Choices::default();
    let mut choose =
        |run: u64| choices.choose(policy, &wanted(run * 4), &copies, paces, (0, Patience::Ahead)).0;
    (0..4).map(|run| at(choose(run))).collect()
}

fn known(a: Report, b: Report) -> Paces {
    let mut paces = Paces::default();
    paces.heard(A, a, 0);
    paces.heard(B, b, 0);
    paces
}

#[test]
fn the_first_copy_is_read_until_another_would_be_clearly_sooner() {
    let mut equal = known(report(10_000, 0), report(10_000, 0));
    assert_eq!(chosen(&mut equal, POLICY, both(true, true)), [Some(0); 4]);
    let mut slow = known(report(40_000, 0), report(10_000, 0));
    assert_eq!(chosen(&mut slow, POLICY, both(true, true)), [Some(1); 4]);
    let mut busy = known(report(10_000, 8), report(10_000, 1));
    assert_eq!(chosen(&mut busy, POLICY, both(true, true)), [Some(1); 4]);
    assert_eq!(chosen(&mut slow, ReadPolicy::Primary, both(true, true)), [Some(0); 4]);
    assert_eq!(chosen(&mut slow, POLICY, both(true, false)), [Some(0); 4], "never none");
    assert_eq!(chosen(&mut slow, POLICY, both(false, false)), [None; 4]);
    // What nothing is known of is as good as any other.
    let mut one = Paces::default();
    one.heard(A, report(10_000, 0), 0);
    assert_eq!(chosen(&mut one, POLICY, both(true, true)), [Some(0); 4]);
}

#[test]
fn what_is_outstanding_here_counts_at_once() {
    let mut paces = known(report(10_000, 0), report(10_000, 0));
    (0..4).for_each(|_| paces.sent(A));
    assert_eq!(chosen(&mut paces, POLICY, both(true, true)), [Some(1); 4]);
    (0..4).for_each(|_| paces.ended(A));
    assert_eq!(chosen(&mut paces, POLICY, both(true, true)), [Some(0); 4]);
}

#[test]
fn one_that_does_not_answer_for_long_is_slow_before_it_says_so() {
    let mut paces = known(report(10_000, 0), report(10_000, 0));
    let choose =
        |paces: &mut Paces, now| choose(&mut Choices::default(), paces, (0, both(true, true), now));
    paces.sent(A);
    assert_eq!(choose(&mut paces, 500_000), Some(0), "nobody has looked yet");
    paces.waits(A, 500_000);
    assert_eq!((choose(&mut paces, 510_000), choose(&mut paces, 600_000)), (Some(0), Some(1)));
    paces.ended(A);
    assert_eq!(choose(&mut paces, 900_000), Some(0), "it has nothing to answer");
}

#[test]
fn it_says_when_the_answer_is_to_be_expected() {
    let mut paces = known(report(1_000_000, 0), report(1_000_000, 3));
    (0..2).for_each(|_| paces.sent(A));
    let (wanted, copies) = (wanted(0), both(true, true));
    let of = (0, Patience::Ahead);
    let choice = Choices::default().choose(ReadPolicy::Primary, &wanted, &copies, &mut paces, of).0;
    let Choice::Copy(chosen) = choice else { panic!("{choice:?}") };
    // Two are before it, and each costs a little more than its bytes.
    assert!((3.0e6..3.3e6).contains(&chosen.answer_us), "{chosen:?}");
}

#[test]
fn a_run_is_read_from_one_copy() {
    let mut paces = known(report(40_000, 0), report(10_000, 0));
    let mut choices = Choices::default();
    let mut choose =
        |mib, paces: &mut Paces| choose(&mut choices, paces, (mib, both(true, true), 0));
    assert_eq!(choose(0, &mut paces), Some(1));
    paces.heard(A, report(10_000, 0), 0);
    assert_eq!((choose(1, &mut paces), choose(3, &mut paces)), (Some(1), Some(1)));
    assert_eq!(choose(4, &mut paces), Some(0));
}

#[test]
fn what_is_left_of_a_file_waits_for_a_quick_disk_rather_than_begin_at_one_that_is_far_slower() {
    let choose = |a_us_per_mib, rest_bytes| {
        let mut paces = known(report(a_us_per_mib, 0), report(50_000, 0));
        let (mut choices, copies) = (Choices::default(), both(true, true));
        let wanted = Wanted { rest_bytes, ..wanted(0) };
        let mut ask = |choices: &mut Choices| {
            choices.choose(POLICY, &wanted, &copies, &mut paces, (0, Patience::Turn(None))).0
        };
        // The quick one has as much to do as it is to have.
        ask(&mut choices);
        (0..2).for_each(|_| choices.asked(&asked(1), 0));
        ask(&mut choices)
    };
    assert_eq!(choose(500_000, 3 * MIB), Choice::Later, "the other one has done all that before");
    assert_eq!(at(choose(500_000, 64 * MIB)), Some(0), "there is enough for both");
    assert_eq!(at(choose(60_000, 3 * MIB)), Some(0), "nobody would wait for it");
}

#[test]
fn who_may_wait_has_two_mib_at_each_copy_and_what_comes_together_goes_in_the_order_of_the_file() {
    // The other disk is busy for others.
    let mut paces = known(report(50_000, 0), report(50_000, 8));
    let (mut choices, copies) = (Choices::default(), both(true, true));
    let mut ask = |choices: &mut Choices, mib, turn| {
        choices.choose(POLICY, &wanted(mib), &copies, &mut paces, (0, Patience::Turn(turn))).0
    };
    let (later, behind) = (Choice::Later, Choice::Behind);
    for mib in 0..2 {
        assert_eq!(at(ask(&mut choices, mib, None)), Some(0));
        choices.asked(&asked(0), 0);
    }
    assert_eq!(ask(&mut choices, 3, None), later);
    let third = choices.wait(&wanted(3));
    assert_eq!(ask(&mut choices, 2, None), later);
    let second = choices.wait(&wanted(2));
    choices.answered(&asked(0), 0);
    assert_eq!(ask(&mut choices, 3, Some(third)), behind, "another one is before it");
    assert_eq!(ask(&mut choices, 4, None), behind, "and two before this");
    assert_eq!(at(ask(&mut choices, 2, Some(second))), Some(0));
    choices.asked(&asked(0), 0);
    choices.leave(second);
    assert_eq!(ask(&mut choices, 3, Some(third)), later);
    choices.answered(&asked(0), 0);
    assert_eq!(at(ask(&mut choices, 3, Some(third))), Some(0));
    // In another column nobody waits.
    let elsewhere = Wanted { column: (SegmentIndex(1), ColumnIndex(1)), ..wanted(9) };
    let choice =
        choices.choose(POLICY, &elsewhere, &copies, &mut paces, (0, Patience::Turn(None))).0;
    assert_eq!(at(choice), Some(0));
}

#[test]
fn a_line_goes_on_with_what_is_asked_for_in_it_and_with_what_comes_of_that() {
    let mut choices = Choices::default();
    assert_eq!(choices.moved(&wanted(0)), 0);
    choices.column(POLICY, (COLUMN, None), 2);
    choices.asked(&asked(0), 10);
    assert_eq!(choices.moved(&wanted(0)), 10);
    // What did not wait says nothing of the line.
    let unwaited = Asked { waited: false, ..asked(0) };
    choices.asked(&unwaited, 20);
    choices.answered(&unwaited, 30);
    assert_eq!(choices.moved(&wanted(0)), 10);
    choices.answered(&asked(0), 40);
    assert_eq!(choices.moved(&wanted(0)), 40);
}

#[test]
fn who_reads_further_on_waits_no_longer_than_others() {
    let mut paces = known(report(50_000, 0), report(50_000, 8));
    let (mut choices, copies) = (Choices::default(), both(true, true));
    choices.column(POLICY, (COLUMN, None), 2);
    (0..2).for_each(|_| choices.asked(&asked(0), 0));
    let far = choices.wait(&wanted(900));
    let near = choices.wait(&Wanted { since: 1_000_000, ..wanted(2) });
    choices.answered(&asked(0), 0);
    let mut ask = |mib, turn| {
        let of = (1_000_000, Patience::Turn(Some(turn)));
        choices.choose(POLICY, &wanted(mib), &copies, &mut paces, of).0
    };
    assert_eq!((ask(2, near), at(ask(900, far))), (Choice::Behind, Some(0)));
}

#[test]
fn one_reader_has_both_copies_when_nobody_else_reads() {
    let mut paces = known(report(50_000, 0), report(50_000, 0));
    let (mut choices, copies) = (Choices::default(), both(true, true));
    let mut counts = [0; 2];
    for mib in 0..4 {
        let choice =
            choices.choose(POLICY, &wanted(mib), &copies, &mut paces, (0, Patience::Turn(None))).0;
        let n = at(choice).unwrap();
        choices.asked(&asked(n), 0);
        paces.sent(copies[n].target);
        counts[n] += 1;
    }
    assert_eq!(counts, [2, 2]);
}

#[test]
fn what_comes_from_memory_is_not_waited_for() {
    let mut paces = known(report(100, 0), report(100, 0));
    let (mut choices, copies) = (Choices::default(), both(true, true));
    for mib in 0..40 {
        let choice =
            choices.choose(POLICY, &wanted(mib), &copies, &mut paces, (0, Patience::Turn(None))).0;
        assert_eq!(at(choice), Some(0));
        choices.asked(&asked(0), 0);
    }
    assert!(paces.questions(10_000_000).1.is_none(), "nor asked for");
}

#[test]
fn targets_of_what_is_read_are_asked_for_their_load() {
    let mut paces = known(report(10_000, 0), report(10_000, 0));
    choose(&mut Choices::default(), &mut paces, (0, both(true, true), 1_000_000));
    let (questions, next) = paces.questions(1_000_000);
    let asked: Vec<TargetId> = questions.iter().map(|q| q.target).collect();
    assert_eq!(asked, [B], "the other one answers the read");
    assert!(next.is_some());
}

#[test]
fn one_that_does_not_answer_is_tried_by_one_request_more_and_more_seldom() {
    let mut paces = known(report(10_000, 0), report(10_000, 0));
    let choose = |paces: &mut Paces, now, usable: [Candidate; 2]| {
        choose(&mut Choices::default(), paces, (0, usable, now))
    };
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..6 {
        paces.silent(A, now);
        paces.silent(A, now);
        let asked = now;
        assert_eq!(choose(&mut paces, now, both(true, false)), Some(0), "it is the last one");
        while choose(&mut paces, now, both(true, true)) == Some(1) {
            now += 500_000;
            paces.heard(B, report(10_000, 0), now);
        }
        assert_eq!(choose(&mut paces, now, both(true, true)), Some(1), "once");
        pauses.push((now - asked) / 1_000_000);
    }
    assert_eq!(pauses, [2, 4, 8, 16, 30, 30]);
    paces.answered(A);
    paces.heard(A, report(10_000, 0), now);
    assert_eq!(choose(&mut paces, now, both(true, true)), Some(0));
}

#[test]
fn a_process_of_a_job_reads_the_copy_whose_own_readers_are_ahead() {
    let reader = |job: u64, rank: u32, percent: u64| {
        let member = Member { job: JobId(job), rank: Rank(rank), ranks: 4, shared: false };
        let reader = Arc::new(JobReader::new(member));
        reader.reads(100 << 20);
        reader.has_read(0..percent << 20);
        reader
    };
    let says = |job: u64, percent: u64| Report {
        who: Some((JobId(job), Rank(3))),
        behind: Some((percent * (1 << 32) / 100) as u32),
        ..report(10_000, 0)
    };
    let mut paces = known(report(10_000, 0), report(10_000, 0));
    let mut choose = |reader: Option<Arc<JobReader>>, report: Option<Report>| {
        let wanted = Wanted { reader, ..wanted(0) };
        let choose = |paces: &mut Paces| {
            let of = (0, Patience::Ahead);
            at(Choices::default().choose(POLICY, &wanted, &both(true, true), paces, of).0)
        };
        choose(&mut paces);
        if let Some(report) = report {
            paces.heard(B, report, 0);
        }
        (0..2).for_each(|_| paces.sent(A));
        let chosen = choose(&mut paces);
        (0..2).for_each(|_| paces.ended(A));
        chosen
    };
    assert_eq!(choose(Some(reader(5, 3, 40)), Some(says(5, 50))), Some(1), "they are ahead");
    assert_eq!(choose(Some(reader(5, 3, 60)), None), Some(0), "they are behind");
    assert_eq!(choose(Some(reader(6, 3, 40)), Some(says(5, 50))), Some(0), "another job");
    // What one was told of all others but itself is not for those.
    assert_eq!(choose(Some(reader(5, 4, 40)), None), Some(0));
    assert_eq!(choose(None, None), Some(0));
}

#[test]
fn a_disk_that_has_nothing_to_do_is_its_readers_who_have_only_begun() {
    const PIECE: u64 = 256 << 10;
    // What a reader asks of its own copy and of the others' one, who are so far.
    let counts = |others_bytes: u64| {
        let member = Member { job: JobId(5), rank: Rank(3), ranks: 4, shared: false };
        let reader = Arc::new(JobReader::new(member));
        reader.reads(100 << 20);
        reader.has_read(0..PIECE);
        let behind = ((others_bytes << 32) / (100 << 20)).max(1) as u32;
        let who = Some((JobId(5), Rank(3)));
        let (mut choices, mut paces) =
            (Choices::default(), known(report(20_000, 0), report(20_000, 0)));
        let mut counts = [0, 0];
        for n in 0..6 {
            let reader = Some(reader.clone());
            let piece = Wanted { offset: n * PIECE, len_bytes: PIECE, reader, ..wanted(0) };
            let of = (0, Patience::Turn(None));
            let choice = choices.choose(POLICY, &piece, &both(true, true), &mut paces, of).0;
            paces.heard(B, Report { who, behind: Some(behind), ..report(20_000, 0) }, 0);
            let Some(copy) = at(choice) else { continue };
            choices.asked(&Asked { len_bytes: PIECE, who, ..asked(copy) }, 0);
            paces.sent([A, B][copy]);
            counts[copy] += 1;
        }
        counts
    };
    assert_eq!(counts(0), [2, 0]);
    assert_eq!(counts(PIECE + 4096), [2, 0]);
    assert!(counts(1 << 20)[1] > 0, "they are further, and do something else");
}

#[test]
fn who_is_behind_has_more_waiting_where_others_are_ahead_and_does_not_wait_for_the_end_of_a_run() {
    const PIECE: u64 = 256 << 10;
    // What one reader of a file of parts or of its own has at each copy, once the others at a
    // copy have said how far they are.
    let counts = |others_at: TargetId, behind: u32, us_per_mib: u32| {
        let member = Member { job: JobId(5), rank: Rank(3), ranks: 4, shared: false };
        let reader = Arc::new(JobReader::new(member));
        reader.reads(100 << 20);
        reader.has_read(0..40 << 20);
        let who = Some((JobId(5), Rank(3)));
        let says = Report { who, behind: Some(behind), ..report(us_per_mib, 0) };
        let (mut choices, mut paces) =
            (Choices::default(), known(report(20_000, 0), report(20_000, 0)));
        let mut ask = |n: u64, paces: &mut Paces| {
            let reader = Some(reader.clone());
            let piece = Wanted { offset: n * PIECE, len_bytes: PIECE, reader, ..wanted(0) };
            let of = (0, Patience::Turn(None));
            let choice = choices.choose(POLICY, &piece, &both(true, true), paces, of).0;
            let copy = at(choice)?;
            choices.asked(&Asked { len_bytes: PIECE, who, ..asked(copy) }, 0);
            paces.sent([A, B][copy]);
            Some(copy)
        };
        assert_eq!(ask(0, &mut paces), Some(0), "nothing is known of the others");
        paces.heard(others_at, says, 0);
        let mut counts = [1, 0];
        (1..13).filter_map(|n| ask(n, &mut paces)).for_each(|copy| counts[copy] += 1);
        counts
    };
    let half = (1 << 31) + 1;
    assert_eq!(counts(B, half, 20_000), [2, 8], "of its own copies two, and eight of the others'");
    assert_eq!(counts(B, half, 40_000), [2, 4], "of a slower disk less");
    assert_eq!(counts(B, half, 10_000), [2, 8]);
    assert_eq!(counts(A, half, 20_000)[0], 8, "others have first copies where it has its own");
    assert_eq!(counts(A, half / 2, 20_000)[0], 2, "and are behind");
}

#[test]
fn a_copy_that_lacked_something_is_left_alone_for_a_while() {
    let mut paces = known(report(40_000, 0), report(10_000, 0));
    let mut choices = Choices::default();
    let mut choose = |choices: &mut Choices, now| {
        paces.heard(A, report(40_000, 0), now);
        choose(choices, &mut paces, (0, both(true, true), now))
    };
    assert_eq!(choose(&mut choices, 0), Some(1));
    choices.refused(COLUMN, 1, 0);
    assert_eq!(choose(&mut choices, 1), Some(0));
    assert_eq!(choose(&mut choices, 2 * REFUSED_US), Some(1));
}

#[test]
fn halves_take_runs_in_turn_and_memory_is_bounded() {
    let mut paces = Paces::default();
    let halves = chosen(&mut paces, ReadPolicy::Halves, both(true, true));
    assert_eq!(halves, [Some(0), Some(1), Some(0), Some(1)]);
    let mut choices = Choices::default();
    for n in 0..4_000 {
        let column = (SegmentIndex(n), ColumnIndex(0));
        let wanted = Wanted { column, ..wanted(0) };
        let of = (0, Patience::Ahead);
        choices.choose(ReadPolicy::Halves, &wanted, &both(true, true), &mut paces, of);
        choices.refused(column, 0, u64::from(n));
    }
    assert!(choices.columns.len() <= MAX_COLUMNS && choices.refused.len() <= MAX_REFUSED);
}

#[test]
fn each_process_has_a_line_of_its_own_and_fixed_places_none() {
    let mut paces = known(report(50_000, 0), report(50_000, 8));
    let (mut choices, copies) = (Choices::default(), both(true, true));
    choices.column(POLICY, (COLUMN, None), 2);
    (0..2).for_each(|_| choices.asked(&asked(0), 0));
    let mut ask = |choices: &mut Choices, policy, wanted: &Wanted| {
        choices.choose(policy, wanted, &copies, &mut paces, (0, Patience::Turn(None))).0
    };
    assert_eq!(ask(&mut choices, POLICY, &wanted(2)), Choice::Later);
    choices.wait(&wanted(2));
    assert_eq!(ask(&mut choices, POLICY, &wanted(3)), Choice::Behind);
    let member = Member { job: JobId(5), rank: Rank(1), ranks: 4, shared: false };
    let other = Wanted { reader: Some(Arc::new(JobReader::new(member))), ..wanted(3) };
    assert_eq!(at(ask(&mut choices, POLICY, &other)), Some(0), "not behind that one");
    assert_eq!(at(ask(&mut choices, ReadPolicy::Halves, &wanted(3))), Some(0));
    // What is taken in the order of its call nobody waits for.
    let unwaited = Asked { waited: false, ..asked(0) };
    (0..2).for_each(|_| _ = choices.answered(&asked(0), 0));
    (0..9).for_each(|_| choices.asked(&unwaited, 0));
    assert_eq!(at(ask(&mut choices, POLICY, &other)), Some(0));
}

#[test]
fn processes_of_a_job_on_one_node_go_each_by_its_own_progress_and_have_each_its_own_at_a_copy() {
    const PIECE: u64 = 256 << 10;
    let reader = |rank: u32, mib: u64| {
        let member = Member { job: JobId(5), rank: Rank(rank), ranks: 4, shared: false };
        let reader = Arc::new(JobReader::new(member));
        reader.reads(100 << 20);
        reader.has_read(0..mib << 20);
        reader
    };
    let (behind, ahead) = (reader(0, 20), reader(1, 60));
    let (mut choices, mut paces) =
        (Choices::default(), known(report(20_000, 0), report(20_000, 0)));
    let mut counts = |reader: &Arc<JobReader>, from: u64| {
        let (who, mut counts) = (who(Some(reader)), [0, 0]);
        for n in from..from + 12 {
            let reader = Some(reader.clone());
            let piece = Wanted { offset: n * PIECE, len_bytes: PIECE, reader, ..wanted(0) };
            let of = (0, Patience::Turn(None));
            let choice = choices.choose(POLICY, &piece, &both(true, true), &mut paces, of).0;
            // The reader of the second disk has 40 of 100 MiB.
            let done = Some(u32::MAX / 5 * 2);
            paces.heard(B, Report { who, behind: done, ..report(20_000, 0) }, 0);
            let Some(copy) = at(choice) else { continue };
            choices.asked(&Asked { len_bytes: PIECE, who, ..asked(copy) }, 0);
            paces.sent([A, B][copy]);
            counts[copy] += 1;
        }
        counts
    };
    let (own, others) = counts(&behind, 400).into();
    assert!(own == 2 && others > 0, "the one at the second disk is ahead of it: {own}, {others}");
    assert_eq!(counts(&ahead, 600), [2, 0], "what the other one has at both is not this one's");
}
