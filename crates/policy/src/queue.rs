//! The queue of one disk: which request the disk serves next.
//!
//! Among jobs it is the one that has received the fewest bytes. Within a job it is the reader that
//! is furthest behind (1.08), as the server counts it. Within a reader requests go by ascending
//! offset (2.L3). A reader keeps the disk for a run of some megabytes while it has requests, so
//! that two readers of one disk do not make it seek all the time (1.23). No request waits for
//! longer than a limit.

use crate::Progress;
use std::collections::BTreeMap;

/// A time in microseconds, on any monotonic clock.
pub type Micros = u64;

/// Key of a job. A session without a job counts as a job of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey(pub u64);

/// Key of one reader (or writer) of a job: a rank and the object that it uses. So the requests of a
/// stream lie on the disk in the order of their offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub u64);

/// A request for the disk.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The job.
    pub job: JobKey,
    /// The stream of that job.
    pub stream: StreamKey,
    /// Progress of the stream's reader, if it is known.
    pub progress: Option<Progress>,
    /// Offset in the stream's object, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub len_bytes: u32,
}

/// Limits of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most requests in the queue.
    pub requests: usize,
    /// Bytes that a stream is served before another stream is chosen. Fewer at the beginning and at
    /// the end of its reader's work ([`run_bytes`]).
    pub run_bytes: u64,
    /// A request that has waited for longer is served before all others.
    pub longest_wait: Micros,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 4096, run_bytes: 1 << 20, longest_wait: 2_000_000 }
    }
}

/// A stream that is behind the present one by this share of the work does not wait for the end of
/// the present run.
pub const FAR_BEHIND: f64 = 0.03;
/// A stream that is far behind waits only until the present run has this many bytes, so that the
/// disk does not seek for each small request.
const SHORT_RUN_BYTES: u64 = 1 << 20;

/// Length of a run, or of a reader's read-ahead, for a reader with this progress. It is short at
/// the beginning, while it is unknown which disks are slow, and towards the end, so that no reader
/// waits there for requests that one disk has begun.
pub fn run_bytes(longest: u64, progress: Option<Progress>) -> u64 {
    const SHARE_OF_REST: u64 = 16;
    const SHARE_OF_DONE: u64 = 4;
    const SHORTEST: u64 = 128 << 10;
    let Some(progress) = progress else { return longest };
    let begun = progress.done_bytes / SHARE_OF_DONE;
    begun.min(progress.left_bytes() / SHARE_OF_REST).max(SHORTEST).min(longest)
}

/// Handle of one request in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The queue is full. The request is returned to the caller.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// The requests of one disk.
#[derive(Debug)]
pub struct DiskQueue<T> {
    limits: Limits,
    jobs: BTreeMap<JobKey, Job<T>>,
    /// Where each request is, in order of arrival.
    waiting: BTreeMap<Ticket, Place>,
    number: u64,
    run: Option<Run>,
    /// Bytes that the job served last had received. A new job starts with this count.
    level: u64,
}

#[derive(Debug)]
struct Job<T> {
    had_bytes: u64,
    streams: BTreeMap<StreamKey, Stream<T>>,
}

#[derive(Debug)]
struct Stream<T> {
    progress: Option<Progress>,
    /// Requests by offset, then in order of arrival.
    requests: BTreeMap<(u64, Ticket), Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    since: Micros,
    len_bytes: u32,
    what: T,
}

type Place = (JobKey, StreamKey, (u64, Ticket));

#[derive(Debug)]
struct Run {
    job: JobKey,
    stream: StreamKey,
    had_bytes: u64,
    /// Offset at which the last request ended.
    at: u64,
}

