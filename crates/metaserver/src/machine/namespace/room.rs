//! Limits of leases: a session at its limit gives up its oldest leases, and has to wait only if it
//! is slow at that.

use crate::leases::events::Ask;
use crate::leases::ranges::{Room, whole};
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use std::collections::BTreeSet;
use weir_metastore::Engine;
use weir_types::SessionId;
use weir_wire::lease::{LeaseMode, LeaseRange};

/// Number of files whose leases are recalled at the same time, and twice as many if the first are
/// slow. It is half of what a client handles at once, since other sessions recall leases too.
const AT_ONCE: usize = 16;
/// A recall that takes longer than this (its data server may be away) is not waited for alone.
const SOON_MS: u64 = 1_000;

impl<E: Engine> MetaMachine<E> {
    /// Sets the most pieces of leases of a session. It may exceed that only until it has given
    /// others up.
    pub fn limit_leases(&mut self, most: usize) {
        self.leases.ranges.limit(most);
    }

    /// Whether a session may be granted this lease now. At its limit some of its oldest leases are
    /// recalled.
    pub(super) fn has_room(&mut self, session: SessionId, lease: &LeaseRange, now: Moment) -> bool {
        if self.leases.ranges.covers(session, lease) {
            return true;
        }
        let room = self.leases.ranges.room(session);
        if room != Room::Yes {
            self.make_room(session, lease, now);
        }
        room != Room::No
    }

    fn make_room(&mut self, session: SessionId, lease: &LeaseRange, now: Moment) {
        let leases = &mut self.leases;
        let mut asked = leases.room_asked.remove(&session).unwrap_or_default();
        asked.retain(|number| leases.events.since(session, *number).is_some());
        let recent = |number: &&u64| {
            let since = leases.events.since(session, **number).unwrap_or(0);
            now.monotonic_ms.saturating_sub(since) < SOON_MS
        };
        let at_once = leases.ranges.spare().min(AT_ONCE);
        let more = at_once.saturating_sub(asked.iter().filter(recent).count());
        let more = more.min((2 * at_once).saturating_sub(asked.len()));
        let free = |file: &_| *file != lease.file && !leases.events.concern(session, *file);
        let mut files: BTreeSet<_> =
            leases.ranges.oldest(session).filter(free).take(more).collect();
        if files.is_empty() && asked.is_empty() && !leases.events.concern(session, lease.file) {
            // It holds so many pieces of this one.
            files.insert(lease.file);
        }
        for file in files {
            let ask = Ask::recall(&whole(file, LeaseMode::Write));
            let Some(number) = self.send_event(session, &ask, now) else { break };
            asked.insert(number);
        }
        if !asked.is_empty() {
            self.leases.room_asked.insert(session, asked);
        }
    }
}
