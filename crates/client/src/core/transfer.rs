//! One call on several servers: which part to send, what each reply means, when to retry and when
//! to give up. The time is passed in as milliseconds of a monotonic clock.
//!
//! If a read of a column with several copies fails, another copy is read at once. When all copies
//! have failed, the first is read again a little later. Changes go to the primary alone, and wait
//! until there is one.
//!
//! Invariant: every part is sent to one server at a time, and the transfer ends, with success or
//! not, at its deadline at the latest.

use super::copies::{Failure, Purpose, is_damage, is_elsewhere};
use weir_types::{CopyIndex, Error, ErrorKind, Retry};

/// First wait before a retry; doubled each time.
const FIRST_BACKOFF_MS: u64 = 10;
/// Longest wait before a retry.
const MAX_BACKOFF_MS: u64 = 1000;
/// Longest wait before a retry of a change that waits for a new primary.
const MAX_CHANGE_BACKOFF_MS: u64 = 500;
/// First timeout of a copy that others can replace. It is doubled when all copies have timed out:
/// they may just be slow.
const FIRST_PATIENCE_MS: u64 = 1000;
/// The most doublings of that timeout.
const MAX_DOUBLINGS: u32 = 6;
/// Timeout of a copy that is known to be slow, as a multiple of its expected time. Asking another
/// copy as well would give both the work.
const EXPECTED_TIMES: u64 = 4;
/// The longest such timeout: the copy may be dead.
const MAX_EXPECTED_MS: u64 = 2_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    Ready,
    InFlight,
    /// Waits until another part of the call has its reply, or until the next check of the copies'
    /// space for requests.
    Deferred,
    Waiting {
        until_ms: u64,
    },
    Done,
}

#[derive(Debug)]
struct Part {
    state: PartState,
    failures: u32,
    /// Whether it was refused before because something was out of date.
    refused: bool,
    /// Whether it is read under the server's lock, because a checksum did not match.
    locked: bool,
    /// The copy that is asked, and the purpose; `None` if there is only one copy.
    asked: Option<(CopyIndex, Purpose)>,
    /// Copies that have failed in this round.
    tried: Vec<CopyIndex>,
    /// The last failure of each copy.
    told: Vec<Failure>,
    /// Whether an earlier attempt got no reply: the server may have done it, or may still do it.
    unanswered: bool,
    /// Number of rounds in which all copies have failed.
    rounds: u32,
    /// Expected time until the copy replies; 0 if unknown.
    expected_ms: u64,
    /// Time at which it was sent last.
    sent_ms: u64,
}

impl Part {
    fn remember(&mut self, copy: CopyIndex, error: &Error) {
        let failure = Failure { copy, error: error.clone() };
        match self.told.iter_mut().find(|told| told.copy == copy) {
            Some(told) => *told = failure,
            None => self.told.push(failure),
        }
    }

    /// Whether a retry would have the same result. The target of a copy that cannot write is taken
    /// out of service, and another copy then orders the changes.
    fn gives_up(&self, kind: ErrorKind) -> bool {
        let may_move = matches!(self.asked, Some((_, Purpose::Change)))
            && matches!(kind, ErrorKind::Io | ErrorKind::ReadOnly);
        kind.retry() == Retry::Never && !may_move
    }
}

/// Whether the error leaves open whether the server has carried out the request.
fn is_no_answer(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Protocol)
}

/// The next step of the shell.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this part.
    Send(usize),
    /// Receive the reply to this part, or to another of [`Transfer::awaited`].
    Receive(usize),
    /// Wait: nothing can be done before this time.
    Sleep {
        /// Time of the next step.
        until_ms: u64,
    },
    /// Renew layout, capability, map and tickets, then call [`Transfer::refreshed`].
    Refresh,
    /// All parts are done.
    Done,
    /// The call has failed.
    Fail(Error),
}

/// The state of one call.
#[derive(Debug)]
pub struct Transfer {
    parts: Vec<Part>,
    deadline_ms: u64,
    refresh: bool,
    failure: Option<Error>,
    /// The part that has failed, if the failures of its copies are not in the error yet.
    failed: Option<usize>,
    /// Parts that ended without their bytes.
    lacking: Vec<(usize, Error)>,
}

