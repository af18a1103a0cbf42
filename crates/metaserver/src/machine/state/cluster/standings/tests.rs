//! Cases of one epoch after another; the whole of it is in `tests/copies`.

use super::*;
use TargetState::{Offline, Online, OutOfService, Syncing};
use weir_types::{DiskId, FsUsage};

fn record(target: u32, state: TargetState, since: u64) -> TargetRecord {
    let (target, since, joins) = (TargetId(target), Epoch(since), None);
    let (run, anew) = (1, Epoch(0));
    TargetRecord { target, state, since, draining: false, joins, past: Past::default(), run, anew }
}

/// The same, which was online from one epoch until another before.
fn was(record: TargetRecord, from: u64, until: u64) -> TargetRecord {
    let online = weir_wire::map::Online { from: Epoch(from), until: Epoch(until) };
    TargetRecord { past: record.past.and(online), ..record }
}

const WELL: Said = Said { in_trouble: false, lost_its_place: None };
const ILL: Said = Said { in_trouble: true, lost_its_place: None };
const BEHIND: Said = Said { in_trouble: false, lost_its_place: Some(Epoch(u64::MAX - 1)) };

fn around(next: u64) -> Around {
    Around { mirrored: true, others_serve: true, another_kept_it: false, next: Epoch(next) }
}

fn report(target: u32, gaps: &[(u32, u64)], unreachable: &[u32]) -> TargetReport {
    TargetReport {
        target: TargetId(target),
        usage: FsUsage::default(),
        disk: DiskId::UNKNOWN,
        trouble: String::new(),
        removed: Vec::new(),
        gaps: gaps.iter().map(|(t, n)| (TargetId(*t), *n)).collect(),
        filled: Vec::new(),
        built: Vec::new(),
        unreachable: unreachable.iter().map(|t| TargetId(*t)).collect(),
        distrusted: Vec::new(),
        hangs_ms: 0,
        given_up: false,
        work: weir_wire::targets::TargetWork::default(),
        own_key: weir_types::KeyGeneration(1),
        own_key_from: weir_types::KeyGeneration(0),
    }
}

/// Target n is on server n.
fn placed(records: &[TargetRecord]) -> Vec<(ServerId, TargetRecord)> {
    records.iter().map(|r| (ServerId(r.target.0), *r)).collect()
}

/// All act under the epoch, and say these gaps.
fn heard(records: &[TargetRecord], epoch: u64, gaps: &[(u32, &[(u32, u64)])]) -> Hearsay {
    let mut hearsay = Hearsay::new(Epoch(1));
    hearsay.changed(&placed(records), Epoch(epoch));
    for record in records {
        hearsay.acts(record.target, Epoch(epoch));
    }
    say(&mut hearsay, records, gaps);
    hearsay
}

fn say(hearsay: &mut Hearsay, records: &[TargetRecord], gaps: &[(u32, &[(u32, u64)])]) {
    for record in records {
        let gaps = gaps.iter().find(|(t, _)| *t == record.target.0).map_or(&[][..], |g| g.1);
        let word = report(record.target.0, gaps, &[]);
        hearsay.said(record, &word, false);
    }
}

/// Who is online after some rounds in which those that are not offline say that
/// there are no gaps but these.
fn complete(
    hearsay: &mut Hearsay,
    records: &[TargetRecord],
    gaps: &[(u32, &[(u32, u64)])],
) -> Vec<u32> {
    let heard = records.iter().filter(|r| r.state != Offline);
    let heard: Vec<TargetRecord> = heard.copied().collect();
    let mut done = Vec::new();
    for _ in 0..ROUNDS {
        assert_eq!(done, [], "not before all rounds are over");
        say(hearsay, &heard, gaps);
        done = hearsay.complete(&placed(records), |_| false);
    }
    done.iter().map(|t| t.0).collect()
}

