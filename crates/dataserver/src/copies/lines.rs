//! Connections on which changes are handed on. Each says in its Hello which
//! attempt it belongs to (see [`crate::attempts`], of which this is the sending
//! side): a connection that is given up with a change outstanding ends its attempt,
//! so that the change does not come after what is sent next.

use super::follow::PATIENCE;
use super::scout::INTERVAL as SCOUT;
use super::unreachable::KEPT;
use crate::peers::Peers;
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

/// Idle connections kept for each target.
const MAX_IDLE: usize = 16;
/// How often one that does not answer is tried, for those who do without it.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// Who has been done without for so long by nobody is not missed.
const MISSED: Duration = Duration::from_secs(5);
/// Who waits for others itself may be out of reach as well: that is found out again after so long
/// without an answer of it.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// So long either takes at the most; a round of all that do not answer, too.
const PROBE_MS: u64 = 900;
/// Of a round each gets so much at least.
const MIN_PROBE_MS: u64 = 100;
const _: () = assert!(
    KEPT.as_millis() > TRY_EVERY.as_millis() + PROBE_MS as u128 + SCOUT.as_millis(),
    "who does not answer is told of again before that is forgotten",
);
/// Meanwhile it is looked so often whether that is still wanted.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Known {
    /// The attempt of changes from now on.
    attempt: u64,
    idle: Vec<(u64, BlockingConn)>,
    /// As long as it does not answer.
    silent: Option<Silent>,
    /// When it was found out last whether it can be reached, and whether it cannot.
    news: Option<(Instant, bool)>,
    /// The run of its machine, and how often another one was met.
    instance: Option<u64>,
    runs: u64,
}

/// One that does not answer.
struct Silent {
    /// When it was tried last.
    tried: Instant,
    /// Whose change was the last that it was done without for, and when.
    missed: Option<(TargetId, Instant)>,
    /// It has been connected to: one change finds out whether it answers. (Its disk may hang.)
    may_try: bool,
}

impl Known {
    fn is_silent_now(&mut self) {
        let missed = self.silent.take().and_then(|silent| silent.missed);
        self.silent = Some(Silent { tried: clock::now(), missed, may_try: false });
    }

    /// Whether somebody who can do without it is not to wait for it.
    fn is_silent(&self) -> bool {
        self.silent.as_ref().is_some_and(|silent| !silent.may_try)
    }

    /// The same for a change of `own`; the one that is to find out is told to wait.
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

    /// If it is time to try it, it counts as tried; who misses it then.
    fn try_now(&mut self, now: Instant) -> Option<Option<TargetId>> {
        let silent = self.silent.as_mut().filter(|silent| !silent.may_try)?;
        if now.saturating_duration_since(silent.tried) < TRY_EVERY {
            return None;
        }
        silent.tried = now;
        let missed = silent.missed.filter(|(_, at)| now.duration_since(*at) < MISSED);
        Some(missed.map(|(own, _)| own))
    }

    /// It was connected to. Others may have heard of it meanwhile.
    fn was_reached(&mut self) {
        if let Some(silent) = &mut self.silent {
            silent.may_try = true;
        }
    }
}

/// What the next of so many may take of a round that has taken so long: else the first are
/// forgotten before they are tried again.
fn share_ms(taken: Duration, left: usize) -> u64 {
    let ms = PROBE_MS.saturating_sub(taken.as_millis() as u64) / left.max(1) as u64;
    ms.max(MIN_PROBE_MS)
}

/// The connections to all targets.
pub(crate) struct Lines {
    peers: Arc<Peers>,
    /// A random number of this process.
    run: u64,
    known: Mutex<BTreeMap<TargetId, Known>>,
}

/// A connection to one target in exclusive use.
pub(crate) struct Line<'a> {
    lines: &'a Lines,
    target: TargetId,
    attempt: u64,
    /// `None` when it has been put back.
    conn: Option<BlockingConn>,
    /// A change was sent, and no answer has come.
    owes: bool,
}

impl Lines {
    /// `run`: random, so that nobody takes this process for the one before.
    pub(crate) fn new(peers: Arc<Peers>, run: u64) -> Self {
        Self { peers, run, known: Mutex::default() }
    }

    /// A random number of this process.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// So long, or until the server stops.
    pub(crate) fn wait(&self, ms: u64) -> Wait {
        self.peers.wait(ms)
    }

    /// Where other servers are.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// A connection to the server of a target.
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
        let (conn, instance) = connected?;
        self.meets(target, instance);
        Ok(conn)
    }

    fn meets(&self, target: TargetId, instance: u64) {
        let mut known = self.known.lock();
        let known = known.entry(target).or_default();
        if known.instance != Some(instance) {
            (known.instance, known.runs) = (Some(instance), known.runs + 1);
        }
    }

    /// A number of the present run of a target's machine, as far as connections have shown: what
    /// it was given under another one, and did not make durable, it may have lost.
    pub(crate) fn run_of(&self, target: TargetId) -> u64 {
        self.known.lock().get(&target).map_or(0, |known| known.runs)
    }

    /// Sees to it that there is a connection, for somebody who does not want to wait for
    /// one later.
    pub(crate) fn reach(&self, target: TargetId, wait: &Wait) -> Result<()> {
        self.take(target, wait).map(|mut line| line.put_back())
    }

    /// Whether a target does not answer.
    pub(crate) fn is_silent(&self, target: TargetId) -> bool {
        self.known.lock().get(&target).is_some_and(Known::is_silent)
    }

    /// The same for a change of `own` that can do without it then: it is not held up by trying.
    pub(crate) fn misses(&self, own: TargetId, target: TargetId) -> bool {
        self.known.lock().get_mut(&target).is_some_and(|known| known.misses(own))
    }

    /// Tries those that do not answer, and are `wanted`, when it is time; `report` is told of each
    /// that still does not, after the one that misses it.
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

    /// What an attempt to connect says of it.
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

    /// Whether a target could not be connected to when that was tried last, and has not answered
    /// since.
    pub(crate) fn is_out_of_reach(&self, target: TargetId) -> bool {
        self.known.lock().get(&target).is_some_and(|known| matches!(known.news, Some((_, true))))
    }

    /// Finds out whether a target can be reached that does not answer, if nobody has of late: it
    /// may be waiting for others. `look` is asked meanwhile: an error ends it.
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

    /// Whether an answer is there within this time.
    pub(crate) fn is_ready(&self, ms: u64) -> Result<bool> {
        let conn = self.conn.as_ref().ok_or(ErrorKind::Unreachable)?;
        match conn.readable(&self.lines.wait(ms)) {
            Ok(()) => Ok(true),
            Err(e) if e.kind == ErrorKind::TimedOut => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Takes the answer.
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

    /// Asks for something that may be done twice, and waits for the answer.
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

/// Whether an error says nothing of what the other server thinks of the change.
pub(crate) fn says_nothing(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Unreachable
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::NotCurrent
            | ErrorKind::TargetMissing
            | ErrorKind::BadTicket
            | ErrorKind::Overloaded
            | ErrorKind::Busy
            | ErrorKind::TooManyOpen
            | ErrorKind::AuthFailed
            | ErrorKind::Protocol
    )
}

/// A connection, and the bytes that go with a request.
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
