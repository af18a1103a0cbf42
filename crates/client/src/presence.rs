//! Which servers are away, since when, and how many calls wait for them. This is for messages,
//! never one line per request. No decision depends on it.
//!
//! Calls record which server they ask, and the outcome. A program that keeps a log asks
//! [`Watch::look`] now and then for changes.

use crate::counters::Counters;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_types::{Error, ErrorKind, FileId, ServerId};

/// A server counts as away if it was asked and has been silent for this long.
const SILENT: Duration = Duration::from_secs(3);
/// A server counts as away if it has been unreachable for this long.
const UNREACHABLE: Duration = Duration::from_secs(1);
/// Interval of reminders that a server is still away, and that a file loses data.
const REMINDER: Duration = Duration::from_secs(60);
/// The most unread events. Further ones are dropped.
const MAX_EVENTS: usize = 64;
/// The most files whose last loss is remembered.
const MAX_LOSSES: usize = 256;

/// A server that a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// The metadata server.
    Metadata,
    /// A data server.
    Data(ServerId),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata => write!(f, "the metadata server"),
            Self::Data(server) => write!(f, "data server {server}"),
        }
    }
}

/// A change of a server's presence, or a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A server is away, or still away.
    Away {
        /// The server.
        peer: Peer,
        /// Duration of its absence.
        since: Duration,
        /// Reason why it counts as away.
        reason: String,
        /// Number of calls that wait for it now.
        waiting: usize,
        /// Number of calls that have given up.
        failed: u64,
        /// Whether this was reported before.
        again: bool,
    },
    /// A server replies again.
    Back {
        /// The server.
        peer: Peer,
        /// Duration of its absence.
        after: Duration,
        /// Number of calls that gave up meanwhile.
        failed: u64,
    },
    /// The metadata server has ended this client's session.
    SessionLost,
    /// Bytes were given up after their write had returned.
    DataLost {
        /// The file.
        file: FileId,
        /// The reason.
        error: String,
    },
}

#[derive(Debug, Default)]
struct Seen {
    waiting: usize,
    /// Since when at least one call has been waiting.
    waiting_since: Option<Instant>,
    heard: Option<Instant>,
    /// Since when the server is unreachable, and why.
    failing: Option<(Instant, String)>,
    /// Since when the server counts as away, and the last report of that.
    away: Option<(Instant, Instant)>,
    failed: u64,
}

#[derive(Debug, Default)]
struct State {
    peers: BTreeMap<Peer, Seen>,
    events: VecDeque<Event>,
    losses: BTreeMap<FileId, Instant>,
}

/// The state of all servers, as calls have seen it.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    state: Mutex<State>,
}

/// A call that waits for a server, until dropped.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    presence: &'a Presence,
    peer: Peer,
}

impl Asking<'_> {
    /// Records that the call has given up.
    pub(crate) fn gave_up(&self, error: &Error) {
        self.presence.gave_up(self.peer, error);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.presence.state.lock();
        if let Some(seen) = state.peers.get_mut(&self.peer) {
            seen.waiting -= 1;
            if seen.waiting == 0 {
                seen.waiting_since = None;
            }
        }
    }
}

impl Presence {
    /// Records that a call begins to wait for a server.
    pub(crate) fn asking(&self, peer: Peer) -> Asking<'_> {
        let now = clock::now();
        let mut state = self.state.lock();
        let seen = state.peers.entry(peer).or_default();
        seen.waiting += 1;
        seen.waiting_since.get_or_insert(now);
        Asking { presence: self, peer }
    }

    /// Records any reply of a server.
    pub(crate) fn heard(&self, peer: Peer) {
        let now = clock::now();
        let mut state = self.state.lock();
        let seen = state.peers.entry(peer).or_default();
        seen.heard = Some(now);
        seen.failing = None;
        if let Some((since, _)) = seen.away.take() {
            let failed = std::mem::take(&mut seen.failed);
            let after = now.duration_since(since);
            push(&mut state.events, Event::Back { peer, after, failed });
        }
    }

    /// Whether calls have waited for this long without a reply from the server. They may be waiting
    /// for other clients, and not for the server.
    pub(crate) fn is_quiet(&self, peer: Peer, time: Duration) -> bool {
        let now = clock::now();
        let state = self.state.lock();
        // That it cannot be reached is known already.
        let seen = state.peers.get(&peer).filter(|seen| seen.failing.is_none());
        let quiet = seen.and_then(Seen::quiet_since);
        quiet.is_some_and(|since| now.duration_since(since) >= time)
    }

    /// Records that a server was unreachable.
    pub(crate) fn unreachable(&self, peer: Peer, error: &Error) {
        if error.kind == ErrorKind::Unreachable {
            let now = clock::now();
            let mut state = self.state.lock();
            let seen = state.peers.entry(peer).or_default();
            seen.failing.get_or_insert_with(|| (now, error.to_string()));
        }
    }

    /// Records that a call has given up waiting for a server.
    pub(crate) fn gave_up(&self, peer: Peer, error: &Error) {
        if matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut) {
            self.state.lock().peers.entry(peer).or_default().failed += 1;
        }
    }

    /// Records that the metadata server does not know this client's session any more.
    pub(crate) fn session_lost(&self) {
        push(&mut self.state.lock().events, Event::SessionLost);
    }

    /// Records that bytes of a completed write could not be sent.
    pub(crate) fn data_lost(&self, file: FileId, error: &Error) {
        let now = clock::now();
        let mut state = self.state.lock();
        let recent = |at: &Instant| now.duration_since(*at) < REMINDER;
        if state.losses.get(&file).is_some_and(recent) {
            return;
        }
        if state.losses.len() >= MAX_LOSSES {
            state.losses.clear();
        }
        state.losses.insert(file, now);
        push(&mut state.events, Event::DataLost { file, error: error.to_string() });
    }

    /// Changes since the last look.
    fn look(&self, now: Instant) -> Vec<Event> {
        let mut state = self.state.lock();
        let State { peers, events, .. } = &mut *state;
        for (&peer, seen) in peers.iter_mut() {
            if let Some(event) = seen.look(peer, now) {
                push(events, event);
            }
        }
        events.drain(..).collect()
    }
}