#[test]
fn a_target_that_was_away_is_behind_until_it_has_been_brought_up_to_date() {
    let online = record(1, Online, 3);
    let away = after_silence(online, Epoch(6), Epoch(7));
    assert_eq!(away, was(record(1, Offline, 7), 3, 7));
    assert_eq!(after_silence(away, Epoch(8), Epoch(9)), away, "since the first time");
    let back = after_report(away, WELL, around(10));
    assert_eq!(back, was(record(1, Syncing, 7), 3, 7));
    let ill = was(record(1, OutOfService, 7), 3, 7);
    assert_eq!(after_report(back, ILL, around(11)), ill);
    let alone = Around { mirrored: false, ..around(10) };
    assert_eq!(after_report(away, WELL, alone), was(record(1, Online, 10), 3, 7));
    assert_eq!(after_report(online, WELL, around(10)), online);
    let ill = was(record(1, OutOfService, 10), 3, 10);
    let forgot = TargetRecord { anew: Epoch(10), ..ill };
    assert_eq!(after_report(online, ILL, around(10)), forgot, "what it had taken may be gone");
}

#[test]
fn who_went_and_was_not_told_of_it_has_noted_nothing_under_it() {
    let died_with_the_first = after_silence(record(2, Online, 1), Epoch(6), Epoch(9));
    assert_eq!(died_with_the_first, was(record(2, Offline, 7), 1, 7));
    assert!(!may_have_noted(&died_with_the_first, TargetId(1), (Epoch(7), true)));
    let died_later = after_silence(record(2, Online, 1), Epoch(7), Epoch(9));
    assert!(may_have_noted(&died_later, TargetId(1), (Epoch(7), true)));
}

#[test]
fn who_lost_its_place_gives_way_to_another_copy_if_there_is_one() {
    let online = record(1, Online, 3);
    assert_eq!(after_report(online, BEHIND, around(9)), was(record(1, Syncing, 9), 3, 9));
    let last = Around { others_serve: false, ..around(9) };
    // It may have lost what was not synced, and stays all the same.
    assert_eq!(after_report(online, BEHIND, last), was(record(1, Online, 9), 3, 9));
    let alone = Around { mirrored: false, ..around(9) };
    assert_eq!(after_report(online, BEHIND, alone), online);
}

#[test]
fn who_was_there_meanwhile_has_to_say_that_nothing_is_missing() {
    let back = record(1, Syncing, 7);
    // The third went before it, and did not come back since.
    let all = [back, record(2, Online, 1), record(3, Offline, 6), record(4, Offline, 7)];
    let mut hearsay = heard(&all, 10, &[]);
    assert_eq!(complete(&mut hearsay, &all, &[]), [1]);
    let mut old = heard(&all, 10, &[]);
    old.acts(TargetId(2), Epoch(9));
    old.changed(&placed(&all), Epoch(10));
    assert_eq!(complete(&mut old, &all, &[]), [], "it may note another one yet");
    let mut behind = heard(&all, 10, &[]);
    assert_eq!(complete(&mut behind, &all, &[(2, &[(1, 5), (9, 1)])]), []);
    assert_eq!(behind.gaps_for(TargetId(1)), 5);
    assert_eq!(complete(&mut behind, &all, &[(2, &[(1, 0), (9, 4)])]), [1]);
    // One that went after it may have noted something, and has to come back.
    let later = [back, record(5, Offline, 8)];
    let mut hearsay = heard(&later, 10, &[]);
    hearsay.changed(&placed(&later), Epoch(10));
    assert_eq!(complete(&mut hearsay, &later, &[]), []);
    let returned = [back, record(5, Syncing, 8)];
    hearsay.changed(&placed(&returned), Epoch(10));
    assert_eq!(complete(&mut hearsay, &returned, &[(5, &[(1, 1)])]), [5], "it waits for none");
}

