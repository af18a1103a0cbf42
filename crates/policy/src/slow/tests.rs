use super::*;
use proptest::prelude::*;

const SECOND: Micros = 1_000_000;
const LARGE_KIB: u32 = 8_192;
const SMALL_KIB: u32 = 64;

/// The verdicts over a number of seconds. For each disk and second, `read` gives the time per MiB
/// and the size of pieces, or `None` if the disk was not read.
fn said_of(
    disks: usize,
    seconds: u64,
    read: impl Fn(usize, u64) -> Option<(u32, u32)>,
) -> Vec<(u64, usize, bool)> {
    let (mut slow, mut said) = (SlowDisks::default(), Vec::new());
    for second in 0..seconds {
        for disk in 0..disks {
            if let Some((us, piece_kib)) = read(disk, second) {
                slow.measured(disk, us, piece_kib, second * SECOND);
            }
        }
        let verdicts = slow.judge(second * SECOND);
        said.extend(verdicts.iter().map(|v| (second, v.disk, v.is_slow)));
    }
    said
}

/// As [`said_of`], with large pieces.
fn said(
    disks: usize,
    seconds: u64,
    us: impl Fn(usize, u64) -> Option<u32>,
) -> Vec<(u64, usize, bool)> {
    said_of(disks, seconds, |disk, second| Some((us(disk, second)?, LARGE_KIB)))
}

/// A server's measurement of a disk that transfers a MiB in `base_us`, and whose seeks each cost as
/// much as `turn_mib` of transfer.
fn with_a_head(base_us: f64, turn_mib: f64, piece_kib: u32) -> (u32, u32) {
    let mib = f64::from(piece_kib) / 1024.0;
    ((base_us * (mib + turn_mib) / (mib + 1.0 / 16.0)) as u32, piece_kib)
}

#[test]
fn a_disk_that_is_slow_for_long_is_named_and_again_when_it_is_well() {
    let said = said(4, 600, |disk, second| match (disk, second) {
        (2, 100..300) => Some(40_000),
        _ => Some(10_000),
    });
    let [(since, 2, true), (until, 2, false)] = said[..] else { panic!("{said:?}") };
    assert!((115..130).contains(&since) && (315..340).contains(&until), "{said:?}");
}

#[test]
fn a_burst_is_not_enough_nor_a_disk_that_always_was_so() {
    let burst = |disk, second: u64| match (disk, second % 60) {
        (1, 30..38) => Some(40_000),
        _ => Some(10_000),
    };
    assert_eq!(said(4, 900, burst), []);
    // The two disks of another kind are compared with each other and with the rest.
    let kinds = |disk, second| match disk {
        _ if second < 100 => Some(10_000),
        0 => Some(19_000),
        _ => Some(10_000),
    };
    assert_eq!(said(4, 900, kinds), []);
}

#[test]
fn a_disk_that_became_slow_while_nobody_read_is_named_too() {
    let said = said(4, 4_000, |disk, second| match (disk, second) {
        (_, 100..3_700) => None,
        (2, 3_700..) => Some(40_000),
        _ => Some(10_000),
    });
    assert!(matches!(said[..], [(3_715..3_730, 2, true)]), "{said:?}");
}

#[test]
fn nothing_is_said_when_all_are_slow_or_there_is_nobody_to_compare_with() {
    assert_eq!(said(4, 300, |_, second| Some(10_000 + 1_000 * second as u32)), []);
    assert_eq!(said(2, 300, |disk, _| Some(10_000 + 90_000 * disk as u32)), []);
    // The other disks have not been read for a long time.
    let us = |disk| if disk == 0 { 90_000 } else { 9 };
    let alone = |disk, second| (disk == 0 || second < 5).then_some(us(disk));
    assert_eq!(said(4, 300, alone).len(), 1, "while they were heard of");
}

#[test]
fn what_nobody_reads_from_any_more_is_not_slow_for_ever() {
    let said = said(4, 900, |disk, second| match (disk, second) {
        (2, 0..30) => Some(40_000),
        (2, _) => None,
        _ => Some(10_000),
    });
    let [(_, 2, true), (until, 2, false)] = said[..] else { panic!("{said:?}") };
    assert!((620..650).contains(&until), "{said:?}");
}

