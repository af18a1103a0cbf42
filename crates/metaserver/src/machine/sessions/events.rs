//! Events: what sessions are asked to give up or to report, how they hear of it, and what they answer.

use crate::leases::events::Ask;
use crate::machine::answer::{Answer, Reply};
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::leases::Poll;
use weir_metastore::Engine;
use weir_types::SessionId;
use weir_wire::Rights;
use weir_wire::lease::{EventAck, Events as EventsReply, LeaseRange};

/// A poll waits for this part of the lease time: clients use its first four fifths only.
const POLL_PART: u64 = 4;

impl<E: Engine> MetaMachine<E> {
    /// Sends an event; `None` if the session has too many unacknowledged ones.
    pub(in crate::machine) fn send_event(
        &mut self,
        who: SessionId,
        ask: &Ask,
        now: Moment,
    ) -> Option<u64> {
        let (number, new) = self.leases.events.send(who, ask, now.monotonic_ms)?;
        if new {
            self.leases.counters.sent += 1;
            self.leases.counters.recalled += u64::from(matches!(ask, Ask::Recall(..)));
            self.answer_poll(who, false);
        }
        Some(number)
    }

    /// Makes a session that did not answer give up everything.
    pub(in crate::machine) fn lapse(&mut self, who: SessionId, now: Moment) {
        self.leases.waiting.session_changed(who);
        if self.sessions.by_id.contains_key(&who) {
            self.leases.events.lapse(who, now.monotonic_ms);
            // There is room for events again.
            self.leases.waiting.others_changed();
            self.answer_poll(who, false);
            tracing::warn!(session = who.0, "a client that did not answer lost its leases");
        }
    }

    /// Answers a session's poll if there are events, or `anyway`.
    pub(in crate::machine) fn answer_poll(&mut self, session: SessionId, anyway: bool) {
        let Some(poll) = self.leases.polls.get(&session) else { return };
        let Some(reply) = self.news(session, poll.have, anyway) else { return };
        let ticket = poll.ticket;
        self.leases.polls.remove(&session);
        self.leases.answers.push((ticket, Answer::Now(reply)));
    }

    fn news(&self, session: SessionId, have: u64, anyway: bool) -> Option<Reply> {
        let news = self.leases.events.news(session, have);
        let (events, lapsed) = match news {
            None if !anyway => return None,
            news => news.unwrap_or_default(),
        };
        let reply = EventsReply { events, lease_ms: self.times.lease_ms, lapsed };
        Some(Reply { events: self.leases.events.last(session), ..Reply::ok(&reply) })
    }

    pub(in crate::machine) fn poll_events(
        &mut self,
        session: SessionId,
        have: u64,
        now: Moment,
    ) -> Answer {
        // Whoever asks again has given up on the first.
        self.answer_poll(session, true);
        self.leases.events.polls(session);
        // The first brings the lease time. And a client that was stopped or cut
        // off uses nothing before it knows that nothing was taken from it.
        let before = self.leases.polled_ms.insert(session, now.monotonic_ms);
        let silent_ms = before.map(|before| now.monotonic_ms.saturating_sub(before));
        let anew = silent_ms.is_none_or(|silent| silent > self.times.lease_ms / 2);
        if let Some(reply) = self.news(session, have, anew) {
            return Answer::Now(reply);
        }
        let ticket = self.leases.waiting.ticket();
        let until_ms = now.monotonic_ms + self.times.lease_ms / POLL_PART;
        self.leases.polls.insert(session, Poll { ticket, have, until_ms });
        Answer::Parked(ticket)
    }

    pub(in crate::machine) fn ack_events(&mut self, session: SessionId, acks: &[EventAck]) {
        for ack in acks {
            let Some(ask) = self.leases.events.acknowledged(session, ack.number) else { continue };
            self.leases.counters.acknowledged += 1;
            let leases = &mut self.leases;
            match &ask {
                Ask::Attributes(file) => {
                    leases.beliefs.remove(session, *file);
                    if ack.holds {
                        leases.beliefs.still_knows(session, *file);
                    }
                }
                Ask::Removal(file) => {
                    leases.beliefs.was_told(session, *file);
                    if ack.holds && self.opens.check_room(session).is_ok() {
                        self.opens.open(session, *file, Rights::NONE);
                    }
                }
                Ask::Name(dir, _) if ack.forgotten => leases.beliefs.remove(session, *dir),
                Ask::Recall(file, ..) if ack.unconfirmed => leases.disown(session, *file),
                &Ask::Recall(file, start, end, mode) => {
                    leases.ranges.give_up(session, &LeaseRange { file, start, end, mode });
                }
                Ask::Name(..) | Ask::Report(_) => {}
            }
            leases.waiting.event_over(session, ack.number);
        }
        // There is room for events again.
        self.leases.waiting.others_changed();
    }
}