#[test]
fn servers_report_often_while_nothing_but_their_reports_is_missing() {
    let back = record(1, Syncing, 7);
    let all = [back, record(2, Online, 1), record(3, Offline, 6)];
    let look = |hearsay: &mut Hearsay, all: &[TargetRecord]| {
        hearsay.complete(&placed(all), |_| false);
        hearsay.is_counting()
    };
    let quiet = |all: &[TargetRecord]| {
        let mut hearsay = Hearsay::new(Epoch(1));
        hearsay.changed(&placed(all), Epoch(10));
        all.iter().for_each(|record| hearsay.acts(record.target, Epoch(10)));
        hearsay
    };
    let mut hearsay = quiet(&all);
    assert!(look(&mut hearsay, &all), "before the first round is over, too");
    say(&mut hearsay, &all[..2], &[(2, &[(1, 5)])]);
    assert!(!look(&mut hearsay, &all), "it gets what it missed first");
    say(&mut hearsay, &all[..2], &[]);
    assert!(look(&mut hearsay, &all));
    let later = [back, record(5, Offline, 8)];
    let mut hearsay = quiet(&later);
    assert!(!look(&mut hearsay, &later), "one that is away has to come back");
}

#[test]
fn who_comes_and_goes_is_held_though_it_lacks_nothing() {
    let all = [record(1, Syncing, 7), record(2, Online, 1), record(3, Offline, 1)];
    let mut hearsay = heard(&all, 10, &[]);
    complete(&mut hearsay, &all, &[]);
    assert_eq!(hearsay.complete(&placed(&all), |target| target == TargetId(1)), []);
    assert_eq!(hearsay.complete(&placed(&all), |_| false), [TargetId(1)]);
}

#[test]
fn a_gap_that_is_handed_from_one_to_another_meanwhile_is_not_missed() {
    let all = [record(1, Syncing, 7), record(2, Online, 1), record(3, Online, 1)];
    let gap: [(u32, &[(u32, u64)]); 1] = [(3, &[(1, 1)])];
    // The second has none yet; the third hands it over before it reports.
    let mut hearsay = heard(&all, 10, &[]);
    assert_eq!(hearsay.complete(&placed(&all), |_| false), []);
    // The second made this report before it got the gap.
    say(&mut hearsay, &all, &[]);
    assert_eq!(hearsay.complete(&placed(&all), |_| false), []);
    say(&mut hearsay, &all, &[(2, &[(1, 1)])]);
    assert_eq!(hearsay.complete(&placed(&all), |_| false), []);
    assert_eq!(complete(&mut hearsay, &all, &gap), []);
    assert_eq!(complete(&mut hearsay, &all, &[]), [1]);
}

#[test]
fn who_has_own_gaps_waits_for_whoever_is_online_to_take_them_over() {
    let all = [record(1, Syncing, 7), record(2, Online, 5)];
    let mut hearsay = heard(&all, 10, &[]);
    assert_eq!(complete(&mut hearsay, &all, &[(1, &[(1, 2)])]), []);
    assert_eq!(complete(&mut hearsay, &all, &[]), [1]);
    // That there is nobody, it has to say knowing who is online.
    let newer = [all[0], record(2, Online, 11)];
    hearsay.changed(&placed(&newer), Epoch(11));
    hearsay.acts(TargetId(2), Epoch(11));
    assert_eq!(complete(&mut hearsay, &newer, &[]), []);
    hearsay.acts(TargetId(1), Epoch(11));
    assert_eq!(complete(&mut hearsay, &newer, &[]), [1]);
}

#[test]
fn of_those_with_own_gaps_one_comes_at_a_time_and_then_its_word_does_not_count() {
    let all = [record(1, Syncing, 7), record(2, Syncing, 7), record(3, Syncing, 7)];
    let own: [(u32, &[(u32, u64)]); 2] = [(1, &[(1, 2)]), (2, &[(2, 2)])];
    let mut hearsay = heard(&all, 10, &[]);
    assert_eq!(complete(&mut hearsay, &all, &own), [3], "it has none");
    let two = [all[0], all[1]];
    assert_eq!(complete(&mut hearsay, &two, &[]), [1]);
    let two = [record(1, Online, 11), all[1]];
    hearsay.changed(&placed(&two), Epoch(11));
    hearsay.acts(TargetId(2), Epoch(11));
    assert_eq!(complete(&mut hearsay, &two, &[]), [], "the first may note gaps for it yet");
    hearsay.acts(TargetId(1), Epoch(11));
    assert_eq!(complete(&mut hearsay, &two, &[(1, &[(1, 2)])]), [], "still");
    assert_eq!(complete(&mut hearsay, &two, &[(1, &[(2, 3)])]), []);
    assert_eq!(complete(&mut hearsay, &two, &[]), [2]);
}

