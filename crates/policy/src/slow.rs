//! Detection of fail-slow disks (2.13): disks that are much slower than the others, and than they
//! were before, for longer than a burst of work explains.
//!
//! Only disks with similar requests are compared: a disk that is read in small pieces needs longer
//! per MiB, because it seeks more often, and is not slow for that reason.
//!
//! Invariant: a disk is reported only after samples of [`LASTS`] agree. The comparison needs two
//! other disks whose pieces are of similar size, or less favourable to speed than the disk's own.

mod pace;

use crate::Micros;
use pace::{CLASSES, Pace, Sample};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A disk seems slow above this multiple of the others' median time per MiB.
const SLOW: f64 = 2.0;
/// A disk seems well below this multiple.
const WELL: f64 = 1.5;
/// A slow disk is slower than before by at least this factor.
const WAS: f64 = 1.5;
/// A change must last this long before it is reported.
pub const LASTS: Micros = 15_000_000;
/// A sample older than this does not count.
const STALE: Micros = 30_000_000;
/// A disk without reads or without disks to compare with for this long is no longer known to be
/// slow.
const FORGOTTEN: Micros = 600_000_000;
/// The fewest other disks for a comparison.
const MIN_OTHERS: usize = 2;

/// A changed judgement of one disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict<K> {
    /// The disk.
    pub disk: K,
    /// Whether the disk is slow now.
    pub is_slow: bool,
    /// Its time per MiB, microseconds.
    pub us_per_mib: f64,
    /// The median of the compared disks, microseconds per MiB. 0 if there were too few, so that the
    /// disk is only no longer known to be slow.
    pub others_us_per_mib: f64,
}

/// The judgements of all disks. `K` names a disk.
#[derive(Clone, Debug)]
pub struct SlowDisks<K> {
    disks: BTreeMap<K, Pace>,
    /// Time of the last judgement.
    judged: Micros,
}

impl<K> Default for SlowDisks<K> {
    fn default() -> Self {
        Self { disks: BTreeMap::new(), judged: 0 }
    }
}

impl<K: Copy + Ord> SlowDisks<K> {
    /// Adds a sample of a disk: the mean size of its reads, and its time per MiB since the last
    /// sample. A `piece_kib` of 0 means an unknown size; the sample is ignored then.
    pub fn measured(&mut self, disk: K, us_per_mib: u32, piece_kib: u32, now: Micros) {
        if piece_kib == 0 {
            return;
        }
        let new = Sample::new(us_per_mib, piece_kib);
        self.disks.entry(disk).or_insert_with(|| Pace::new(new, now)).add(new, now);
    }

    /// Removes disks that no longer exist.
    pub fn retain(&mut self, is_there: impl Fn(K) -> bool) {
        self.disks.retain(|disk, _| is_there(*disk));
    }

    /// Whether a disk is slow according to the last judgement.
    pub fn is_slow(&self, disk: K) -> bool {
        self.disks.get(&disk).is_some_and(|pace| pace.is_slow)
    }

    /// Judges all disks and returns those whose judgement has changed.
    pub fn judge(&mut self, now: Micros) -> Vec<Verdict<K>> {
        let others = self.others(now);
        let since_last = now.saturating_sub(std::mem::replace(&mut self.judged, now));
        let mut verdicts = Vec::new();
        for (disk, pace) in &mut self.disks {
            let (age, own) = (now.saturating_sub(pace.last), pace.mean.us_per_mib());
            let (slow, well) = match age <= STALE {
                true => others[pace.mean.class()].without(own),
                false => (None, None),
            };
            let seems = match seems(pace, slow, well) {
                Seems::Unknown if is_forgotten(pace, now) => Some(false),
                Seems::Unknown => {
                    pace.wait(since_last, now);
                    continue;
                }
                known => {
                    pace.compared = now;
                    known.is_slow()
                }
            };
            let Some(seems) = seems.filter(|seems| *seems != pace.is_slow) else {
                pace.otherwise = None;
                continue;
            };
            let since = *pace.otherwise.get_or_insert(now);
            if now.saturating_sub(since) >= LASTS || age > FORGOTTEN {
                (pace.is_slow, pace.otherwise) = (seems, None);
                let others_us_per_mib = if seems { slow } else { well }.unwrap_or_default();
                verdicts.push(Verdict {
                    disk: *disk,
                    is_slow: seems,
                    us_per_mib: own,
                    others_us_per_mib,
                });
            }
        }
        verdicts
    }

