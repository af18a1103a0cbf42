//! How far the processes of jobs are that read their first copies from one target: who reads
//! another copy there leaves the disk to them while they are behind (1.21 of graduated
//! declustering, carried by replies).
//!
//! Invariant: what is remembered is bounded, and costs the same however many there are.

use std::collections::{BTreeMap, BTreeSet};
use weir_types::{JobId, Rank};

/// One that was not heard of for so long does not read now.
const STALE_MS: u64 = 5_000;
/// Jobs that are remembered of one target,
const MAX_JOBS: usize = 16;
/// and processes of each.
const MAX_RANKS: usize = 16_384;

/// Of one target.
#[derive(Debug, Default)]
pub struct Readers {
    jobs: BTreeMap<JobId, Job>,
    now_ms: u64,
}

#[derive(Debug, Default)]
struct Job {
    heard_ms: u64,
    ranks: BTreeMap<Rank, Heard>,
    /// The same, in the order of their progress.
    order: BTreeSet<(u32, Rank)>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    progress: u32,
    at_ms: u64,
}

impl Readers {
    /// The time, before anything else is told or asked.
    pub fn at(&mut self, now_ms: u64) -> &mut Self {
        self.now_ms = now_ms;
        self
    }

    /// A process reads its first copy here, and is so far (in 1/2^32).
    pub fn heard(&mut self, (job, rank): (JobId, Rank), progress: u32) {
        let now_ms = self.now_ms;
        if !self.jobs.contains_key(&job) && self.jobs.len() >= MAX_JOBS {
            let oldest = self.jobs.iter().min_by_key(|(_, job)| job.heard_ms);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.jobs.remove(&oldest);
            }
        }
        let job = self.jobs.entry(job).or_default();
        job.heard_ms = now_ms;
        if job.ranks.len() >= MAX_RANKS && !job.ranks.contains_key(&rank) {
            return;
        }
        let heard = Heard { progress, at_ms: now_ms };
        if let Some(before) = job.ranks.insert(rank, heard) {
            job.order.remove(&(before.progress, rank));
        }
        job.order.insert((progress, rank));
    }

    /// How far the one is that is furthest behind of the others of a job; `None`: there are none.
    pub fn furthest_behind(&mut self, (job, rank): (JobId, Rank)) -> Option<u32> {
        let job = self.jobs.get_mut(&job)?;
        loop {
            let (progress, who) = *job.order.iter().find(|(_, who)| *who != rank)?;
            let at_ms = job.ranks.get(&who)?.at_ms;
            if self.now_ms.saturating_sub(at_ms) <= STALE_MS {
                return Some(progress);
            }
            job.order.remove(&(progress, who));
            job.ranks.remove(&who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(7);

    fn of(rank: u32) -> (JobId, Rank) {
        (JOB, Rank(rank))
    }

    #[test]
    fn the_last_of_the_others_counts_while_it_reads() {
        let mut readers = Readers::default();
        assert_eq!(readers.at(0).furthest_behind(of(1)), None);
        readers.at(0).heard(of(1), 10);
        assert_eq!(readers.at(0).furthest_behind(of(1)), None, "it is alone");
        readers.at(0).heard(of(2), 30);
        readers.at(4_000).heard(of(3), 20);
        assert_eq!(readers.at(4_000).furthest_behind(of(1)), Some(20));
        assert_eq!(readers.at(4_000).furthest_behind(of(9)), Some(10));
        readers.at(5_000).heard(of(3), 40);
        assert_eq!(readers.at(5_000).furthest_behind(of(1)), Some(30));
        // The second has said nothing for too long.
        assert_eq!(readers.at(6_000).furthest_behind(of(1)), Some(40));
        assert_eq!(readers.at(6_000).furthest_behind((JobId(8), Rank(1))), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut readers = Readers::default();
        for n in 0..1_000 {
            readers.at(n).heard((JobId(n), Rank(0)), 1);
        }
        assert_eq!(readers.jobs.len(), MAX_JOBS);
        assert!(readers.jobs.contains_key(&JobId(999)), "the oldest go");
        for n in 0..MAX_RANKS as u32 + 10 {
            readers.at(1_000).heard(of(n), n);
            readers.at(1_000).heard(of(n), n + 1);
        }
        let job = &readers.jobs[&JOB];
        assert_eq!((job.ranks.len(), job.order.len()), (MAX_RANKS, MAX_RANKS));
    }
}
