//! Waiting requests that can go on, and those whose connections are gone.

use crate::machine::answer::{Answer, ParkedTicket, Peer, Reply};
use crate::machine::moment::Moment;
use crate::machine::namespace::consider::Attempted;
use crate::machine::state::MetaMachine;
use crate::machine::state::mover::MOVER;
use crate::machine::state::waiting::Parked;
use weir_metastore::Engine;

impl<E: Engine> MetaMachine<E> {
    /// Drops a waiting request whose connection is gone.
    pub fn dropped(&mut self, ticket: ParkedTicket) {
        self.lock_dropped(ticket);
        self.unpark(ticket);
        self.leases.polls.retain(|_, poll| poll.ticket != ticket);
        self.leases.answers.retain(|(answered, _)| *answered != ticket);
    }

    /// Runs waiting requests that can go on, and returns all replies to waiting requests. To be
    /// called at the end of each turn, before [`MetaMachine::flush`].
    pub fn take_ready(&mut self, now: Moment) -> Vec<(ParkedTicket, Answer)> {
        let done = self.go_on_with_visits(now);
        self.tell_of_visit(done, now);
        while let Some(ticket) = self.leases.waiting.next_ready() {
            let Some(mut parked) = self.leases.waiting.take(ticket) else { continue };
            if parked.session == MOVER {
                let done = self.resume_visit(ticket, parked, now);
                self.tell_of_visit(done, now);
                continue;
            }
            let Parked { session, op, .. } = parked;
            let tried = self.try_run(session, op, &parked.body, ticket, &mut parked.asked, now);
            let answer = match tried {
                Ok(Attempted::Waits(waits, scope)) => {
                    let Parked { body, since_ms, asked, .. } = parked;
                    self.park(ticket, (session, op, body, since_ms), asked, waits, scope);
                    continue;
                }
                Ok(Attempted::Answered(answer)) => answer,
                Err(error) => Answer::Now(Reply::error(&error)),
            };
            for file in &parked.files {
                self.leases.waiting.file_changed(*file);
            }
            let waited_ms = now.monotonic_ms.saturating_sub(parked.since_ms);
            let longest = &mut self.leases.counters.parked_ms_max;
            *longest = waited_ms.max(*longest);
            let answer = self.stamped(Peer::Client(session), op, answer);
            self.leases.answers.push((ticket, answer));
        }
        std::mem::take(&mut self.leases.answers)
    }
}