    /// The disks that a disk of each class is compared with.
    fn others(&self, now: Micros) -> [Others; CLASSES] {
        let fresh = self.disks.values().filter(|pace| now.saturating_sub(pace.last) <= STALE);
        let means = fresh.map(|pace| (pace.mean.class(), pace.mean.us_per_mib()));
        let mut means: Vec<(usize, f64)> = means.collect();
        means.sort_by(|(_, a), (_, b)| f64::total_cmp(a, b));
        let of = |classes: RangeInclusive<usize>| {
            let meant = means.iter().filter(|(class, _)| classes.contains(class));
            meant.map(|(_, us)| *us).collect::<Vec<_>>()
        };
        std::array::from_fn(|class| match means.iter().any(|mean| mean.0 == class) {
            true => {
                let (least, most) = (class.saturating_sub(1), class + 1);
                Others { like: of(least..=most), to: of(0..=most), from: of(least..=CLASSES) }
            }
            false => Others::default(),
        })
    }
}

/// Times per MiB of recently read disks, ascending: of disks in about the same class of pieces, in
/// that class or smaller ones, and in that class or larger ones.
#[derive(Debug, Default)]
struct Others {
    like: Vec<f64>,
    to: Vec<f64>,
    from: Vec<f64>,
}

impl Others {
    /// The medians to compare a disk with, for judging that it is slow and that it is well. A disk
    /// that is slower than disks with smaller pieces cannot be excused by its pieces. (Pieces at a
    /// slow disk are larger than elsewhere, because more requests wait there and are sorted.)
    fn without(&self, own: f64) -> (Option<f64>, Option<f64>) {
        let like = median_of_others(&self.like, own);
        let or = |more| like.or_else(|| median_of_others(more, own));
        (or(&self.to), or(&self.from))
    }
}

/// Present impression of a disk.
enum Seems {
    Slow,
    Well,
    /// Slower than others, but not by much.
    Between,
    /// No disk to compare with.
    Unknown,
}

impl Seems {
    fn is_slow(&self) -> Option<bool> {
        match self {
            Self::Slow => Some(true),
            Self::Well => Some(false),
            Self::Between | Self::Unknown => None,
        }
    }
}

/// Compares a disk with the medians of [`Others::without`].
fn seems(pace: &Pace, slow: Option<f64>, well: Option<f64>) -> Seems {
    let own = pace.mean.us_per_mib();
    let was_so = !pace.is_slow && pace.times_its_past().is_some_and(|times| times < WAS);
    let is_slow = slow.map(|others| own > SLOW * others.max(1.0));
    let is_well = well.map(|others| own < WELL * others.max(1.0));
    match (is_slow, is_well) {
        (None, None) => Seems::Unknown,
        _ if was_so => Seems::Well,
        (Some(true), Some(true)) => Seems::Unknown,
        (Some(true), _) => Seems::Slow,
        (_, Some(true)) => Seems::Well,
        (Some(false), Some(false)) => Seems::Between,
        (Some(false), None) | (None, Some(false)) => Seems::Unknown,
    }
}

/// Whether an earlier judgement of a disk has expired: the disk was not read for long, or had no
/// disks to compare with for long and is not slower than before.
fn is_forgotten(pace: &Pace, now: Micros) -> bool {
    let for_long = |then| now.saturating_sub(then) > FORGOTTEN;
    let seems_well = pace.times_its_past().is_none_or(|times| times < WAS);
    for_long(pace.last) || (for_long(pace.compared) && seems_well)
}

/// Median of sorted values without one of them. `None` if there are too few.
fn median_of_others(sorted: &[f64], own: f64) -> Option<f64> {
    let others = sorted.len().checked_sub(1).filter(|others| *others >= MIN_OTHERS)?;
    let own_at = sorted.partition_point(|value| *value < own);
    let at = |n: usize| sorted[if n < own_at { n } else { n + 1 }];
    // With an even number the lower of the two: a disk is compared with those that are well.
    Some(at((others - 1) / 2))
}

#[cfg(test)]
mod tests;
