//! The load of a target and its readers, and its report in replies.

use super::readers::{Asks, Readers};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use weir_host::sync::Mutex;
use weir_policy::{JobKey, Progress, StreamKey};
use weir_types::{JobId, ObjectId, Rank, SessionId};
use weir_wire::{Header, Op};

/// Load of a target; shared by all machines of a server.
#[derive(Debug, Default)]
pub struct Load {
    /// Requests in progress.
    pub in_flight: AtomicU32,
    /// Requests that wait for the disk.
    pub queued: AtomicU32,
    /// Time per MiB of reads, microseconds; 0 before the first read.
    pub us_per_mib: AtomicU32,
    /// Bytes read since the server started.
    pub read_bytes: AtomicU64,
    /// Bytes written since the server started.
    pub written_bytes: AtomicU64,
    /// Processes of jobs with first copies here.
    pub readers: Mutex<Readers>,
}

impl Load {
    /// Counts requested bytes, of first copies or of others, and whether the requester is near.
    /// Returns whether it has reported its progress in a job.
    pub(super) fn is_read(
        &self,
        request: &Header,
        (first, bytes, near): (bool, u64, bool),
        now_unix_ms: u64,
    ) -> bool {
        if request.job == JobId(0) {
            return false;
        }
        let Header { job, rank, progress, work: work_mib, .. } = *request;
        let asks = Asks { progress, work_mib, first, bytes, near };
        self.readers.lock().at(now_unix_ms).heard((job, rank), asks);
        work_mib > 0
    }

    /// Writes the load into the reply to a request.
    pub(super) fn say(&self, request: &Header, reply: &mut Header) {
        reply.in_flight = self.in_flight.load(Relaxed).min(u16::MAX.into()) as u16;
        reply.queue_depth = self.queued.load(Relaxed).min(u16::MAX.into()) as u16;
        reply.progress = self.us_per_mib.load(Relaxed);
        if matches!(request.op, Op::Read | Op::Load) && request.job != JobId(0) {
            let behind = self.readers.lock().furthest_behind((request.job, request.rank));
            // Who has done nothing yet is there all the same.
            reply.work = behind.map_or(0, |progress| progress.max(1));
        }
    }
}

/// The requester of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its job. A session outside of jobs is a job of its own.
    pub job: JobKey,
    /// Rank of the process in the job.
    pub rank: Rank,
    /// Progress of the process, if it has reported that.
    pub progress: Option<Progress>,
}

impl Asker {
    pub(super) fn of(session: SessionId, header: &Header) -> Self {
        let job = match header.job {
            JobId(0) => JobKey(!session.0),
            job => JobKey(job.0),
        };
        Self { job, rank: header.rank, progress: progress(header) }
    }

    /// Its stream for an object.
    pub fn stream(&self, object: ObjectId) -> StreamKey {
        let parts = [
            object.file.0,
            u64::from(object.segment.0),
            u64::from(object.column.0),
            u64::from(self.rank.0),
        ];
        // Equal keys of two would only make them take turns as one does.
        let mix = |key: u64, part: u64| (key ^ part).wrapping_mul(MIX).rotate_left(29);
        StreamKey(parts.into_iter().fold(0, mix))
    }
}

/// An odd number with random-looking bits.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Progress of the process that has sent a request.
fn progress(header: &Header) -> Option<Progress> {
    let work_bytes = u64::from(header.work) << 20;
    let done = (u128::from(work_bytes) * u128::from(header.progress)) >> 32;
    (work_bytes > 0).then_some(Progress { done_bytes: done as u64, work_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, RequestId, SegmentIndex};

    fn header(rank: u32, progress: u32, work: u32) -> Header {
        let header = Header::request(Op::Read, RequestId(1));
        Header { job: JobId(9), rank: Rank(rank), progress, work, ..header }
    }

    #[test]
    fn a_reply_says_how_far_the_others_are_that_have_their_first_copies_here() {
        let load = Load::default();
        let (one, two) = (header(1, 1 << 30, 100), header(2, 1 << 31, 100));
        load.is_read(&one, (true, 0, false), 0);
        load.is_read(&two, (false, 0, false), 0);
        let said = |request: &Header| {
            let mut reply = Header::reply_to(request, None);
            load.say(request, &mut reply);
            reply.work
        };
        assert_eq!((said(&one), said(&two)), (0, 1 << 30));
        load.is_read(&header(1, 0, 100), (true, 0, false), 0);
        assert_eq!(said(&two), 1, "it has only begun");
        load.is_read(&one, (true, 0, false), 0);
        let nobodys = Header { job: JobId(0), ..two };
        assert_eq!(said(&nobodys), 0);
        // Who does not know what it has to do is waited for by nobody.
        load.is_read(&header(3, 0, 0), (true, 0, false), 0);
        assert_eq!(said(&two), 1 << 30);
    }

    #[test]
    fn jobs_share_a_disk_and_sessions_without_one_are_jobs() {
        let of = |session, job| {
            let header = Header { job: JobId(job), ..header(1, 1 << 31, 8) };
            Asker::of(SessionId(session), &header)
        };
        assert_eq!(of(1, 9).job, of(2, 9).job);
        assert_ne!(of(1, 0).job, of(2, 0).job);
        let half = of(1, 9).progress.unwrap();
        assert_eq!((half.done_bytes, half.work_bytes), (4 << 20, 8 << 20));
        assert_eq!(Asker::of(SessionId(1), &header(1, 5, 0)).progress, None);
        let object = |column| ObjectId {
            file: FileId(1),
            segment: SegmentIndex(0),
            column: ColumnIndex(column),
            copy: CopyIndex(0),
        };
        assert_ne!(of(1, 9).stream(object(0)), of(1, 9).stream(object(1)));
    }
}
