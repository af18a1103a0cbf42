//! A target's disk: its queue, its health and speed, and the metadata server's orders for it.

pub(crate) mod at_work;
pub(crate) mod builds;
pub(crate) mod chores;
pub(crate) mod inspect;
mod meter;
mod notes;
mod perform;
mod pieces;
mod probe;
pub(crate) mod progress;
pub(crate) mod reads;
mod reserve;

use crate::machine::{Asker, Outcome, ReadWork, ServedTarget, Work};
use crate::queue::Admission;
use crate::queue::backlog::Backlog;
use crate::queue::lanes::{Lane, Lanes};
use crate::queue::tasks::{Data, Event, Job, Task};
use at_work::AtWork;
use builds::Builds;
use chores::Chores;
use meter::{Meter, OfDisk};
use perform::perform;
use probe::Probe;
use progress::Progress;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_host::clock;
use weir_host::device::Counts;
use weir_host::sync::Mutex;
use weir_metrics::Histogram;
use weir_net::ConnId;
use weir_policy::{Request, SOON_US};
use weir_store::{Pledge, ReadMode, Target};
use weir_types::{DiskId, Error, FsUsage, ObjectId, Result};
use weir_wire::targets::TargetWork;

/// Interval of attempts to reach a disk that hung.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// The last known space, or trouble, of a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    pub(crate) usage: FsUsage,
    pub(crate) trouble: String,
}

/// A target that could not be opened. Its requests are refused, and it is reported.
pub(crate) struct Unopened {
    pub(crate) served: Arc<ServedTarget>,
    pub(crate) dir: PathBuf,
}

/// Durations of disk operations.
#[derive(Debug, Default)]
pub(crate) struct DiskTimes {
    pub(crate) reads: Histogram,
    pub(crate) changes: Histogram,
}

/// One target with its queue.
pub(crate) struct Disk {
    pub(crate) store: Target,
    pub(crate) served: Arc<ServedTarget>,
    /// Disk of its directory.
    pub(crate) device: DiskId,
    backlog: Backlog<Task, Lanes<Task>>,
    health: Mutex<Health>,
    meter: Meter,
    /// Durations of its operations.
    pub(crate) times: DiskTimes,
    probe: Mutex<Probe>,
    /// Operations under way on it.
    pub(crate) at_work: AtWork,
    /// Time of the last sync that has checked whether the disk works, milliseconds on the clock of
    /// [`clock::since_boot`].
    answered_ms: AtomicU64,
    /// Progress of bringing other copies up to date from here.
    pub(crate) progress: Progress,
    /// Orders to compute objects.
    pub(crate) builds: Builds,
    /// Orders of the metadata server for it.
    pub(crate) chores: Chores,
}

impl Disk {
    pub(crate) fn new(
        store: Target,
        served: Arc<ServedTarget>,
        queue_limit: usize,
        probes: bool,
    ) -> Self {
        let probe = Mutex::new(if probes { Probe::default() } else { Probe::off() });
        let backlog = Backlog::new(queue_limit);
        let (health, meter, progress) = (Mutex::default(), Meter::default(), Progress::default());
        let (at_work, chores) = (AtWork::new(Counts::of(store.dir())), Chores::default());
        let answered_ms = AtomicU64::new(0);
        let disk = Self {
            device: store.disk(),
            store,
            served,
            backlog,
            health,
            meter,
            times: DiskTimes::default(),
            probe,
            at_work,
            answered_ms,
            progress,
            builds: Builds::default(),
            chores,
        };
        disk.check_health();
        disk
    }

    /// Logs whether anything was recovered (the store logs what).
    pub(crate) fn log_opening(&self) {
        let name = self.store.name();
        match self.store.recovery().unclean {
            true => tracing::info!("{name}: serves after recovery"),
            false => tracing::info!("{name}: serves; it had been closed, nothing to recover"),
        }
    }

    /// Adds a task. Returns `Full` if its connection must pause.
    pub(crate) fn submit(&self, task: Task, conn: ConnId) -> Admission {
        let resume = task.reply_to.clone();
        let lane = lane(&task);
        self.backlog.submit((lane, task), conn, resume, |depth| self.note_depth(depth))
    }

    /// Refuses waiting tasks that concern one of several copies, because the target was given up.
    pub(crate) fn refuse_copies(&self, error: &Error) {
        let of_copies = self.backlog.take_out(Task::is_of_copies, |task| (lane(&task), task));
        for Task { op, data, reply_to, .. } in of_copies {
            reply_to.post(Event::Done { op, result: Err(error.clone()), data });
        }
        self.note_depth(self.backlog.len());
    }

