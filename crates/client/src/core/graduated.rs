//! The placement of the next chunk of a file whose chunks may go to any target (graduated writing,
//! 1.14): the target that is predicted to finish it first.
//!
//! A writer has about the same number of bytes outstanding all the time. If each writer puts its
//! chunks where they finish first, all disks reply after the same time, and all writers are equally
//! fast, however different the disks are.
//!
//! Invariant: nothing here grows with the number of writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_policy::Micros;
use weir_types::TargetId;

const MIB: f64 = 1_048_576.0;
/// Weight of the newest observation of other writers in the mean. (A writer that followed each
/// moment's queue would switch disks at the same time as all others.)
const OTHERS_SHARE: f64 = 0.25;
/// Number of replies of which the quickest gives the speed of the disk alone.
const ANSWERS: usize = 32;
/// Time per MiB before anything is measured: no target is known to be better than another.
const USUAL_US_PER_MIB: f64 = 20_000.0;

#[derive(Clone, Debug, Default)]
struct Target {
    /// Time that requests of other writers took before the last ones of this writer, microseconds.
    others_us: f64,
    /// Time per MiB of each of the last replies.
    us_per_mib: VecDeque<f64>,
}

impl Target {
    fn us_per_mib(&self) -> Option<f64> {
        self.us_per_mib.iter().copied().min_by(f64::total_cmp)
    }
}

/// A reply to a write.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Time until the reply, microseconds.
    pub took_us: Micros,
    /// Bytes of this writer that were outstanding there when it was sent, itself included.
    pub own_bytes: u64,
}

/// Measurements of a writer for the targets of one file.
#[derive(Debug, Default)]
pub struct Graduated {
    targets: BTreeMap<TargetId, Target>,
}

impl Graduated {
    /// Records a reply to a write.
    pub fn answered(&mut self, target: TargetId, answer: Answer) {
        let of = self.targets.entry(target).or_default();
        let (took_us, own_mib) = (answer.took_us as f64, answer.own_bytes.max(1) as f64 / MIB);
        if of.us_per_mib.len() == ANSWERS {
            of.us_per_mib.pop_front();
        }
        of.us_per_mib.push_back(took_us / own_mib);
        let own_us = of.us_per_mib().unwrap_or_default() * own_mib;
        of.others_us += ((took_us - own_us).max(0.0) - of.others_us) * OTHERS_SHARE;
    }

    /// For each known target, the time until it would finish another chunk, microseconds. `pending`
    /// are the bytes of this writer that it has not confirmed.
    pub fn waits(
        &self,
        chunk_bytes: u64,
        pending: &BTreeMap<TargetId, u64>,
    ) -> Vec<(TargetId, u64)> {
        let known = self.targets.values().filter_map(Target::us_per_mib);
        let best = known.min_by(f64::total_cmp).unwrap_or(USUAL_US_PER_MIB);
        let nothing = Target::default();
        let wait = |target: &TargetId| {
            let of = self.targets.get(target).unwrap_or(&nothing);
            let bytes = pending.get(target).copied().unwrap_or_default() + chunk_bytes;
            let own_us = of.us_per_mib().unwrap_or(best) * bytes as f64 / MIB;
            (*target, (own_us + of.others_us) as u64 + 1)
        };
        let all: BTreeSet<&TargetId> = self.targets.keys().chain(pending.keys()).collect();
        all.into_iter().map(wait).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 1 << 20;

    /// Writers with so many chunks outstanding, each on its disk and the next; each disk does
    /// what it has in the order in which it came. Returns the bytes that each writer has had done.
    fn race(us_per_mib: &[u64], outstanding: usize, seconds: u64) -> Vec<u64> {
        let disks = us_per_mib.len();
        let mut writers: Vec<Graduated> = (0..disks).map(|_| Graduated::default()).collect();
        let mut queues: Vec<Vec<(usize, u64, u64, u64)>> = vec![Vec::new(); disks];
        let (mut left, mut done) = (vec![outstanding; disks], vec![0; disks]);
        for now in (0..seconds * 1_000_000).step_by(1_000) {
            for writer in 0..disks {
                let at = [writer, (writer + 1) % disks];
                while left[writer] > 0 {
                    let mut pending = BTreeMap::new();
                    for disk in at {
                        let own = queues[disk].iter().filter(|(by, ..)| *by == writer).count();
                        pending.insert(TargetId(disk as u32), own as u64 * CHUNK);
                    }
                    let waits = writers[writer].waits(CHUNK, &pending);
                    let waits: BTreeMap<_, _> = waits.into_iter().collect();
                    let wait = |disk: &&usize| {
                        waits.get(&TargetId(**disk as u32)).copied().unwrap_or_default()
                    };
                    let disk = *at.iter().min_by_key(wait).unwrap();
                    left[writer] -= 1;
                    let own =
                        queues[disk].iter().filter(|(by, ..)| *by == writer).count() as u64 + 1;
                    queues[disk].push((writer, now, own * CHUNK, us_per_mib[disk]));
                }
            }
            for (disk, queue) in queues.iter_mut().enumerate() {
                let Some((.., us)) = queue.first_mut() else { continue };
                *us = us.saturating_sub(1_000);
                if *us > 0 {
                    continue;
                }
                let (writer, sent, own_bytes, _) = queue.remove(0);
                let answer = Answer { took_us: now + 1_000 - sent, own_bytes };
                writers[writer].answered(TargetId(disk as u32), answer);
                left[writer] += 1;
                done[writer] += CHUNK;
            }
        }
        done
    }

    #[test]
    fn writers_are_equally_fast_whichever_disks_are_slow() {
        for slow in [&[][..], &[0], &[0, 4], &[0, 1], &[0, 2, 4, 6]] {
            let speed = |disk| if slow.contains(&disk) { 100_000 } else { 50_000 };
            let disks: Vec<u64> = (0..8).map(speed).collect();
            let done = race(&disks, 8, 60);
            let all: u64 = disks.iter().map(|us| (60_000_000 / us) << 20).sum();
            let mean = all / 8;
            let slowest = *done.iter().min().unwrap();
            // Of two slow ones beside each other the reader of both has no third.
            let part = if slow == [0, 1] { 80 } else { 90 };
            assert!(slowest * 100 > mean * part, "{slow:?}: {done:?}, {mean} each");
        }
    }

    #[test]
    fn what_is_not_known_counts_as_no_worse_than_the_best() {
        let (mut writer, usual) = (Graduated::default(), USUAL_US_PER_MIB as u64);
        assert_eq!(writer.waits(CHUNK, &BTreeMap::new()), []);
        let (a, b) = (TargetId(1), TargetId(2));
        let pending = BTreeMap::from([(a, CHUNK)]);
        assert_eq!(writer.waits(CHUNK, &pending), [(a, 2 * usual + 1)]);
        writer.answered(b, Answer { took_us: 5_000, own_bytes: CHUNK });
        assert_eq!(writer.waits(CHUNK, &pending), [(a, 10_001), (b, 5_001)]);
        // Somebody else was before it.
        writer.answered(b, Answer { took_us: 9_000, own_bytes: CHUNK });
        assert_eq!(writer.waits(CHUNK, &pending), [(a, 10_001), (b, 6_001)]);
    }
}
