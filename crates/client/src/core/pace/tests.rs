use super::*;
use crate::core::job::Member;

const A: TargetId = TargetId(1);
const B: TargetId = TargetId(2);
const MIB: u64 = 1 << 20;

fn report(us_per_mib: u32, in_flight: u16) -> Report {
    Report { us_per_mib, in_flight, who: None, behind: None }
}

fn reader(rank: u32) -> Arc<JobReader> {
    let (job, rank) = (JobId(5), Rank(rank));
    Arc::new(JobReader::new(Member { job, rank, ranks: 9, shared: false }))
}

fn asked(paces: &mut Paces, now: Micros) -> Vec<(TargetId, bool)> {
    paces.questions(now).0.iter().map(|q| (q.target, q.first)).collect()
}

#[test]
fn a_target_is_idle_as_soon_as_it_says_so_but_for_a_job_whose_readers_come_again() {
    let mut paces = Paces::default();
    paces.heard(A, report(10_000, 6), 0);
    paces.heard(A, report(10_000, 0), 100_000);
    let view = paces.view(A, true, (MIB, None), 100_000);
    assert!(view.is_idle && view.queued > 3, "{view:?}");
    let who = Some((JobId(5), Rank(1)));
    assert!(!paces.view(A, true, (MIB, who), 100_000).is_idle);
}

#[test]
fn the_middle_of_all_targets_is_not_moved_by_one_that_read_from_memory_or_is_slow() {
    let mut paces = Paces::default();
    assert_eq!(paces.middle_us_per_mib(0), None);
    for (target, us_per_mib) in [(1, 500), (2, 80_000), (3, 90_000), (4, 85_000), (5, 400_000)] {
        paces.heard(TargetId(target), report(us_per_mib, 0), 0);
    }
    let middle = paces.middle_us_per_mib(0).unwrap();
    assert!((80_000.0..=90_000.0).contains(&middle), "{middle}");
}

#[test]
fn a_target_of_which_nothing_was_heard_has_nothing_to_do_but_for_a_job() {
    let paces = Paces::default();
    let is_idle = |who| paces.view(A, true, (MIB, who), 0).is_idle;
    assert!(is_idle(None) && !is_idle(Some((JobId(5), Rank(1)))));
}

#[test]
fn the_metadata_server_knows_targets_that_have_said_nothing_of_late() {
    let mut paces = Paces::default();
    let told = |us_per_mib, in_flight| TargetLoad { target: A, us_per_mib, in_flight };
    let view = |paces: &Paces, now| paces.view(A, true, (MIB, None), now);
    assert!(paces.told(&told(40_000, 3), 1_000));
    let first = view(&paces, 2_000);
    assert!(first.service_us >= 40_000.0 && first.queued == 3, "{first:?}");
    paces.told(&TargetLoad { target: B, us_per_mib: 40_000, in_flight: 0 }, 1_000);
    let is_idle = |now| paces.view(B, true, (MIB, None), now).is_idle;
    assert!(is_idle(1_900_000) && !is_idle(2_100_000));
    // They are asked themselves: who was there some time ago may have gone.
    let questions = |paces: &mut Paces| {
        let questions = paces.questions(2_000).0;
        questions.into_iter().map(|q| (q.target, q.opened)).collect::<Vec<_>>()
    };
    assert_eq!(questions(&mut paces), [(A, true), (B, true)]);
    assert_eq!(questions(&mut paces), []);
    paces.opened(&told(40_000, 1), 2_500);
    assert_eq!(view(&paces, 2_500).queued, 1);
    assert!(!paces.has_said(A, 2_500), "nothing is decided for long by that");
    paces.heard_answer(A, report(10_000, 0), 3_000);
    assert_eq!(view(&paces, 3_000).queued, 0);
    paces.opened(&told(40_000, 1), 3_500);
    assert_eq!(view(&paces, 3_500).queued, 0, "it has said more since");
    assert!(!paces.told(&told(90_000, 0), 4_000));
    assert!(view(&paces, 4_000).service_us < 20_000.0, "its server has said it just now");
    paces.told(&told(90_000, 0), 3_001 + OUTDATED_US);
    assert!(view(&paces, 4_000_000).service_us >= 90_000.0);
}

#[test]
fn what_was_heard_long_ago_is_nothing_to_go_by() {
    let mut paces = Paces::default();
    paces.told(&TargetLoad { target: A, us_per_mib: 6_000_000, in_flight: 9 }, 1_000);
    paces.heard_answer(B, report(40_000, 9), 1_000);
    let view = |target, now| paces.view(target, true, (MIB, None), now);
    let is_known = |target, now| view(target, now).service_us > 0.0;
    assert!(is_known(A, 1_000 + FORGOTTEN_US) && is_known(B, 1_000 + FORGOTTEN_US));
    for target in [A, B] {
        let view = view(target, 1_001 + FORGOTTEN_US);
        assert!(view.service_us == 0.0 && view.queued == 0 && view.is_idle, "{view:?}");
        assert!(!paces.has_said(target, 1_001 + FORGOTTEN_US));
    }
}

#[test]
fn what_others_have_counts_in_the_mean() {
    let mut paces = Paces::default();
    paces.heard(A, report(10_000, 0), 0);
    // One moment is not the mean.
    paces.heard(A, report(10_000, 9), 1_000);
    assert_eq!(paces.view(A, true, (MIB, None), 0).queued, 0);
    (1..400).for_each(|n| paces.heard(A, report(10_000, 9), n * 5_000));
    assert_eq!(paces.view(A, true, (MIB, None), 0).queued, 9);
    // What this client has there is not others'.
    (0..4).for_each(|_| paces.sent(A));
    (400..800).for_each(|n| paces.heard_answer(A, report(10_000, 9), n * 5_000));
    assert_eq!(paces.view(A, true, (MIB, None), 0).queued, 5);
}

