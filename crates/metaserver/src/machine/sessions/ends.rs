//! Ends: of a session, of a request that waits, and of the time after a restart.

use crate::machine::answer::{Answer, ParkedTicket, Reply};
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::waiting::Parked;
use crate::schema::{self, SessionRecord, key};
use weir_metastore::{Engine, transact};
use weir_types::{Error, ErrorKind, Result, SessionId};

impl<E: Engine> MetaMachine<E> {
    pub(in crate::machine) fn expire_sessions(&mut self, now: Moment) -> Result<()> {
        let deadline_ms = now.monotonic_ms.saturating_sub(self.times.session_timeout_ms);
        for session in self.sessions.silent_since(deadline_ms) {
            self.end_session(session, false)?;
            self.counters.sessions_expired += 1;
        }
        Ok(())
    }

    /// Ends a session. `in_order` says that the client has asked for it, and has written
    /// everything.
    pub(in crate::machine) fn end_session(
        &mut self,
        session: SessionId,
        in_order: bool,
    ) -> Result<()> {
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

    /// Removes an ended session. `in_order` says that it had written everything.
    fn forget_session(&mut self, session: SessionId, in_order: bool) {
        for file in self.leases.ranges.files_of(session) {
            if !in_order && self.leases.ranges.writes(session, file) {
                // It stays until the file is fenced.
                self.leases.orphaned.push_back((session, file));
            } else {
                self.leases.ranges.drop_file(session, file);
            }
            self.leases.waiting.file_changed(file);
        }
        self.quotas.grants.end(session);
        self.leases.polled_ms.remove(&session);
        self.leases.room_asked.remove(&session);
        self.end_locks(session);
        self.leases.beliefs.end(session);
        self.leases.events.end(session);
        self.leases.waiting.session_changed(session);
        for ticket in self.leases.waiting.tickets_of(session) {
            let expired = Reply::error(&ErrorKind::SessionExpired.into());
            self.unpark(ticket);
            self.leases.answers.push((ticket, Answer::Now(expired)));
        }
        if let Some(poll) = self.leases.polls.remove(&session) {
            let expired = Reply::error(&ErrorKind::SessionExpired.into());
            self.leases.answers.push((poll.ticket, Answer::Now(expired)));
        }
        self.has_reasserted(session);
    }

    /// Records that a session has reported everything that it holds.
    pub(in crate::machine) fn has_reasserted(&mut self, session: SessionId) {
        let Some(waited) = &mut self.leases.grace else { return };
        waited.remove(&session);
        if waited.is_empty() {
            self.end_grace();
        }
    }

    pub(in crate::machine) fn end_grace(&mut self) {
        if self.leases.grace.take().is_some() {
            self.leases.waiting.others_changed();
        }
    }

    /// Removes a waiting request, and wakes those that waited behind it.
    pub(in crate::machine) fn unpark(&mut self, ticket: ParkedTicket) -> Option<Parked> {
        let parked = self.leases.waiting.take(ticket)?;
        for file in &parked.files {
            self.leases.waiting.file_changed(*file);
        }
        Some(parked)
    }
}
