//! Background work: expired sessions, closed files without names, and lists of segments that become
//! garbage. All of it is recorded in the store, so that none is forgotten; the state in memory only
//! says where to look.

use super::lease_ops::Leases;
use super::servers::fault;
use super::sessions::Session;
use super::{MetaMachine, Moment};
use crate::ops::{self, Effects, Outcome};
use crate::quota::{self, Charge};
use crate::schema::{self, SessionRecord, key};
use std::collections::{BTreeMap, VecDeque};
use weir_metastore::{Engine, Key, Tx, Value, key_after, transact};
use weir_types::{Caller, Error, ErrorKind, FileId, Result, SessionId, TargetId};

/// Transactions per tick.
pub(super) const TICK_STEPS: usize = 256;
/// Keys read at a time.
const PAGE: usize = 1024;

/// Pending work.
#[derive(Debug)]
pub(super) struct Background {
    /// Files without names that are not open any more.
    collect: VecDeque<FileId>,
    /// Ended sessions.
    ended: VecDeque<SessionId>,
    /// Whether there may be dead lists.
    pub dead_lists: bool,
    /// Where the next garbage of each target begins.
    pub garbage_from: BTreeMap<TargetId, Vec<u8>>,
    /// Whether the store may have files without names that are not in memory.
    orphans_unknown: bool,
    /// Whether clients may still report their open files.
    settling: bool,
    /// Whether the last step counted for quotas.
    counted: bool,
}

impl Default for Background {
    fn default() -> Self {
        Self {
            collect: VecDeque::new(),
            ended: VecDeque::new(),
            dead_lists: true,
            garbage_from: BTreeMap::new(),
            orphans_unknown: true,
            settling: true,
            counted: false,
        }
    }
}

impl Background {
    /// Adds a file without a name that is not open any more.
    pub fn collect(&mut self, file: FileId) {
        self.collect.push_back(file);
    }

    /// Searches the store again for work that a transaction may have left.
    pub fn look_again(&mut self) {
        self.dead_lists = true;
        self.orphans_unknown = true;
    }

    fn is_idle(&self) -> bool {
        let unknown = self.dead_lists || self.orphans_unknown;
        self.collect.is_empty() && self.ended.is_empty() && !unknown
    }
}

impl<E: Engine> MetaMachine<E> {
    /// Finds sessions and files without names of earlier processes.
    pub(super) fn load(&mut self, now: Moment) -> Result<()> {
        let (start, end) = key::sessions();
        each(&self.engine, start, &end, |key, bytes| {
            let session = key::session_id(key)?;
            let record: SessionRecord = schema::decode(bytes, "of a session")?;
            if record.ended {
                self.background.ended.push_back(session);
            } else {
                let known = Session::new(record.client, now.monotonic_ms, false);
                self.sessions.by_id.insert(session, known);
            }
            Ok(())
        })?;
        self.leases = Leases::new(now.unix_ms(), self.sessions.by_id.keys().copied().collect());
        self.find_orphans()?;
        if self.sessions.by_id.is_empty() {
            self.settle();
        }
        Ok(())
    }

    fn find_orphans(&mut self) -> Result<()> {
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
    pub(super) fn settle(&mut self) {
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

    pub(super) fn expire_sessions(&mut self, now: Moment) -> Result<()> {
        let deadline_ms = now.monotonic_ms.saturating_sub(self.times.session_timeout_ms);
        for session in self.sessions.silent_since(deadline_ms) {
            self.end_session(session, false)?;
            self.counters.sessions_expired += 1;
        }
        Ok(())
    }

    /// Ends a session. `in_order` says that the client has asked for it, and has written
    /// everything.
    pub(super) fn end_session(&mut self, session: SessionId, in_order: bool) -> Result<()> {
        transact(&mut self.engine, |tx| {
            let at = key::session(session);
            let Some(bytes) = tx.get(&at)? else { return Ok(()) };
            let record: SessionRecord = schema::decode(&bytes, "of a session")?;
            let record = SessionRecord { ended: true, ..record };
            Ok::<(), Error>(tx.put(&at, &schema::encode(&record))?)
        })?;
        self.sessions.by_id.remove(&session);
        for file in self.opens.end(session) {
            if self.orphans.contains(&file) {
                self.background.collect(file);
            }
        }
        self.forget_session(session, in_order);
        self.background.ended.push_back(session);
        tracing::info!(session = session.0, in_order, "session ended");
        Ok(())
    }

    /// Whether [`MetaMachine::work`] has anything to do.
    pub fn has_work(&self) -> bool {
        !self.background.is_idle() || self.quotas.is_counting() || self.mover.has_work()
    }

    /// Runs at most `steps` transactions of background work.
    ///
    /// # Errors
    /// Those of the engine. An invalid record is logged, and ignored until the next start: it must
    /// not stop the server. After `NoSpace` the work is still recorded, and can wait.
    pub fn work(&mut self, steps: usize, now: Moment) -> Result<()> {
        for _ in 0..steps {
            // Copies are made while files are counted: they take turns.
            let (moves, counts) = (self.mover.has_work(), self.quotas.is_counting());
            self.background.counted = counts && !(moves && self.background.counted);
            let step = match self.background.is_idle() {
                false => self.step(now),
                true if self.background.counted => self.count_for_quotas(),
                true if moves => self.step_mover(now),
                true => break,
            };
            match step {
                Err(error) if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                    tracing::error!("background work: {error}");
                }
                Err(error) if error.kind == ErrorKind::NoSpace => {
                    self.background.look_again();
                    return Err(error);
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Runs one transaction. Its item is dropped if it fails.
    fn step(&mut self, now: Moment) -> Result<()> {
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

/// Calls `visit` for every key of a range, a page at a time.
pub(super) fn each(
    engine: &dyn Engine,
    mut start: Vec<u8>,
    end: &[u8],
    mut visit: impl FnMut(&Key, &Value) -> Result<()>,
) -> Result<()> {
    loop {
        let page = Tx::new(engine).range(&start, end, PAGE)?;
        for (key, value) in &page {
            visit(key, value)?;
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => start = key_after(last).into_vec(),
            _ => return Ok(()),
        }
    }
}