impl Transfer {
    /// A call of this many parts.
    pub fn new(parts: usize, deadline_ms: u64) -> Self {
        let fresh = || Part {
            state: PartState::Ready,
            failures: 0,
            refused: false,
            locked: false,
            asked: None,
            tried: Vec::new(),
            told: Vec::new(),
            unanswered: false,
            rounds: 0,
            expected_ms: 0,
            sent_ms: 0,
        };
        let parts = (0..parts).map(|_| fresh()).collect();
        let lacking = Vec::new();
        Self { parts, deadline_ms, refresh: false, failure: None, failed: None, lacking }
    }

    /// Postpones a part because its copy has enough requests. It is sent when another part has its
    /// reply, at once if none is outstanding.
    pub fn defer(&mut self, part: usize) {
        self.parts[part].state = PartState::Deferred;
    }

    /// The postponed parts.
    pub fn deferred(&self) -> Vec<usize> {
        let is_deferred = |n: &usize| self.parts[*n].state == PartState::Deferred;
        (0..self.parts.len()).filter(is_deferred).collect()
    }

    /// Tries postponed parts again: a copy may have space for requests.
    pub fn retry_deferred(&mut self) {
        let deferred = self.parts.iter_mut().filter(|part| part.state == PartState::Deferred);
        deferred.for_each(|part| part.state = PartState::Ready);
    }

    /// Parts with outstanding replies.
    pub fn in_flight(&self) -> Vec<usize> {
        let is_in_flight = |n: &usize| self.parts[*n].state == PartState::InFlight;
        (0..self.parts.len()).filter(is_in_flight).collect()
    }