    /// Waits for a task. Returns `None` at the end, when nothing is left.
    pub(crate) fn next_task(&self) -> Option<Task> {
        self.backlog.next(|depth| self.note_depth(depth))
    }

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.backlog.stop();
        self.chores.stop();
    }

    /// Carries out an operation, however long the disk takes.
    pub(crate) fn perform(&self, work: Work, data: &mut Data) -> Result<Outcome> {
        let times = if work.only_reads() { &self.times.reads } else { &self.times.changes };
        let begun = clock::now();
        let done = self.perform_untimed(work, data);
        times.add(clock::elapsed(begun));
        done
    }

    fn perform_untimed(&self, work: Work, data: &mut Data) -> Result<Outcome> {
        match work {
            Work::Read(read) => {
                self.meter.asked(read.object, &read.pieces);
                let carry_out = || perform(&self.store, Work::Read(read), data);
                let said = &self.served.load.us_per_mib;
                self.at_work.on_read(|| self.meter.on(said, carry_out, read_bytes))
            }
            work if work.only_reads() => self.at_work.on_read(|| perform(&self.store, work, data)),
            work => self.at_work.on(|| perform(&self.store, work, data)),
        }
    }

    /// Records that a read was served from the page cache.
    pub(crate) fn served_from_memory(&self, work: &ReadWork, bytes: u64) {
        let parts = (work.object, &work.pieces[..]);
        self.meter.cached(parts, bytes, &self.served.load.us_per_mib);
    }

    /// Mode of looking into the page cache for a requester. Where processes of a job wait for a
    /// disk, the queue decides the order of its reads, and no read is begun before.
    pub(crate) fn look_mode(&self, asker: Option<Asker>) -> ReadMode {
        let load = &self.served.load;
        let of_job = asker.is_some_and(|asker| asker.progress.is_some());
        let others_wait = load.in_flight.load(Relaxed) > 1;
        let takes_time = f64::from(load.us_per_mib.load(Relaxed)) > SOON_US;
        if of_job && others_wait && takes_time { ReadMode::Resident } else { ReadMode::Nowait }
    }

    /// Its work for clients, for the report to the metadata server.
    pub(crate) fn work(&self) -> TargetWork {
        let load = &self.served.load;
        self.meter.forget_old(&load.us_per_mib);
        let OfDisk { us_per_mib, piece_kib } = self.meter.of_disk();
        TargetWork {
            read_bytes: load.read_bytes.load(Relaxed),
            written_bytes: load.written_bytes.load(Relaxed),
            queued: load.queued.load(Relaxed),
            in_flight: load.in_flight.load(Relaxed),
            us_per_mib,
            piece_kib,
            serves_us_per_mib: load.us_per_mib.load(Relaxed),
        }
    }

    /// See [`Target::pledge`].
    pub(crate) fn pledge(&self, object: ObjectId, pieces: &[(u64, u64)]) -> Result<Pledge> {
        self.at_work.on(|| self.store.pledge(object, pieces))
    }

    /// Asks for the free space, however long the disk takes.
    pub(crate) fn check_health(&self) -> Health {
        let look = || self.store.check_presence().and_then(|()| self.store.usage());
        let health = match self.at_work.on_read(look) {
            Ok(usage) => Health { usage, trouble: self.trouble() },
            Err(e) => Health { trouble: e.to_string(), ..self.health() },
        };
        *self.health.lock() = health.clone();
        health
    }

    /// Checks the disk's state, and its speed if no client reads from it.
    pub(crate) fn look(&self) {
        if !self.check_health().trouble.is_empty() {
            return;
        }
        let said = &self.served.load.us_per_mib;
        let read = (self.meter.unread_us(), said.load(Relaxed));
        let now = clock::uptime().as_micros() as u64;
        let is_read = || self.meter.unread_us() == 0;
        let probe = || self.probe.lock().look(self.store.dir(), read, is_read, now);
        if let Some(us_per_mib) = self.at_work.on_read(probe) {
            self.meter.probed(us_per_mib, now, said);
        }
    }

    /// Checks whether a disk that hung works, however long that takes.
    pub(crate) fn try_out(&self) {
        let begun = clock::since_boot();
        if self.has_answered_since(begun.saturating_sub(TRY_AGAIN)) {
            return;
        }
        match self.at_work.on(|| self.store.sync_all()) {
            Ok(()) => self.answered_ms.store(begun.as_millis() as u64, Relaxed),
            // The store has said so, and the next report does.
            Err(error) => tracing::debug!("it hung, and fails: {error}"),
        }
    }

    /// Whether the disk has completed a check begun after `then`, and all operations that were
    /// under way then.
    pub(crate) fn has_answered_since(&self, then: Duration) -> bool {
        let answered = self.answered_ms.load(Relaxed) > then.as_millis() as u64;
        answered && self.at_work.has_ended(then)
    }

    /// Result of the last [`Disk::check_health`], and trouble since.
    pub(crate) fn health(&self) -> Health {
        let mut health = self.health.lock().clone();
        if health.trouble.is_empty() {
            health.trouble = self.trouble();
        }
        health
    }

    /// Why the store refuses changes; empty if it does not.
    fn trouble(&self) -> String {
        self.store.trouble().unwrap_or_default()
    }

    fn note_depth(&self, depth: usize) {
        self.served.load.queued.store(depth as u32, Relaxed);
    }
}

/// The lane of a task.
fn lane(task: &Task) -> Lane {
    match (&task.work, &task.asker) {
        (Job::Plain(Work::Read(read)), Some(asker)) => Lane::Read(Request {
            job: asker.job,
            stream: asker.stream(read.object),
            progress: asker.progress,
            offset: read.pieces.first().map_or(0, |piece| piece.0),
            len_bytes: read.bytes as u32,
        }),
        _ => Lane::Other(task.data.buf.as_ref().map_or(0, |buf| buf.len() as u64)),
    }
}

/// Bytes of a read; nothing if it failed.
fn read_bytes(result: &Result<Outcome>) -> Option<u64> {
    match result {
        Ok(Outcome::Read { bytes, .. }) => Some(*bytes),
        _ => None,
    }
}
