//! Events that sessions have not acknowledged yet.
//!
//! Each session has its own numbers. Events are bounded: a request that needs an event for a
//! session at the limit waits until there is space.

use std::collections::BTreeMap;
use weir_types::codec::Bytes;
use weir_types::{FileId, SessionId};
use weir_wire::lease::LeaseMode;
use weir_wire::lease::{Event, EventKind, LeaseRange};

/// The most unacknowledged events of a session.
pub const MAX_OUTSTANDING: usize = 16_384;
/// The most events in one reply to a poll.
const MAX_IN_ANSWER: usize = 1024;

/// What a session is asked to give up, or to report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// Forget a name of this directory.
    Name(FileId, Vec<u8>),
    /// Forget the attributes of this file.
    Attributes(FileId),
    /// Give up a lease on these bytes, or for [`LeaseMode::Read`] the right to write there.
    Recall(FileId, u64, u64, LeaseMode),
    /// Report size and time.
    Report(FileId),
    /// Forget the attributes of this file, which is about to lose a name.
    Removal(FileId),
}

impl Ask {
    /// Asks for the return of this lease.
    pub fn recall(lease: &LeaseRange) -> Self {
        Ask::Recall(lease.file, lease.start, lease.end, lease.mode)
    }

    /// The file or directory concerned.
    pub fn file(&self) -> FileId {
        match self {
            Ask::Name(file, _)
            | Ask::Attributes(file)
            | Ask::Recall(file, ..)
            | Ask::Report(file)
            | Ask::Removal(file) => *file,
        }
    }

    fn on_the_wire(&self) -> EventKind {
        match self {
            Ask::Name(dir, name) => EventKind::Name { dir: *dir, name: Bytes(name.clone()) },
            Ask::Attributes(file) => EventKind::Attributes { file: *file },
            &Ask::Recall(file, start, end, mode) => {
                EventKind::Recall(LeaseRange { file, start, end, mode })
            }
            Ask::Report(file) => EventKind::Report { file: *file },
            Ask::Removal(file) => EventKind::Removal { file: *file },
        }
    }

    /// Whether one event serves two waiting requests. A report does not: writes between the two
    /// would be missing.
    fn shared(&self) -> bool {
        !matches!(self, Ask::Report(_))
    }
}

#[derive(Debug)]
struct Outstanding {
    ask: Ask,
    since_ms: u64,
}

#[derive(Debug, Default)]
struct OfSession {
    polled: bool,
    last: u64,
    outstanding: BTreeMap<u64, Outstanding>,
    numbers: BTreeMap<Ask, u64>,
    about: BTreeMap<FileId, u32>,
    /// Number of the event that shows that the session knows of its lapse.
    lapse: Option<u64>,
}

impl OfSession {
    fn push(&mut self, ask: Ask, now_ms: u64) -> u64 {
        self.last += 1;
        if ask.shared() {
            self.numbers.insert(ask.clone(), self.last);
        }
        *self.about.entry(ask.file()).or_default() += 1;
        self.outstanding.insert(self.last, Outstanding { ask, since_ms: now_ms });
        self.last
    }

    fn take(&mut self, number: u64) -> Option<Ask> {
        let Outstanding { ask, .. } = self.outstanding.remove(&number)?;
        self.numbers.remove(&ask);
        if let Some(count) = self.about.get_mut(&ask.file()) {
            *count -= 1;
            if *count == 0 {
                self.about.remove(&ask.file());
            }
        }
        Some(ask)
    }
}

/// Events of one session in one term are fewer than 2 to this.
const EVENTS_OF_TERM_BITS: u32 = 36;
/// Begin of the numbers of terms, above those from the clock.
const TERMS: u64 = 1 << 62;

/// The events of all sessions.
#[derive(Debug, Default)]
pub struct Events {
    sessions: BTreeMap<SessionId, OfSession>,
    polled: usize,
    /// First number of all sessions. It is greater than those of earlier runs of the server, so
    /// that a returning client misses no event.
    base: u64,
}

impl Events {
    /// The events of a server that starts at this time.
    pub fn starting(unix_ms: u64) -> Self {
        Self { base: unix_ms << 12, ..Self::default() }
    }

