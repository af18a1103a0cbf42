//! Requests that wait until other sessions have given something up. They are stored as received,
//! and found by what they wait for and by their files.
//!
//! No thread waits, and the queue is bounded: per session, in all, and in bytes.

use crate::leases::events::Ask;
use crate::leases::ranges::conflict;
use crate::machine::answer::ParkedTicket;
use std::collections::{BTreeMap, BTreeSet};
use weir_types::{Error, ErrorKind, FileId, Result, SessionId};
use weir_wire::lease::LeaseRange;
use weir_wire::message::Op;

/// The most waiting requests of one session.
pub const MAX_OF_SESSION: usize = 1024;
/// The most waiting requests in all.
const MAX_IN_ALL: usize = 65_536;
/// The most bytes of waiting requests.
const MAX_BYTES: usize = 64 << 20;
/// Additional part of each limit for requests that others may be waiting for.
const URGENT_PART: usize = 8;

/// Events sent to other sessions on behalf of a request.
pub type Asked = BTreeMap<(SessionId, Ask), u64>;

/// What a request waits for.
#[derive(Debug, Default)]
pub struct Waits {
    /// Events of sessions.
    pub events: BTreeSet<(SessionId, u64)>,
    /// Whether it waits for an earlier request, for space for an event, or for the end of the time
    /// after a restart.
    pub other: bool,
}

/// A waiting request.
#[derive(Debug)]
pub struct Parked {
    pub session: SessionId,
    pub op: Op,
    /// The request as received, without the header.
    pub body: Vec<u8>,
    pub since_ms: u64,
    /// Files and directories that it will change or report.
    pub files: Vec<FileId>,
    /// Ranges that it takes from others.
    pub claims: Vec<LeaseRange>,
    pub asked: Asked,
    pub waits: Waits,
}

/// All waiting requests.
#[derive(Debug, Default)]
pub struct Waiting {
    parked: BTreeMap<ParkedTicket, Parked>,
    by_file: BTreeSet<(FileId, ParkedTicket)>,
    by_event: BTreeSet<((SessionId, u64), ParkedTicket)>,
    of_session: BTreeMap<SessionId, usize>,
    ready: BTreeSet<ParkedTicket>,
    bytes: usize,
    next: u64,
}

impl Waiting {
    /// A number that no request has had.
    pub fn ticket(&mut self) -> ParkedTicket {
        self.next += 1;
        ParkedTicket(self.next)
    }

    /// Refuses another waiting request. There is always some space for requests that others may be
    /// waiting for.
    ///
    /// # Errors
    /// `Overloaded`.
    pub fn check_room(&self, session: SessionId, op: Op, bytes: usize) -> Result<()> {
        let urgent = matches!(op, Op::CommitSize | Op::Recovered);
        let most = |most: usize| if urgent { most + most / URGENT_PART } else { most };
        let full = self.of_session.get(&session).copied().unwrap_or(0) >= most(MAX_OF_SESSION)
            || self.parked.len() >= most(MAX_IN_ALL)
            || self.bytes + bytes > most(MAX_BYTES);
        if full {
            let message = "too many requests wait for other clients: try again";
            return Err(Error::new(ErrorKind::Overloaded, message));
        }
        Ok(())
    }

    /// Stores a waiting request, for the first time or again.
    pub fn park(&mut self, ticket: ParkedTicket, parked: Parked) {
        self.by_file.extend(parked.files.iter().map(|file| (*file, ticket)));
        self.by_event.extend(parked.waits.events.iter().map(|event| (*event, ticket)));
        *self.of_session.entry(parked.session).or_default() += 1;
        self.bytes += parked.body.len();
        self.parked.insert(ticket, parked);
    }

    /// Removes a request, to run it or because its client is gone.
    pub fn take(&mut self, ticket: ParkedTicket) -> Option<Parked> {
        let parked = self.parked.remove(&ticket)?;
        for file in &parked.files {
            self.by_file.remove(&(*file, ticket));
        }
        for event in &parked.waits.events {
            self.by_event.remove(&(*event, ticket));
        }
        if let Some(count) = self.of_session.get_mut(&parked.session) {
            *count -= 1;
            if *count == 0 {
                self.of_session.remove(&parked.session);
            }
        }
        self.bytes -= parked.body.len();
        self.ready.remove(&ticket);
        Some(parked)
    }

