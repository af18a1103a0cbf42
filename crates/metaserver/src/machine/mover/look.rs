//! Scans of all files: one to count the work, and one behind it to do the work.

use super::{MAX_QUEUE, Mover, RETRY_MS};
use crate::machine::{MetaMachine, Moment};
use crate::mover::coding::Coding;
use crate::mover::sites::Sites;
use crate::ops::move_copies::Look;
use crate::schema::{TargetRecord, key};
use std::collections::BTreeSet;
use weir_metastore::{Engine, Tx, key_after};
use weir_types::{ErrorKind, FileId, Result, TargetId};
use weir_wire::map::TargetState;

/// Files in one step.
const FILES_PER_STEP: usize = 16;

/// Work found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Number of files.
    pub files: u64,
    /// Copies to be filled.
    pub copies: u64,
    /// Their approximate bytes.
    pub bytes: u64,
    /// Segments without a target for a copy, or without a source.
    pub stuck: u64,
    /// Segments that get parities.
    pub coding: Coding,
}

impl Survey {
    /// Adds the work of a file.
    pub(super) fn add(&mut self, look: &Look) {
        let filling: u64 = look.filling.iter().map(|copy| copy.bytes).sum();
        let bytes = look.missing.1.saturating_add(filling);
        self.files += 1;
        self.copies += look.missing.0 + look.filling.len() as u64;
        self.bytes = self.bytes.saturating_add(bytes);
        self.stuck += look.stuck;
        self.coding.add(&look.coding);
    }

    /// Subtracts a filled copy.
    pub(super) fn done(&mut self, bytes: u64) {
        self.copies = self.copies.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A scan over all files.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// Key of the next file, or of the present one.
    next: Vec<u8>,
    /// First byte to look at in that file.
    from: u64,
    /// Whether a file could not be changed.
    pub skipped: bool,
}

impl Walk {
    fn new() -> Self {
        Self { next: key::inode(FileId(0)), from: 0, skipped: false }
    }

    /// Whether the scan has not begun.
    fn is_new(&self) -> bool {
        (&*self.next, self.from) == (&*key::inode(FileId(0)), 0)
    }
}

impl Mover {
    /// Scans all files, because any may need work.
    pub fn look_at_all(&mut self) {
        if self.survey.is_some() || self.search.is_some() {
            self.again = true;
            return;
        }
        self.again = false;
        self.survey = Some((Walk::new(), Survey::default()));
        self.search = Some(Walk::new());
    }

    /// Ends all scans, because no file needs work.
    pub fn look_at_nothing(&mut self) {
        self.jobs_known = true;
        self.survey = None;
        self.search = None;
        self.again = false;
    }

    /// Records that a file could not be changed and has to be tried later.
    pub fn skipped(&mut self, now: Moment) {
        match &mut self.search {
            Some(search) => search.skipped = true,
            None => drop(self.retry_at_ms.get_or_insert(now.monotonic_ms + RETRY_MS)),
        }
    }
}

impl<E: Engine> MetaMachine<E> {
    /// Runs one step of the mover. Work that is impossible now is done later.
    pub(in crate::machine) fn step_mover(&mut self, now: Moment) -> Result<()> {
        match self.step_of_mover(now) {
            Err(error) if matches!(error.kind, ErrorKind::Busy | ErrorKind::TooBig) => {
                tracing::warn!("copies: {error}");
                self.mover.skipped(now);
                Ok(())
            }
            result => result,
        }
    }

    fn step_of_mover(&mut self, now: Moment) -> Result<()> {
        if self.mover.survey.is_some() {
            self.step_survey(now)?;
        }
        if self.mover.can_finish()
            && let Some((file, from)) = self.mover.finish.pop_first()
        {
            return self.begin_visit(file, from, now);
        }
        if self.mover.has_room()
            && let Some((file, from)) = self.mover.queue.pop_front()
        {
            self.mover.queued.remove(&file);
            return self.begin_visit(file, from, now);
        }
        if self.mover.is_evening() {
            self.step_rebalance()?;
        }
        if self.mover.search.is_some() && self.mover.queue.len() < MAX_QUEUE {
            self.step_search(now)?;
        }
        Ok(())
    }

