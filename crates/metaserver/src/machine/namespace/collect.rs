//! Background work in the namespace: ended sessions, closed files without names, and lists of
//! segments that become garbage.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::store::{each, fault};
use crate::ops::{self, Effects, Outcome};
use crate::quota::{self, Charge};
use crate::schema::key;
use weir_metastore::{Engine, Tx, transact};
use weir_types::{Caller, Error, ErrorKind, FileId, Result, SessionId};

impl<E: Engine> MetaMachine<E> {
    pub(in crate::machine) fn find_orphans(&mut self) -> Result<()> {
        self.background.orphans_unknown = false;
        let (start, end) = key::orphans();
        each(&self.engine, start, &end, |key, _| {
            self.orphans.insert(key::orphan_file(key)?);
            Ok(())
        })?;
        if !self.background.settling {
            self.collect_unused();
        }
        Ok(())
    }

    /// Ends the time for reporting open files: all others count as closed.
    pub(in crate::machine) fn settle(&mut self) {
        if self.background.settling {
            self.background.settling = false;
            self.opens.settled();
            self.collect_unused();
        }
    }

    fn collect_unused(&mut self) {
        let unused = |file: &FileId| !self.opens.may_be_open(*file);
        let unused: Vec<FileId> = self.orphans.iter().copied().filter(unused).collect();
        self.background.collect.extend(unused);
    }

    /// Runs one transaction. Its item is dropped if it fails.
    pub(in crate::machine) fn step(&mut self, now: Moment) -> Result<()> {
        if let Some(file) = self.background.collect.pop_front() {
            return self.collect_orphan(file, now);
        }
        if let Some(session) = self.background.ended.pop_front() {
            let all = self.own(|tx| ops::collect::session(tx, session));
            let is_full = |error: &Error| error.kind == ErrorKind::NoSpace;
            if matches!(all, Ok(false)) || all.as_ref().is_err_and(is_full) {
                self.background.ended.push_front(session);
            }
            return all.map(drop);
        }
        if self.background.orphans_unknown {
            return self.find_orphans();
        }
        self.background.dead_lists = false;
        self.background.dead_lists = self.work_on_dead_lists()?;
        Ok(())
    }

    fn collect_orphan(&mut self, file: FileId, now: Moment) -> Result<()> {
        // Opened again meanwhile, by its id.
        if self.opens.may_be_open(file) || !self.orphans.contains(&file) {
            return Ok(());
        }
        let caller = Caller::ROOT;
        loop {
            let mut tx = Tx::new(&self.engine);
            let mut ctx = self.context(SessionId(0), &caller, FileId(0), now);
            ops::collect::orphan(&mut tx, &mut ctx, file).map_err(fault)?;
            let effects: Effects = ctx.effects;
            let by = Charge { op: None, exempt: true };
            quota::charge(&self.quotas, &self.engine, &mut tx, by).map_err(fault)?;
            let commit = tx.into_commit()?;
            if let weir_metastore::CommitOutcome::Committed(_) = self.engine.commit(commit)? {
                self.apply(SessionId(0), effects);
                self.orphans.remove(&file);
                return Ok(());
            }
            self.counters.conflicts += 1;
        }
    }

    /// Works on dead lists. Returns whether there may be more.
    fn work_on_dead_lists(&mut self) -> Result<bool> {
        let (start, end) = key::dead_lists();
        let first = Tx::new(&self.engine).range(&start, &end, 1)?;
        let Some((at, _)) = first.first() else { return Ok(false) };
        let (file, list) = key::dead_list(at)?;
        let cluster = &self.cluster.view;
        let mut step =
            |tx: &mut Tx<'_>| ops::collect::dead_list(tx, cluster, file, list).map_err(fault);
        transact(&mut self.engine, &mut step)?;
        Ok(true)
    }

    fn own<T>(&mut self, mut step: impl FnMut(&mut Tx<'_>) -> Outcome<T>) -> Result<T> {
        let (value, _) = transact(&mut self.engine, |tx| step(tx).map_err(fault))?;
        Ok(value)
    }
}
