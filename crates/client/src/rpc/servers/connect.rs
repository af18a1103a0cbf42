//! Connections to data servers: taken from a pool, or made.

use super::pool::{DataConn, Idle, Pool};
use super::route::Detours;
use super::{MAP_WAIT_MS, Servers};
use crate::config::Transport;
use crate::context::Context;
use crate::counters::add;
use crate::rpc::session::MetaSession;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_host::clock;
use weir_net::{Address, BlockingConn, Wait, Watch, random_bytes};
use weir_types::{Error, ErrorKind, Result, ServerId, TargetId};
use weir_wire::frame::VERSION;
use weir_wire::handshake::{Attempt, Hello, Identity};
use weir_wire::map::ServerEntry;
use weir_wire::meta::GetTicketsRequest;
use weir_wire::ticket::SealedTicket;

impl Servers {
    /// Takes a connection to the server of a target.
    pub(crate) fn take(
        &self,
        session: &MetaSession,
        target: TargetId,
        wait: &Wait,
    ) -> Result<DataConn> {
        self.take_watched(session, target, wait, None, &Detours::none())
    }

    /// As [`Servers::take`], with a watch that may end the wait, and with detours if a direct
    /// connection fails.
    pub(crate) fn take_watched(
        &self,
        session: &MetaSession,
        target: TargetId,
        wait: &Wait,
        watch: Option<Watch<'_>>,
        detours: &Detours<'_>,
    ) -> Result<DataConn> {
        if self.pool(target).is_none() {
            self.refresh_map(session, true, self.within(wait))?;
        }
        let taken = self.take_from_pool(session, target, (wait, watch), detours);
        if taken.as_ref().is_err_and(|e| e.kind != ErrorKind::TooManyOpen)
            // The map may be out of reach just now: the error at hand says more. Often
            // nothing is left of the wait, which says nothing of the metadata server.
            && let Err(e) = self.refresh_map(session, false, MAP_WAIT_MS)
        {
            tracing::debug!("cluster map not refreshed: {e}");
        }
        taken
    }

    /// As [`Servers::take`], with the map as last seen: a caller with another copy to ask does not
    /// wait for a newer map.
    pub(crate) fn take_known(
        &self,
        session: &MetaSession,
        target: TargetId,
        wait: &Wait,
        detours: &Detours<'_>,
    ) -> Result<DataConn> {
        self.take_from_pool(session, target, (wait, None), detours)
    }

