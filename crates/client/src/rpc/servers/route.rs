//! The ways to a server: directly, or over the server of another copy.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_types::TargetId;
use weir_wire::data::Access;

/// A server is considered reachable for this long after any reply, milliseconds.
const QUIET_MS: u64 = 500;

/// Proofs for the servers of other copies of a column, computed when they are needed.
pub(crate) struct Detours<'a>(pub(super) Option<&'a dyn Fn() -> Vec<Access>>);

impl<'a> Detours<'a> {
    pub(crate) fn none() -> Self {
        Self(None)
    }

    pub(crate) fn of(all: &'a dyn Fn() -> Vec<Access>) -> Self {
        Self(Some(all))
    }
}

/// Reachability of a server. Times are in milliseconds of [`clock::uptime`], 0 for never.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// Time of the last failed direct attempt; 0 if the server is reachable directly.
    pub(super) cut_ms: AtomicU64,
    /// Time of the last direct reply.
    heard_ms: AtomicU64,
    /// Times of the last replies over detours, by their targets. A reply on one route says nothing
    /// of another.
    heard_via: Mutex<BTreeMap<TargetId, u64>>,
    /// Time at which a waiting call has last checked that the server is reachable.
    sure_ms: AtomicU64,
}

impl Route {
    pub(super) fn is_cut(&self) -> bool {
        self.cut_ms.load(Relaxed) > 0
    }

    pub(super) fn cut(&self, cut: bool) {
        self.cut_ms.store(if cut { now_ms() } else { 0 }, Relaxed);
    }

    pub(super) fn heard(&self, via: Option<TargetId>) {
        match via {
            None => self.heard_ms.store(now_ms(), Relaxed),
            Some(via) => drop(self.heard_via.lock().insert(via, now_ms())),
        }
    }

    /// Forgets what was heard over detours.
    pub(super) fn forget_detours(&self) {
        self.heard_via.lock().clear();
    }

    /// Whether it is time to check a route. If so, no other call does for a while.
    pub(super) fn is_quiet(&self, via: Option<TargetId>) -> bool {
        let (now, sure) = (now_ms(), self.sure_ms.load(Relaxed));
        let quiet = |at: u64| now.saturating_sub(at) >= QUIET_MS;
        let heard = match via {
            None => self.heard_ms.load(Relaxed),
            Some(via) => self.heard_via.lock().get(&via).copied().unwrap_or_default(),
        };
        quiet(heard)
            && quiet(sure)
            && self.sure_ms.compare_exchange(sure, now, Relaxed, Relaxed).is_ok()
    }
}

pub(super) fn now_ms() -> u64 {
    (clock::uptime().as_millis() as u64).max(1)
}