fn push(events: &mut VecDeque<Event>, event: Event) {
    if events.len() < MAX_EVENTS {
        events.push_back(event);
    }
}

impl Seen {
    /// Since when calls wait without a reply. A server that is not asked is not missed.
    fn quiet_since(&self) -> Option<Instant> {
        let asked = self.waiting_since?;
        Some(self.heard.map_or(asked, |heard| heard.max(asked)))
    }

    fn look(&mut self, peer: Peer, now: Instant) -> Option<Event> {
        let quiet = self.quiet_since()?;
        let for_long = |since: Instant, long| now.duration_since(since) >= long;
        let (since, again) = match (self.away, &self.failing) {
            (Some((since, said)), _) if for_long(said, REMINDER) => (since, true),
            (Some(_), _) => return None,
            (None, Some((since, _))) if for_long(*since, UNREACHABLE) => (*since, false),
            (None, _) if for_long(quiet, SILENT) => (quiet, false),
            _ => return None,
        };
        self.away = Some((since, now));
        let silent = || "it does not answer".to_owned();
        let reason = self.failing.as_ref().map_or_else(silent, |(_, reason)| reason.clone());
        let since = now.duration_since(since);
        Some(Event::Away { peer, since, reason, waiting: self.waiting, failed: self.failed, again })
    }
}

/// Reports changes of a client's servers.
#[derive(Clone, Debug)]
pub struct Watch(pub(crate) Arc<Counters>);

impl Watch {
    /// Events since the last look. To be called about every second.
    pub fn look(&self) -> Vec<Event> {
        self.0.presence.look(clock::now())
    }

    /// Number of servers that were away at the last look and have not replied since.
    pub fn away(&self) -> usize {
        let state = self.0.presence.state.lock();
        state.peers.values().filter(|seen| seen.away.is_some()).count()
    }

    /// Name and value of each counter of the client.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.0.list()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Peer = Peer::Data(ServerId(2));

    fn after(ms: u64) -> Instant {
        clock::now() + Duration::from_millis(ms)
    }

    #[test]
    fn a_silent_server_is_told_of_once_and_again_when_it_is_back() {
        let presence = Presence::default();
        let calls = [presence.asking(DATA), presence.asking(DATA)];
        assert!(presence.look(after(2_000)).is_empty());
        let away = presence.look(after(3_500));
        assert!(matches!(
            away[..],
            [Event::Away { peer: DATA, waiting: 2, failed: 0, again: false, .. }]
        ));
        for _ in 0..1000 {
            presence.gave_up(DATA, &ErrorKind::TimedOut.into());
            presence.unreachable(DATA, &ErrorKind::Unreachable.into());
        }
        assert!(presence.look(after(20_000)).is_empty(), "not again for each request");
        let still = presence.look(after(70_000));
        assert!(matches!(still[..], [Event::Away { again: true, failed: 1000, .. }]));
        presence.heard(DATA);
        presence.heard(DATA);
        let back = presence.look(after(100));
        assert!(matches!(back[..], [Event::Back { failed: 1000, .. }]));
        drop(calls);
        assert!(presence.look(after(200_000)).is_empty());
    }

    #[test]
    fn who_waits_for_others_and_hears_of_the_server_does_not_call_it_away() {
        let presence = Presence::default();
        let quiet = |ms| presence.is_quiet(Peer::Metadata, Duration::from_millis(ms));
        assert!(!quiet(0), "nobody asks");
        let call = presence.asking(Peer::Metadata);
        assert!(quiet(0) && !quiet(60_000));
        presence.heard(Peer::Metadata);
        assert!(presence.look(after(2_900)).is_empty());
        assert!(!presence.look(after(3_100)).is_empty());
        drop(call);
        assert!(!quiet(0));
    }

    #[test]
    fn a_connection_that_was_lost_and_made_again_is_not_worth_a_word() {
        let presence = Presence::default();
        let call = presence.asking(Peer::Metadata);
        presence.unreachable(Peer::Metadata, &ErrorKind::Unreachable.into());
        assert!(presence.look(after(500)).is_empty());
        presence.heard(Peer::Metadata);
        drop(call);
        assert!(presence.look(after(5_000)).is_empty());
    }

    #[test]
    fn lost_data_is_told_of_once_for_each_file() {
        let presence = Presence::default();
        for file in [1, 1, 2, 1] {
            presence.data_lost(FileId(file), &ErrorKind::TimedOut.into());
        }
        assert_eq!(presence.look(after(0)).len(), 2);
        for file in 0..10_000 {
            presence.data_lost(FileId(file), &ErrorKind::TimedOut.into());
        }
        assert_eq!(presence.look(after(0)).len(), MAX_EVENTS);
    }
}