#[test]
fn small_pieces_alone_are_no_reason_whatever_a_disk_was_before() {
    let read = |disk, second: u64| match (disk, second % 100) {
        (1, 40..) => Some(with_a_head(10_000.0, 1.0, SMALL_KIB)),
        _ => Some(with_a_head(10_000.0, 1.0, LARGE_KIB)),
    };
    assert_eq!(said_of(4, 1_000, read), []);
    // No verdict either if the size of the pieces is unknown.
    let unsaid = |disk, _| Some((10_000 + 90_000 * disk as u32, 0));
    assert_eq!(said_of(4, 100, unsaid), []);
}

#[test]
fn a_slow_disk_is_not_judged_until_its_pieces_are_like_those_of_others() {
    let said = said_of(4, 400, |disk, second| match (disk, second) {
        (1, 100..200) => Some(with_a_head(40_000.0, 1.0, SMALL_KIB)),
        (1, 200..) => Some(with_a_head(40_000.0, 1.0, LARGE_KIB)),
        _ => Some(with_a_head(10_000.0, 1.0, LARGE_KIB)),
    });
    let [(since, 1, true)] = said[..] else { panic!("{said:?}") };
    assert!((215..250).contains(&since), "{said:?}");
}

#[test]
fn a_disk_that_is_slower_than_others_with_smaller_pieces_is_slow() {
    // More requests wait at the slow disk and are sorted, so its pieces are larger.
    let read = |disk, second: u64| match (disk, second) {
        (2, 100..300) => Some(with_a_head(60_000.0, 1.0, 4_096)),
        _ => Some(with_a_head(10_000.0, 1.0, 1_024)),
    };
    let [(since, 2, true), (until, 2, false)] = said_of(4, 400, read)[..] else { panic!() };
    assert!((115..130).contains(&since) && (315..340).contains(&until), "{since} {until}");
    // A disk that is not slower than others with larger pieces is well.
    let read = |disk, second: u64| match (disk, second) {
        (2, 0..100) => Some((40_000, 4_096)),
        (2, _) => Some((12_000, 1_024)),
        _ => Some((10_000, 4_096)),
    };
    let [(_, 2, true), (until, 2, false)] = said_of(4, 400, read)[..] else { panic!() };
    assert!((115..130).contains(&until), "{until}");
}

#[test]
fn a_slow_disk_that_is_like_the_others_now_and_then_is_named() {
    // For less time than samples have to agree.
    let read = |from: u64| {
        move |disk, second: u64| match (disk, second % 22) {
            (1, 0..12) if second >= from => Some(with_a_head(60_000.0, 1.0, LARGE_KIB)),
            (1, _) if second >= from => Some(with_a_head(60_000.0, 1.0, 1_024)),
            _ => Some(with_a_head(10_000.0, 1.0, LARGE_KIB)),
        }
    };
    let said = said_of(4, 300, read(110));
    assert!(matches!(said[..], [(126..190, 1, true)]), "{said:?}");
    // Samples from before a minute without comparison do not count.
    let rarely = |disk, second: u64| match (disk, second % 80) {
        (1, 0..12) => Some(with_a_head(60_000.0, 1.0, LARGE_KIB)),
        (1, _) => Some(with_a_head(60_000.0, 1.0, 1_024)),
        _ => Some(with_a_head(10_000.0, 1.0, LARGE_KIB)),
    };
    assert_eq!(said_of(4, 1_000, rarely), []);
}

#[test]
fn a_past_of_other_pieces_says_nothing_and_one_of_such_pieces_does() {
    // With small pieces the disk needed longer.
    let changes = |disk, second| match (disk, second) {
        (1, 0..300) => Some((80_000, SMALL_KIB)),
        (1, _) => Some((60_000, LARGE_KIB)),
        _ => Some((10_000, LARGE_KIB)),
    };
    let said = said_of(4, 400, changes);
    assert!(matches!(said[..], [(315..350, 1, true)]), "{said:?}");
    // A disk of another kind that had no others to compare with in its first minutes was always
    // that slow.
    let kinds = |disk, second: u64| match (disk, (second / 100) % 2) {
        (1, 0) => Some(with_a_head(40_000.0, 1.0, SMALL_KIB)),
        (1, _) => Some(with_a_head(40_000.0, 1.0, LARGE_KIB)),
        _ if second < 400 => None,
        (_, 0) => Some(with_a_head(10_000.0, 1.0, SMALL_KIB)),
        _ => Some(with_a_head(10_000.0, 1.0, LARGE_KIB)),
    };
    assert_eq!(said_of(4, 405, kinds), []);
    assert_eq!(said_of(4, 500, kinds), []);
}

