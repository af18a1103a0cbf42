//! Detours to a server that this client cannot reach while others can: the server of another copy
//! forwards the connection. Client and far server authenticate each other on it, and all requests
//! on it count as an attempt of this client there.
//!
//! A failure to reach a server is remembered until the server is reached again. That is tried every
//! [`TRY_MS`] in the background, so that no call waits for it.

use super::Servers;
use super::pool::{DataConn, Idle, Pool};
use super::route::{Detours, now_ms};
use crate::rpc::session::MetaSession;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weir_net::{Wait, Watch};
use weir_types::{Error, ErrorKind, Result, TargetId};
use weir_wire::data::{Access, ForwardRequest};
use weir_wire::{Header, Request};

/// Timeout of a direct connection where a detour is possible, milliseconds.
const DIRECT_MS: u64 = 1000;
/// Timeout of later direct attempts, milliseconds.
const RETRY_MS: u64 = 500;
/// Interval of these attempts, milliseconds.
const TRY_MS: u64 = 2000;
/// Timeout for the forwarding server to reach the far one, milliseconds.
const VIA_MS: u64 = 1000;

type Waits<'a> = (&'a Wait, Option<Watch<'a>>);

impl Servers {
    /// Connects directly, or over a detour if that fails.
    pub(super) fn open(
        &self,
        session: &MetaSession,
        pool: &Pool,
        attempt: u64,
        (wait, watch): Waits<'_>,
        detours: &Detours<'_>,
    ) -> Result<Idle> {
        let direct = |wait: &Wait| {
            let opened = self.connect(session, pool.server, attempt, (wait, watch), None);
            opened.inspect(|_| pool.route.heard(None))
        };
        if detours.0.is_none() {
            return direct(wait);
        }
        let was_cut = pool.route.is_cut();
        if was_cut {
            match self.go_round(session, pool, attempt, (wait, watch), detours) {
                Ok(idle) => return Ok(idle),
                // Then it is tried as ever.
                Err(error) => tracing::debug!("server {}: {error}", pool.server),
            }
        }
        let error = match direct(&within(wait, DIRECT_MS)) {
            // Others may reach it by ways that this one does not have.
            Err(error) if is_silence(&error) && was_cut => return Err(error),
            Err(error) if is_silence(&error) => error,
            other => {
                if was_cut && other.is_ok() {
                    Self::mends(pool);
                }
                return other;
            }
        };
        watch.map_or(Ok(()), |watch| (watch.look)())?;
        match self.go_round(session, pool, attempt, (wait, watch), detours) {
            Ok(idle) => {
                tracing::info!("server {} is reached through another: {error}", pool.server);
                pool.route.cut(true);
                Ok(idle)
            }
            Err(other) => {
                tracing::debug!("server {}: {other}", pool.server);
                Err(error)
            }
        }
    }

    /// Tries one detour after the other.
    fn go_round(
        &self,
        session: &MetaSession,
        pool: &Pool,
        attempt: u64,
        (wait, watch): Waits<'_>,
        detours: &Detours<'_>,
    ) -> Result<Idle> {
        let mut failure = Error::new(ErrorKind::Unreachable, "there is no other copy to ask");
        for access in detours.0.map_or(Vec::new(), |all| all()) {
            let via = access.target;
            match self.pool(via) {
                Some(other) if other.server != pool.server && !other.route.is_cut() => {}
                _ => continue,
            }
            let wait = within(wait, VIA_MS);
            let forwarded = self.forwarded(session, access, pool, (&wait, watch));
            let opened = forwarded.and_then(|conn| {
                self.connect(session, pool.server, attempt, (&wait, watch), Some((via, conn.conn)))
            });
            match opened {
                Ok(idle) => {
                    pool.route.heard(Some(via));
                    return Ok(idle);
                }
                Err(error) => failure = error.context(format!("by way of target {via}")),
            }
        }
        Err(failure)
    }

