//! Progress of the processes of jobs that read from one target, and of the slowest one with first
//! copies there. A reader of another copy leaves the disk to processes that are behind it (1.21 of
//! graduated declustering, carried by replies).
//!
//! Invariant: memory is bounded, and each operation costs the same however many processes there
//! are.

use std::collections::{BTreeMap, BTreeSet};
use weir_types::{JobId, Rank};
use weir_wire::data::{ReaderEntry, ReadersPage};

/// A process that has not read first copies here for this long, nor announced it, reads elsewhere:
/// it would announce it every 20 ms.
const STALE_MS: u64 = 500;
/// The most jobs of one target. A job is replaced by another when it has stopped reading, first one
/// without known work; and one without known work also by one that has some. No progress is reported
/// for further jobs.
const MAX_JOBS: usize = 32;
/// The most processes of each job. The one that was heard longest ago is replaced by another when it
/// has stopped reading. No progress is reported for further processes.
const MAX_RANKS: usize = 16_384;

/// The readers of one target.
#[derive(Debug, Default)]
pub struct Readers {
    jobs: BTreeMap<JobId, Job>,
    now_ms: u64,
}

#[derive(Debug, Default)]
struct Job {
    heard_ms: u64,
    /// Whether any process of it has known work.
    has_work: bool,
    /// Requests so far.
    requests: u64,
    ranks: BTreeMap<Rank, Heard>,
    /// All processes, by the number of their last request.
    by_request: BTreeSet<(u64, Rank)>,
    /// Processes that read first copies here now, by progress.
    order: BTreeSet<(u32, Rank)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    progress: u32,
    work_mib: u32,
    at_ms: u64,
    /// The number of its last request within the job.
    request: u64,
    /// Time of its last request for first copies.
    first_ms: Option<u64>,
    first_bytes: u64,
    other_bytes: u64,
    near_bytes: u64,
}

impl Job {
    /// Forgets the process that was heard longest ago. Returns whether it has stopped reading.
    fn make_room(&mut self, now_ms: u64) -> bool {
        let Some((request, rank)) = self.by_request.first().copied() else { return false };
        let Some(heard) = self.ranks.get(&rank).copied() else { return false };
        if now_ms.abs_diff(heard.at_ms) <= STALE_MS {
            return false;
        }
        self.by_request.remove(&(request, rank));
        self.order.remove(&(heard.progress, rank));
        self.ranks.remove(&rank).is_some()
    }
}

impl Heard {
    /// Whether it reads first copies. A process that reads other copies here may go on with first
    /// ones elsewhere.
    fn reads_first_copies(&self, now_ms: u64) -> bool {
        self.first_ms.is_some_and(|at| now_ms.saturating_sub(at) <= STALE_MS)
    }
}

/// A request of a process, or its announcement.
#[derive(Clone, Copy, Debug)]
pub struct Asks {
    /// Progress, in units of 1/2^32.
    pub progress: u32,
    /// Amount of work, MiB.
    pub work_mib: u32,
    /// Whether it is for first copies.
    pub first: bool,
    /// Number of bytes.
    pub bytes: u64,
    /// Whether it comes from the machine of the target.
    pub near: bool,
}

impl Readers {
    /// Sets the time, before any other call.
    pub fn at(&mut self, now_ms: u64) -> &mut Self {
        self.now_ms = now_ms;
        self
    }

    /// Records a request of a process of a job.
    pub fn heard(&mut self, (job, rank): (JobId, Rank), asks: Asks) {
        let now_ms = self.now_ms;
        if !self.jobs.contains_key(&job)
            && self.jobs.len() >= MAX_JOBS
            && !self.make_room(asks.work_mib > 0)
        {
            return;
        }
        let job = self.jobs.entry(job).or_default();
        if job.ranks.len() >= MAX_RANKS && !job.ranks.contains_key(&rank) && !job.make_room(now_ms)
        {
            return;
        }
        job.heard_ms = now_ms;
        job.has_work |= asks.work_mib > 0;
        let Asks { progress, work_mib, first, bytes, near } = asks;
        let heard = job.ranks.entry(rank).or_default();
        job.requests += 1;
        job.by_request.remove(&(heard.request, rank));
        job.by_request.insert((job.requests, rank));
        (heard.at_ms, heard.request) = (now_ms, job.requests);
        *(if first { &mut heard.first_bytes } else { &mut heard.other_bytes }) += bytes;
        heard.near_bytes += if near { bytes } else { 0 };
        if work_mib == 0 {
            // Nobody waits for who does not know what it has to do. But a process that has known work
            // may read other files too: what it has said of its progress stays.
            return;
        }
        let before = std::mem::replace(&mut heard.progress, progress);
        heard.work_mib = work_mib;
        job.order.remove(&(before, rank));
        if first {
            heard.first_ms = Some(now_ms);
        }
        if heard.reads_first_copies(now_ms) {
            job.order.insert((progress, rank));
        }
    }

