//! Sessions that do not answer.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use weir_metastore::Engine;
use weir_types::SessionId;

/// A live session that has not acknowledged an event for this long loses what the event is about.
/// Its own calls have timed out by then.
const PATIENCE_MS: u64 = 40_000;

impl<E: Engine> MetaMachine<E> {
    /// Whether a session was silent for so long that what it holds may be revoked.
    pub(in crate::machine) fn is_silent(&self, session: SessionId, now: Moment) -> bool {
        self.sessions.by_id.get(&session).is_none_or(|known| {
            now.monotonic_ms.saturating_sub(known.last_heard_ms) >= self.times.lease_ms
        })
    }

    /// Whether an event is unacknowledged for too long.
    pub(in crate::machine) fn is_overdue(
        &self,
        session: SessionId,
        number: u64,
        now: Moment,
    ) -> bool {
        let since = self.leases.events.since(session, number);
        self.is_silent(session, now)
            || since.is_some_and(|since| now.monotonic_ms.saturating_sub(since) >= PATIENCE_MS)
    }
}
