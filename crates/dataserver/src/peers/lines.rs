//! Connections on which changes are passed on. The Hello of each states its attempt (see
//! [`crate::attempts`]; this is the sending side). A connection that is given up with an
//! outstanding change ends its attempt, so that the change does not arrive after what is sent next.

use super::Peers;
use crate::standing::unreachable::{KEPT, PATIENCE};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_net::{BlockingConn, Wait, Watch};
use weir_types::{Decode, Error, ErrorKind, Result, TargetId};
use weir_wire::Header;
use weir_wire::handshake::Attempt;
use weir_wire::message::Request;

/// The most idle connections for each target.
const MAX_IDLE: usize = 16;
/// Interval of attempts to reach a silent target, for changes that do without it.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// Interval of checks whether such an attempt is due.
pub(crate) const SCOUT_EVERY: Duration = Duration::from_millis(250);
/// A target that no change has done without for this long is not missed.
const MISSED: Duration = Duration::from_secs(5);
/// A target that waits for others may be unreachable itself. That is checked again after this time
/// without a reply.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Timeout of each attempt and check, and of a round over all silent targets, milliseconds.
const PROBE_MS: u64 = 900;
/// The least time for each target in a round, milliseconds.
const MIN_PROBE_MS: u64 = 100;
const _: () = assert!(
    KEPT.as_millis() > TRY_EVERY.as_millis() + PROBE_MS as u128 + SCOUT_EVERY.as_millis(),
    "who does not answer is told of again before that is forgotten",
);
/// Interval at which an attempt checks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Known {
    /// The attempt of changes from now on.
    attempt: u64,
    idle: Vec<(u64, BlockingConn)>,
    /// Set while the target does not reply.
    silent: Option<Silent>,
    /// Time of the last check of reachability, and whether the target was unreachable.
    news: Option<(Instant, bool)>,
    /// The run of its disk's memory, and how often another one was met.
    run: Option<u64>,
    runs: u64,
}

/// A silent target.
struct Silent {
    /// Time of the last attempt to reach it.
    tried: Instant,
    /// The target whose change was the last to do without it, and the time of that.
    missed: Option<(TargetId, Instant)>,
    /// Whether a connection was made. One change then finds out whether the target replies. (Its
    /// disk may hang.)
    may_try: bool,
}

impl Known {
    fn is_silent_now(&mut self) {
        let missed = self.silent.take().and_then(|silent| silent.missed);
        self.silent = Some(Silent { tried: clock::now(), missed, may_try: false });
    }

    /// Whether changes that can do without the target should not wait for it.
    fn is_silent(&self) -> bool {
        self.silent.as_ref().is_some_and(|silent| !silent.may_try)
    }

    /// Whether a change of `own` should do without the target. The change that has to find out
    /// waits for it.
    fn misses(&mut self, own: TargetId) -> bool {
        let Some(silent) = &mut self.silent else { return false };
        let (tries, now) = (std::mem::take(&mut silent.may_try), clock::now());
        match tries {
            // Nobody else does as long as it may wait for the answer.
            true => silent.tried = now + PATIENCE,
            false => silent.missed = Some((own, now)),
        }
        !tries
    }

    /// If another attempt to reach it is due, counts it as made. Returns the target that misses it.
    fn try_now(&mut self, now: Instant) -> Option<Option<TargetId>> {
        let silent = self.silent.as_mut().filter(|silent| !silent.may_try)?;
        if now.saturating_duration_since(silent.tried) < TRY_EVERY {
            return None;
        }
        silent.tried = now;
        let missed = silent.missed.filter(|(_, at)| now.duration_since(*at) < MISSED);
        Some(missed.map(|(own, _)| own))
    }

    /// Records a successful connection. Other threads may have had a reply meanwhile.
    fn was_reached(&mut self) {
        if let Some(silent) = &mut self.silent {
            silent.may_try = true;
        }
    }
}

/// Time for the next of `left` targets in a round that has taken `taken`. Otherwise the first
/// targets would be forgotten before they are tried again.
fn share_ms(taken: Duration, left: usize) -> u64 {
    let ms = PROBE_MS.saturating_sub(taken.as_millis() as u64) / left.max(1) as u64;
    ms.max(MIN_PROBE_MS)
}

/// The connections to all targets.
pub(crate) struct Lines {
    peers: Arc<Peers>,
    /// Random number of this process.
    run: u64,
    known: Mutex<BTreeMap<TargetId, Known>>,
}

/// A connection to one target in exclusive use.
pub(crate) struct Line<'a> {
    lines: &'a Lines,
    target: TargetId,
    attempt: u64,
    /// `None` after it was put back.
    conn: Option<BlockingConn>,
    /// Whether a change was sent without a reply yet.
    owes: bool,
}

impl Lines {
    /// `run` is random, so that this process is not taken for the one before.
    pub(crate) fn new(peers: Arc<Peers>, run: u64) -> Self {
        Self { peers, run, known: Mutex::default() }
    }

