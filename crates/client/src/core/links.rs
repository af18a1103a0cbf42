//! The network speed from each target to this client, for bytes that the server has ready.
//!
//! All links of a client look slow when its own link or processor is busy. So a measured speed
//! counts only if it is far slower than the best one measured, or slower than any busy processor
//! makes it. In the first case another copy is not sooner because of the client's own link; in the
//! second the servers' links are the limit.

use std::collections::BTreeMap;
use weir_policy::Micros;
use weir_types::TargetId;

const MIB: f64 = 1_048_576.0;
/// A sample ends after this many bytes.
const SAMPLE_BYTES: u64 = 2 << 20;
/// A sample ends after this much time.
const SAMPLE_US: Micros = 100_000;
/// The fewest bytes of a sample: one late packet says little.
const MIN_SAMPLE_BYTES: u64 = 128 << 10;
/// Weight of the newest sample in the mean.
const NEW_SHARE: f64 = 0.5;
/// A link that takes no longer than this per MiB (4 Gbit/s) does not count as slow.
const QUICK_US_PER_MIB: f64 = 2_000.0;
/// A link that takes no longer than this multiple of the best does not count as slow.
const SLOW: f64 = 1.5;
/// A link that takes longer than this per MiB (1.4 Gbit/s) counts as slow, even if all do.
const SLOW_US_PER_MIB: f64 = 6_000.0;
/// An older sample is ignored: the link may be quick again, and a request has to try it.
const KNOWN_FOR_US: Micros = 3_000_000;
/// How long the best speed of all links is known.
const BEST_FOR_US: Micros = 600_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    us_per_mib: f64,
    measured: Micros,
    /// The next sample. Time before `counted` is already part of it.
    counted: Micros,
    busy_us: Micros,
    bytes: u64,
}

impl Link {
    /// Adds bytes that arrived from `began` to `ended` on one of several connections. Overlapping
    /// times count once. Returns whether there is a new sample.
    fn came(&mut self, bytes: u64, began: Micros, ended: Micros) -> bool {
        self.busy_us += ended.saturating_sub(began.max(self.counted));
        self.counted = self.counted.max(ended);
        self.bytes += bytes;
        let is_enough = self.bytes >= SAMPLE_BYTES || self.busy_us >= SAMPLE_US;
        if !is_enough || self.bytes < MIN_SAMPLE_BYTES {
            return false;
        }
        let us_per_mib = self.busy_us as f64 * MIB / self.bytes as f64;
        let is_known = self.measured > 0 && ended.saturating_sub(self.measured) <= KNOWN_FOR_US;
        let share = if is_known { NEW_SHARE } else { 1.0 };
        self.us_per_mib += (us_per_mib - self.us_per_mib) * share;
        (self.measured, self.busy_us, self.bytes) = (ended.max(1), 0, 0);
        true
    }
}

/// The links to all targets that mirrored files were read from.
#[derive(Debug, Default)]
pub struct Links {
    of: BTreeMap<TargetId, Link>,
    best_us_per_mib: f64,
    /// Whether one link was slow at the last sample.
    is_one_slow: bool,
}

impl Links {
    /// Adds bytes that arrived from a target from `began` to `ended`.
    pub fn came(&mut self, target: TargetId, bytes: u64, (began, ended): (Micros, Micros)) {
        if self.of.entry(target).or_default().came(bytes, began, ended) {
            self.compare(ended);
        }
    }

    fn compare(&mut self, now: Micros) {
        let within = |age: Micros| {
            let is_new = move |link: &&Link| now.saturating_sub(link.measured) <= age;
            self.of.values().filter(|link| link.measured > 0).filter(is_new)
        };
        let best = within(BEST_FOR_US).map(|link| link.us_per_mib).min_by(f64::total_cmp);
        let best = best.unwrap_or_default();
        let slow = (best * SLOW).clamp(QUICK_US_PER_MIB, SLOW_US_PER_MIB);
        self.is_one_slow = within(KNOWN_FOR_US).any(|link| link.us_per_mib > slow);
        self.best_us_per_mib = best;
    }