    pub(super) fn take_from_pool(
        &self,
        session: &MetaSession,
        target: TargetId,
        (wait, watch): (&Wait, Option<Watch<'_>>),
        detours: &Detours<'_>,
    ) -> Result<DataConn> {
        let pool = self.pool(target).ok_or_else(|| {
            Error::new(
                ErrorKind::TargetMissing,
                format!("target {target} is not part of the cluster any more"),
            )
        })?;
        let attempt = pool.attempt.load(Relaxed);
        let idle = pool.usable(session.id()).pop();
        if let Some(idle) = idle {
            return Ok(DataConn::new(idle, pool));
        }
        let server = pool.server;
        match self.open(session, &pool, attempt, (wait, watch), detours) {
            Ok(idle) => Ok(DataConn::new(idle, pool)),
            Err(error) => {
                if error.kind == ErrorKind::TooManyOpen {
                    self.close_idle();
                } else {
                    // It may have come back elsewhere, or under new keys.
                    self.tickets.lock().remove(&server);
                }
                Err(error.context(format!("target {target} on server {server}")))
            }
        }
    }

    /// Makes one more connection to the server of a target if fewer than `count` are idle, and if
    /// that many to each server are only a part of this process's descriptors.
    pub(super) fn connect_ahead(
        &self,
        session: &MetaSession,
        target: TargetId,
        count: usize,
        wait: &Wait,
    ) -> Result<()> {
        let Some(pool) = self.pool(target) else { return Ok(()) };
        let all = count * self.known.read().pools.len();
        // The lock is not kept: what is made is put there.
        let idle = pool.usable(session.id()).len();
        if all <= self.max_ahead && idle < count.min(pool.max_idle) {
            let attempt = pool.attempt.load(Relaxed);
            pool.keep(self.open(session, &pool, attempt, (wait, None), &Detours::none())?);
        }
        Ok(())
    }

    /// Timeout of a request to the metadata server within a wait, milliseconds.
    fn within(&self, wait: &Wait) -> u64 {
        (wait.remaining().as_millis() as u64).min(self.config.request_timeout_ms)
    }

    /// Closes idle connections to a target's server and drops its ticket.
    pub(crate) fn forget(&self, target: TargetId) {
        if let Some(pool) = self.pool(target) {
            pool.idle.lock().clear();
            self.tickets.lock().remove(&pool.server);
        }
    }

    /// Closes all idle connections.
    fn close_idle(&self) {
        let pools: Vec<_> = self.known.read().pools.values().cloned().collect();
        pools.iter().for_each(|pool| pool.idle.lock().clear());
    }

    /// Closes connections that were idle for longer than `age`, except one to each server. Returns
    /// their number.
    pub(crate) fn close_unused(&self, age: Duration) -> usize {
        let pools: Vec<_> = self.known.read().pools.values().cloned().collect();
        let now = clock::uptime();
        let close = |pool: &Arc<Pool>| {
            let mut idle = pool.idle.lock();
            // The one used last is taken next.
            let rest = idle.len().saturating_sub(1);
            let old = idle[..rest].iter().take_while(|idle| now.saturating_sub(idle.since) > age);
            let old = old.count();
            let closed: Vec<Idle> = idle.drain(..old).collect();
            drop(idle);
            closed.len()
        };
        pools.iter().map(close).sum()
    }

    /// Connects to a server. A `detour` is a connection to another server that forwards it.
    pub(super) fn connect(
        &self,
        session: &MetaSession,
        server: ServerId,
        attempt: u64,
        (wait, watch): (&Wait, Option<Watch<'_>>),
        detour: Option<(TargetId, BlockingConn)>,
    ) -> Result<Idle> {
        let address = {
            let known = self.known.read();
            let entry = known.map.iter().flat_map(|m| &m.servers).find(|s| s.server == server);
            let entry = entry.ok_or_else(|| {
                Error::new(ErrorKind::TargetMissing, format!("server {server} is not in the map"))
            })?;
            self.address_of(entry)?
        };
        let ticket = self.ticket(session, server, self.within(wait))?;
        let key = ticket.open(&self.config.key);
        let of = ticket.ticket.session;
        let hello = Hello {
            version: VERSION,
            session: ticket.ticket.session,
            identity: Identity::Ticket(ticket.ticket, Attempt { run: self.run, number: attempt }),
            nonce: random_bytes()?,
            name: self.config.name.clone(),
            host: self.host.clone(),
            // The connection to the metadata server is at what the cluster requires, or above it.
            protection: self.config.protection.max(session.level()),
        };
        let via = detour.as_ref().map(|(via, _)| *via);
        let connected = match detour {
            None => BlockingConn::connect_watched(&address, key, &hello, wait, watch),
            Some((_, conn)) => conn.go_on_with(&address, key, &hello, wait, watch),
        };
        let (conn, welcome) = connected.map_err(|e| e.context(format!("{address}")))?;
        add(&self.counters.data_connections, 1);
        let (runs, since) = (welcome.runs, clock::uptime());
        Ok(Idle { session: of, attempt, runs, via, conn, since })
    }

    fn address_of(&self, entry: &ServerEntry) -> Result<Address> {
        let local = self.config.transport == Transport::Auto
            && !entry.unix.is_empty()
            && entry.host == self.host
            && is_there(&entry.unix);
        Address::parse(if local { &entry.unix } else { &entry.tcp })
    }

    fn ticket(
        &self,
        session: &MetaSession,
        server: ServerId,
        time_ms: u64,
    ) -> Result<SealedTicket> {
        if let Some(ticket) = self.tickets.lock().get(&server)
            && ticket.ticket.session == session.id()
        {
            return Ok(ticket.clone());
        }
        let request = GetTicketsRequest { servers: vec![server] };
        let tickets = session.ask_within(&Context::root(), &request, time_ms).0;
        let ticket = tickets?.pop().ok_or_else(|| {
            Error::new(ErrorKind::TargetMissing, format!("no ticket for server {server}"))
        })?;
        self.tickets.lock().insert(server, ticket.clone());
        Ok(ticket)
    }
}

/// Whether a path exists.
#[expect(clippy::disallowed_methods, reason = "simulated servers have no Unix sockets")]
fn is_there(path: &str) -> bool {
    std::path::Path::new(path).exists()
}