    /// Makes a tunnel over the server of another copy.
    fn forwarded(
        &self,
        session: &MetaSession,
        access: Access,
        pool: &Pool,
        (wait, watch): Waits<'_>,
    ) -> Result<DataConn> {
        let via = access.target;
        let to = access
            .copies
            .iter()
            .map(|copy| copy.target)
            .find(|&target| self.pool(target).is_some_and(|of| of.server == pool.server));
        let to = to.ok_or(ErrorKind::TargetMissing)?;
        let mut conn = self.take_from_pool(session, via, (wait, watch), &Detours::none())?;
        let header = Header::request(ForwardRequest::OP, conn.conn.next_request_id());
        conn.conn.send(header, &ForwardRequest { access, to }, &[], &[], wait)?;
        conn.conn.watch_for_reply(wait, watch)?;
        let answer = conn.conn.recv_reply::<()>(wait);
        match answer {
            Ok(()) => Ok(conn),
            Err(error) => {
                match conn.conn.is_usable() {
                    true => conn.put_back(),
                    false => self.forget(via),
                }
                Err(error)
            }
        }
    }

    /// Records that bytes have arrived on a connection.
    pub(crate) fn heard(&self, conn: &DataConn) {
        conn.pool.route.heard(conn.via);
    }

    /// Whether the server of a target is unreachable directly.
    pub(crate) fn is_cut(&self, target: TargetId) -> bool {
        self.pool(target).is_some_and(|pool| pool.route.is_cut())
    }

    /// Checks that waiting for a reply on a connection makes sense. If its server has been silent
    /// for a while, a new connection attempt finds out.
    ///
    /// # Errors
    /// `Unreachable`: the server has to be reached on another route now.
    pub(crate) fn check_way(
        &self,
        session: &MetaSession,
        conn: &DataConn,
        waits: Waits<'_>,
        detours: &Detours<'_>,
    ) -> Result<()> {
        let pool = &conn.pool;
        let other_way = || {
            let what = format!("server {} is not reached this way any more", pool.server);
            Err(Error::new(ErrorKind::Unreachable, what))
        };
        // Whether it has been cut off since, or is reached again: then no tunnel is looked after
        // any more.
        if pool.route.is_cut() == conn.via.is_none() {
            return other_way();
        }
        if !pool.route.is_quiet(conn.via) {
            return Ok(());
        }
        let attempt = pool.attempt.load(Relaxed);
        match self.open(session, pool, attempt, waits, detours) {
            Ok(idle) => {
                // The one that is waited on may lead by way of one that is gone.
                let other = idle.via != conn.via;
                pool.keep(idle);
                if other { other_way() } else { Ok(()) }
            }
            // It is away, or its answer has come: nothing is gained by giving up.
            Err(error) => {
                tracing::debug!("server {}: {error}", pool.server);
                Ok(())
            }
        }
    }

    /// Tries to reach servers directly again.
    pub(crate) fn try_direct(&self, session: &MetaSession) {
        let due = |pool: &&Arc<Pool>| {
            let cut_ms = pool.route.cut_ms.load(Relaxed);
            cut_ms > 0 && now_ms().saturating_sub(cut_ms) >= TRY_MS
        };
        // One at a time: others wait for the thread that does this.
        let pool = self.known.read().pools.values().find(due).cloned();
        let Some(pool) = pool else { return };
        pool.route.cut(true);
        let (attempt, wait) = (pool.attempt.load(Relaxed), Wait::for_ms(RETRY_MS));
        match self.connect(session, pool.server, attempt, (&wait, None), None) {
            Ok(idle) => {
                tracing::info!("server {} is reached again", pool.server);
                pool.route.heard(None);
                Self::mends(&pool);
                pool.keep(idle);
            }
            Err(error) => tracing::debug!("server {} is not reached: {error}", pool.server),
        }
    }

    fn mends(pool: &Pool) {
        pool.route.cut(false);
        pool.route.forget_detours();
        pool.idle.lock().retain(|idle| idle.via.is_none());
    }
}

/// Whether the error means that a server was silent.
fn is_silence(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut)
}

fn within(wait: &Wait, ms: u64) -> Wait {
    wait.at_most(std::time::Duration::from_millis(ms))
}
