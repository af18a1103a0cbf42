//! Connections to one data server: idle ones, and those in use.

use super::asking::Asking;
use super::route::Route;
use crate::core::job::JobReader;
use crate::presence::Peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::{Mutex, MutexGuard};
use weir_net::BlockingConn;
use weir_types::{Error, RequestId, ServerId, SessionId, TargetId};
use weir_wire::Header;

/// The idle connections to one server.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(super) server: ServerId,
    pub(super) idle: Mutex<Vec<Idle>>,
    /// Number of the present attempt. Connections of older attempts are not used any more.
    pub(super) attempt: Arc<AtomicU64>,
    pub(super) max_idle: usize,
    /// Until this time, milliseconds of [`clock::uptime`], the server is asked only if no other
    /// copy can be.
    pub(super) doubtful_until_ms: AtomicU64,
    /// Whether a first connection was made, or is going to be made ahead of use.
    pub(super) met: AtomicBool,
    pub(super) route: Route,
}

impl Pool {
    pub(super) fn is_doubtful(&self) -> bool {
        // As a rule 0: no look at the clock.
        let until_ms = self.doubtful_until_ms.load(Relaxed);
        self.route.is_cut() || until_ms > 0 && clock::uptime().as_millis() < u128::from(until_ms)
    }
}

/// An unused connection.
#[derive(Debug)]
pub(super) struct Idle {
    /// The session for which it was opened.
    pub(super) session: SessionId,
    /// The attempt for which it was opened.
    pub(super) attempt: u64,
    pub(super) runs: Vec<(TargetId, u64)>,
    /// The copy whose server passes on what is sent on it.
    pub(super) via: Option<TargetId>,
    pub(super) conn: BlockingConn,
    pub(super) since: Duration,
}

/// A change with an outstanding reply on a connection. If the connection is dropped then, it is
/// unknown whether and when the server carries the change out. All later requests go under a new
/// attempt, which ends that uncertainty.
#[derive(Debug)]
struct Owed {
    change: bool,
    attempt: u64,
    newest: Arc<AtomicU64>,
}

impl Drop for Owed {
    fn drop(&mut self) {
        if self.change {
            self.newest.fetch_max(self.attempt + 1, Relaxed);
        }
    }
}

/// A connection in exclusive use. When dropped it is closed; when put back it serves the next call.
#[derive(Debug)]
pub(crate) struct DataConn {
    pub(crate) conn: BlockingConn,
    /// Id of the request with the outstanding reply.
    pub(crate) request_id: RequestId,
    /// The run of each target's disk: while it is the same, nothing that the target confirmed
    /// was lost.
    runs: Vec<(TargetId, u64)>,
    /// The copy whose server passes on what is sent on it.
    pub(crate) via: Option<TargetId>,
    session: SessionId,
    owed: Owed,
    /// Set while it carries a read of one of several copies.
    pub(super) asking: Option<Asking>,
    pub(super) pool: Arc<Pool>,
}

impl Pool {
    /// Idle connections of this session on which changes may be sent. (A connection of an earlier
    /// session accepts none of the present capabilities, and one of an earlier attempt accepts no
    /// changes.)
    pub(super) fn usable(&self, session: SessionId) -> MutexGuard<'_, Vec<Idle>> {
        let (attempt, mut idle) = (self.attempt.load(Relaxed), self.idle.lock());
        idle.retain(|idle| idle.session == session && idle.attempt >= attempt);
        idle
    }

    /// Keeps a connection for the next call, if there is room.
    pub(super) fn keep(&self, idle: Idle) {
        let mut all = self.idle.lock();
        if all.len() < self.max_idle {
            all.push(idle);
        }
    }
}

impl DataConn {
    pub(super) fn new(idle: Idle, pool: Arc<Pool>) -> Self {
        let Idle { session, attempt, runs, via, conn, since: _ } = idle;
        let owed = Owed { change: false, attempt, newest: pool.attempt.clone() };
        Self { conn, request_id: RequestId(0), runs, via, session, owed, asking: None, pool }
    }

    /// The run of a target's disk; `None`: its server does not say.
    pub(crate) fn run_of(&self, target: TargetId) -> Option<u64> {
        self.runs.iter().find(|(of, _)| *of == target).map(|(_, run)| *run)
    }

    /// The server at its end.
    pub(crate) fn peer(&self) -> Peer {
        Peer::Data(self.pool.server)
    }

    /// Puts back a connection without outstanding replies.
    pub(crate) fn put_back(self) {
        let mut idle = self.pool.idle.lock();
        if idle.len() < self.pool.max_idle {
            let Self { session, runs, via, conn, owed, .. } = self;
            // Direct ones again as soon as there are any.
            if via.is_none() || self.pool.route.is_cut() {
                let (attempt, since) = (owed.attempt, clock::uptime());
                idle.push(Idle { session, attempt, runs, via, conn, since });
            }
        }
    }

    /// Sets whether the reply to a change is outstanding.
    pub(crate) fn owes_change(&mut self, change: bool) {
        self.owed.change = change;
    }

    /// Adds server and target to an error.
    pub(crate) fn in_context(&self, target: TargetId, error: Error) -> Error {
        let place =
            format!("target {target} on server {} ({})", self.pool.server, self.conn.address());
        error.context(place)
    }

    /// Records that a caller waits for the reply to a read.
    pub(crate) fn is_waited_for(&self) {
        if let Some(asking) = &self.asking {
            asking.is_waited_for();
        }
    }

    /// Records the server's report of its target in the reply to a read.
    pub(crate) fn heard_of_pace(&self, reply: &Header, reader: Option<&JobReader>) {
        if let Some(asking) = &self.asking {
            asking.heard(reply, reader, self.conn.arrival());
        }
    }
}
