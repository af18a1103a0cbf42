//! Disks of other speeds, and other readers.

use super::*;
use weir_wire::meta::TargetLoad;

#[test]
fn what_comes_from_memory_over_a_slow_link_is_read_from_the_other_copy() {
    // Neither needs its disk.
    let quick = || known(report(100, 0), report(100, 0));
    let came = |paces: &mut Paces, target, us_per_mib: u64| {
        (0..8u64).for_each(|n| paces.came(target, MIB, (n * us_per_mib, (n + 1) * us_per_mib)));
    };
    let policy = ReadPolicy::Proportional;
    let (mut paces, a_third) = (quick(), TargetId(3));
    came(&mut paces, A, 9_000);
    came(&mut paces, a_third, 8_000);
    assert_eq!(chosen(&mut paces, policy, both(true, true)), [Some(0); 4], "all links are so");
    let mut paces = quick();
    came(&mut paces, a_third, 8_000);
    came(&mut paces, A, 20_000);
    assert_eq!(chosen(&mut paces, policy, both(true, true)), [Some(1); 4]);
    assert_eq!(chosen(&mut paces, ReadPolicy::SkipHot, both(true, true)), [Some(1); 4]);
    assert_eq!(chosen(&mut paces, policy, both(true, false)), [Some(0); 4]);
}

#[test]
fn a_disk_that_has_less_to_do_is_not_kept_waiting_for_the_end_of_a_run() {
    const PIECE: u64 = 256 << 10;
    let piece = |n: u64| Wanted { offset: n * PIECE, len_bytes: PIECE, ..wanted(0) };
    let choices_of = |(here, there): (u16, u16)| {
        let mut choices = Choices::default();
        let mut paces = known(report(50_000, here), report(50_000, there));
        let copies = both(true, true);
        let mut choose = |n| {
            let patience = (0, Patience::Turn(None));
            let choice = choices.choose(POLICY, &piece(n), &copies, &mut paces, patience).0;
            if let Some(copy) = at(choice) {
                choices.asked(&Asked { len_bytes: PIECE, ..asked(copy) }, 0);
                paces.sent([A, B][copy]);
            }
            at(choice)
        };
        (0..5).map(&mut choose).collect::<Vec<_>>()
    };
    assert_eq!(choices_of((0, 0)), [Some(0), Some(1), Some(1), Some(0), None]);
    assert_eq!(choices_of((0, 3))[..3], [Some(0), Some(0), None], "others read there");
    assert_eq!(choices_of((3, 3))[..3], [Some(0), Some(0), Some(1)], "and as many here");
}

#[test]
fn what_does_not_wait_is_spread_over_disks_that_have_as_much_to_do_as_they_may() {
    const PIECE: u64 = 256 << 10;
    let (mut choices, copies) = (Choices::default(), both(true, true));
    let mut paces = known(report(50_000, 0), report(50_000, 0));
    let mut counts = [0_u32; 2];
    for n in 0..16 {
        let piece = Wanted { offset: n * PIECE, len_bytes: PIECE, ..wanted(0) };
        let choice = choices.choose(POLICY, &piece, &copies, &mut paces, (0, Patience::None)).0;
        let copy = at(choice).unwrap();
        choices.asked(&Asked { len_bytes: PIECE, waited: false, ..asked(copy) }, 0);
        paces.sent([A, B][copy]);
        counts[copy] += 1;
    }
    assert!(counts[0].abs_diff(counts[1]) <= 2, "{counts:?}");
}

#[test]
fn what_a_server_says_first_counts_before_a_run_has_ended() {
    const PIECE: u64 = 256 << 10;
    let chosen = |says: fn(&mut Paces)| {
        let (mut choices, mut paces) = (Choices::default(), Paces::default());
        for target in [A, B] {
            paces.told(&TargetLoad { target, us_per_mib: 50_000, in_flight: 0 }, 0);
        }
        let mut choose = |n, paces: &mut Paces| {
            let piece = Wanted { offset: n * PIECE, len_bytes: PIECE, ..wanted(0) };
            at(choices.choose(POLICY, &piece, &both(true, true), paces, (0, Patience::None)).0)
        };
        let first = choose(0, &mut paces);
        says(&mut paces);
        (first, choose(1, &mut paces))
    };
    assert_eq!(chosen(|paces| paces.heard(A, report(50_000, 9), 600_000)), (Some(0), Some(1)));
    assert_eq!(chosen(|paces| paces.heard(A, report(50_000, 0), 600_000)), (Some(0), Some(0)));
}

#[test]
fn who_reads_alone_has_both_disks_at_work_from_the_second_request_on() {
    const PIECE: u64 = 256 << 10;
    let first_two = |mut paces: Paces, is_sent: bool| {
        let mut choices = Choices::default();
        let mut next = |n| {
            let piece = Wanted { offset: n * PIECE, len_bytes: PIECE, ..wanted(0) };
            let of = (0, Patience::None);
            let choice = choices.choose(POLICY, &piece, &both(true, true), &mut paces, of).0;
            let copy = at(choice).unwrap();
            choices.asked(&Asked { len_bytes: PIECE, ..asked(copy) }, 0);
            if is_sent {
                paces.sent([A, B][copy]);
            }
            copy
        };
        (next(0), next(1))
    };
    let with_others = |there| known(report(10_000, 0), report(10_000, there));
    assert_eq!(first_two(with_others(0), true), (0, 1));
    assert_eq!(first_two(with_others(2), true), (0, 0), "others read there");
    assert_eq!(first_two(Paces::default(), true), (0, 1), "nobody has said anything");
    let slower = || known(report(10_000, 0), report(10_500, 0));
    assert_eq!(first_two(slower(), false), (0, 1), "the first one waits for a connection");
}

