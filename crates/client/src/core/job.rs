//! A process of a job, and how far it has come with a file.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_policy::{Partition, Progress};
use weir_types::{JobId, Rank};
use weir_wire::Header;

/// A process of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The job.
    pub job: JobId,
    /// Rank of the process.
    pub rank: Rank,
    /// Number of processes, at least 1.
    pub ranks: u32,
    /// Whether each process reads its share of a file.
    pub shared: bool,
}

/// Progress of a process of a job in one open file. Bytes are counted as they arrive, so that it
/// can also be reported between requests.
#[derive(Debug)]
pub struct JobReader {
    member: Member,
    ranges: Option<Arc<Partition>>,
    work_bytes: AtomicU64,
    done_bytes: AtomicU64,
    /// Arrived bytes of reads that have not ended.
    coming_bytes: AtomicU64,
}

impl JobReader {
    /// A reader of all of the file, or of its share, without progress.
    pub fn new(member: Member) -> Self {
        Self::of_ranges(member, None)
    }

    /// A reader of these ranges, without progress.
    pub fn of_ranges(member: Member, ranges: Option<Arc<Partition>>) -> Self {
        let [work_bytes, done_bytes, coming_bytes] = [0; 3].map(AtomicU64::new);
        Self { member, ranges, work_bytes, done_bytes, coming_bytes }
    }

    /// The process of the job.
    pub fn member(&self) -> Member {
        self.member
    }

    /// Counts bytes that were read. Bytes outside of its ranges do not count.
    pub fn has_read(&self, bytes: Range<u64>) {
        self.done_bytes.fetch_add(self.counted(bytes), Relaxed);
    }

    fn counted(&self, bytes: Range<u64>) -> u64 {
        match &self.ranges {
            Some(ranges) => ranges.overlap(bytes),
            None => bytes.end.saturating_sub(bytes.start),
        }
    }

    /// Counts bytes of an unfinished read. Returns how many count, for [`JobReader::ends`].
    pub(crate) fn comes(&self, bytes: Range<u64>) -> u64 {
        let counted = self.counted(bytes);
        self.coming_bytes.fetch_add(counted, Relaxed);
        counted
    }

    /// Ends a read of which `bytes` were counted by [`JobReader::comes`].
    pub(crate) fn ends(&self, bytes: u64) {
        self.coming_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Sets the size of the file that it reads, or reads its share of.
    pub fn reads(&self, file_bytes: u64) {
        let work_bytes = match &self.ranges {
            Some(ranges) => ranges.overlap(0..file_bytes),
            None if self.member.shared => file_bytes.div_ceil(self.member.ranks.into()),
            None => file_bytes,
        };
        self.work_bytes.store(work_bytes, Relaxed);
    }

    /// Progress; `None` if the amount of work is unknown.
    pub fn progress(&self) -> Option<Progress> {
        let work_bytes = self.work_bytes.load(Relaxed);
        let done_bytes = self.done_bytes.load(Relaxed) + self.coming_bytes.load(Relaxed);
        let done_bytes = done_bytes.min(work_bytes);
        (work_bytes > 0).then_some(Progress { done_bytes, work_bytes })
    }

    /// Sets the job fields of a request.
    pub(crate) fn sign(&self, request: &mut Header) {
        request.job = self.member.job;
        request.rank = self.member.rank;
        if let Some(progress) = self.progress() {
            let all = f64::from(u32::MAX);
            request.progress = (progress.share() * all) as u32;
            let mib = progress.work_bytes.div_ceil(1 << 20).clamp(1, u32::MAX.into());
            request.work = mib as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_of_a_read_counts_once_before_and_after_its_end() {
        let member = Member { job: JobId(1), rank: Rank(0), ranks: 2, shared: false };
        let ranges = Arc::new(Partition::new([100..200, 200..300]));
        let reader = JobReader::of_ranges(member, Some(ranges));
        reader.reads(1_000);
        let done = || reader.progress().unwrap().done_bytes;
        let came = reader.comes(0..150) + reader.comes(250..400);
        assert_eq!((came, done()), (100, 100), "of its own part");
        reader.ends(came);
        reader.has_read(0..400);
        assert_eq!(done(), 200);
    }
}