    /// Time per MiB from a target; 0 if its link does not count as slow. An unknown link counts as
    /// the best.
    pub fn us_per_mib(&self, target: TargetId, now: Micros) -> f64 {
        if !self.is_one_slow {
            return 0.0;
        }
        let is_known = |link: &&Link| now.saturating_sub(link.measured) <= KNOWN_FOR_US;
        let link = self.of.get(&target).filter(|link| link.measured > 0).filter(is_known);
        link.map_or(self.best_us_per_mib, |link| link.us_per_mib)
    }

    /// Removes targets that have left the cluster.
    pub fn retain(&mut self, is_there: impl Fn(TargetId) -> bool) {
        self.of.retain(|target, _| is_there(*target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TargetId = TargetId(1);
    const B: TargetId = TargetId(2);
    const BYTES: u64 = 1 << 20;

    /// From `began` on, a MiB after the other takes so long.
    fn reads(links: &mut Links, target: TargetId, began: Micros, us_per_mib: Micros) -> Micros {
        (0..8).fold(began, |at, _| {
            links.came(target, BYTES, (at, at + us_per_mib));
            at + us_per_mib
        })
    }

    #[test]
    fn a_link_that_is_far_slower_than_the_best_is_known_to_be() {
        let mut links = Links::default();
        let now = reads(&mut links, A, 1_000, 2_500);
        assert_eq!(links.us_per_mib(A, now), 0.0, "there is none to compare it with");
        let now = reads(&mut links, B, now, 3_000);
        assert_eq!((links.us_per_mib(A, now), links.us_per_mib(B, now)), (0.0, 0.0));
        let now = reads(&mut links, B, now, 5_500);
        let is_about = |us: f64, wanted: f64| (us / wanted - 1.0).abs() < 0.1;
        assert!(is_about(links.us_per_mib(B, now), 5_500.0));
        assert!(is_about(links.us_per_mib(A, now), 2_500.0));
        // Somebody has to try whether it still is.
        assert!(is_about(links.us_per_mib(B, now + KNOWN_FOR_US + 1), 2_500.0));
        let now = reads(&mut links, B, now + KNOWN_FOR_US, 2_500);
        assert_eq!(links.us_per_mib(B, now), 0.0);
    }

    #[test]
    fn links_that_no_processor_makes_so_slow_count_even_if_all_are() {
        let mut links = Links::default();
        let now = reads(&mut links, A, 1_000, 9_000);
        assert!(links.us_per_mib(A, now) > 8_000.0);
        assert_eq!(links.us_per_mib(A, now), links.us_per_mib(B, now), "as far as anybody knows");
    }

    #[test]
    fn links_that_are_quick_are_all_alike() {
        let mut links = Links::default();
        let now = reads(&mut links, A, 1_000, 300);
        let now = reads(&mut links, B, now, 1_500);
        assert_eq!(links.us_per_mib(B, now), 0.0, "as a busy processor does it");
    }

    #[test]
    fn what_several_connections_bring_at_once_is_one_link() {
        let mut links = Links::default();
        let now = reads(&mut links, A, 1_000, 2_000);
        for n in 0..8 {
            let at = now + n * 4_000;
            (0..4).for_each(|_| links.came(B, BYTES / 4, (at, at + 4_000)));
        }
        let us = links.us_per_mib(B, now + 32_000);
        assert!((3_900.0..4_100.0).contains(&us), "{us}");
    }

    #[test]
    fn a_few_bytes_that_come_late_say_nothing() {
        let mut links = Links::default();
        let now = reads(&mut links, A, 1_000, 2_000);
        links.came(B, 1_000, (now, now + 1_000_000));
        assert_eq!(links.us_per_mib(B, now + 1_000_000), 0.0);
        links.retain(|target| target == A);
        assert_eq!(links.of.len(), 1);
    }
}