#[test]
fn a_gap_noted_by_one_that_did_not_know_takes_a_target_back() {
    let joined = joins(record(1, Syncing, 4), Epoch(9));
    assert_eq!(joined, TargetRecord { joins: Some(Epoch(4)), ..record(1, Online, 9) });
    let all = [joined, record(2, Online, 1)];
    let mut hearsay = heard(&all, 9, &[(1, &[(2, 1), (1, 1)])]);
    assert_eq!(hearsay.too_early(), None);
    // Whoever has noted it may have gone meanwhile.
    say(&mut hearsay, &all, &[(2, &[(1, 1)])]);
    hearsay.changed(&placed(&all), Epoch(10));
    assert_eq!(hearsay.too_early(), Some(TargetId(1)));
    // So does one that went before it knew.
    let gone = [joined, record(2, Offline, 10)];
    let mut hearsay = heard(&all, 9, &[]);
    hearsay.changed(&placed(&gone), Epoch(10));
    assert_eq!(hearsay.too_early(), None, "it knew, and had none");
    hearsay.acts(TargetId(2), Epoch(8));
    hearsay.changed(&placed(&gone), Epoch(10));
    assert_eq!(hearsay.too_early(), Some(TargetId(1)));
    // Who was away before, and had said that it had noted nothing, does not count.
    let ill = [record(1, Syncing, 4), record(2, OutOfService, 6)];
    let mut hearsay = heard(&ill, 8, &[]);
    let joins = [joined, ill[1]];
    hearsay.changed(&placed(&joins), Epoch(9));
    hearsay.changed(&placed(&joins), Epoch(9));
    assert_eq!(hearsay.too_early(), None);
    let back = [joined, record(2, Online, 10)];
    hearsay.changed(&placed(&back), Epoch(10));
    hearsay.changed(&placed(&[joined, record(2, OutOfService, 11)]), Epoch(11));
    assert_eq!(hearsay.too_early(), Some(TargetId(1)), "it came and went");
    // It waits for the same as before, and was not online.
    assert_eq!(steps_back(joined, Epoch(11)), record(1, Syncing, 4));
    assert_eq!(after_silence(joined, Epoch(8), Epoch(11)), record(1, Offline, 4));
    let ill = TargetRecord { anew: Epoch(11), ..record(1, OutOfService, 4) };
    assert_eq!(after_report(joined, ILL, around(11)), ill);
    assert_eq!(after_report(joined, BEHIND, around(11)), record(1, Syncing, 4));
}

/// Who steps back, if these are needed.
fn goes(hearsay: &Hearsay, all: &[(ServerId, TargetRecord)], needed: &[u32]) -> Option<TargetId> {
    cut_off(&hearsay.accused(all), all, |target| needed.contains(&target.0))
}

#[test]
fn who_may_have_the_last_copy_of_something_stays_whoever_cannot_reach_it() {
    let all = placed(&[1, 2, 3, 4].map(|target| record(target, Online, 1)));
    let mut hearsay = heard(&[1, 2, 3, 4].map(|target| record(target, Online, 1)), 5, &[]);
    let accuse = |hearsay: &mut Hearsay, of: usize, whom: &[u32]| {
        let (_, record) = all[of - 1];
        hearsay.said(&record, &report(record.target.0, &[], whom), false);
    };
    accuse(&mut hearsay, 1, &[2]);
    assert_eq!(goes(&hearsay, &all, &[]), Some(TargetId(2)));
    assert_eq!(goes(&hearsay, &all, &[2]), Some(TargetId(1)), "who can be done without");
    assert_eq!(goes(&hearsay, &all, &[1, 2, 3, 4]), None);
    // The other one that it cannot reach can go.
    accuse(&mut hearsay, 1, &[2, 3]);
    assert_eq!(goes(&hearsay, &all, &[1, 3]), Some(TargetId(2)));
    // Without one of two it is still not reached.
    accuse(&mut hearsay, 1, &[2]);
    accuse(&mut hearsay, 3, &[2]);
    assert_eq!(goes(&hearsay, &all, &[2]), None);
}

