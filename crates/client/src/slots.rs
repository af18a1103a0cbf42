//! Slots for mutations: each mutation in flight has one, and its number stays
//! the same however often it is sent, so the server does it once.

use std::time::Instant;
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_types::limits::MAX_SLOTS;
use weir_types::{Error, ErrorKind, SlotId, SlotSequence};
use weir_wire::meta::MutationId;

#[derive(Debug, Default)]
struct State {
    /// Last sequence number used by each slot so far opened.
    used: Vec<u64>,
    free: Vec<u16>,
}

/// The slots of one session.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    state: Mutex<State>,
    freed: Condvar,
}

/// A slot in use; free again when dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard<'a> {
    slots: &'a Slots,
    pub(crate) mutation: MutationId,
}

impl Slots {
    /// Takes a slot, waiting until `deadline` if all are in use.
    pub(crate) fn take(&self, deadline: Instant) -> Result<SlotGuard<'_>, Error> {
        let mut state = self.state.lock();
        loop {
            let slot = state.free.pop().or_else(|| {
                let next = state.used.len() as u16;
                (next < MAX_SLOTS).then(|| {
                    state.used.push(0);
                    next
                })
            });
            if let Some(slot) = slot {
                let sequence = &mut state.used[usize::from(slot)];
                *sequence += 1;
                let mutation = MutationId { slot: SlotId(slot), sequence: SlotSequence(*sequence) };
                return Ok(SlotGuard { slots: self, mutation });
            }
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                return Err(Error::new(ErrorKind::Overloaded, "too many changes are in flight"));
            }
            state = self.freed.wait_timeout(state, left);
        }
    }

    /// A new session begins: its slots have not been used.
    pub(crate) fn reset(&self) {
        let mut state = self.state.lock();
        // Numbers may go on growing; they only must not repeat.
        for used in &mut state.used {
            *used += 1;
        }
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        state.free.push(self.mutation.slot.0);
        drop(state);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_slot_never_repeat_and_slots_are_bounded() {
        let slots = Slots::default();
        let soon = || clock::now() + std::time::Duration::from_millis(5);
        let first = slots.take(soon()).unwrap().mutation;
        let again = slots.take(soon()).unwrap().mutation;
        assert_eq!(first.slot, again.slot);
        assert!(again.sequence > first.sequence);
        let held: Vec<_> = (0..MAX_SLOTS).map(|_| slots.take(soon()).unwrap()).collect();
        assert_eq!(slots.take(soon()).unwrap_err().kind, ErrorKind::Overloaded);
        drop(held);
        assert!(slots.take(soon()).is_ok());
    }
}
