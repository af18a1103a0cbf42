//! Requests for locks of programs. Waiting ones are answered when they are granted, or told to ask
//! again after a while. So requests of vanished clients do not wait for ever, and broken
//! connections are noticed.

use crate::locks::WaitId;
use crate::machine::answer::{Answer, ParkedTicket, Reply};
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use std::collections::BTreeSet;
use weir_metastore::Engine;
use weir_types::{Error, ErrorKind, Result, SessionId};
use weir_wire::lock::{
    CancelLockRequest, Lock, LockMode, LockOutcome, ReassertLocksRequest, SetLockRequest,
};

/// Time after which a waiting client has to ask again.
const WAIT_MS: u64 = 2_000;

impl<E: Engine> MetaMachine<E> {
    /// Refuses requests for locks before all sessions have reported the locks that they hold.
    fn require_locks_known(&self) -> Result<()> {
        if self.leases.grace.is_none() {
            return Ok(());
        }
        let message =
            "the metadata server has just started, and clients still report their locks: try again";
        Err(Error::new(ErrorKind::Overloaded, message))
    }

    /// Requires that the session has the file open: a client without permission to open a file
    /// cannot block others by locks.
    fn require_open(&self, session: SessionId, lock: &Lock) -> Result<()> {
        if self.opens.rights(session, lock.file).is_some() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::BadHandle,
            "a file can be locked only while it is open in the same session",
        ))
    }

    pub(in crate::machine) fn set_lock(
        &mut self,
        session: SessionId,
        asked: &SetLockRequest,
        now: Moment,
    ) -> Result<Answer> {
        self.require_locks_known()?;
        let SetLockRequest { lock, number, floor, wait } = asked;
        if lock.mode != LockMode::Unlock {
            self.require_open(session, lock)?;
        }
        let mut granted = Vec::new();
        self.table.locks.raise_floor(session, (*floor).min(*number), &mut granted);
        self.tell_granted(granted);
        if lock.mode != LockMode::Unlock {
            for holder in self.table.locks.holders(session, lock) {
                self.take_locks_if_silent(holder, now);
            }
        }
        let mut granted = Vec::new();
        let locks = &mut self.table.locks;
        let done = locks.set(session, *number, lock, *wait, now.monotonic_ms, &mut granted);
        self.tell_granted(granted);
        let outcome = done?;
        let id = (session, *number);
        // It was asked again: nobody hears the answer to the first.
        self.table.parked.remove(&id);
        if outcome != LockOutcome::Waiting {
            return Ok(Answer::Now(Reply::ok(&outcome)));
        }
        let ticket = self.leases.waiting.ticket();
        self.table.parked.insert(id, (ticket, now.monotonic_ms + WAIT_MS));
        Ok(Answer::Parked(ticket))
    }

    pub(in crate::machine) fn test_lock(
        &mut self,
        session: SessionId,
        lock: &Lock,
        now: Moment,
    ) -> Result<Option<Lock>> {
        self.require_locks_known()?;
        self.require_open(session, lock)?;
        for holder in self.table.locks.holders(session, lock) {
            self.take_locks_if_silent(holder, now);
        }
        Ok(self.table.locks.test(session, lock))
    }

    pub(in crate::machine) fn cancel_lock(
        &mut self,
        session: SessionId,
        asked: &CancelLockRequest,
    ) -> bool {
        let held = self.table.locks.cancel(session, asked.number);
        self.table.parked.remove(&(session, asked.number));
        let mut granted = Vec::new();
        self.table.locks.raise_floor(session, asked.floor, &mut granted);
        self.tell_granted(granted);
        held
    }

    /// Takes over locks that a client held before the server restarted, or before it was considered
    /// dead. Returns those that it has lost.
    pub(in crate::machine) fn reassert_locks(
        &mut self,
        session: SessionId,
        asked: &ReassertLocksRequest,
    ) -> Result<Vec<Lock>> {
        let mut lost = Vec::new();
        for lock in &asked.locks {
            let may = self.reaches_all(session, &[lock.file])?;
            let open = self.require_open(session, lock).is_ok();
            if !(may && open && self.table.locks.reassert(session, lock)) {
                lost.push(lock.clone());
            }
        }
        Ok(lost)
    }

    /// Drops a waiting request whose connection is gone. Its client may ask again, and keeps its
    /// place.
    pub(in crate::machine) fn lock_dropped(&mut self, ticket: ParkedTicket) {
        self.table.parked.retain(|_, (parked, _)| *parked != ticket);
    }

    /// Tells requests that have waited long to ask again, and revokes locks of silent sessions.
    pub(in crate::machine) fn tick_locks(&mut self, now: Moment) {
        let waiting: Vec<WaitId> = self.table.parked.keys().copied().collect();
        let holders: BTreeSet<SessionId> =
            waiting.iter().flat_map(|id| self.table.locks.blockers(*id)).collect();
        for holder in holders {
            self.take_locks_if_silent(holder, now);
        }
        let mut granted = Vec::new();
        self.table.locks.forget_abandoned(now.monotonic_ms, &mut granted);
        self.tell_granted(granted);
        let late = |(id, (ticket, until_ms)): (&WaitId, &(ParkedTicket, u64))| {
            (*until_ms <= now.monotonic_ms).then_some((*id, *ticket))
        };
        let late: Vec<(WaitId, ParkedTicket)> = self.table.parked.iter().filter_map(late).collect();
        for (id, ticket) in late {
            self.table.parked.remove(&id);
            self.answer_lock(ticket, id, LockOutcome::Waiting);
        }
    }
}
