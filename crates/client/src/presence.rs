//! Which servers are away, since when, and who waits for them: for people, in
//! words, and never one line for each request. Nothing is decided by it.
//!
//! Calls say whom they ask, and what comes of it; somebody who keeps a log
//! asks [`Watch::look`] now and then what has changed.

use crate::counters::Counters;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_types::{Error, ErrorKind, FileId, ServerId};

/// A server that is asked and says nothing for so long is called away.
const SILENT: Duration = Duration::from_secs(3);
/// So is one that cannot be reached for so long.
const UNREACHABLE: Duration = Duration::from_secs(1);
/// How often is said that a server is still away, and that a file loses data.
const REMINDER: Duration = Duration::from_secs(60);
/// Events that wait to be looked at; more are dropped.
const MAX_EVENTS: usize = 64;
/// Files whose last loss is remembered.
const MAX_LOSSES: usize = 256;

/// Whom a client asks.
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

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A server is away, or still is.
    Away {
        /// Which.
        peer: Peer,
        /// For how long already.
        since: Duration,
        /// What was seen of it.
        reason: String,
        /// Calls that wait for it now.
        waiting: usize,
        /// Calls that have given up.
        failed: u64,
        /// It was said before.
        again: bool,
    },
    /// It answers again.
    Back {
        /// Which.
        peer: Peer,
        /// How long it was away.
        after: Duration,
        /// Calls that gave up meanwhile.
        failed: u64,
    },
    /// The metadata server has ended our session.
    SessionLost,
    /// Bytes that a write had returned for were given up.
    DataLost {
        /// Of this file.
        file: FileId,
        /// Why.
        error: String,
    },
}

#[derive(Debug, Default)]
struct Seen {
    waiting: usize,
    /// Since when somebody waits without a break.
    waiting_since: Option<Instant>,
    heard: Option<Instant>,
    /// Since when it cannot be reached, and why.
    failing: Option<(Instant, String)>,
    /// Since when it is called away; when that was said last.
    away: Option<(Instant, Instant)>,
    failed: u64,
}

#[derive(Debug, Default)]
struct State {
    peers: BTreeMap<Peer, Seen>,
    events: VecDeque<Event>,
    losses: BTreeMap<FileId, Instant>,
}

/// The state of all servers as calls have seen it.
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
    /// The call has given up.
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
    /// A call begins to wait for a server.
    pub(crate) fn asking(&self, peer: Peer) -> Asking<'_> {
        let now = clock::now();
        let mut state = self.state.lock();
        let seen = state.peers.entry(peer).or_default();
        seen.waiting += 1;
        seen.waiting_since.get_or_insert(now);
        Asking { presence: self, peer }
    }

    /// A server has answered, whatever it said.
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

    /// Whether calls have waited for so long, and nothing was heard: they may wait for
    /// others, and not for the server.
    pub(crate) fn is_quiet(&self, peer: Peer, time: Duration) -> bool {
        let now = clock::now();
        let state = self.state.lock();
        // That it cannot be reached is known already.
        let seen = state.peers.get(&peer).filter(|seen| seen.failing.is_none());
        let quiet = seen.and_then(Seen::quiet_since);
        quiet.is_some_and(|since| now.duration_since(since) >= time)
    }

    /// A server could not be reached.
    pub(crate) fn unreachable(&self, peer: Peer, error: &Error) {
        if error.kind == ErrorKind::Unreachable {
            let now = clock::now();
            let mut state = self.state.lock();
            let seen = state.peers.entry(peer).or_default();
            seen.failing.get_or_insert_with(|| (now, error.to_string()));
        }
    }

    /// A call has given up waiting for a server.
    pub(crate) fn gave_up(&self, peer: Peer, error: &Error) {
        if matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut) {
            self.state.lock().peers.entry(peer).or_default().failed += 1;
        }
    }

    /// The metadata server does not know our session any more.
    pub(crate) fn session_lost(&self) {
        push(&mut self.state.lock().events, Event::SessionLost);
    }

    /// Bytes that were taken from a program could not be written.
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

    /// What has changed since the last look.
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
    /// Since when calls wait and nothing was heard. Who is not asked is not missed.
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

/// Tells what happens to a client's servers.
#[derive(Clone, Debug)]
pub struct Watch(pub(crate) Arc<Counters>);

impl Watch {
    /// What has happened since the last look; to be asked about every second.
    pub fn look(&self) -> Vec<Event> {
        self.0.presence.look(clock::now())
    }

    /// How many servers were away at the last look, and have not been heard of since.
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
