//! The threads of a client that run beside its calls.

use crate::context::Context;
use crate::presence::Peer;
use crate::state::{Call, Inner, Writer};
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::thread::{self, JoinHandle};
use weir_wire::data::PingRequest;

/// Interval at which the background thread looks for old data.
const TICK: Duration = Duration::from_millis(100);
/// Buffers and connections that were unused for this long are freed.
const UNUSED: Duration = Duration::from_secs(20);
/// A session without requests sends a keepalive after this time.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// A server is pinged if calls have waited for this long without a reply.
const QUIET: Duration = Duration::from_secs(1);

impl Inner {
    /// Waits for the next turn of a background thread. Returns false at the end.
    fn next_turn(&self) -> bool {
        self.turns.next(TICK)
    }

    /// Sends and commits what has waited long enough.
    pub(super) fn flush_regularly(&self) {
        let ctx = Context::root();
        while self.next_turn() {
            let files: Vec<_> =
                self.holdings.opened.lock().files.values().map(|f| f.0.clone()).collect();
            for state in files {
                Writer::flush_old(Call { inner: self, file: &state, ctx: &ctx });
                state.reader().expire();
            }
        }
    }

    /// Frees buffers and connections that were unused lately. Returns whether there were any. `again`
    /// says that there were the last time: what others have freed since is given back, too.
    fn give_back_unused(&self, again: bool) -> bool {
        let bytes = self.buffers.trim();
        let connections = self.servers.close_unused(UNUSED) + self.session.close_unused(UNUSED);
        let some = bytes > 0 || connections > 0;
        if some {
            tracing::debug!(
                "freed {bytes} bytes of unused buffers and {connections} unused connections"
            );
        }
        if some || again {
            weir_host::memory::give_back();
        }
        some
    }

    /// Keeps session and map, and gives back what is unused.
    pub(super) fn keep_alive(self: &Arc<Self>) {
        let (mut trimmed, mut freed) = (clock::now(), false);
        // Nobody who reads no copies needs it.
        let mut asks_for_loads = None;
        while self.next_turn() {
            if asks_for_loads.is_none() && self.servers.has_questions() {
                let inner = self.clone();
                let ask = move || inner.servers.ask_for_loads(&inner.session);
                asks_for_loads = thread::spawn("weir-loads", ask)
                    .inspect_err(|error| tracing::warn!("a thread to ask for loads: {error}"))
                    .ok();
            }
            // What is open may be read, whoever reads it.
            self.send_accesses(self.config.request_timeout_ms);
            self.send_closes();
            if let Err(error) = self.settle_locks() {
                tracing::debug!("locks not released at the server: {error}");
            }
            // Who polls says so with every poll, unless one is late.
            let lease_ms = self.holdings.clock.lease_ms();
            let time = lease_ms.map_or(KEEPALIVE, |ms| Duration::from_millis(ms / 2));
            if self.session.idle_for(KEEPALIVE.min(time))
                && let Err(error) = self.session.call(&Context::root(), &PingRequest {})
            {
                tracing::warn!("metadata server: {error}");
            }
            if clock::elapsed(trimmed) >= UNUSED {
                freed = self.give_back_unused(freed);
                trimmed = clock::now();
            }
            self.servers.keep_map(&self.session);
            self.servers.try_direct(&self.session);
            // Calls that wait for other clients are not to be taken for its silence.
            if self.counters.presence.is_quiet(Peer::Metadata, QUIET)
                && let Err(error) = self.session.ping()
            {
                tracing::debug!("metadata server: {error}");
            }
        }
        // It ends when the client does.
        if asks_for_loads.is_some_and(|thread: JoinHandle| thread.join().is_err()) {
            tracing::error!("the thread that asks for loads panicked");
        }
    }
}
