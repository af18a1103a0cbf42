//! The embedded engine as a member of a group that shares a [`Journal`]: a follower or the leader.
//!
//! Invariants
//! - All that is in the local log and in redb is in the journal. The leader publishes a batch
//!   before it flushes it; a follower takes batches from the journal.
//! - Nothing is acknowledged after the lead is lost, neither changes nor reads.
//! - `flushed` follows the journal: a commit counts as flushed only after its batch was appended.

use super::publisher::Publisher;
use super::{Embedded, EmbeddedConfig, MAX_BATCH_BYTES, max_record_bytes};
use crate::engine::{Engine, Sequence, Write};
use crate::journal::{Batch, Journal};
use crate::record::decode_record;
use crate::syncer::SyncState;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_host::plant::{Bug, planted};
use weir_types::{Error, ErrorKind, Result};

/// The source of an engine's commits.
pub(super) enum Role {
    /// Commits come from the owner, and there is no journal.
    Alone,
    /// Commits come from the journal.
    Follows,
    /// Commits come from the owner, and are appended to the journal.
    Leads {
        journal: Arc<dyn Journal>,
        publisher: Publisher,
        /// Whether the lead is lost, or an append has an unknown outcome.
        deposed: bool,
    },
}

impl Role {
    pub fn may_commit(&self) -> Result<()> {
        match self {
            Role::Follows => Err(ErrorKind::NotLeader.into()),
            Role::Alone | Role::Leads { .. } => Ok(()),
        }
    }

    /// Whether replies may leave.
    pub fn check(&self) -> Result<()> {
        match self {
            Role::Alone => Ok(()),
            Role::Leads { deposed: false, .. } if planted(Bug::OldLeaderAnswers) => Ok(()),
            Role::Leads { journal, deposed: false, .. } => journal.check(),
            Role::Follows | Role::Leads { deposed: true, .. } => Err(ErrorKind::NotLeader.into()),
        }
    }
}

/// An engine's durable progress, readable from any thread.
#[derive(Clone)]
pub struct Progress {
    shared: Arc<SyncState>,
    published_bytes: Arc<AtomicU64>,
}

impl Progress {
    /// The last commit that is durable in the engine's own log.
    pub fn durable(&self) -> Sequence {
        self.shared.synced()
    }

    /// Bytes of all batches that this engine has appended to the journal.
    pub fn published_bytes(&self) -> u64 {
        self.published_bytes.load(Relaxed)
    }
}

impl Embedded {
    /// As [`Embedded::open`], for a member of a group that shares a journal. It follows: commits
    /// are refused until [`Embedded::lead`].
    pub fn open_member(
        dir: &Path,
        config: EmbeddedConfig,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::open_as(Role::Follows, dir, config, notify)
    }

    /// The path of the engine's directory.
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// Whether the directory follows a journal already.
    pub fn is_replicated(&self) -> Result<bool> {
        self.home.is_replicated()
    }

    /// Notes durably that the directory follows a journal. Then [`Embedded::open`] refuses it.
    pub fn mark_replicated(&self) -> Result<()> {
        self.home.mark_replicated()
    }

    /// Notes durably that the directory no longer follows a journal. It must hold all of the
    /// journal.
    pub fn mark_alone(&self) -> Result<()> {
        self.home.mark_alone()
    }

    /// The durable progress, for other threads.
    pub fn progress(&self) -> Progress {
        let published_bytes = Arc::clone(&self.published_bytes);
        Progress { shared: Arc::clone(&self.shared), published_bytes }
    }

    /// Takes in the records of a batch that this engine lacks. The caller flushes.
    ///
    /// Errors: `Corrupt` if a record is damaged, `Stale` if others are missing before it.
    pub fn follow(&mut self, batch: &Batch) -> Result<()> {
        self.shared.check_sound()?;
        let mut rest = &batch.records[..];
        let mut last = Sequence::ZERO;
        while !rest.is_empty() {
            let Some((record, len)) = decode_record(rest) else {
                return Err(damaged(batch, "is damaged"));
            };
            rest = rest.get(len..).unwrap_or_default();
            last = record.sequence;
            if record.sequence > self.sequence.next() {
                let what = format!(
                    "metadata directory {} has operations up to {}, and the journal begins only \
                     with {}: it needs a snapshot of the metadata server that leads",
                    self.home.path().display(),
                    self.sequence,
                    record.sequence
                );
                return Err(Error::new(ErrorKind::Stale, what));
            }
            if record.sequence == self.sequence.next() {
                self.add(record.writes)?;
            }
        }
        if last == batch.last { Ok(()) } else { Err(damaged(batch, "ends elsewhere")) }
    }

