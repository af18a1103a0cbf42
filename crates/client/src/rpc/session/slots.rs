//! Slots for mutations. Each mutation in flight has one, and its number stays the same however
//! often it is sent, so the server carries it out once.

use std::cell::Cell;
use std::time::Instant;
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_types::limits::MAX_SLOTS;
use weir_types::{Error, ErrorKind, SessionId, SlotId, SlotSequence};
use weir_wire::message::Op;
use weir_wire::meta::MutationId;

/// Number of slots reserved for [`Urgency::OthersWait`].
const RESERVE: u16 = 32;

/// Urgency of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Only its caller waits for it. It may itself wait until other clients have reported, or have
    /// given up leases.
    CallerWaits,
    /// Other clients wait for it, or calls under a lease that is being recalled. It finds a slot
    /// even if all others are taken by mutations that wait for those clients.
    OthersWait,
}

impl Urgency {
    pub(crate) fn of(op: Op) -> Self {
        match op {
            Op::CommitSize | Op::Extend | Op::Recovered | Op::TruncateDone | Op::Close => {
                Urgency::OthersWait
            }
            _ => Urgency::CallerWaits,
        }
    }

    fn most(self) -> usize {
        usize::from(match self {
            Urgency::CallerWaits => MAX_SLOTS - RESERVE,
            Urgency::OthersWait => MAX_SLOTS,
        })
    }
}

#[derive(Debug, Default)]
struct State {
    /// Last used sequence number of each slot opened so far.
    used: Vec<u64>,
    free: Vec<u16>,
}

/// The slots of one session.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    state: Mutex<State>,
    freed: Condvar,
}

/// A slot in use. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct SlotGuard<'a> {
    slots: &'a Slots,
    pub(crate) mutation: MutationId,
    /// The session in which the mutation may have been done: it was sent there without a reply.
    unanswered: Cell<Option<SessionId>>,
}

impl SlotGuard<'_> {
    /// Records that the mutation was sent in a session and that its outcome is unknown.
    pub(crate) fn has_no_answer(&self, op: Op, session: SessionId) {
        if op.is_for_once() {
            self.unanswered.set(Some(session));
        }
    }

    /// Whether the mutation may be sent in a session. Its number identifies it only in the session
    /// in which it may have been done.
    pub(crate) fn may_be_sent(&self, session: SessionId) -> bool {
        self.unanswered.get().is_none_or(|before| before == session)
    }
}

impl Slots {
    /// Takes a slot. If all are in use, waits until `deadline`.
    pub(crate) fn take(&self, deadline: Instant, who: Urgency) -> Result<SlotGuard<'_>, Error> {
        let mut state = self.state.lock();
        loop {
            let taken = state.used.len() - state.free.len();
            let slot = (taken < who.most()).then(|| {
                state.free.pop().unwrap_or_else(|| {
                    state.used.push(0);
                    (state.used.len() - 1) as u16
                })
            });
            if let Some(slot) = slot {
                let sequence = &mut state.used[usize::from(slot)];
                *sequence += 1;
                let mutation = MutationId { slot: SlotId(slot), sequence: SlotSequence(*sequence) };
                return Ok(SlotGuard { slots: self, mutation, unanswered: Cell::new(None) });
            }
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                return Err(Error::new(ErrorKind::Overloaded, "too many changes are in flight"));
            }
            state = self.freed.wait_timeout(state, left);
        }
    }

    /// Begins a new session, whose slots are unused.
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
        // Not everybody may take it.
        self.slots.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_slot_never_repeat_and_slots_are_bounded() {
        let slots = Slots::default();
        let soon = || clock::now() + std::time::Duration::from_millis(5);
        let take = |who| slots.take(soon(), who);
        let first = take(Urgency::CallerWaits).unwrap().mutation;
        let again = take(Urgency::CallerWaits).unwrap().mutation;
        assert_eq!(first.slot, again.slot);
        assert!(again.sequence > first.sequence);
        let held: Vec<_> =
            (RESERVE..MAX_SLOTS).map(|_| take(Urgency::CallerWaits).unwrap()).collect();
        assert_eq!(take(Urgency::CallerWaits).unwrap_err().kind, ErrorKind::Overloaded);
        let urgent: Vec<_> = (0..RESERVE).map(|_| take(Urgency::OthersWait).unwrap()).collect();
        assert_eq!(take(Urgency::OthersWait).unwrap_err().kind, ErrorKind::Overloaded);
        drop((held, urgent));
        assert!(take(Urgency::CallerWaits).is_ok());
    }

    #[test]
    fn what_may_have_been_done_is_not_sent_in_another_session() {
        let slots = Slots::default();
        let take = || slots.take(clock::now(), Urgency::CallerWaits).unwrap();
        let (create, open) = (take(), take());
        assert!(create.may_be_sent(SessionId(1)));
        create.has_no_answer(Op::Create, SessionId(1));
        open.has_no_answer(Op::Open, SessionId(1));
        assert!(create.may_be_sent(SessionId(1)), "there it is known");
        assert!(!create.may_be_sent(SessionId(2)));
        assert!(open.may_be_sent(SessionId(2)), "what is open ends with a session");
    }
}