    /// Parts with outstanding replies, without this one.
    pub fn others_in_flight(&self, part: usize) -> impl Iterator<Item = usize> + '_ {
        let is_in_flight = |n: &usize| self.parts[*n].state == PartState::InFlight;
        (0..self.parts.len()).filter(move |n| *n != part).filter(is_in_flight)
    }

    /// Whether to choose a copy (again) before a part is sent. A part that is read again from the
    /// same copy keeps it. `mirrored` says that there are several copies.
    pub fn may_choose(&self, part: usize, mirrored: bool) -> bool {
        let part = &self.parts[part];
        (mirrored || part.failures > 0) && !part.locked
    }

    /// Whether the map may be out of date, because the primary in it has failed.
    pub fn doubts_primary(&self, part: usize) -> bool {
        let part = &self.parts[part];
        part.failures > 0 && matches!(part.asked, Some((_, Purpose::Change)))
    }

    /// Whether all copies of a part have failed.
    pub fn has_asked_all(&self, part: usize) -> bool {
        self.parts[part].rounds > 0
    }

    /// The copies of a part that have just failed and must not be asked now.
    pub fn tried(&self, part: usize) -> &[CopyIndex] {
        &self.parts[part].tried
    }

    /// Sets the chosen copy of a part; `None` if its column has only one.
    pub fn chosen(&mut self, part: usize, asked: Option<(CopyIndex, Purpose)>) {
        let part = &mut self.parts[part];
        let change = |asked| matches!(asked, Some((_, Purpose::Change)));
        if change(asked) && change(part.asked) && asked != part.asked {
            // It may not know yet that it is the primary, but will soon.
            part.failures = 1;
        }
        part.asked = asked;
    }

    /// Purpose of the part, if its column has several copies.
    pub fn purpose(&self, part: usize) -> Option<Purpose> {
        self.parts[part].asked.map(|(_, purpose)| purpose)
    }

    /// Timeout of a part's server before another copy is considered.
    pub fn patience_ms(&self, part: usize) -> u64 {
        let part = &self.parts[part];
        let doublings = match part.asked {
            Some((_, Purpose::Change)) => part.failures,
            _ => part.rounds,
        };
        let expected_ms = (EXPECTED_TIMES * part.expected_ms).min(MAX_EXPECTED_MS);
        (FIRST_PATIENCE_MS << doublings.min(MAX_DOUBLINGS)).max(expected_ms)
    }

    /// Records that a part was sent.
    pub fn sent(&mut self, part: usize, now_ms: u64) {
        self.parts[part].sent_ms = now_ms;
    }

    /// Time until which a caller that waits since `begun_ms` waits for the part's server.
    pub fn patient_until_ms(&self, part: usize, begun_ms: u64) -> u64 {
        self.parts[part].sent_ms.max(begun_ms) + self.patience_ms(part)
    }

    /// Sets the expected time until the chosen copy replies.
    pub fn expect(&mut self, part: usize, time_ms: u64) {
        self.parts[part].expected_ms = time_ms.min(MAX_EXPECTED_MS);
    }

    /// Failures of a part's copies.
    pub fn told(&self, part: usize) -> &[Failure] {
        &self.parts[part].told
    }

    /// Records that no copy could be chosen for a part: all current ones were tried, or there is
    /// none. `hopeless` says that there will be none either.
    pub fn no_copy(&mut self, index: usize, error: Error, hopeless: bool, now_ms: u64) {
        let part = &mut self.parts[index];
        part.state = PartState::Ready;
        part.rounds += 1;
        part.tried.clear();
        let backoff = FIRST_BACKOFF_MS << (part.rounds - 1).min(10);
        let until_ms = now_ms + backoff.min(MAX_BACKOFF_MS);
        if hopeless || until_ms >= self.deadline_ms {
            self.failure = Some(error);
            return;
        }
        part.state = PartState::Waiting { until_ms };
    }

    /// Makes a call as patient as one of which all copies have failed so often.
    pub fn set_rounds(&mut self, rounds: u32) {
        self.parts.iter_mut().for_each(|part| part.rounds = rounds);
    }

    /// Ends a part without its bytes: they are to be computed from others.
    pub fn lacks(&mut self, index: usize, error: Error) {
        self.parts[index].state = PartState::Done;
        self.lacking.push((index, error));
    }

    /// Reads parts that ended without their bytes after all.
    pub fn is_wanted(&mut self, parts: &[usize]) {
        self.has(parts);
        parts.iter().for_each(|part| self.parts[*part].state = PartState::Ready);
    }

    /// Records that parts which ended without their bytes have them since.
    pub fn has(&mut self, parts: &[usize]) {
        self.lacking.retain(|(part, _)| !parts.contains(part));
    }

    /// The parts that ended without their bytes, and why.
    pub fn lacking(&self) -> &[(usize, Error)] {
        &self.lacking
    }

    /// The part whose failure ended the call, if it has copies that the error does not name.
    pub fn failed(&self) -> Option<usize> {
        self.failed
    }

    /// Number of failures of a part.
    pub fn failures(&self, part: usize) -> u32 {
        self.parts[part].failures
    }

    /// Whether a part is to be read under the server's lock.
    pub fn locked(&self, part: usize) -> bool {
        self.parts[part].locked
    }

    /// Deadline of the call.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Sets a new deadline, for a read-ahead that a reader has begun to wait for.
    pub fn set_deadline_ms(&mut self, deadline_ms: u64) {
        self.deadline_ms = deadline_ms;
    }

    /// Parts of a failed call that may still be carried out: their replies were outstanding or did
    /// not arrive.
    pub fn outstanding(&self) -> impl Iterator<Item = usize> + '_ {
        let may_be_done = |part: &Part| {
            part.state == PartState::InFlight || part.unanswered && part.state != PartState::Done
        };
        (0..self.parts.len()).filter(move |part| may_be_done(&self.parts[*part]))
    }

    /// The parts whose replies are received in order of arrival, together with that of this part.
    /// For reads of columns with several copies these are all sent parts, since a copy counts as
    /// busy until its reply is received. Other replies are received part by part.
    pub fn awaited(&self, part: usize) -> Vec<usize> {
        let is_read = |part: usize| self.purpose(part) == Some(Purpose::Read);
        match is_read(part) {
            true => self.in_flight().into_iter().filter(|n| is_read(*n)).collect(),
            false => vec![part],
        }
    }

    /// The next step. Sending comes first, so that all servers work at once.
    pub fn next(&mut self, now_ms: u64) -> Next {
        let receive = self.parts.iter().position(|p| p.state == PartState::InFlight);
        if let Some(error) = &self.failure {
            // Answers still on their way are not waited for: the shell drops
            // those connections.
            return Next::Fail(error.clone());
        }
        // What has not been tried goes before what has failed: that may take its time again.
        let is_due = |p: &Part| match p.state {
            PartState::Waiting { until_ms } => until_ms <= now_ms,
            _ => false,
        };
        let ready = self.parts.iter().position(|p| p.state == PartState::Ready);
        let to_send = ready.or_else(|| self.parts.iter().position(is_due));
        if let Some(part) = to_send.filter(|_| !self.refresh) {
            self.parts[part].state = PartState::InFlight;
            return Next::Send(part);
        }
        if let Some(part) = receive {
            return Next::Receive(part);
        }
        if self.refresh {
            return Next::Refresh;
        }
        if let Some(part) = self.parts.iter().position(|p| p.state == PartState::Deferred) {
            self.parts[part].state = PartState::InFlight;
            return Next::Send(part);
        }
        let wake = self.parts.iter().filter_map(|p| match p.state {
            PartState::Waiting { until_ms } => Some(until_ms),
            _ => None,
        });
        match wake.min() {
            Some(until_ms) => Next::Sleep { until_ms },
            None => Next::Done,
        }
    }

    /// Records the result of sending or receiving a part.
    pub fn on_result(&mut self, part: usize, result: Result<(), Error>, now_ms: u64) {
        match result {
            Ok(()) => self.parts[part].state = PartState::Done,
            Err(error) => self.on_error(part, error, now_ms),
        }
        self.retry_deferred();
    }

    fn on_error(&mut self, index: usize, error: Error, now_ms: u64) {
        let part = &mut self.parts[index];
        part.failures += 1;
        part.state = PartState::Ready;
        part.unanswered |= is_no_answer(error.kind);
        let most = match part.asked {
            Some((_, Purpose::Change)) => MAX_CHANGE_BACKOFF_MS,
            _ => MAX_BACKOFF_MS,
        };
        if let Some((copy, purpose)) = part.asked {
            part.remember(copy, &error);
            if purpose == Purpose::Read && is_elsewhere(error.kind, part.locked) {
                self.ask_another(index, copy, error, now_ms);
                return;
            }
        }
        let backoff = (FIRST_BACKOFF_MS << part.failures.min(10).saturating_sub(2)).min(most);
        // The first repetition is at once: most often a pooled connection was
        // closed, or a writer was at work on the block.
        // So is the first with a new capability, however long the server was
        // away before.
        let refused = error.kind.retry() == Retry::Refresh;
        let first = part.failures == 1 || refused && !part.refused;
        part.refused |= refused;
        let until_ms = if first { now_ms } else { now_ms + backoff };
        let give_up = match error.kind {
            ErrorKind::ChecksumMismatch if part.locked => {
                self.failure = Some(Error { kind: ErrorKind::Corrupt, ..error });
                return;
            }
            ErrorKind::ChecksumMismatch => {
                part.locked = true;
                false
            }
            kind => part.gives_up(kind),
        };
        if give_up || until_ms >= self.deadline_ms {
            let named = give_up || part.asked.is_none();
            self.failed = (!named).then_some(index);
            self.failure = Some(error);
            return;
        }
        part.state = PartState::Waiting { until_ms };
        self.refresh |= refused;
    }

    /// Prepares a part to be sent to another copy at once.
    fn ask_another(&mut self, index: usize, copy: CopyIndex, error: Error, now_ms: u64) {
        let part = &mut self.parts[index];
        part.locked = false;
        part.tried.push(copy);
        part.expected_ms = 0;
        part.state = PartState::Ready;
        if now_ms >= self.deadline_ms {
            let kind = if is_damage(error.kind) { ErrorKind::Corrupt } else { error.kind };
            self.failed = Some(index);
            self.failure = Some(Error { kind, ..error });
        }
    }

    /// Records that layout, capability, map and tickets were renewed, or that this has failed.
    pub fn refreshed(&mut self, result: Result<(), Error>) {
        self.refresh = false;
        if let Err(error) = result {
            self.failure = Some(error);
        }
    }

    /// Ends the call because its caller was interrupted.
    pub fn cancel(&mut self, error: Error) {
        self.failure = Some(error);
    }
}

#[cfg(test)]
mod tests;