#[test]
fn what_is_like_no_others_for_long_is_forgotten_unless_it_is_slower_than_it_was() {
    let slow_then = |kib, us| {
        move |disk, second| match (disk, second) {
            (1, 0..100) | (0 | 2, 0..200) => Some((10_000, LARGE_KIB)),
            (1, 100..300) => Some((40_000, LARGE_KIB)),
            (1, _) => Some((us, kib)),
            // From then on the other disks are idle.
            _ => None,
        }
    };
    for (kib, us, is_known_to_be_slow) in
        [(SMALL_KIB, 40_000, false), (LARGE_KIB, 10_000, false), (LARGE_KIB, 40_000, true)]
    {
        let said = said_of(3, 1_500, slow_then(kib, us));
        match said[..] {
            [(115..130, 1, true)] => assert!(is_known_to_be_slow, "{kib} {us}"),
            [(115..130, 1, true), (830..860, 1, false)] => assert!(!is_known_to_be_slow),
            _ => panic!("{kib} {us}: {said:?}"),
        }
    }
}

#[test]
fn a_mean_of_samples_is_as_all_of_them_would_be_as_one() {
    let sample = |piece_kib| {
        let (us, kib) = with_a_head(10_000.0, 1.0, piece_kib);
        Sample::new(us, kib)
    };
    let mut pace = Pace::new(sample(16), 0);
    (1..40).for_each(|second| {
        pace.add(sample(if second % 3 == 0 { 16 } else { 16_384 }), second * SECOND);
        let us = pace.mean.us_per_mib();
        let kib = (1024.0 / pace.mean.pieces_per_mib()) as u32;
        let as_one = f64::from(with_a_head(10_000.0, 1.0, kib).0);
        assert!((us / as_one - 1.0).abs() < 0.05, "{us} {as_one}");
    });
}

proptest! {
    #[test]
    fn disks_that_differ_by_less_than_half_are_not_named(
        base in prop::collection::vec(10_000u32..14_000, 3..12),
        noise in prop::collection::vec(0u32..3_000, 64),
    ) {
        let us = |disk: usize, second: u64| {
            Some(base[disk] + noise[(disk * 7 + second as usize) % noise.len()])
        };
        prop_assert_eq!(said(base.len(), 200, us), []);
    }

    #[test]
    fn no_disk_is_named_for_the_pieces_in_which_it_is_read(
        base in prop::collection::vec(9_500.0f64..10_500.0, 3..12),
        works in prop::collection::vec((4u32..16_384, 1u64..90, 0u32..4), 64),
        turn_mib in 0.0f64..1.5,
        seconds in 200u64..600,
    ) {
        // The size of pieces changes all the time: one size, or two in turn.
        let piece_kib = |disk: usize, second: u64| {
            let (mut at, mut n) = (0, disk * 5);
            loop {
                let (kib, lasts, kind) = works[n % works.len()];
                at += lasts;
                n += 1;
                if at > second {
                    let other = works[n % works.len()].0;
                    break if kind == 0 && second.is_multiple_of(2) { other } else { kib };
                }
            }
        };
        let read = |disk: usize, second: u64| {
            Some(with_a_head(base[disk], turn_mib, piece_kib(disk, second)))
        };
        prop_assert_eq!(said_of(base.len(), seconds, read), []);
    }

    #[test]
    fn a_slow_disk_among_others_that_are_read_alike_is_named_as_soon_as_with_large_pieces(
        disks in 3usize..12,
        kib in 4u32..16_384,
        differ in prop::collection::vec(1.0f64..1.35, 12),
        times in 4.0f64..20.0,
        turn_mib in 0.0f64..1.5,
    ) {
        let read = |disk: usize, second: u64| {
            let base_us = if disk == 1 && second >= 100 { 10_000.0 * times } else { 10_000.0 };
            let piece_kib = (f64::from(kib) * differ[disk]) as u32;
            Some(with_a_head(base_us, turn_mib, piece_kib))
        };
        let said = said_of(disks, 200, read);
        prop_assert!(matches!(said[..], [(115..125, 1, true)]), "{said:?}");
    }
}
