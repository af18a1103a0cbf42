//! Which disks have become slow: much slower than the others, and than they were themselves,
//! for longer than a burst of work explains (fail-slow, 2.13).
//!
//! Invariant: nothing is said of a disk before [`LASTS`] of samples agree, nor without
//! two others to compare it with.

use crate::Micros;
use std::collections::BTreeMap;

/// So many times what a MiB takes on the median of the others is slow,
const SLOW: f64 = 2.0;
/// and less than this is not.
const WELL: f64 = 1.5;
/// It is slower than it was itself by this.
const WAS: f64 = 1.5;
/// Both have to last, before anything is said.
pub const LASTS: Micros = 15_000_000;
/// A disk of which less is known has no past that it could be compared with.
const PAST: Micros = 60_000_000;
/// What was measured is taken as a mean over this,
const MEAN_US: f64 = 5_000_000.0;
/// and the past as one over this.
const PAST_US: f64 = 600_000_000.0;
/// What was seen before that counts for nothing.
const STALE: Micros = 30_000_000;
/// And one that nobody has read from for so long is not known to be slow any more.
const FORGOTTEN: Micros = 600_000_000;
/// Others, to say that one is slow.
const MIN_OTHERS: usize = 2;

/// What is known of one disk.
#[derive(Clone, Copy, Debug)]
struct Pace {
    first: Micros,
    last: Micros,
    us_per_mib: f64,
    past_us_per_mib: f64,
    /// Since when it seems to be otherwise than what is said of it.
    otherwise: Option<Micros>,
    is_slow: bool,
}

/// One of which something else is to be said from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict<K> {
    /// Which.
    pub disk: K,
    /// Whether it is slow.
    pub is_slow: bool,
    /// Microseconds that a MiB takes there,
    pub us_per_mib: f64,
    /// and on the median of the others; 0: there are too few to say.
    pub others_us_per_mib: f64,
}

/// All disks. `K` names one.
#[derive(Clone, Debug)]
pub struct SlowDisks<K> {
    disks: BTreeMap<K, Pace>,
}

impl<K> Default for SlowDisks<K> {
    fn default() -> Self {
        Self { disks: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> SlowDisks<K> {
    /// A disk has read something since it was heard of last; a MiB took so long.
    pub fn measured(&mut self, disk: K, us_per_mib: u32, now: Micros) {
        let new = f64::from(us_per_mib);
        let fresh = || Pace {
            first: now,
            last: now,
            us_per_mib: new,
            past_us_per_mib: new,
            otherwise: None,
            is_slow: false,
        };
        let pace = self.disks.entry(disk).or_insert_with(fresh);
        let since = now.saturating_sub(pace.last) as f64;
        pace.us_per_mib += (new - pace.us_per_mib) * (1.0 - (-since / MEAN_US).exp());
        if !pace.is_slow && pace.otherwise.is_none() {
            // What was not measured in between is not known to have been so.
            let share = 1.0 - (-since.min(MEAN_US) / PAST_US).exp();
            pace.past_us_per_mib += (new - pace.past_us_per_mib) * share;
        }
        pace.last = now;
    }

    /// Only these are still there.
    pub fn retain(&mut self, is_there: impl Fn(K) -> bool) {
        self.disks.retain(|disk, _| is_there(*disk));
    }

    /// Whether a disk is slow, as was said last.
    pub fn is_slow(&self, disk: K) -> bool {
        self.disks.get(&disk).is_some_and(|pace| pace.is_slow)
    }

    /// Judges all; those of which something else is said from now on.
    pub fn judge(&mut self, now: Micros) -> Vec<Verdict<K>> {
        let is_fresh = |pace: &Pace| now.saturating_sub(pace.last) <= STALE;
        let fresh = self.disks.values().filter(|pace| is_fresh(pace));
        let mut sorted: Vec<f64> = fresh.map(|pace| pace.us_per_mib).collect();
        sorted.sort_by(f64::total_cmp);
        let mut verdicts = Vec::new();
        for (disk, pace) in &mut self.disks {
            let age = now.saturating_sub(pace.last);
            let others = median_of_others(&sorted, pace.us_per_mib).filter(|_| age <= STALE);
            let seems = match others {
                Some(others) => seems(pace, others, now),
                None if age > FORGOTTEN => Some(false),
                None => None,
            };
            let Some(seems) = seems.filter(|seems| *seems != pace.is_slow) else {
                pace.otherwise = None;
                continue;
            };
            let since = *pace.otherwise.get_or_insert(now);
            if now.saturating_sub(since) >= LASTS || age > FORGOTTEN {
                (pace.is_slow, pace.otherwise) = (seems, None);
                let others_us_per_mib = others.unwrap_or_default();
                let us_per_mib = pace.us_per_mib;
                verdicts.push(Verdict {
                    disk: *disk,
                    is_slow: seems,
                    us_per_mib,
                    others_us_per_mib,
                });
            }
        }
        verdicts
    }
}

/// Whether a disk seems to be slow now; `None`: it is between the two.
fn seems(pace: &Pace, others: f64, now: Micros) -> Option<bool> {
    let has_past = now.saturating_sub(pace.first) >= PAST;
    let was_so = has_past && !pace.is_slow && pace.us_per_mib < WAS * pace.past_us_per_mib;
    let times = pace.us_per_mib / others.max(1.0);
    match times {
        times if times > SLOW && !was_so => Some(true),
        times if times < WELL || was_so => Some(false),
        _ => None,
    }
}

/// Of sorted values, without one of them; `None`: there are too few.
fn median_of_others(sorted: &[f64], own: f64) -> Option<f64> {
    let others = sorted.len().checked_sub(1).filter(|others| *others >= MIN_OTHERS)?;
    let own_at = sorted.partition_point(|value| *value < own);
    let at = |n: usize| sorted[if n < own_at { n } else { n + 1 }];
    // The lower one of two: a disk is compared with those that are well.
    Some(at((others - 1) / 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Micros = 1_000_000;

    /// What is said of disks in so many seconds, each of which takes as long for a MiB as
    /// `us` says of it and the second.
    fn said(
        disks: usize,
        seconds: u64,
        us: impl Fn(usize, u64) -> Option<u32>,
    ) -> Vec<(u64, usize, bool)> {
        let (mut slow, mut said) = (SlowDisks::default(), Vec::new());
        for second in 0..seconds {
            for disk in 0..disks {
                if let Some(us) = us(disk, second) {
                    slow.measured(disk, us, second * SECOND);
                }
            }
            let verdicts = slow.judge(second * SECOND);
            said.extend(verdicts.iter().map(|v| (second, v.disk, v.is_slow)));
        }
        said
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
        // Two of another kind are compared with each other and with the rest.
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
        // The others have not read anything for long.
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
    }
}
