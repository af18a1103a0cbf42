//! Connections on which changes are handed on. Each says in its Hello which
//! attempt it belongs to (see [`crate::attempts`], of which this is the sending
//! side): a connection that is given up with a change outstanding ends its attempt,
//! so that the change does not come after what is sent next.

use crate::peers::Peers;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_net::{BlockingConn, Wait};
use weir_types::{Decode, Error, ErrorKind, Result, TargetId};
use weir_wire::Header;
use weir_wire::handshake::Attempt;
use weir_wire::message::Request;

/// Idle connections kept for each target.
const MAX_IDLE: usize = 16;
/// How often one that does not answer is tried by those who can do without it.
const TRY_EVERY: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Known {
    /// The attempt of changes from now on.
    attempt: u64,
    idle: Vec<(u64, BlockingConn)>,
    /// When it was tried last, as long as it does not answer.
    silent: Option<Instant>,
    /// The run of its machine, and how often another one was met.
    instance: Option<u64>,
    runs: u64,
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
            // Runs of different targets differ, since their attempts do.
            None => {
                let run = self.run.wrapping_add(u64::from(target.0)) | 1 << 63;
                let attempt = Attempt { run, number: attempt };
                let connected = self.peers.connect(target, attempt, wait);
                let (conn, instance) = connected.inspect_err(|_| self.failed(target))?;
                self.meets(target, instance);
                conn
            }
        };
        Ok(Line { lines: self, target, attempt, conn: Some(conn), owes: false })
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

    /// Whether who can do without a target should try it: always while it answers, and
    /// one from time to time while it does not.
    pub(crate) fn is_worth_trying(&self, target: TargetId) -> bool {
        let mut known = self.known.lock();
        let Some(tried) = known.get_mut(&target).and_then(|known| known.silent.as_mut()) else {
            return true;
        };
        let due = clock::elapsed(*tried) >= TRY_EVERY;
        if due {
            *tried = clock::now();
        }
        due
    }

    fn failed(&self, target: TargetId) {
        if let Some(known) = self.known.lock().get_mut(&target) {
            known.silent = Some(clock::now());
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
                known.silent = None;
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
            known.silent = Some(clock::now());
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
