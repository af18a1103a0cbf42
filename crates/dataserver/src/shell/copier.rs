//! Copies between objects, on separate threads: a copy may have to wait for another server, and a
//! disk thread waits for nothing but its disk.
//!
//! Invariants
//! - All written bytes were verified against the checksum from their first write: rot is not
//!   copied.
//! - Each step counts as a separate change for [`crate::attempts`]. No bytes of a copy are written
//!   after its client has given the connection up, and no change waits for a copy that waits for
//!   another server.

use crate::checksums::checksums;
use crate::config::DataServerConfig;
use crate::counters::add;
use crate::disk::Disk;
use crate::machine::Outcome;
use crate::peers::pull::Pull;
use crate::peers::{MAX_IDLE, Peers};
use crate::queue::Admission;
use crate::queue::backlog::Backlog;
use crate::queue::tasks::{CopyTask, Data, Event};
use crate::state::Shared;
use std::sync::Arc;
use weir_net::ConnId;
use weir_store::{Object, ReadMode, ReadOutcome};
use weir_types::limits::BLOCK;
use weir_types::{Error, ErrorKind, Result};
use weir_wire::data::{Copied, CopyPiece};

/// Number of copying threads of a server.
pub(crate) const THREADS: usize = 4;
const _: () = assert!(THREADS <= MAX_IDLE, "each keeps its connection");
/// Bytes of one step: read, verified, written.
const STEP_BYTES: usize = 1 << 20;

/// The queue of copies, and state that the threads share.
pub(crate) struct Copier {
    backlog: Backlog<CopyTask>,
    peers: Arc<Peers>,
}

impl Copier {
    pub(crate) fn new(config: &DataServerConfig, peers: Arc<Peers>) -> Self {
        Self { backlog: Backlog::new(config.queue_limit), peers }
    }

    /// Adds a copy. Returns `Full` if its connection must pause.
    pub(crate) fn submit(&self, task: CopyTask, conn: ConnId) -> Admission {
        let resume = task.reply_to.clone();
        self.backlog.submit(task, conn, resume, |_| ())
    }

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.backlog.stop();
    }

    /// Carries out copies until the end. The body of a copying thread.
    pub(crate) fn work_off(&self, shared: &Shared) {
        let mut buffer = Vec::new();
        while let Some(task) = self.backlog.next(|_| ()) {
            buffer.resize(STEP_BYTES, 0);
            let result = self.copy(shared, &task, &mut buffer);
            task.reply_to.post(Event::Done {
                op: task.op,
                result: result.map(Outcome::Copied),
                data: Data::default(),
            });
        }
    }

    fn copy(&self, shared: &Shared, task: &CopyTask, buffer: &mut [u8]) -> Result<Copied> {
        let work = &*task.work;
        let missing = || Error::new(ErrorKind::TargetMissing, "the target is not open");
        let disk = shared.disk(task.target).ok_or_else(missing)?;
        let removed = &shared.copies.removed;
        removed.require_place(disk, work.object)?;
        let source = match work.local {
            true => {
                let from = shared.disk(work.source.target).ok_or_else(missing)?;
                let object = from.store.object(work.source.object)?;
                removed.require_place(from, work.source.object)?;
                Source::Here(object)
            }
            false => Source::There(Box::new(Pull::new(&self.peers, &work.source))),
        };
        let checks = Vec::new();
        let copied = Copied { len: 0, written: 0 };
        let mut copy = Copy { disk, task, source, buffer, checks, copied };
        for piece in &work.pieces {
            copy.piece(piece)?;
        }
        if let Source::There(pull) = copy.source {
            add(&shared.counters.pulled_bytes, copy.copied.written);
            pull.end();
        }
        Ok(copy.copied)
    }
}

/// Source of the bytes.
enum Source<'a> {
    /// A target of this server; `None` if the object was never made.
    Here(Option<Arc<Object>>),
    /// Another server.
    There(Box<Pull<'a>>),
}