#[test]
fn a_head_turns_at_the_first_copy_too_where_others_read() {
    const PIECE: u64 = 256 << 10;
    let first = |a, b, rest_bytes| {
        let mut paces = known(report(45_000, a), report(50_000, b));
        let piece = Wanted { len_bytes: PIECE, rest_bytes, ..wanted(0) };
        let of = (0, Patience::None);
        at(Choices::default().choose(POLICY, &piece, &both(true, true), &mut paces, of).0)
    };
    assert_eq!(first(7, 2, PIECE), Some(1), "nearly the end of a small file");
    assert_eq!(first(7, 2, 64 * PIECE), Some(1));
    assert_eq!(first(4, 4, PIECE), Some(0));
    assert_eq!(first(0, 2, PIECE), Some(0), "nobody is there");
}

#[test]
fn those_who_wait_at_the_same_disk_do_not_all_go_to_a_far_slower_one() {
    const PIECE: u64 = 256 << 10;
    let choose = |slow_us_per_mib, others| {
        let mut paces = known(report(slow_us_per_mib, 0), report(50_000, others));
        let piece = Wanted { len_bytes: PIECE, ..wanted(0) };
        let of = (0, Patience::Turn(None));
        at(Choices::default().choose(POLICY, &piece, &both(true, true), &mut paces, of).0)
    };
    assert_eq!(choose(400_000, 3), Some(1));
    assert_eq!(
        choose(400_000, 14),
        Some(1),
        "it would be sooner there for the first of them alone"
    );
    assert_eq!(choose(50_000, 14), Some(0), "there is enough for them all");
}

#[test]
fn what_others_are_taken_to_do_is_nothing_that_was_heard() {
    // By what was heard the second copy takes three times as long.
    let mut paces = known(report(100_000, 0), report(50_000, 5));
    assert_eq!(chosen(&mut paces, ReadPolicy::SkipHot, both(true, true)), [Some(0); 4]);
    // Nobody waits longer for the quick one since others wait at the slow one.
    let mut paces = known(report(400_000, 14), report(50_000, 0));
    let copies = both(true, true);
    let choice =
        Choices::default().choose(POLICY, &wanted(0), &copies, &mut paces, (0, Patience::Ahead)).0;
    let Choice::Copy(Chosen { at: 1, answer_us, .. }) = choice else { panic!("{choice:?}") };
    assert!((50_000.0..60_000.0).contains(&answer_us), "{answer_us}");
}

#[test]
fn of_three_copies_the_two_that_are_alike_are_read_and_a_far_slower_one_is_left_alone() {
    const PIECE: u64 = 256 << 10;
    const TARGETS: [TargetId; 3] = [A, B, TargetId(3)];
    let first_two = |us_per_mib: [u32; 3], others: [u16; 3]| {
        let (mut choices, mut paces) = (Choices::default(), Paces::default());
        for (n, target) in TARGETS.into_iter().enumerate() {
            paces.heard(target, report(us_per_mib[n], others[n]), 0);
        }
        let copies = TARGETS.map(|target| Candidate { target, is_usable: true });
        [0, 1].map(|n| {
            let piece = Wanted { offset: n * PIECE, len_bytes: PIECE, ..wanted(0) };
            let of = (0, Patience::Turn(None));
            let choice = choices.choose(POLICY, &piece, &copies, &mut paces, of).0;
            let copy = at(choice)?;
            choices.asked(&Asked { len_bytes: PIECE, ..asked(copy) }, 0);
            paces.sent(TARGETS[copy]);
            Some(copy)
        })
    };
    let idle = [0; 3];
    assert_eq!(first_two([50_000, 50_000, 400_000], idle), [Some(0), Some(1)]);
    assert_eq!(first_two([400_000, 50_000, 50_000], idle), [Some(1), Some(2)]);
    // All who wait at the two see that the slow one has nothing to do.
    assert_eq!(first_two([400_000, 50_000, 50_000], [0, 8, 8]), [Some(1), Some(1)]);
    assert_eq!(first_two([50_000; 3], [8, 8, 0])[0], Some(2), "one that is not slow is taken");
}

#[test]
fn who_goes_by_first_copies_tries_no_other_one_that_was_silent() {
    let tried = |policy| {
        let mut paces = known(report(10_000, 0), report(10_000, 0));
        paces.silent(B, 0);
        let (now, copies) = (10_000_000, both(true, true));
        let of = (now, Patience::Ahead);
        at(Choices::default().choose(policy, &wanted(0), &copies, &mut paces, of).0)
    };
    assert_eq!((tried(POLICY), tried(ReadPolicy::Primary)), (Some(1), Some(0)));
}
