//! A target's disk: its queue, and the few threads that serve it.

use crate::at_work::AtWork;
use crate::attempts::Sender;
use crate::backlog::Backlog;
use crate::chores::Chores;
use crate::copies::repair::{self, Scrubbed};
use crate::copies::roles::not_current;
use crate::copies::{Builds, Change, Progress, follow_at_the_end};
use crate::inspect;
use crate::lanes::{Lane, Lanes};
use crate::machine::{Asker, OpId, Outcome, ReadWork, ServedTarget, Work};
use crate::meter::{Meter, OfDisk};
use crate::metrics::DiskTimes;
use crate::notes;
use crate::probe::Probe;
use crate::queue::Admission;
use crate::reserve;
use crate::service::{Event, Shared};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_host::clock;
use weir_host::device::Counts;
use weir_host::sync::Mutex;
use weir_net::{ConnId, LoopHandle, PooledBuf};
use weir_policy::{Request, SOON_US};
use weir_store::{ELSEWHERE, Object, Pledge, ReadMode, ReadOutcome, Target};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{
    DiskId, Epoch, Error, ErrorKind, FsUsage, Generation, ObjectId, Result, TargetId,
};
use weir_wire::data::ObjectStat;
use weir_wire::targets::TargetWork;

/// Interval of attempts to reach a disk that hung.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// The bulk data of an operation.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// Bytes that were read, or are to be written.
    pub(crate) buf: Option<PooledBuf>,
    /// Their checksums.
    pub(crate) checks: Vec<u32>,
}

/// A task for a disk thread.
pub(crate) enum Job {
    /// An operation on the only copy, or on none in particular.
    Plain(Work),
    /// A change of the last copy in its chain.
    Follow(Box<Change>),
}

/// An operation in the queue.
pub(crate) struct Task {
    pub(crate) op: OpId,
    /// The requester; `None` if it does not wait any more.
    pub(crate) asker: Option<Asker>,
    pub(crate) work: Job,
    pub(crate) data: Data,
    /// The sender, for a change.
    pub(crate) sender: Option<Sender>,
    pub(crate) reply_to: LoopHandle<Event>,
}