impl Source<'_> {
    /// First byte of data from `at` on.
    fn next_data(&mut self, at: u64) -> Result<Option<u64>> {
        match self {
            Source::Here(Some(object)) => object.next_data(at),
            Source::Here(None) => Ok(None),
            Source::There(pull) => pull.seek(at, false),
        }
    }

    /// First byte of a hole from `at` on.
    fn next_hole(&mut self, at: u64) -> Result<u64> {
        match self {
            Source::Here(Some(object)) => Ok(object.next_hole(at)?.max(at)),
            Source::Here(None) => Ok(at),
            Source::There(pull) => Ok(pull.seek(at, true)?.unwrap_or(at)),
        }
    }

    /// Fills the buffer from `at` on, up to the end of the object, and returns the number of bytes.
    /// Unless `locked` is set, the bytes were not verified against the checksums of the cuts.
    fn read(
        &mut self,
        at: u64,
        buffer: &mut [u8],
        checks: &mut Vec<u32>,
        locked: bool,
    ) -> Result<usize> {
        checks.clear();
        let object = match self {
            Source::Here(Some(object)) => object,
            Source::Here(None) => return Ok(0),
            Source::There(pull) => return pull.read(at, buffer, checks, locked),
        };
        let mode = if locked { ReadMode::Locked } else { ReadMode::Blocking };
        match object.read_pieces(&[(at, buffer.len() as u64)], buffer, checks, mode)? {
            ReadOutcome::Done { bytes, .. } => Ok(bytes),
            ReadOutcome::WouldBlock => {
                Err(Error::new(ErrorKind::Internal, "a blocking read did not block"))
            }
        }
    }
}

/// A copy under way.
struct Copy<'a> {
    disk: &'a Disk,
    task: &'a CopyTask,
    source: Source<'a>,
    buffer: &'a mut [u8],
    checks: Vec<u32>,
    copied: Copied,
}

impl Copy<'_> {
    fn piece(&mut self, piece: &CopyPiece) -> Result<()> {
        let (mut at, end) = (piece.from, piece.from + piece.len);
        let to = |at: u64| piece.to + (at - piece.from);
        while at < end {
            let data = self.source.next_data(at)?.map_or(end, |data| data.clamp(at, end));
            if at < data {
                self.clear(to(at), data - at)?;
                at = data;
                continue;
            }
            // It may be given back meanwhile, by those who punch holes without a lease.
            let hole = self.source.next_hole(at)?.clamp(at + 1, end);
            while at < hole {
                // Whole blocks of the source but for the first and the last.
                let most = STEP_BYTES as u64 - at % BLOCK;
                let len = most.min(hole - at);
                self.step(at, to(at), len as usize)?;
                at += len;
            }
        }
        Ok(())
    }

    /// Copies as much as fits into the buffer.
    fn step(&mut self, from: u64, to: u64, len: usize) -> Result<()> {
        let mut written = self.attempt(from, to, len, false);
        if written.as_ref().is_err_and(|e| e.kind == ErrorKind::ChecksumMismatch) {
            // A writer may have been at work; under the lock what does not match is rot.
            written = self.attempt(from, to, len, true);
        }
        let written = written?;
        self.copied.written += written as u64;
        if written < len {
            // It was cut meanwhile.
            self.clear(to + written as u64, (len - written) as u64)?;
        }
        Ok(())
    }

    fn attempt(&mut self, from: u64, to: u64, len: usize, locked: bool) -> Result<usize> {
        let n = self.source.read(from, &mut self.buffer[..len], &mut self.checks, locked)?;
        if n == 0 {
            return Ok(0);
        }
        let bytes = &self.buffer[..n];
        if from % BLOCK != to % BLOCK {
            // Cut elsewhere, it needs other checksums; the store holds the bytes
            // against those that it is given.
            let expected = checksums(from, bytes);
            if expected != self.checks {
                let what = format!("bytes {from}-{} of the source", from + n as u64 - 1);
                return Err(Error::new(ErrorKind::ChecksumMismatch, what));
            }
            self.checks = checksums(to, bytes);
        }
        let (work, checks) = (&self.task.work, &self.checks);
        // What comes late makes no object either.
        let write = || {
            let object = self.disk.store.object_or_create(work.object)?;
            object.write_pieces(&[(to, n as u64)], bytes, checks, work.generation)
        };
        self.copied.len = in_turn(self.task, write)?;
        Ok(n)
    }

    /// Punches a hole where the source has one.
    fn clear(&mut self, to: u64, len: u64) -> Result<()> {
        let work = &self.task.work;
        self.copied.len = in_turn(self.task, || match self.disk.store.object(work.object)? {
            Some(object) => object.punch(to, len, work.generation),
            None => Ok(0),
        })?;
        Ok(())
    }
}

/// Changes the target when it is the turn of the sender's attempt, or not at all.
fn in_turn<T>(task: &CopyTask, change: impl FnOnce() -> Result<T>) -> Result<T> {
    match &task.sender {
        Some(sender) => sender.in_turn(task.target, change),
        None => change(),
    }
}