#[test]
fn who_cannot_be_reached_goes_one_at_a_time_and_never_the_last() {
    let mut all = [record(1, Online, 1), record(2, Online, 1), record(3, Online, 1)];
    let mut hearsay = heard(&all, 5, &[]);
    let accuse = |hearsay: &mut Hearsay, of: &TargetRecord, whom: &[u32]| {
        let word = report(of.target.0, &[], whom);
        hearsay.said(of, &word, false);
    };
    assert!(hearsay.is_settled());
    accuse(&mut hearsay, &all[1], &[1, 3]);
    accuse(&mut hearsay, &all[2], &[2]);
    accuse(&mut hearsay, &all[0], &[2]);
    assert_eq!(goes(&hearsay, &placed(&all), &[]), Some(TargetId(2)), "two say so");
    all[1] = steps_back(all[1], Epoch(6));
    hearsay.changed(&placed(&all), Epoch(6));
    assert_eq!(goes(&hearsay, &placed(&all), &[]), None, "its word is void");
    [1, 2, 3].into_iter().for_each(|server| hearsay.acts(TargetId(server), Epoch(6)));
    let say = |hearsay: &mut Hearsay, first: &[u32], third: &[u32]| {
        let mut done = Vec::new();
        for _ in 0..ROUNDS {
            accuse(hearsay, &all[0], first);
            accuse(hearsay, &all[1], &[]);
            accuse(hearsay, &all[2], third);
            done = hearsay.complete(&placed(&all), |_| false);
        }
        done
    };
    assert_eq!(say(&mut hearsay, &[2], &[2]), []);
    assert_eq!(say(&mut hearsay, &[], &[2]), [], "one cannot reach it still");
    assert_eq!(say(&mut hearsay, &[], &[]), [TargetId(2)]);
    // Of two that cannot reach each other one stays.
    let two = [record(1, Online, 1), record(2, Online, 1)];
    let mut hearsay = heard(&two, 5, &[]);
    accuse(&mut hearsay, &two[0], &[2]);
    accuse(&mut hearsay, &two[1], &[1]);
    assert_eq!(goes(&hearsay, &placed(&two), &[]), Some(TargetId(2)));
    assert_eq!(goes(&hearsay, &placed(&[two[0], record(2, Offline, 1)]), &[]), None);
    // What a server says of its own targets is its own affair.
    let same = [(ServerId(1), two[0]), (ServerId(1), two[1])];
    assert_eq!(goes(&hearsay, &same, &[]), None);
}

#[test]
fn an_epoch_is_in_effect_when_all_who_serve_act_under_it() {
    let mut hearsay = Hearsay::new(Epoch(1));
    let serving = || [TargetId(1), TargetId(2)].into_iter();
    assert_eq!(hearsay.in_effect(serving(), Epoch(5)), Epoch(0));
    hearsay.acts(TargetId(1), Epoch(5));
    hearsay.acts(TargetId(2), Epoch(3));
    assert_eq!(hearsay.in_effect(serving(), Epoch(5)), Epoch(3));
    assert_eq!(hearsay.in_effect([TargetId(1)].into_iter(), Epoch(5)), Epoch(5));
    assert_eq!(hearsay.in_effect(std::iter::empty(), Epoch(5)), Epoch(5), "nobody serves");
}

#[test]
fn a_lease_ends_before_its_holder_is_given_up() {
    for timeout in [2, 1000, 5000, u64::from(u32::MAX)] {
        assert!(u64::from(serve_ms(timeout)) < timeout);
    }
}
