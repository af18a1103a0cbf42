//! Scans of all files: one to count the work, and one behind it to do the work.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::mover::walk::Walk;
use crate::machine::state::mover::{MAX_QUEUE, RETRY_MS};
use crate::mover::sites::Sites;
use crate::ops::move_copies::Look;
use crate::schema::{TargetRecord, key};
use std::collections::BTreeSet;
use weir_metastore::{Engine, Tx, key_after};
use weir_types::{ErrorKind, FileId, Result, TargetId};
use weir_wire::map::TargetState;

/// Files in one step.
const FILES_PER_STEP: usize = 16;

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