impl Task {
    /// Whether it concerns one of several copies.
    pub(crate) fn is_of_copies(&self) -> bool {
        match &self.work {
            Job::Follow(_) => true,
            Job::Plain(Work::Read(read)) => read.of_copies,
            Job::Plain(Work::Seek { of_copies, .. } | Work::Stat { of_copies, .. }) => *of_copies,
            Job::Plain(Work::NoteGap { .. }) => true,
            Job::Plain(_) => false,
        }
    }
}

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

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.backlog.stop();
        self.chores.stop();
    }

    /// Carries out tasks until the end. The body of a disk thread.
    pub(crate) fn work_off(&self, shared: &Shared) {
        while let Some(task) = self.backlog.next(|depth| self.note_depth(depth)) {
            let Task { op, work, mut data, sender, reply_to, .. } = task;
            let looked_at = repair::looked_at(&work);
            let carry_out = || match work {
                Job::Plain(work) => {
                    check_epoch(shared, &work)?;
                    let now = told_under(&work, self.served.id);
                    let carry_out = || self.perform_in_place(shared, work, &mut data);
                    match now {
                        // Once it acts under a later epoch it may have ordered changes since.
                        Some(epoch) => {
                            let copies = &shared.copies;
                            let may = || copies.standings.is_acting(epoch).map(|()| epoch);
                            copies.turns.apply(self.served.id, may, carry_out)
                        }
                        None => carry_out(),
                    }
                }
                Job::Follow(change) => follow_at_the_end(shared, self, &change, &mut data),
            };
            let result = match sender {
                Some(sender) => sender.in_turn(self.served.id, carry_out),
                None => carry_out(),
            };
            let repairs = &shared.copies.repairs;
            let result = match result {
                Ok(Outcome::Scrubbed(page)) if repair::is_about_objects(&page) => {
                    repairs.scrubbed(Scrubbed { target: self.served.id, page, op, reply_to });
                    continue;
                }
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    if let Some(looked_at) = looked_at {
                        repairs.failed(self.served.id, looked_at, &error);
                    }
                    Err(error)
                }
                other => other,
            };
            reply_to.post(Event::Done { op, result, data });
        }
    }

    /// Carries out an operation, unless its layout is older than the removal of the copy here: it
    /// would find nothing, and take that for a hole, or make the object again.
    fn perform_in_place(&self, shared: &Shared, work: Work, data: &mut Data) -> Result<Outcome> {
        let Some(object) = work.by_layout() else { return self.perform(work, data) };
        let (removed, begun) = (&shared.copies.removed, clock::now());
        removed.require_place(self, object)?;
        let outcome = self.perform(work, data)?;
        removed.require_stayed(self, object, begun)?;
        Ok(outcome)
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

/// Reads from the page cache. Returns `None` if the read would have to wait for the disk. Never
/// waits, so the event loop may call it. `mode` is one that does not wait.
///
/// Data is copied from the page cache into a warm buffer and sent from there. On loopback that
/// costs 0.23 CPU s/GB, and `sendfile` 0.32; `sendfile` would also prevent a check of the data
/// before it leaves.
pub(crate) fn read_cached(
    store: &Target,
    work: &ReadWork,
    data: &mut Data,
    mode: ReadMode,
) -> Option<Result<Outcome>> {
    let object = store.open_object(work.object)?;
    if let Err(error) = check_gaps(store, work) {
        return Some(Err(error));
    }
    if work.of_copies
        && let Err(error) = check_generation(&object, work.generation)
    {
        return Some(Err(error));
    }
    let buf = data.buf.as_deref_mut().unwrap_or_default();
    data.checks.clear();
    match object.read_pieces(&work.pieces, buf, &mut data.checks, mode) {
        Ok(ReadOutcome::WouldBlock) => None,
        Ok(ReadOutcome::Done { bytes, object_bytes }) => {
            let current = check_gaps(store, work);
            Some(current.map(|()| finish_read(work, data, bytes, object_bytes)))
        }
        Err(e) => Some(Err(e)),
    }
}

/// Bytes of a read; nothing if it failed.
fn read_bytes(result: &Result<Outcome>) -> Option<u64> {
    match result {
        Ok(Outcome::Read { bytes, .. }) => Some(*bytes),
        _ => None,
    }
}

/// The epoch under which another target reports a gap of this one.
fn told_under(work: &Work, own: TargetId) -> Option<Epoch> {
    match work {
        Work::NoteGap { behind, epoch, filled: false, .. } if *behind == own => Some(*epoch),
        _ => None,
    }
}

/// Refuses a report under a newer epoch than this server's map, by which it may seem void.
fn check_epoch(shared: &Shared, work: &Work) -> Result<()> {
    match work {
        // From who ordered when that was so.
        Work::NoteGap { epoch, filled: true, .. } if *epoch != shared.copies.standings.acting() => {
            Err(Error::new(ErrorKind::Busy, "it acts under another map than the sender"))
        }
        Work::NoteGap { epoch, .. } if *epoch > shared.copies.standings.acting() => {
            Err(Error::new(
                ErrorKind::Busy,
                "its map is older than that of the server that has noted it",
            ))
        }
        _ => Ok(()),
    }
}

/// Refuses a layout from before a copy was moved: it leads to a copy that is not updated any more.
fn check_generation(object: &Object, generation: Generation) -> Result<()> {
    if generation < object.generation() {
        let what = format!("object {}: read with generation {generation}", object.id());
        return Err(Error::new(ErrorKind::Stale, what));
    }
    Ok(())
}

/// Checks that this copy has the bytes of a read. It is called before the read, since missing bytes
/// may arrive, and their gap may be cleared, during it. It is called again after the read: a change
/// here or elsewhere has noted its gap by then, or waits for no reader.
fn check_gaps(store: &Target, work: &ReadWork) -> Result<()> {
    let start = work.pieces.iter().map(|piece| piece.0).min().unwrap_or_default();
    let end = work.pieces.iter().map(|piece| piece.0 + piece.1).max().unwrap_or_default();
    match work.of_copies {
        true => check_gap(store, work.object, start..end),
        false if work.as_is => Ok(()),
        // The others have gone since, and it is lost.
        false if store.gaps().lacks(work.object, ELSEWHERE, &(start..end)) => {
            Err(lacks_what_is_elsewhere(store))
        }
        false => Ok(()),
    }
}

fn check_gap(store: &Target, object: ObjectId, range: Range<u64>) -> Result<()> {
    match store.gaps().lacks(object, store.id(), &range) {
        true if store.gaps().lacks(object, ELSEWHERE, &range) => {
            Err(lacks_what_is_elsewhere(store))
        }
        true => Err(lacks(store)),
        false => Ok(()),
    }
}

fn lacks(store: &Target) -> Error {
    not_current(store.id(), "it does not have the last changes of these bytes")
}

/// The error for missing bytes, with what to do about it.
fn lacks_what_is_elsewhere(store: &Target) -> Error {
    let what = "it does not have the last changes of these bytes: bring the other copies back, or \
                accept the loss (`weir accept-loss`)";
    not_current(store.id(), what)
}

fn finish_read(work: &ReadWork, data: &mut Data, bytes: usize, object_len: u64) -> Outcome {
    if let Some(buf) = &mut data.buf {
        buf.set_len(bytes);
    }
    if work.unchecked {
        data.checks.clear();
    }
    Outcome::Read { bytes: bytes as u64, object_len }
}

fn perform(store: &Target, work: Work, data: &mut Data) -> Result<Outcome> {
    match work {
        Work::Read(work) => read(store, &work, data),
        Work::Write { object, pieces, generation, sync } => {
            let object = store.object_or_create(object)?;
            let payload = data.buf.as_deref().unwrap_or_default();
            let object_len = object.write_pieces(&pieces, payload, &data.checks, generation)?;
            if sync {
                object.sync()?;
            }
            Ok(Outcome::Written { object_len })
        }
        Work::Sync { object } => {
            if let Some(object) = store.object(object)? {
                object.sync()?;
            }
            Ok(Outcome::Synced)
        }
        Work::Truncate { object, len, generation } => {
            let object = store.object_or_create(object)?;
            let object_len = object.cut(len, generation)?;
            // The metadata server is told that it has been done, and forgets it.
            object.sync()?;
            Ok(Outcome::Truncated { object_len })
        }
        Work::Punch { object, offset, len, generation } => {
            let object_len = match store.object(object)? {
                Some(object) => object.punch(offset, len, generation)?,
                None => 0,
            };
            Ok(Outcome::Reshaped { object_len })
        }
        Work::Allocate { object, offset, len, generation } => {
            let object = store.object_or_create(object)?;
            let object_len =
                reserve::allocate(store, &object, offset..offset.saturating_add(len), generation)?;
            Ok(Outcome::Reshaped { object_len })
        }
        Work::Seek { object, offset, hole, generation, of_copies } => {
            let generation = of_copies.then_some(generation);
            let check = || match of_copies {
                true => check_gap(store, object, 0..MAX_FILE_BYTES),
                false => Ok(()),
            };
            check()?;
            let found = seek(store, object, offset, hole, generation)?;
            check()?;
            Ok(found)
        }
        Work::Fence { object, generation } => {
            let object = store.object_or_create(object)?;
            let (len, generation) = object.fence(generation)?;
            // Whoever asked goes on as if no older write could come any more.
            object.sync()?;
            Ok(Outcome::Stat(ObjectStat { exists: true, len, generation, allocated: 0 }))
        }
        Work::Align { object: id, len, generation } => {
            let object = match len == 0 && generation == Generation(0) {
                true => store.object(id)?,
                false => Some(store.object_or_create(id)?),
            };
            let object_len = object.map_or(Ok(0), |object| object.align(len, generation))?;
            Ok(Outcome::Reshaped { object_len })
        }
        work @ Work::NoteGap { .. } => notes::note(store, work),
        Work::ListLacking { from, max } => Ok(Outcome::Lacking(inspect::lacking(store, from, max))),
        Work::AcceptLoss { object, bytes } => {
            store.gaps().accept(object, &(bytes.0..bytes.1))?;
            tracing::warn!(
                "{}: an administrator has accepted that bytes {} to {} of object {object}, as \
                 another copy had them, are lost: what is here is served",
                store.name(),
                bytes.0,
                bytes.1
            );
            Ok(Outcome::Noted)
        }
        Work::Stat { object: id, of_copies, .. } => {
            let object = store.object(id)?;
            if of_copies {
                check_gap(store, id, 0..MAX_FILE_BYTES)?;
            }
            let (len, generation) =
                object.as_ref().map_or((0, Generation(0)), |o| (o.len(), o.generation()));
            let (exists, allocated) = (object.is_some(), object.map_or(Ok(0), |o| o.allocated())?);
            Ok(Outcome::Stat(ObjectStat { exists, len, generation, allocated }))
        }
        Work::List { after, max } => inspect::list(store, after, max).map(Outcome::Listed),
        Work::Scrub { cursor, budget_bytes } => {
            inspect::scrub(store, cursor, budget_bytes).map(Outcome::Scrubbed)
        }
        Work::Remove { objects } => {
            for &object in &objects {
                store.remove(object)?;
            }
            store.sync_removals()?;
            Ok(Outcome::Removed { count: objects.len() as u64 })
        }
    }
}

/// Finds data or a hole. Bytes behind the end of an object, or of an object that was never made,
/// count as a hole.
fn seek(
    store: &Target,
    object: ObjectId,
    offset: u64,
    hole: bool,
    generation: Option<Generation>,
) -> Result<Outcome> {
    let object = store.object(object)?;
    if let (Some(object), Some(generation)) = (&object, generation) {
        check_generation(object, generation)?;
    }
    let found = match (&object, hole) {
        (Some(object), true) => Some(object.next_hole(offset)?.max(offset)),
        (Some(object), false) => object.next_data(offset)?,
        (None, true) => Some(offset),
        (None, false) => None,
    };
    Ok(Outcome::Found(found))
}

fn read(store: &Target, work: &ReadWork, data: &mut Data) -> Result<Outcome> {
    data.checks.clear();
    check_gaps(store, work)?;
    let Some(object) = store.object(work.object)? else {
        check_gaps(store, work)?;
        return Ok(finish_read(work, data, 0, 0));
    };
    if work.of_copies {
        check_generation(&object, work.generation)?;
    }
    let mode = match (work.locked, work.of_copies) {
        (true, _) => ReadMode::Locked,
        (false, true) => ReadMode::Exact,
        (false, false) => ReadMode::Blocking,
    };
    let buf = data.buf.as_deref_mut().unwrap_or_default();
    match object.read_pieces(&work.pieces, buf, &mut data.checks, mode)? {
        ReadOutcome::Done { bytes, object_bytes } => {
            check_gaps(store, work)?;
            Ok(finish_read(work, data, bytes, object_bytes))
        }
        ReadOutcome::WouldBlock => {
            Err(Error::new(ErrorKind::Internal, "a blocking read did not block"))
        }
    }
}
