//! Joining a session: a server that does not know what this client holds is told of it.

use super::claims::{Claimed, REASSERT_BATCH};
use super::unsynced::boot_of;
use super::{Joined, MetaSession};
use crate::config::Consistency;
use crate::context::Context;
use weir_host::clock;
use weir_host::plant::{Bug, planted};
use weir_net::{BlockingConn, Wait};
use weir_types::{Error, ErrorKind, Result, SessionId};
use weir_wire::handshake::Welcome;
use weir_wire::lease::{Events, LeaseRange, PollEventsRequest};
use weir_wire::lock::{Lock, ReassertLocksRequest};
use weir_wire::meta::{MetaPrefix, ReassertRequest};
use weir_wire::{Header, Request};

impl MetaSession {
    /// Makes sure that this run of the server knows this client's open files.
    pub(super) fn joined(
        &self,
        mut conn: BlockingConn,
        welcome: &Welcome,
        wait: &Wait,
    ) -> Result<Joined> {
        let _one = self.reassert.lock();
        let (new_session, new_instance, forgets) = {
            let mut state = self.lock();
            let new_session = state.session != welcome.session;
            if new_session && state.session != SessionId(0) {
                // Another thread was quicker to open a new session: join that one.
                return Err(Error::new(ErrorKind::Unreachable, "the session changed; try again"));
            }
            state.session = welcome.session;
            state.level = conn.level();
            let forgets = state.boot != Some(boot_of(welcome.instance));
            (new_session, state.instance != Some(welcome.instance), forgets)
        };
        if new_session {
            self.slots.reset();
        }
        if new_session || new_instance {
            self.reassert(&mut conn, forgets, wait)?;
            let mut state = self.lock();
            state.instance = Some(welcome.instance);
            state.boot = Some(boot_of(welcome.instance));
        }
        let epoch = self.lock().epoch;
        Ok(Joined { conn, session: welcome.session, instance: welcome.instance, epoch })
    }

    /// Reports open files and leases to a server that does not know them.
    fn reassert(&self, conn: &mut BlockingConn, forgets: bool, wait: &Wait) -> Result<()> {
        let of_one = || self.wait_for_one_answer(wait);
        let epoch = {
            let mut state = self.lock();
            state.epoch += 1;
            state.epoch
        };
        let Claimed { files, held, leases } = self.claims.begin(epoch, forgets);
        let (files, held) = match planted(Bug::SkipReassert) {
            true => Default::default(),
            false => (files, held),
        };
        let leases = if planted(Bug::SkipReassertLeases) { Vec::new() } else { leases };
        let ctx = Context::root();
        let prefix = MetaPrefix { caller: ctx.caller.clone(), mutation: None };
        // Locks and leases are believed of who has the file open: files first.
        // The first says that whatever broke off before does not count.
        for batch in 0..files.len().max(held.len()).div_ceil(REASSERT_BATCH).max(1) {
            let (first, leases) = (batch == 0, Vec::new());
            let (files, held) = (part(&files, batch), part(&held, batch));
            let request = ReassertRequest { first, files, held, leases, last: false };
            self.reassert_files(conn, &prefix, &request, &of_one())?;
        }
        for batch in self.claims.locks().chunks(REASSERT_BATCH) {
            let request = ReassertLocksRequest { locks: batch.to_vec() };
            let header = Header::request(ReassertLocksRequest::OP, conn.next_request_id());
            let wait = of_one();
            conn.send(header, &(&prefix, &request), &[], &[], &wait)?;
            self.claims.lost_locks(&conn.recv_reply::<Vec<Lock>>(&wait)?);
        }
        let batches = leases.len().div_ceil(REASSERT_BATCH).max(1);
        for batch in 0..batches {
            let (leases, last) = (part(&leases, batch), batch + 1 == batches);
            let (files, held) = (Vec::new(), Vec::new());
            let request = ReassertRequest { first: false, files, held, leases, last };
            self.reassert_files(conn, &prefix, &request, &of_one())?;
        }
        if self.config.consistency == Consistency::Strict {
            self.first_poll(conn, &prefix, &of_one())?;
        }
        Ok(())
    }

    fn reassert_files(
        &self,
        conn: &mut BlockingConn,
        prefix: &MetaPrefix,
        request: &ReassertRequest,
        wait: &Wait,
    ) -> Result<()> {
        let header = Header::request(ReassertRequest::OP, conn.next_request_id());
        conn.send(header, &(prefix, request), &[], &[], wait)?;
        let lost = conn.recv_reply::<Vec<LeaseRange>>(wait)?;
        self.claims.lost(&lost.iter().map(|lease| lease.file).collect::<Vec<_>>());
        Ok(())
    }

    /// Sends the first poll: before it the server lets the session cache nothing. It is answered at
    /// once, and the next poll brings the same events again.
    fn first_poll(&self, conn: &mut BlockingConn, prefix: &MetaPrefix, wait: &Wait) -> Result<()> {
        let sent = clock::since_boot();
        let header = Header::request(PollEventsRequest::OP, conn.next_request_id());
        conn.send(header, &(prefix, &PollEventsRequest { have: 0 }), &[], &[], wait)?;
        let news = conn.recv_reply::<Events>(wait)?;
        if !news.lapsed {
            self.clock.polled(sent, news.lease_ms);
        }
        Ok(())
    }
}

/// The items of one batch.
fn part<T: Clone>(list: &[T], batch: usize) -> Vec<T> {
    list.iter().skip(batch * REASSERT_BATCH).take(REASSERT_BATCH).cloned().collect()
}
