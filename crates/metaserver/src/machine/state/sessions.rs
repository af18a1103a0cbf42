//! Sessions in memory: when they were last heard of, and the state of their slots.

use std::collections::BTreeMap;
use weir_types::limits::MAX_SLOTS;
use weir_types::{ClientId, SessionId, SlotId};

/// The most sessions.
pub const MAX_SESSIONS: usize = 65_536;

/// State of a slot in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Unknown: the process has started since its last mutation, or the outcome of that is unknown.
    Unknown,
    /// Number of its last mutation (0 for none), which this process has carried out or seen.
    At(u64),
}

/// One run of a client.
#[derive(Debug)]
pub struct Session {
    pub client: ClientId,
    /// Host of its last connection; empty if unknown.
    pub host: String,
    /// Begin of the session; `None` if it is older than this process. Like `heard_ms` in
    /// milliseconds on the monotonic clock.
    pub began_ms: Option<u64>,
    pub last_heard_ms: u64,
    slots: Vec<Option<Slot>>,
    fresh: bool,
}

impl Session {
    /// `fresh` says that it was just made, so that its slots had no mutation.
    pub fn new(client: ClientId, now_ms: u64, fresh: bool) -> Self {
        let (host, slots) = Default::default();
        let began_ms = fresh.then_some(now_ms);
        Self { client, host, began_ms, last_heard_ms: now_ms, slots, fresh }
    }

    pub fn slot(&self, slot: SlotId) -> Slot {
        let none = if self.fresh { Slot::At(0) } else { Slot::Unknown };
        self.slots.get(usize::from(slot.0)).copied().flatten().unwrap_or(none)
    }

    /// `slot` is below [`MAX_SLOTS`].
    pub fn set_slot(&mut self, slot: SlotId, to: Slot) {
        debug_assert!(slot.0 < MAX_SLOTS);
        let at = usize::from(slot.0);
        if self.slots.len() <= at {
            self.slots.resize(at + 1, None);
        }
        self.slots[at] = Some(to);
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    pub by_id: BTreeMap<SessionId, Session>,
}

impl Sessions {
    /// Records a frame of a session; `None` if there is no such session (any more).
    pub fn heard(&mut self, session: SessionId, now_ms: u64) -> Option<&mut Session> {
        let found = self.by_id.get_mut(&session)?;
        found.last_heard_ms = now_ms;
        Some(found)
    }

    /// Sessions that were silent since `deadline_ms`.
    pub fn silent_since(&self, deadline_ms: u64) -> Vec<SessionId> {
        let silent = self.by_id.iter().filter(|(_, s)| s.last_heard_ms < deadline_ms);
        silent.map(|(id, _)| *id).collect()
    }

    /// Excludes the time in which this process was stopped from the silence of sessions.
    pub fn forgive(&mut self, now_ms: u64) {
        self.by_id.values_mut().for_each(|session| session.last_heard_ms = now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_this_process_does_not_know_is_looked_up() {
        let mut old = Session::new(ClientId(1), 0, false);
        assert_eq!(old.slot(SlotId(3)), Slot::Unknown);
        old.set_slot(SlotId(3), Slot::At(9));
        assert_eq!(old.slot(SlotId(3)), Slot::At(9));
        assert_eq!(old.slot(SlotId(2)), Slot::Unknown);
        let mut new = Session::new(ClientId(1), 0, true);
        assert_eq!(new.slot(SlotId(2)), Slot::At(0));
        new.set_slot(SlotId(2), Slot::Unknown);
        assert_eq!(new.slot(SlotId(2)), Slot::Unknown);
    }
}