    /// Random number of this process.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// A wait of `ms` milliseconds, at most until the server stops.
    pub(crate) fn wait(&self, ms: u64) -> Wait {
        self.peers.wait(ms)
    }

    /// The addresses of other servers.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Takes a connection to the server of a target.
    pub(crate) fn take(&self, target: TargetId, wait: &Wait) -> Result<Line<'_>> {
        let (attempt, idle) = {
            let mut known = self.known.lock();
            let known = known.entry(target).or_default();
            let attempt = known.attempt;
            known.idle.retain(|(of, _)| *of == attempt);
            (attempt, known.idle.pop())
        };
        let conn = match idle {
            Some((_, conn)) => conn,
            None => self.connect(target, attempt, wait).inspect_err(|_| self.failed(target))?,
        };
        Ok(Line { lines: self, target, attempt, conn: Some(conn), owes: false })
    }

    fn connect(&self, target: TargetId, number: u64, wait: &Wait) -> Result<BlockingConn> {
        // Runs of different targets differ, since their attempts do.
        let run = self.run.wrapping_add(u64::from(target.0)) | 1 << 63;
        let connected = self.peers.connect(target, Attempt { run, number }, wait);
        self.learns(target, connected.as_ref().err());
        let (conn, run) = connected?;
        self.meets(target, run);
        Ok(conn)
    }

    fn meets(&self, target: TargetId, run: Option<u64>) {
        let mut known = self.known.lock();
        let known = known.entry(target).or_default();
        // One that is not told is another one each time.
        if run.is_none() || known.run != run {
            (known.run, known.runs) = (run, known.runs + 1);
        }
    }

    /// A number of the present run of a target's disk, as far as connections have shown: what
    /// it was given under another one, and did not make durable, it may have lost.
    pub(crate) fn run_of(&self, target: TargetId) -> u64 {
        self.known.lock().get(&target).map_or(0, |known| known.runs)
    }

    /// Makes sure that there is a connection, so that a later caller need not wait for one.
    pub(crate) fn reach(&self, target: TargetId, wait: &Wait) -> Result<()> {
        self.take(target, wait).map(|mut line| line.put_back())
    }

    /// Whether a target does not reply.
    pub(crate) fn is_silent(&self, target: TargetId) -> bool {
        self.known.lock().get(&target).is_some_and(Known::is_silent)
    }

    /// Whether a change of `own` that can do without the target should do so. Attempts to reach the
    /// target do not delay it.
    pub(crate) fn misses(&self, own: TargetId, target: TargetId) -> bool {
        self.known.lock().get_mut(&target).is_some_and(|known| known.misses(own))
    }

    /// Tries to reach silent targets that are `wanted`, when it is time. `report` is called for
    /// each that stays silent, with the target that misses it.
    pub(crate) fn try_silent(
        &self,
        wanted: impl Fn(TargetId) -> bool,
        report: impl Fn(TargetId, TargetId),
    ) {
        let begun = clock::now();
        let mut due = Vec::new();
        for (target, known) in &mut *self.known.lock() {
            if let Some(missed) = wanted(*target).then(|| known.try_now(begun)).flatten() {
                due.push((*target, known.attempt, missed));
            }
        }
        for (n, (target, number, missed)) in due.iter().enumerate() {
            let ms = share_ms(clock::elapsed(begun), due.len() - n);
            match (self.connect(*target, *number, &self.wait(ms)), missed) {
                (Ok(conn), _) => {
                    if let Some(known) = self.known.lock().get_mut(target) {
                        known.was_reached();
                        known.idle.push((*number, conn));
                    }
                }
                (Err(_), Some(own)) => report(*own, *target),
                (Err(_), None) => {}
            }
        }
    }

    /// Records the result of a connection attempt.
    fn learns(&self, target: TargetId, error: Option<&Error>) {
        let none = |e: &Error| matches!(e.kind, ErrorKind::Unreachable | ErrorKind::TimedOut);
        let news = match error {
            None => false,
            Some(error) if none(error) => true,
            // Something else is the matter.
            Some(_) => return,
        };
        if let Some(known) = self.known.lock().get_mut(&target) {
            known.news = Some((clock::now(), news));
        }
    }

    /// Whether the last connection attempt to a target has failed and the target has not replied
    /// since.
    pub(crate) fn is_out_of_reach(&self, target: TargetId) -> bool {
        self.known.lock().get(&target).is_some_and(|known| matches!(known.news, Some((_, true))))
    }

    /// Checks whether a silent target is reachable, unless that was checked lately: it may be
    /// waiting for others. An error of `look` ends the check.
    pub(crate) fn probe(&self, target: TargetId, look: &dyn Fn() -> Result<()>) {
        {
            let mut known = self.known.lock();
            let news = &mut known.entry(target).or_default().news;
            if news.is_some_and(|(at, _)| clock::elapsed(at) < PROBE_EVERY) {
                return;
            }
            // Others need not try as well meanwhile.
            *news = Some((clock::now(), news.is_some_and(|(_, out)| out)));
        }
        let ended = Cell::new(false);
        let look = || look().inspect_err(|_| ended.set(true));
        let watch = Watch { every: LOOK, look: &look };
        let reached = self.peers.reach_known(target, &self.wait(PROBE_MS), Some(watch));
        if let Some(reached) = reached.filter(|_| !ended.get()) {
            self.learns(target, reached.err().as_ref());
        }
    }

    fn failed(&self, target: TargetId) {
        if let Some(known) = self.known.lock().get_mut(&target) {
            known.is_silent_now();
        }
    }
}