impl<T> DiskQueue<T> {
    /// Makes an empty queue.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            jobs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            number: 0,
            run: None,
            level: 0,
        }
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`Full`]: the sender has to wait.
    pub fn push(&mut self, now: Micros, request: Request, what: T) -> Result<Ticket, Full<T>> {
        if self.waiting.len() >= self.limits.requests {
            return Err(Full(what));
        }
        self.number += 1;
        let level = self.level;
        let job = self
            .jobs
            .entry(request.job)
            .or_insert_with(|| Job { had_bytes: level, streams: BTreeMap::new() });
        let stream = job
            .streams
            .entry(request.stream)
            .or_insert_with(|| Stream { progress: None, requests: BTreeMap::new() });
        stream.progress = request.progress.or(stream.progress);
        let ticket = Ticket(self.number);
        let at = (request.offset, ticket);
        let waiting = Waiting { since: now, len_bytes: request.len_bytes, what };
        stream.requests.insert(at, waiting);
        self.waiting.insert(ticket, (request.job, request.stream, at));
        Ok(ticket)
    }

    /// Removes a request that the disk has not begun.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        let place = *self.waiting.get(&ticket)?;
        Some(self.remove(place).what)
    }

    /// Updates the progress of a reader that another server has served.
    pub fn tell(&mut self, job: JobKey, stream: StreamKey, progress: Progress) {
        let stream = self.jobs.get_mut(&job).and_then(|job| job.streams.get_mut(&stream));
        if let Some(stream) = stream {
            stream.progress = Some(progress);
        }
    }

    /// Removes the request that the disk serves next, and returns it.
    pub fn pop(&mut self, now: Micros) -> Option<T> {
        let place = self.overdue(now).or_else(|| self.next_of_run()).or_else(|| self.next_run())?;
        Some(self.serve(place).what)
    }

    fn overdue(&self, now: Micros) -> Option<Place> {
        let (_, &(job, stream, at)) = self.waiting.first_key_value()?;
        let since = self.jobs.get(&job)?.streams.get(&stream)?.requests.get(&at)?.since;
        (now.saturating_sub(since) > self.limits.longest_wait).then_some((job, stream, at))
    }

    fn next_of_run(&self) -> Option<Place> {
        let run = self.run.as_ref()?;
        let streams = &self.jobs.get(&run.job)?.streams;
        let Stream { progress, requests } = streams.get(&run.stream)?;
        let is_far_behind = |other: &Stream<T>| {
            progress
                .zip(other.progress)
                .is_some_and(|(own, other)| own.ahead_of(other) > FAR_BEHIND)
        };
        let has_had = |longest| run.had_bytes >= run_bytes(longest, *progress);
        let longest = self.limits.run_bytes;
        // All streams are compared only where it can make a difference.
        let is_short = has_had(longest.min(SHORT_RUN_BYTES));
        if has_had(longest) || (is_short && streams.values().any(is_far_behind)) {
            return None;
        }
        let ahead = requests.range((run.at, Ticket(0))..).next();
        let (at, _) = ahead.or_else(|| requests.first_key_value())?;
        Some((run.job, run.stream, *at))
    }

    fn next_run(&self) -> Option<Place> {
        let (job, state) = self.jobs.iter().min_by_key(|(_, job)| job.had_bytes)?;
        // A stream without known progress has no readers that wait for it, and is served in turn.
        let first = |stream: &Stream<T>| {
            stream.requests.values().map(|r| r.since).min().unwrap_or(Micros::MAX)
        };
        let (key, stream) = state.streams.iter().min_by(|(_, a), (_, b)| {
            let behind = match (a.progress, b.progress) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => std::cmp::Ordering::Equal,
            };
            behind.then_with(|| first(a).cmp(&first(b)))
        })?;
        let (at, _) = stream.requests.first_key_value()?;
        Some((*job, *key, *at))
    }

    /// Removes a request and counts it for its job and for the present run.
    fn serve(&mut self, place: Place) -> Waiting<T> {
        let (job_key, stream_key, (offset, _)) = place;
        let progress = self.progress(job_key, stream_key);
        if let Some(job) = self.jobs.get_mut(&job_key) {
            self.level = self.level.max(job.had_bytes);
        }
        let waiting = self.remove(place);
        let len = u64::from(waiting.len_bytes);
        if let Some(job) = self.jobs.get_mut(&job_key) {
            job.had_bytes += len;
        }
        let had_bytes = match &self.run {
            // A new run of the same stream begins if no other stream was chosen.
            Some(run) if (run.job, run.stream) == (job_key, stream_key) => {
                let is_over = run.had_bytes >= run_bytes(self.limits.run_bytes, progress);
                if is_over { len } else { run.had_bytes + len }
            }
            _ => len,
        };
        self.run = Some(Run { job: job_key, stream: stream_key, had_bytes, at: offset + len });
        waiting
    }

    fn progress(&self, job: JobKey, stream: StreamKey) -> Option<Progress> {
        self.jobs.get(&job)?.streams.get(&stream)?.progress
    }

    /// Removes the request at a place, which must exist.
    fn remove(&mut self, (job_key, stream_key, at): Place) -> Waiting<T> {
        let job = self.jobs.get_mut(&job_key).expect("a job of the queue");
        let stream = job.streams.get_mut(&stream_key).expect("a stream of the queue");
        let waiting = stream.requests.remove(&at).expect("a request of the queue");
        if stream.requests.is_empty() {
            job.streams.remove(&stream_key);
        }
        if job.streams.is_empty() {
            self.jobs.remove(&job_key);
        }
        self.waiting.remove(&at.1);
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u32 = 1 << 10;

    fn request(job: u64, stream: u64, done: u64, offset: u64, len_bytes: u32) -> Request {
        let progress = Some(Progress { done_bytes: done, work_bytes: 100 });
        Request { job: JobKey(job), stream: StreamKey(stream), progress, offset, len_bytes }
    }

    fn queue(run_bytes: u64, longest_wait: Micros) -> DiskQueue<usize> {
        DiskQueue::new(Limits { requests: 1000, run_bytes, longest_wait })
    }

    #[test]
    fn who_is_furthest_behind_is_first_and_keeps_the_disk_for_a_run() {
        let mut queue = queue(128 << 10, Micros::MAX);
        for n in 0..4 {
            let offset = n as u64 * 65_536;
            queue.push(0, request(1, 7, 60, offset, 64 * KIB), n).unwrap();
            queue.push(0, request(1, 8, 20, offset, 64 * KIB), 10 + n).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(0)).collect();
        assert_eq!(order, [10, 11, 12, 13, 0, 1, 2, 3], "20 % stays behind 60 %");
    }

    #[test]
    fn who_is_far_behind_does_not_wait_for_the_end_of_a_run() {
        const MIB: u32 = 1 << 20;
        let order = |behind: u64| {
            let mut queue = queue(8 << 20, Micros::MAX);
            let push = |queue: &mut DiskQueue<usize>, stream, done, n: usize| {
                let offset = n as u64 * u64::from(MIB);
                queue
                    .push(
                        0,
                        Request {
                            progress: Some(Progress {
                                done_bytes: done << 30,
                                work_bytes: 100 << 30,
                            }),
                            ..request(1, stream, 0, offset, MIB)
                        },
                        n,
                    )
                    .unwrap();
            };
            (0..4).for_each(|n| push(&mut queue, 7, 60, n));
            let begun = queue.pop(0);
            push(&mut queue, 8, 60 - behind, 10);
            begun.into_iter().chain(std::iter::from_fn(|| queue.pop(0))).collect::<Vec<_>>()
        };
        assert_eq!(order(2), [0, 1, 2, 3, 10]);
        assert_eq!(order(5), [0, 10, 1, 2, 3]);
    }

    #[test]
    fn news_of_progress_made_elsewhere_count_when_the_run_is_over() {
        let mut queue = queue(128 << 10, Micros::MAX);
        for n in 0..4 {
            let offset = n as u64 * 65_536;
            queue.push(0, request(1, 7, 60, offset, 64 * KIB), n).unwrap();
            queue.push(0, request(1, 8, 20, offset, 64 * KIB), 10 + n).unwrap();
        }
        assert_eq!(queue.pop(0), Some(10));
        queue.tell(JobKey(1), StreamKey(8), Progress { done_bytes: 62, work_bytes: 100 });
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(0)).collect();
        assert_eq!(order, [11, 0, 1, 2, 3, 12, 13]);
    }

    #[test]
    fn jobs_have_the_same_bytes_whatever_the_size_and_number_of_their_requests() {
        let mut queue = queue(64 << 10, Micros::MAX);
        for n in 0..200 {
            queue.push(0, request(1, n, 0, 0, 64 * KIB), 1).unwrap();
            queue.push(0, request(2, 5, 99, n, 16 * KIB), 2).unwrap();
        }
        let first: Vec<_> = (0..100).filter_map(|_| queue.pop(0)).collect();
        let ones = first.iter().filter(|job| **job == 1).count() as i64;
        assert!((ones * 4 - (100 - ones)).abs() <= 8, "{ones} of 64 KiB");
    }

    #[test]
    fn a_job_that_comes_later_gets_no_credit_for_the_time_it_was_away() {
        let mut queue = queue(1, Micros::MAX);
        for n in 0..100 {
            queue.push(0, request(1, 1, 0, n, KIB), 1).unwrap();
        }
        (0..50).for_each(|_| assert_eq!(queue.pop(0), Some(1)));
        for n in 0..10 {
            queue.push(0, request(2, 2, 0, n, KIB), 2).unwrap();
        }
        let next: Vec<_> = (0..10).filter_map(|_| queue.pop(0)).collect();
        assert!(next.iter().filter(|job| **job == 2).count() <= 6, "{next:?}");
    }

    #[test]
    fn what_is_too_much_is_handed_back() {
        let mut queue = DiskQueue::new(Limits { requests: 2, ..Limits::default() });
        queue.push(0, request(1, 1, 0, 0, 1), 'a').unwrap();
        queue.push(0, request(1, 1, 0, 0, 1), 'b').unwrap();
        assert_eq!(queue.push(0, request(1, 1, 0, 0, 1), 'c'), Err(Full('c')));
        assert_eq!((queue.pop(0), queue.pop(0), queue.pop(0)), (Some('a'), Some('b'), None));
    }

    #[test]
    fn what_is_taken_back_is_not_served() {
        let mut queue = queue(1, Micros::MAX);
        let [a, b] = [0, 1].map(|n| queue.push(0, request(1, 1, 0, n, KIB), n as usize).unwrap());
        assert_eq!(queue.cancel(a), Some(0));
        assert_eq!(queue.cancel(a), None);
        assert_eq!(queue.pop(0), Some(1));
        assert_eq!((queue.cancel(b), queue.len()), (None, 0));
    }

    proptest! {
        #[test]
        fn everything_comes_out_once_and_nobody_waits_beyond_the_limit(
            steps in prop::collection::vec((0u64..3, 0u64..4, 0u64..100, 0u64..8, 1u32..200, any::<bool>()), 1..300),
        ) {
            const LONGEST: Micros = 40;
            let mut queue = queue(300, LONGEST);
            let (mut since, mut popped) = (Vec::new(), Vec::new());
            let mut now = 0;
            for (job, stream, done, offset, len, pops) in steps {
                now += 1;
                let number = since.len();
                queue.push(now, request(job, stream, done, offset, len), number).unwrap();
                since.push(now);
                if pops || queue.len() > 20 {
                    popped.extend(queue.pop(now));
                }
            }
            while let Some(number) = queue.pop(now) {
                popped.push(number);
                now += 1;
                // Requests are served one at a time, so overdue ones wait for each other.
                prop_assert!(now - since[number] <= LONGEST + since.len() as u64);
            }
            prop_assert!(queue.is_empty());
            popped.sort_unstable();
            prop_assert_eq!(popped, (0..since.len()).collect::<Vec<_>>());
        }

        #[test]
        fn the_oldest_that_is_overdue_comes_first(
            requests in prop::collection::vec((0u64..3, 0u64..4, 0u64..100, 0u64..8, 1u32..200), 1..50),
        ) {
            let mut queue = queue(300, 10);
            for (n, (job, stream, done, offset, len)) in requests.iter().enumerate() {
                queue.push(n as u64, request(*job, *stream, *done, *offset, *len), n).unwrap();
            }
            let late = requests.len() as u64 + 11;
            for n in 0..requests.len() {
                prop_assert_eq!(queue.pop(late), Some(n));
            }
        }
    }
}
