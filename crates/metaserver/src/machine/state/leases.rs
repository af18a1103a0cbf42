//! What clients hold, and the requests that wait for it.

use super::waiting::Waiting;
use crate::leases::beliefs::Beliefs;
use crate::leases::events::Events;
use crate::leases::ranges::Ranges;
use crate::machine::answer::{Answer, ParkedTicket};
use crate::ops::Unsettled;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_types::{FileId, SessionId};

/// Stands for no session: it holds leases of ended sessions whose files still have to be fenced.
pub const NOBODY: SessionId = SessionId(0);

/// Counters of leases.
#[derive(Debug, Default)]
pub struct LeaseCounters {
    pub granted: u64,
    pub recalled: u64,
    pub lapsed: u64,
    pub sent: u64,
    pub acknowledged: u64,
    pub parked: u64,
    pub parked_ms_max: u64,
}

/// State of everything that clients hold.
#[derive(Debug, Default)]
pub struct Leases {
    pub ranges: Ranges,
    pub beliefs: Beliefs,
    pub events: Events,
    pub waiting: Waiting,
    pub counters: LeaseCounters,
    /// Sessions that have not reported what they hold since the server started; `None` after that
    /// time.
    pub grace: Option<BTreeSet<SessionId>>,
    /// Events that ask sessions to make space for more leases.
    pub room_asked: BTreeMap<SessionId, BTreeSet<u64>>,
    pub polls: BTreeMap<SessionId, Poll>,
    /// Time of each session's last poll.
    pub polled_ms: BTreeMap<SessionId, u64>,
    /// Replies to waiting requests.
    pub answers: Vec<(ParkedTicket, Answer)>,
    /// Files on which sessions had write leases when they ended.
    pub orphaned: VecDeque<(SessionId, FileId)>,
    /// Requests that have waited since before this time were logged.
    pub told_until_ms: u64,
}

/// A poll for events that waits for one.
#[derive(Debug)]
pub struct Poll {
    pub ticket: ParkedTicket,
    pub have: u64,
    pub until_ms: u64,
}

impl Leases {
    pub fn new(unix_ms: u64, known: BTreeSet<SessionId>) -> Self {
        Self {
            events: Events::starting(unix_ms),
            grace: (!known.is_empty()).then_some(known),
            ..Self::default()
        }
    }

    /// Stores the reply to a waiting request.
    pub fn answer(&mut self, ticket: ParkedTicket, answer: Answer) {
        self.answers.push((ticket, answer));
    }

    /// Treats a session as dead for one file: its leases there end, but its writes may still
    /// arrive.
    pub fn disown(&mut self, session: SessionId, file: FileId) {
        if self.ranges.writes(session, file) {
            self.ranges.hand_over(session, file, NOBODY);
            self.orphaned.push_back((NOBODY, file));
        }
    }

    /// Names and values for status messages.
    pub fn list(&self, now_ms: u64) -> Vec<(String, u64)> {
        let counters = &self.counters;
        let longest_ms = counters.parked_ms_max.max(self.waiting.longest_ms(now_ms));
        vec![
            ("beliefs".into(), self.beliefs.count() as u64),
            ("events.acknowledged".into(), counters.acknowledged),
            ("events.sent".into(), counters.sent),
            ("leases.granted".into(), counters.granted),
            ("leases.lapsed".into(), counters.lapsed),
            ("leases.recalled".into(), counters.recalled),
            ("parked".into(), counters.parked),
            ("parked_ms_max".into(), longest_ms),
            ("parked_now".into(), self.waiting.count() as u64),
        ]
    }
}

impl Unsettled for Leases {
    fn is_unsettled(&self, session: SessionId, file: FileId) -> bool {
        self.waiting.concern(file)
            || self.events.concern(session, file)
            || !self.ranges.other_writers(session, file).is_empty()
    }
}