    /// Numbers the events of sessions that have had none by the term of a leader. They are greater
    /// than those of earlier terms, and than those of a server without a term.
    pub fn set_term(&mut self, term: u64) {
        self.base = TERMS | term << EVENTS_OF_TERM_BITS;
    }

    fn session(&mut self, session: SessionId) -> &mut OfSession {
        let base = self.base;
        let new = || OfSession { last: base, ..OfSession::default() };
        self.sessions.entry(session).or_insert_with(new)
    }

    /// Records a poll of a session, which may cache data from now on.
    pub fn polls(&mut self, session: SessionId) {
        let known = self.session(session);
        let first = !std::mem::replace(&mut known.polled, true);
        self.polled += usize::from(first);
    }

    /// Whether a session has ever polled.
    pub fn has_polled(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|known| known.polled)
    }

    /// Whether a session may cache data.
    pub fn may_keep(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|known| known.polled && known.lapse.is_none())
    }

    /// Whether any other session has polled.
    pub fn others_poll(&self, session: SessionId) -> bool {
        self.polled > usize::from(self.has_polled(session))
    }

    /// Number of the last event of a session.
    pub fn last(&self, session: SessionId) -> u64 {
        self.sessions.get(&session).map_or(self.base, |known| known.last)
    }

    /// Sends an event, or finds the same event on its way. Returns its number, and whether it is
    /// new; `None` if the session has too many.
    pub fn send(&mut self, session: SessionId, ask: &Ask, now_ms: u64) -> Option<(u64, bool)> {
        let known = self.session(session);
        if let Some(number) = known.numbers.get(ask) {
            return Some((*number, false));
        }
        if known.outstanding.len() >= MAX_OUTSTANDING {
            return None;
        }
        Some((known.push(ask.clone(), now_ms), true))
    }

    /// Records an acknowledgement. Returns the event, unless it is over.
    pub fn acknowledged(&mut self, session: SessionId, number: u64) -> Option<Ask> {
        let known = self.sessions.get_mut(&session)?;
        let ask = known.take(number)?;
        known.lapse = known.lapse.filter(|lapse| *lapse != number);
        Some(ask)
    }

    /// Excludes the time in which this process was stopped from the age of events.
    pub fn forgive(&mut self, now_ms: u64) {
        for known in self.sessions.values_mut() {
            known.outstanding.values_mut().for_each(|event| event.since_ms = now_ms);
        }
    }

    /// Since when an event is unacknowledged.
    pub fn since(&self, session: SessionId, number: u64) -> Option<u64> {
        Some(self.sessions.get(&session)?.outstanding.get(&number)?.since_ms)
    }

    /// The contents of an unacknowledged event.
    pub fn ask(&self, session: SessionId, number: u64) -> Option<&Ask> {
        Some(&self.sessions.get(&session)?.outstanding.get(&number)?.ask)
    }

    /// Number of the same event, if it is on its way.
    pub fn number(&self, session: SessionId, ask: &Ask) -> Option<u64> {
        self.sessions.get(&session)?.numbers.get(ask).copied()
    }

    /// Whether an event about a file or directory is on its way to a session, so that it may not
    /// cache a reply about it now.
    pub fn concern(&self, session: SessionId, file: FileId) -> bool {
        self.sessions.get(&session).is_some_and(|known| known.about.contains_key(&file))
    }

    /// The recall of leases on any of these bytes that a session was sent.
    pub fn recalls(&self, session: SessionId, lease: &LeaseRange) -> Option<u64> {
        let known = self.sessions.get(&session)?;
        if !known.about.contains_key(&lease.file) {
            return None;
        }
        let first = Ask::Recall(lease.file, 0, 0, LeaseMode::Read);
        let of_file = known.numbers.range(first..);
        let mut of_file = of_file.take_while(|(ask, _)| ask.file() == lease.file);
        of_file.find_map(|(ask, number)| match *ask {
            Ask::Recall(_, start, end, _) if start < lease.end && lease.start < end => {
                Some(*number)
            }
            _ => None,
        })
    }

    /// Records that something was revoked from a session, which has to give up everything. That
    /// includes all earlier events.
    pub fn lapse(&mut self, session: SessionId, now_ms: u64) {
        let known = self.session(session);
        if known.lapse.is_some() {
            return;
        }
        known.outstanding.clear();
        known.numbers.clear();
        known.about.clear();
        // Its number tells when the client knows.
        known.lapse = Some(known.push(Ask::Attributes(FileId::ROOT), now_ms));
    }

    /// The unacknowledged event by which a session confirms that it has given up everything.
    pub fn lapse_of(&self, session: SessionId) -> Option<u64> {
        self.sessions.get(&session)?.lapse
    }

    /// The events for a session that has received `have`, and whether it has to give up everything;
    /// `None` if there are none.
    pub fn news(&self, session: SessionId, have: u64) -> Option<(Vec<Event>, bool)> {
        let known = self.sessions.get(&session)?;
        let newer = known.outstanding.range(have.saturating_add(1)..).take(MAX_IN_ANSWER);
        let events: Vec<Event> = newer
            .map(|(number, found)| Event { number: *number, what: found.ask.on_the_wire() })
            .collect();
        let lapsed = known.lapse.is_some_and(|lapse| lapse > have);
        (lapsed || !events.is_empty()).then_some((events, lapsed))
    }

    /// Removes an ended session.
    pub fn end(&mut self, session: SessionId) {
        if let Some(known) = self.sessions.remove(&session) {
            self.polled -= usize::from(known.polled);
            // An acknowledgement of its events that comes in a later session of the same
            // client must mean none of that one's.
            self.base = self.base.max(known.last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: SessionId = SessionId(1);

    #[test]
    fn events_of_a_later_term_have_greater_numbers_whatever_the_clocks_say() {
        // A server without a term, in the year 2500.
        let mut before = Events::starting(16_725_225_600_000);
        let mut last = before.send(ME, &Ask::Attributes(FileId(5)), 0).unwrap().0;
        for term in [1, 2, 3, 1 << 20] {
            let mut events = Events::starting(0);
            events.set_term(term);
            assert!(events.last(ME) > last, "term {term}");
            last = events.send(ME, &Ask::Attributes(FileId(5)), 0).unwrap().0 + (1 << 30);
        }
    }

    #[test]
    fn the_same_event_does_for_all_but_a_report() {
        let mut events = Events::starting(0);
        let ask = Ask::Attributes(FileId(5));
        assert_eq!(events.send(ME, &ask, 0), Some((1, true)));
        assert_eq!(events.send(ME, &ask, 0), Some((1, false)));
        assert_eq!(events.send(ME, &Ask::Report(FileId(5)), 0), Some((2, true)));
        assert_eq!(events.send(ME, &Ask::Report(FileId(5)), 0), Some((3, true)));
        assert!(events.concern(ME, FileId(5)));
        for number in 1..=3 {
            assert!(events.acknowledged(ME, number).is_some());
            assert!(events.acknowledged(ME, number).is_none());
        }
        assert!(!events.concern(ME, FileId(5)));
    }

    #[test]
    fn events_that_are_not_obeyed_are_bounded() {
        let mut events = Events::starting(0);
        for n in 0..MAX_OUTSTANDING as u64 {
            assert!(events.send(ME, &Ask::Attributes(FileId(n)), 0).is_some());
        }
        assert_eq!(events.send(ME, &Ask::Attributes(FileId(u64::MAX)), 0), None);
        assert_eq!(events.news(ME, 0).unwrap().0.len(), MAX_IN_ANSWER);
        events.acknowledged(ME, 9).unwrap();
        assert!(events.send(ME, &Ask::Attributes(FileId(u64::MAX)), 0).is_some());
    }

    #[test]
    fn a_lapse_is_told_until_it_is_acknowledged() {
        let mut events = Events::starting(0);
        events.polls(ME);
        events.send(ME, &Ask::Attributes(FileId(5)), 0);
        events.lapse(ME, 0);
        assert!(!events.may_keep(ME) && !events.concern(ME, FileId(5)));
        let (news, lapsed) = events.news(ME, 1).unwrap();
        assert!(lapsed && news.len() == 1);
        assert!(events.news(ME, 1).unwrap().1, "if the answer was lost");
        assert_eq!(events.news(ME, news[0].number), None);
        events.acknowledged(ME, news[0].number);
        assert!(events.may_keep(ME));
    }
}