#[test]
fn a_process_of_a_job_says_how_far_it_is_and_asks_how_far_others_are() {
    let (mut paces, one) = (Paces::default(), reader(1));
    paces.follow(A, (true, true), Some(&one), 1_000_000);
    paces.follow(B, (false, false), Some(&one), 1_000_000);
    assert_eq!(asked(&mut paces, 1_000_000), [(B, false)], "the request says it");
    let may_be_owned = |paces: &Paces, who| paces.view(B, true, (MIB, who), 1_001_000).may_be_owned;
    assert!(may_be_owned(&paces, who(Some(&one))) && !may_be_owned(&paces, None));
    let told = Report { who: who(Some(&one)), behind: Some(1 << 31), ..report(1, 0) };
    paces.heard_answer(B, told, 1_001_000);
    assert_eq!(paces.view(B, true, (MIB, told.who), 1_001_000).peer.unwrap().share(), 0.5);
    assert!(!may_be_owned(&paces, told.who));
    assert_eq!(paces.view(B, true, (MIB, who(Some(&reader(2)))), 1_001_000).peer, None);
    let tick = TICK_OF_JOBS_US;
    assert_eq!(asked(&mut paces, 1_000_500 + tick), [(A, true)]);
    assert_eq!(asked(&mut paces, 1_001_000 + tick), [(B, false)]);
    // What was heard long ago is nothing to go by.
    let late = 1_001_000 + STALE_US + 1;
    assert_eq!(paces.view(B, true, (MIB, told.who), late).peer, None);
    // It does not read any more.
    assert_eq!(paces.questions(1_000_000 + FOLLOWED_US).1, None);
}

#[test]
fn a_disk_of_which_a_reader_reads_first_copies_too_is_its_own() {
    let (mut paces, one) = (Paces::default(), reader(1));
    let is_mine = |paces: &Paces, reader: u32, now| {
        let of = (MIB, who(Some(&self::reader(reader))));
        paces.view(A, true, of, now).is_mine
    };
    paces.follow(A, (false, false), Some(&one), 1_000_000);
    assert!(!is_mine(&paces, 1, 1_000_000), "its second copy, of one column");
    paces.follow(A, (true, true), Some(&one), 1_000_000);
    paces.follow(A, (false, false), Some(&one), 1_000_000);
    assert!(is_mine(&paces, 1, 1_000_000) && !is_mine(&paces, 2, 1_000_000));
    // It reads on, another column whose second copy is there.
    paces.follow(A, (false, false), Some(&one), 1_000_000 + FOLLOWED_US);
    assert!(!is_mine(&paces, 1, 1_000_000 + FOLLOWED_US), "it has gone on to another one");
}

#[test]
fn a_client_that_has_just_begun_asks_as_well() {
    let mut paces = Paces::default();
    let now = weir_host::clock::uptime().as_micros() as Micros;
    paces.follow(A, (true, false), None, now);
    assert_eq!(asked(&mut paces, now), [(A, true)]);
}

#[test]
fn who_does_not_answer_is_left_alone() {
    let mut paces = Paces::default();
    paces.follow(A, (true, false), None, 1_000_000);
    assert_eq!(asked(&mut paces, 1_000_000), [(A, true)]);
    paces.unanswered(A, None, 1_200_000);
    for n in 0..4 {
        paces.follow(A, (true, false), None, 1_200_000 + n * 300_000);
        assert_eq!(asked(&mut paces, 1_200_000 + n * 300_000), []);
    }
    let mut later = 1_200_000 + UNANSWERED_US + TICK_US;
    paces.follow(A, (true, false), None, later);
    assert_eq!(asked(&mut paces, later), [(A, true)]);
    // The second time for longer.
    paces.unanswered(A, None, later);
    later += UNANSWERED_US + TICK_US;
    paces.follow(A, (true, false), None, later);
    assert_eq!(asked(&mut paces, later), []);
    later += UNANSWERED_US;
    paces.follow(A, (true, false), None, later);
    assert_eq!(asked(&mut paces, later), [(A, true)]);
    // Of what does not answer reads, only a read can find out.
    paces.silent(A, later);
    paces.follow(A, (true, false), None, later + TICK_US);
    assert_eq!(asked(&mut paces, later + TICK_US), []);
    // It is looked at again while the file is read, though nothing else is to be asked.
    let look = paces.questions(later + TICK_US).1;
    assert_eq!(look, Some(later + 2 * TICK_US));
    paces.answered(A);
    assert_eq!(asked(&mut paces, later + 2 * TICK_US), [(A, true)]);
}

#[test]
fn memory_is_bounded_and_many_readers_ask_a_few_at_a_time() {
    let mut paces = Paces::default();
    for rank in 0..2 * MAX_TOLD as u32 {
        paces.follow(A, (false, false), Some(&reader(rank)), 1_000_000);
    }
    assert_eq!(paces.targets[&A].told.len(), MAX_TOLD);
    assert_eq!(asked(&mut paces, 1_000_000).len(), MAX_ASKED);
    let (others, next) = paces.questions(1_000_000);
    assert_eq!((others.len(), next), (MAX_ASKED, Some(1_000_000 + MIN_PAUSE_US)));
    // Who has read no more for a while makes room.
    assert!(paces.follow(A, (false, false), None, 1_000_000 + FOLLOWED_US));
    assert_eq!(paces.targets[&A].told.len(), 1);
    paces.retain(|target| target != A);
    assert!(paces.targets.is_empty());
}