    /// Forgets a job for one with or without known work. Returns whether there was one to forget.
    fn make_room(&mut self, has_work: bool) -> bool {
        let now_ms = self.now_ms;
        let may_go =
            |job: &Job| now_ms.abs_diff(job.heard_ms) > STALE_MS || (has_work && !job.has_work);
        let all = self.jobs.iter().filter(|(_, job)| may_go(job));
        let first = all.min_by_key(|(_, job)| (job.has_work, job.heard_ms));
        let Some(first) = first.map(|(id, _)| *id) else { return false };
        self.jobs.remove(&first).is_some()
    }

    /// Progress of the slowest other process of a job; `None` if there is no other.
    pub fn furthest_behind(&mut self, (job, rank): (JobId, Rank)) -> Option<u32> {
        let job = self.jobs.get_mut(&job)?;
        loop {
            let (progress, who) = *job.order.iter().find(|(_, who)| *who != rank)?;
            if job.ranks.get(&who)?.reads_first_copies(self.now_ms) {
                return Some(progress);
            }
            job.order.remove(&(progress, who));
        }
    }

    /// A page of at most `max` processes after `after`, by job and rank.
    pub fn page(&self, after: Option<(JobId, Rank)>, max: usize) -> ReadersPage {
        let (from, rank) = after.unwrap_or((JobId(0), Rank(0)));
        let ranks = self
            .jobs
            .range(from..)
            .flat_map(|(job, of)| of.ranks.iter().map(move |(rank, heard)| ((*job, *rank), heard)));
        let mut rest = ranks.filter(|(who, _)| after.is_none() || *who > (from, rank));
        let entry = |((job, rank), heard): ((JobId, Rank), &Heard)| ReaderEntry {
            job,
            rank,
            progress: heard.progress,
            work_mib: heard.work_mib,
            age_ms: self.now_ms.saturating_sub(heard.at_ms).min(u32::MAX.into()) as u32,
            first_bytes: heard.first_bytes,
            other_bytes: heard.other_bytes,
            near_bytes: heard.near_bytes,
        };
        let readers = rest.by_ref().take(max).map(entry).collect();
        ReadersPage { readers, end: rest.next().is_none() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(7);

    fn of(rank: u32) -> (JobId, Rank) {
        (JOB, Rank(rank))
    }

    fn first(progress: u32) -> Asks {
        Asks { progress, work_mib: 80, first: true, bytes: 10, near: false }
    }

    #[test]
    fn the_last_of_the_others_counts_while_it_reads() {
        let mut readers = Readers::default();
        assert_eq!(readers.at(0).furthest_behind(of(1)), None);
        readers.at(0).heard(of(1), first(10));
        assert_eq!(readers.at(0).furthest_behind(of(1)), None, "it is alone");
        readers.at(0).heard(of(2), first(30));
        readers.at(400).heard(of(3), first(20));
        assert_eq!(readers.at(400).furthest_behind(of(1)), Some(20));
        assert_eq!(readers.at(400).furthest_behind(of(9)), Some(10));
        readers.at(500).heard(of(3), first(40));
        assert_eq!(readers.at(500).furthest_behind(of(1)), Some(30));
        // The second has said nothing for too long.
        assert_eq!(readers.at(600).furthest_behind(of(1)), Some(40));
        assert_eq!(readers.at(600).furthest_behind((JobId(8), Rank(1))), None);
    }

    #[test]
    fn who_goes_on_with_first_copies_elsewhere_does_not_count_here() {
        let mut readers = Readers::default();
        let other = |progress| Asks { first: false, ..first(progress) };
        readers.at(0).heard(of(1), first(10));
        // Of a striped file it has first copies and others on the same target.
        readers.at(100).heard(of(1), other(11));
        assert_eq!(readers.at(100).furthest_behind(of(9)), Some(11));
        for n in 2..20 {
            readers.at(n * 100).heard(of(1), other(10 + n as u32));
        }
        assert_eq!(readers.at(1_900).furthest_behind(of(9)), None, "none but others' now");
        readers.at(2_000).heard(of(1), first(30));
        assert_eq!(readers.at(2_000).furthest_behind(of(9)), Some(30), "and back");
    }

    #[test]
    fn a_read_without_known_work_counts_and_changes_no_progress() {
        let mut readers = Readers::default();
        let aside = Asks { progress: 0, work_mib: 0, first: true, bytes: 5, near: true };
        readers.at(0).heard(of(1), first(10));
        readers.at(100).heard(of(1), aside);
        assert_eq!(readers.at(100).furthest_behind(of(9)), Some(10));
        let page = readers.page(None, 9);
        let entry = &page.readers[0];
        assert_eq!((entry.progress, entry.work_mib, entry.age_ms), (10, 80, 0));
        assert_eq!((entry.first_bytes, entry.near_bytes), (15, 5));
        // It alone does not keep the process among those that others wait for.
        readers.at(700).heard(of(1), aside);
        assert_eq!(readers.at(700).furthest_behind(of(9)), None);
        readers.at(700).heard(of(2), aside);
        assert_eq!(readers.at(700).furthest_behind(of(9)), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut readers = Readers::default();
        for n in 0..100 {
            readers.at(n).heard((JobId(n), Rank(0)), first(1));
        }
        assert_eq!(readers.jobs.len(), MAX_JOBS);
        assert!(
            readers.jobs.contains_key(&JobId(0)),
            "one that reads is not forgotten for another"
        );
        for n in 0..100 {
            readers.at(n * 1_000).heard((JobId(1_000 + n), Rank(0)), first(1));
        }
        assert_eq!(readers.jobs.len(), MAX_JOBS);
        assert!(readers.jobs.contains_key(&JobId(1_099)), "the oldest go");
        // The clock was set back: what was heard of them is of no use then.
        readers.at(50_000).heard((JobId(2_000), Rank(0)), first(1));
        assert!(readers.jobs.contains_key(&JobId(2_000)));
        for n in 0..MAX_RANKS as u32 + 10 {
            readers.at(200_000).heard(of(n), first(n));
            readers.at(200_000).heard(of(n), first(n + 1));
        }
        let job = &readers.jobs[&JOB];
        assert_eq!((job.ranks.len(), job.order.len()), (MAX_RANKS, MAX_RANKS));
        // All of them read but one, which is not the first by number.
        (0..MAX_RANKS as u32).filter(|n| *n != 5).for_each(|n| {
            readers.at(201_000).heard(of(n), first(n));
        });
        for n in [70_000, 70_001] {
            readers.at(201_000).heard(of(n), first(n));
        }
        let job = &readers.jobs[&JOB];
        assert_eq!((job.ranks.len(), job.by_request.len()), (MAX_RANKS, MAX_RANKS));
        assert_eq!(job.order.len(), MAX_RANKS);
        let has = |n| job.ranks.contains_key(&Rank(n));
        assert!(!has(5) && has(70_000) && !has(70_001), "the one that is silent goes");
    }

    #[test]
    fn jobs_without_known_work_go_first() {
        let mut readers = Readers::default();
        let aside = Asks { work_mib: 0, ..first(0) };
        for n in 0..MAX_JOBS as u64 {
            readers.at(n).heard((JobId(n), Rank(0)), if n % 2 == 0 { first(1) } else { aside });
        }
        let has = |readers: &Readers, n| readers.jobs.contains_key(&JobId(n));
        readers.at(100).heard((JobId(100), Rank(0)), aside);
        assert!(!has(&readers, 100), "all read");
        readers.at(100).heard((JobId(101), Rank(0)), first(1));
        assert!(has(&readers, 101) && !has(&readers, 1) && has(&readers, 0));
        // When all are silent, the oldest one without known work goes all the same.
        readers.at(5_000).heard((JobId(102), Rank(0)), aside);
        assert!(has(&readers, 102) && !has(&readers, 3) && has(&readers, 0));
    }

    #[test]
    fn all_that_read_here_are_listed_page_by_page() {
        let mut readers = Readers::default();
        let other = Asks { first: false, bytes: 7, ..first(5) };
        readers.at(1_000).heard(of(2), first(10));
        readers.at(1_500).heard(of(2), other);
        readers.at(1_500).heard(of(1), other);
        readers.at(1_500).heard((JobId(9), Rank(0)), first(1));
        assert_eq!(
            readers.at(1_500).furthest_behind(of(9)),
            Some(5),
            "the second alone has its first copy here"
        );
        let page = readers.at(2_000).page(None, 2);
        let seen: Vec<_> = page
            .readers
            .iter()
            .map(|r| (r.rank.0, r.age_ms, r.first_bytes, r.other_bytes))
            .collect();
        assert_eq!((seen, page.end), (vec![(1, 500, 0, 7), (2, 500, 10, 7)], false));
        let rest = readers.page(Some(of(2)), 2);
        assert_eq!((rest.readers.len(), rest.readers[0].job, rest.end), (1, JobId(9), true));
    }
}
