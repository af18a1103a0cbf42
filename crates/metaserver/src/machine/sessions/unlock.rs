//! Locks that end without a request of their holder, and the answers to who waits for them.

use crate::locks::WaitId;
use crate::machine::answer::{Answer, ParkedTicket, Reply};
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use weir_metastore::Engine;
use weir_types::SessionId;
use weir_wire::lock::LockOutcome;

impl<E: Engine> MetaMachine<E> {
    /// Releases the locks of an ended session.
    pub(super) fn end_locks(&mut self, session: SessionId) {
        let mut granted = Vec::new();
        self.table.locks.end(session, &mut granted);
        self.table.parked.retain(|(waiting, _), _| *waiting != session);
        self.tell_granted(granted);
    }

    /// Revokes the locks of a client that was silent for the lease time, for a request that needs
    /// them.
    pub(in crate::machine) fn take_locks_if_silent(&mut self, holder: SessionId, now: Moment) {
        if self.is_silent(holder, now) && self.table.locks.count(holder) > 0 {
            self.end_locks(holder);
            self.lapse(holder, now);
        }
    }

    pub(in crate::machine) fn tell_granted(&mut self, granted: Vec<WaitId>) {
        for id in granted {
            let Some((ticket, _)) = self.table.parked.remove(&id) else { continue };
            self.table.locks.told(id, self.last_tick_ms);
            self.answer_lock(ticket, id, LockOutcome::Granted);
        }
    }

    pub(in crate::machine) fn answer_lock(
        &mut self,
        ticket: ParkedTicket,
        (session, _): WaitId,
        outcome: LockOutcome,
    ) {
        let events = self.leases.events.last(session);
        let reply = Reply { events, ..Reply::ok(&outcome) };
        self.leases.answer(ticket, Answer::Now(reply));
    }
}
