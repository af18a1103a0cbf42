//! Which disks have become slow: much slower than the others, and than they were themselves,
//! for longer than a burst of work explains (fail-slow, 2.13).
//!
//! Like is compared with like: a disk that is read in small pieces takes longer for a MiB,
//! since its head turns more often, and is not slow for that.
//!
//! Invariant: nothing is said of a disk before [`LASTS`] of samples agree, nor without
//! two others to compare it with that are read in pieces like its own, or that have less of an
//! excuse than it has.

mod pace;

use crate::Micros;
use pace::{CLASSES, Pace, Sample};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// So many times what a MiB takes on the median of the others is slow,
const SLOW: f64 = 2.0;
/// and less than this is not.
const WELL: f64 = 1.5;
/// It is slower than it was itself by this.
const WAS: f64 = 1.5;
/// Both have to last, before anything is said.
pub const LASTS: Micros = 15_000_000;
/// What was seen before that counts for nothing.
const STALE: Micros = 30_000_000;
/// One that nobody has read from for so long, or that there was nothing to compare with, is not
/// known to be slow any more.
const FORGOTTEN: Micros = 600_000_000;
/// Others, to say that one is slow.
const MIN_OTHERS: usize = 2;

/// One of which something else is to be said from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict<K> {
    /// Which.
    pub disk: K,
    /// Whether it is slow.
    pub is_slow: bool,
    /// Microseconds that a MiB takes there,
    pub us_per_mib: f64,
    /// and on the median of the others that it was compared with; 0: there are too few, and it is
    /// only not known to be slow any more.
    pub others_us_per_mib: f64,
}

/// All disks. `K` names one.
#[derive(Clone, Debug)]
pub struct SlowDisks<K> {
    disks: BTreeMap<K, Pace>,
    /// When they were judged last.
    judged: Micros,
}

impl<K> Default for SlowDisks<K> {
    fn default() -> Self {
        Self { disks: BTreeMap::new(), judged: 0 }
    }
}

impl<K: Copy + Ord> SlowDisks<K> {
    /// A disk has read something since it was heard of last: in pieces of `piece_kib` in the
    /// mean, and a MiB took so long. 0: nobody knows the pieces, so that it says nothing.
    pub fn measured(&mut self, disk: K, us_per_mib: u32, piece_kib: u32, now: Micros) {
        if piece_kib == 0 {
            return;
        }
        let new = Sample::new(us_per_mib, piece_kib);
        self.disks.entry(disk).or_insert_with(|| Pace::new(new, now)).add(new, now);
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

    /// With whom disks of each class of pieces are compared.
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

/// What a MiB takes on disks that are read of late, from the least on: those that are read in
/// pieces like those of a class, in such or smaller ones, and in such or larger ones.
#[derive(Debug, Default)]
struct Others {
    like: Vec<f64>,
    to: Vec<f64>,
    from: Vec<f64>,
}

impl Others {
    /// Of the others with which a disk of the class is compared, to say that it is slow, and that
    /// it is not. One that is slower than disks with smaller pieces has not its pieces to blame
    /// (those at a slow disk are larger than elsewhere: more waits there, and is put in order).
    fn without(&self, own: f64) -> (Option<f64>, Option<f64>) {
        let like = median_of_others(&self.like, own);
        let or = |more| like.or_else(|| median_of_others(more, own));
        (or(&self.to), or(&self.from))
    }
}

/// How a disk seems to be now.
enum Seems {
    Slow,
    Well,
    /// Slower than others, and not by much.
    Between,
    /// There is nothing to compare it with.
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

/// By the medians of [`Others::without`].
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

/// Whether nobody knows any more if a disk is slow that cannot be compared now: nobody reads from
/// it, or there have been no others like it for long, and it is not slower than it was itself.
fn is_forgotten(pace: &Pace, now: Micros) -> bool {
    let for_long = |then| now.saturating_sub(then) > FORGOTTEN;
    let seems_well = pace.times_its_past().is_none_or(|times| times < WAS);
    for_long(pace.last) || (for_long(pace.compared) && seems_well)
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
mod tests;