    /// The next request that may be able to run, in order of arrival.
    pub fn next_ready(&mut self) -> Option<ParkedTicket> {
        self.ready.pop_first()
    }

    /// Whether any request concerns this file.
    pub fn concern(&self, file: FileId) -> bool {
        self.on(file).next().is_some()
    }

    fn on(&self, file: FileId) -> impl Iterator<Item = ParkedTicket> {
        let range = (file, ParkedTicket(0))..=(file, ParkedTicket(u64::MAX));
        self.by_file.range(range).map(|(_, ticket)| *ticket)
    }

    /// Whether another session has asked for some of this range before.
    pub fn is_behind(&self, ticket: ParkedTicket, session: SessionId, claim: &LeaseRange) -> bool {
        let earlier = self.on(claim.file).take_while(|earlier| *earlier < ticket);
        earlier.filter_map(|earlier| self.parked.get(&earlier)).any(|earlier| {
            let overlaps = |other: &LeaseRange| {
                let same = other.file == claim.file;
                same && other.start < claim.end
                    && claim.start < other.end
                    && conflict(other.mode, claim.mode)
            };
            earlier.session != session && earlier.claims.iter().any(overlaps)
        })
    }

    /// Handles an acknowledged or abandoned event.
    pub fn event_over(&mut self, session: SessionId, number: u64) {
        let event = (session, number);
        let range = (event, ParkedTicket(0))..=(event, ParkedTicket(u64::MAX));
        let over: Vec<_> = self.by_event.range(range).copied().collect();
        for entry in over {
            self.by_event.remove(&entry);
            let Some(parked) = self.parked.get_mut(&entry.1) else { continue };
            parked.waits.events.remove(&event);
            if parked.waits.events.is_empty() {
                self.ready.insert(entry.1);
            }
        }
    }

    /// Checks the requests again that wait for a session whose state has changed.
    pub fn session_changed(&mut self, session: SessionId) {
        let range = ((session, 0), ParkedTicket(0))..=((session, u64::MAX), ParkedTicket(u64::MAX));
        self.ready.extend(self.by_event.range(range).map(|(_, ticket)| *ticket));
    }

    /// Checks the requests again that concern a changed file.
    pub fn file_changed(&mut self, file: FileId) {
        let range = (file, ParkedTicket(0))..=(file, ParkedTicket(u64::MAX));
        self.ready.extend(self.by_file.range(range).map(|(_, ticket)| *ticket));
    }

    /// Checks the requests again that wait for more than events.
    pub fn others_changed(&mut self) {
        let others = self.parked.iter().filter(|(_, parked)| parked.waits.other);
        self.ready.extend(others.map(|(ticket, _)| *ticket));
    }

    /// The events that requests wait for.
    pub fn events(&self) -> BTreeSet<(SessionId, u64)> {
        self.by_event.iter().map(|(event, _)| *event).collect()
    }

    /// The requests of a session.
    pub fn tickets_of(&self, session: SessionId) -> Vec<ParkedTicket> {
        let of = self.parked.iter().filter(|(_, parked)| parked.session == session);
        of.map(|(ticket, _)| *ticket).collect()
    }

    /// Requests that have waited since after `from_ms`, and not after `until_ms`.
    pub fn since(&self, from_ms: u64, until_ms: u64) -> Vec<&Parked> {
        // In the order of arrival.
        let all = self.parked.values().take_while(|parked| parked.since_ms <= until_ms);
        all.filter(|parked| parked.since_ms > from_ms).collect()
    }

    /// Number of waiting requests.
    pub fn count(&self) -> usize {
        self.parked.len()
    }

    /// Wait of the oldest request.
    pub fn longest_ms(&self, now_ms: u64) -> u64 {
        // The first ticket is the oldest.
        self.parked.values().next().map_or(0, |first| now_ms.saturating_sub(first.since_ms))
    }
}