    fn step_survey(&mut self, now: Moment) -> Result<()> {
        let Some((mut walk, mut survey)) = self.mover.survey.take() else { return Ok(()) };
        if walk.is_new() {
            self.begin_look();
        }
        let mut scratch = self.mover.sites.clone();
        for _ in 0..FILES_PER_STEP {
            let Some((_, look)) = self.walk(&mut walk, &mut scratch, now)? else {
                self.mover.counted = survey;
                self.mover.coding = survey.coding;
                self.mover.coding_at_ms = Some(now.monotonic_ms);
                self.end_look();
                return Ok(());
            };
            if let Some(look) = look {
                survey.add(&look);
                self.cluster.partners.has_seen(look.on_one_server, &look.lost);
            }
        }
        self.mover.counted = survey;
        self.mover.survey = Some((walk, survey));
        Ok(())
    }

    /// Records the begin of a scan for [`crate::mover::partners`].
    fn begin_look(&mut self) {
        let gone =
            |t: &TargetRecord| matches!(t.state, TargetState::Offline | TargetState::OutOfService);
        let gone = self.cluster.all().into_iter().filter(|(_, t)| gone(t));
        let gone: BTreeSet<TargetId> = gone.map(|(_, t)| t.target).collect();
        self.cluster.partners.look_begins(&self.mover.sites, |target| gone.contains(&target));
    }

    fn end_look(&mut self) {
        // Targets have become others than those by which files were looked at.
        if self.mover.again {
            self.cluster.partners.look_fails();
        }
        self.cluster.partners.look_ends(&self.mover.sites);
    }

    fn step_search(&mut self, now: Moment) -> Result<()> {
        let Some(mut walk) = self.mover.search.take() else { return Ok(()) };
        // Not ahead of what counts.
        if self.mover.survey.as_ref().is_some_and(|(ahead, _)| ahead.next <= walk.next) {
            self.mover.search = Some(walk);
            return Ok(());
        }
        let mut scratch = self.mover.sites.clone();
        for _ in 0..FILES_PER_STEP {
            let from = walk.from;
            let Some((file, look)) = self.walk(&mut walk, &mut scratch, now)? else {
                self.end_search(&walk, now);
                return Ok(());
            };
            let Some(look) = look else { continue };
            self.mover.encode_later(file, &look, now);
            let synced = self.engine.sequence();
            self.mover.adopt(look.filling, look.generation, synced, now.monotonic_ms);
            if look.change_at.is_some() || !look.unsettled.is_empty() {
                self.mover.enqueue(file, from);
            }
        }
        self.mover.search = Some(walk);
        Ok(())
    }

    fn end_search(&mut self, walk: &Walk, now: Moment) {
        self.mover.jobs_known = true;
        if walk.skipped {
            self.mover.retry_at_ms.get_or_insert(now.monotonic_ms + RETRY_MS);
        }
        if self.mover.again {
            self.mover.look_at_all();
        }
    }

    /// The next file of a scan, or the next part of it; `None` at the end.
    fn walk(
        &mut self,
        walk: &mut Walk,
        scratch: &mut Sites,
        now: Moment,
    ) -> Result<Option<(FileId, Option<Look>)>> {
        let (_, end) = key::inodes();
        let found = Tx::new(&self.engine).range(&walk.next, &end, 1)?;
        let Some((at, _)) = found.first() else { return Ok(None) };
        let file = key::inode_file(at)?;
        let from = if **at == *walk.next { walk.from } else { 0 };
        let look = match self.look(file, from, scratch, now) {
            // The audit tells of it.
            Err(error) if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                tracing::error!(file = file.0, "copies: {error}");
                self.cluster.partners.look_fails();
                None
            }
            look => look?,
        };
        (walk.next, walk.from) = match look.as_ref().and_then(|look| look.next) {
            Some(next) => (at.to_vec(), next),
            None => (key_after(at).into_vec(), 0),
        };
        Ok(Some((file, look)))
    }
}