    /// Becomes the leader. This server must have acquired the journal, and must hold all of it.
    ///
    /// Errors: `Stale` if this engine does not hold exactly what the journal says.
    pub fn lead(&mut self, journal: Arc<dyn Journal>) -> Result<()> {
        self.flush()?;
        let head = journal.head()?;
        if head != Some(self.sequence) {
            let what = format!(
                "metadata directory {} has operations up to {}, and the journal up to {}: it needs \
                 a snapshot of a metadata server that leads",
                self.home.path().display(),
                self.sequence,
                head.unwrap_or_default()
            );
            return Err(Error::new(ErrorKind::Stale, what));
        }
        let notify = self.shared.notify();
        let publisher = Publisher::start(Arc::clone(&journal), self.sequence, notify)?;
        self.role = Role::Leads { journal, publisher, deposed: false };
        Ok(())
    }

    /// Flushes before a commit that would make the batch too large for the journal.
    pub(super) fn make_room_in_batch(&mut self, writes: &[Write]) -> Result<()> {
        if !matches!(self.role, Role::Leads { .. }) {
            return Ok(());
        }
        let bytes = max_record_bytes(writes);
        if bytes > MAX_BATCH_BYTES {
            let what = format!(
                "metadata transaction of {bytes} bytes; the limit with a journal is \
                 {MAX_BATCH_BYTES}"
            );
            return Err(Error::new(ErrorKind::TooBig, what));
        }
        match self.log.buffered_bytes() + bytes > MAX_BATCH_BYTES {
            true => self.flush().map(drop),
            false => Ok(()),
        }
    }

    /// Hands over the buffered commits for the journal, and takes in what it has meanwhile. Returns
    /// whether there was any of it.
    pub(super) fn begin_publishing(&mut self) -> Result<bool> {
        let Role::Leads { publisher, .. } = &self.role else { return Ok(false) };
        let records = self.log.ungiven();
        let gives = !records.is_empty();
        if gives {
            publisher.give(records, self.sequence);
            self.log.mark_given(self.sequence);
        }
        let published = publisher.published();
        Ok(self.take_published(published)? || gives)
    }

    /// Publishes the buffered commits, and waits for the journal.
    pub(super) fn publish(&mut self) -> Result<()> {
        self.begin_publishing()?;
        let Role::Leads { publisher, .. } = &self.role else { return Ok(()) };
        let published = publisher.wait();
        self.take_published(published).map(drop)
    }

    /// Appends to the local log what is in the journal. Returns whether there was more than before.
    fn take_published(&mut self, published: Result<Sequence>) -> Result<bool> {
        let published = published.map_err(|error| self.depose(error))?;
        let is_more = published > self.flushed;
        if is_more {
            let bytes = self.log.flush_given(published).map_err(|e| self.break_with(e))?;
            self.published_bytes.fetch_add(bytes as u64, Relaxed);
            self.flushed = published;
            self.shared.flushed(published);
        }
        Ok(is_more)
    }

    /// Fails when the lead is lost.
    pub(super) fn confirm_lead(&mut self) -> Result<()> {
        match &self.role {
            Role::Leads { .. } => self.role.check().map_err(|error| self.depose(error)),
            Role::Alone | Role::Follows => Ok(()),
        }
    }

    fn depose(&mut self, mut error: Error) -> Error {
        // An error of the journal, for example a full one, must not look like a full local disk,
        // from which the engine would recover.
        if error.kind != ErrorKind::Corrupt {
            error.kind = ErrorKind::NotLeader;
        }
        if let Role::Leads { deposed, .. } = &mut self.role {
            *deposed = true;
        }
        self.break_with(error.context("the journal of the metadata"))
    }
}

fn damaged(batch: &Batch, how: &str) -> Error {
    let what = format!("the batch of the journal that ends with operation {} {how}", batch.last);
    Error::new(ErrorKind::Corrupt, what)
}