impl Line<'_> {
    /// Sends a change.
    pub(crate) fn send(
        &mut self,
        wait: &Wait,
        data: (&[u8], &[u32]),
        send: impl FnOnce(&mut Parcel<'_>) -> Result<()>,
    ) -> Result<()> {
        self.owes = true;
        let conn = self.conn.as_mut().ok_or(ErrorKind::Unreachable)?;
        send(&mut Parcel { conn, wait, payload: data.0, checks: data.1 })
    }

    /// Whether a reply arrives within `ms` milliseconds.
    pub(crate) fn is_ready(&self, ms: u64) -> Result<bool> {
        let conn = self.conn.as_ref().ok_or(ErrorKind::Unreachable)?;
        match conn.readable(&self.lines.wait(ms)) {
            Ok(()) => Ok(true),
            Err(e) if e.kind == ErrorKind::TimedOut => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Receives the reply.
    pub(crate) fn receive<T: Decode>(mut self, wait: &Wait) -> Result<T> {
        let conn = self.conn.as_mut().ok_or(ErrorKind::Unreachable)?;
        let answer = conn.recv_reply(wait);
        // An error that the other server answered with is an answer.
        if conn.is_usable() {
            self.owes = false;
            if let Some(known) = self.lines.known.lock().get_mut(&self.target) {
                (known.silent, known.news) = (None, Some((clock::now(), false)));
            }
            self.put_back();
        }
        answer
    }

    /// Sends a request that may be carried out twice, and waits for the reply.
    pub(crate) fn ask<T: Decode>(
        mut self,
        wait: &Wait,
        data: (&[u8], &[u32]),
        send: impl FnOnce(&mut Parcel<'_>) -> Result<()>,
    ) -> Result<T> {
        self.send(wait, data, send)?;
        self.receive(wait)
    }

    fn put_back(&mut self) {
        if let (Some(conn), Some(known)) =
            (self.conn.take(), self.lines.known.lock().get_mut(&self.target))
            && known.idle.len() < MAX_IDLE
        {
            known.idle.push((self.attempt, conn));
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if self.owes
            && let Some(known) = self.lines.known.lock().get_mut(&self.target)
        {
            known.attempt = known.attempt.max(self.attempt + 1);
            known.idle.clear();
            known.is_silent_now();
        }
    }
}

/// Whether an error says nothing about the other server's treatment of the change.
pub(crate) fn says_nothing(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Unreachable
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::NotCurrent
            | ErrorKind::NotLeader
            | ErrorKind::TargetMissing
            | ErrorKind::BadTicket
            | ErrorKind::Overloaded
            | ErrorKind::Busy
            | ErrorKind::TooManyOpen
            | ErrorKind::AuthFailed
            | ErrorKind::Protocol
    )
}

/// A connection, and the data of a request.
pub(crate) struct Parcel<'a> {
    conn: &'a mut BlockingConn,
    wait: &'a Wait,
    payload: &'a [u8],
    checks: &'a [u32],
}

impl Parcel<'_> {
    pub(crate) fn send<R: Request>(&mut self, request: &R) -> Result<()> {
        let header = Header::request(R::OP, self.conn.next_request_id());
        let payload = [IoSlice::new(self.payload)];
        let pieces = if self.payload.is_empty() { &[][..] } else { &payload[..] };
        self.conn.send(header, request, self.checks, pieces, self.wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_finds_out_whether_who_can_be_reached_answers_and_nobody_else_waits_for_it() {
        let (own, mut known) = (TargetId(1), Known::default());
        assert!(!known.misses(own) && !known.is_silent());
        known.is_silent_now();
        assert!(known.misses(own) && known.is_silent());
        let soon = clock::now() + TRY_EVERY;
        assert_eq!(known.try_now(soon), Some(Some(own)));
        known.was_reached();
        assert!(!known.is_silent());
        assert!(!known.misses(own), "it tries");
        assert!(known.misses(own) && known.is_silent(), "its disk may hang");
        assert_eq!(known.try_now(soon), None, "an answer may still come");
        known.is_silent_now();
        assert!(known.misses(own) && known.is_silent(), "none has come");
    }

    #[test]
    fn who_does_not_answer_is_told_of_again_in_time_however_many_do_not() {
        for count in [1, 4, 9] {
            let mut taken = Duration::ZERO;
            for n in 0..count {
                taken += Duration::from_millis(share_ms(taken, count - n));
            }
            assert!(taken <= Duration::from_millis(PROBE_MS), "{count}: {taken:?}");
        }
        assert_eq!(share_ms(Duration::from_millis(PROBE_MS), 3), MIN_PROBE_MS);
    }
}
