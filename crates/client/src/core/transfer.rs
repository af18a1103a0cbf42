//! One call on several servers: which part to send, what each answer means,
//! when to try again and when to give up. Time comes in as milliseconds of any
//! clock that never goes back.
//!
//! A part of a column with several copies is read from another one when one fails, at
//! once; when all have failed, again from the first, a little later. Changes are for the
//! primary alone, and wait until there is one.
//!
//! Invariant: every part is sent to one server at a time, and the transfer ends, well or
//! badly, at the latest at its deadline.

use super::copies::{Failure, Purpose, is_damage, is_elsewhere};
use weir_types::{CopyIndex, Error, ErrorKind, Retry};

/// First wait before a repetition; doubled each time.
const FIRST_BACKOFF_MS: u64 = 10;
/// Longest wait before a repetition.
const MAX_BACKOFF_MS: u64 = 1000;
/// The same of a change that waits for a new primary.
const MAX_CHANGE_BACKOFF_MS: u64 = 500;
/// A copy that others can stand in for is waited for so long at first; doubled when all
/// have been asked in vain: they may just be slow.
const FIRST_PATIENCE_MS: u64 = 1000;
/// How often it is doubled at the most.
const MAX_DOUBLINGS: u32 = 6;
/// One that is known to be slow is waited for so many times as long as it is expected to take:
/// to ask another one as well would give both the work.
const EXPECTED_TIMES: u64 = 4;
/// But no longer than this: it may be dead.
const MAX_EXPECTED_MS: u64 = 2_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    Ready,
    InFlight,
    /// Until another one of the call has its answer, or it is looked again whether a copy has room.
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
    /// It was refused for something out of date before.
    refused: bool,
    /// Read again under the server's lock: a checksum did not match.
    locked: bool,
    /// Which copy is asked, and what for; `None`: there is only one.
    asked: Option<(CopyIndex, Purpose)>,
    /// Copies that have failed since all were last to be asked.
    tried: Vec<CopyIndex>,
    /// The last failure of each copy.
    told: Vec<Failure>,
    /// Its server did not answer before: it may have done it, or be about to.
    unanswered: bool,
    /// How often all have failed.
    rounds: u32,
    /// The copy that is asked is expected to answer after so long; 0: it is not known.
    expected_ms: u64,
    /// When it was sent last.
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

    /// Whether the same would come of it another time. The target of a copy that cannot
    /// write is taken out of service, and another copy orders the changes then.
    fn gives_up(&self, kind: ErrorKind) -> bool {
        let may_move = matches!(self.asked, Some((_, Purpose::Change)))
            && matches!(kind, ErrorKind::Io | ErrorKind::ReadOnly);
        kind.retry() == Retry::Never && !may_move
    }
}

/// Whether nobody knows whether the server has done what it was asked for.
fn is_no_answer(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Protocol)
}

/// What the shell does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this part.
    Send(usize),
    /// Take the answer of this part, which was sent, or of another one of [`Transfer::awaited`].
    Receive(usize),
    /// Nothing can be done before this time.
    Sleep {
        /// When.
        until_ms: u64,
    },
    /// Get layout, capability, map and tickets anew, then call [`Transfer::refreshed`].
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
    /// The part whose failure that is, if its copies have not been named yet.
    failed: Option<usize>,
}

impl Transfer {
    /// A call of so many parts.
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
        Self { parts, deadline_ms, refresh: false, failure: None, failed: None }
    }

    /// There is no room for a part at a copy now: it is sent when another one has its answer, at once
    /// if none is outstanding.
    pub fn defer(&mut self, part: usize) {
        self.parts[part].state = PartState::Deferred;
    }

    /// Those that are.
    pub fn deferred(&self) -> Vec<usize> {
        let is_deferred = |n: &usize| self.parts[*n].state == PartState::Deferred;
        (0..self.parts.len()).filter(is_deferred).collect()
    }

    /// There may be room now.
    pub fn retry_deferred(&mut self) {
        let deferred = self.parts.iter_mut().filter(|part| part.state == PartState::Deferred);
        deferred.for_each(|part| part.state = PartState::Ready);
    }

    /// Those whose answers are outstanding.
    pub fn in_flight(&self) -> Vec<usize> {
        let is_in_flight = |n: &usize| self.parts[*n].state == PartState::InFlight;
        (0..self.parts.len()).filter(is_in_flight).collect()
    }

    /// Those whose answers are outstanding, without this one.
    pub fn others_in_flight(&self, part: usize) -> impl Iterator<Item = usize> + '_ {
        let is_in_flight = |n: &usize| self.parts[*n].state == PartState::InFlight;
        (0..self.parts.len()).filter(move |n| *n != part).filter(is_in_flight)
    }

    /// Whether its copy is to be chosen (again) before a part is sent: not if it is
    /// read again from the same one. `mirrored`: it has several.
    pub fn may_choose(&self, part: usize, mirrored: bool) -> bool {
        let part = &self.parts[part];
        (mirrored || part.failures > 0) && !part.locked
    }

    /// Whether the map may be out of date: the primary that it names has failed.
    pub fn doubts_primary(&self, part: usize) -> bool {
        let part = &self.parts[part];
        part.failures > 0 && matches!(part.asked, Some((_, Purpose::Change)))
    }

    /// Whether all copies of a part have been asked in vain.
    pub fn has_asked_all(&self, part: usize) -> bool {
        self.parts[part].rounds > 0
    }

    /// The copies that are not to be asked now: they have just failed.
    pub fn tried(&self, part: usize) -> &[CopyIndex] {
        &self.parts[part].tried
    }

    /// A copy was chosen for a part. `None`: its column has only one.
    pub fn chosen(&mut self, part: usize, asked: Option<(CopyIndex, Purpose)>) {
        let part = &mut self.parts[part];
        let change = |asked| matches!(asked, Some((_, Purpose::Change)));
        if change(asked) && change(part.asked) && asked != part.asked {
            // It may not know yet that it is the primary, but will soon.
            part.failures = 1;
        }
        part.asked = asked;
    }

    /// What the part is sent for, if its column has several copies.
    pub fn purpose(&self, part: usize) -> Option<Purpose> {
        self.parts[part].asked.map(|(_, purpose)| purpose)
    }

    /// So long its server is waited for before another copy is thought of.
    pub fn patience_ms(&self, part: usize) -> u64 {
        let part = &self.parts[part];
        let doublings = match part.asked {
            Some((_, Purpose::Change)) => part.failures,
            _ => part.rounds,
        };
        let expected_ms = (EXPECTED_TIMES * part.expected_ms).min(MAX_EXPECTED_MS);
        (FIRST_PATIENCE_MS << doublings.min(MAX_DOUBLINGS)).max(expected_ms)
    }

    /// A part was sent.
    pub fn sent(&mut self, part: usize, now_ms: u64) {
        self.parts[part].sent_ms = now_ms;
    }

    /// Until then its server is waited for by who has waited since `begun_ms`.
    pub fn patient_until_ms(&self, part: usize, begun_ms: u64) -> u64 {
        self.parts[part].sent_ms.max(begun_ms) + self.patience_ms(part)
    }

    /// The copy that was chosen for a part is expected to answer after so long.
    pub fn expect(&mut self, part: usize, time_ms: u64) {
        self.parts[part].expected_ms = time_ms.min(MAX_EXPECTED_MS);
    }

    /// What has come of asking the copies of a part.
    pub fn told(&self, part: usize) -> &[Failure] {
        &self.parts[part].told
    }

    /// No copy could be chosen for a part: all that are current have been tried, or
    /// there is none. `hopeless`: nor will there be.
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

    /// The part whose failure ended the call, if it has copies that the error does not
    /// name.
    pub fn failed(&self) -> Option<usize> {
        self.failed
    }

    /// How often a part has failed.
    pub fn failures(&self, part: usize) -> u32 {
        self.parts[part].failures
    }

    /// Whether a part is to be read under the server's lock.
    pub fn locked(&self, part: usize) -> bool {
        self.parts[part].locked
    }

    /// When the call gives up.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Gives a call that waited (a read ahead of its reader) a new deadline.
    pub fn set_deadline_ms(&mut self, deadline_ms: u64) {
        self.deadline_ms = deadline_ms;
    }

    /// Parts of a call that has failed that may be done yet: their answers were awaited, or did
    /// not come.
    pub fn outstanding(&self) -> impl Iterator<Item = usize> + '_ {
        let may_be_done = |part: &Part| {
            part.state == PartState::InFlight || part.unanswered && part.state != PartState::Done
        };
        (0..self.parts.len()).filter(move |part| may_be_done(&self.parts[*part]))
    }

    /// The parts whose answers are taken in the order in which they come, with that of this one:
    /// of reads of columns with several copies all that were sent, since a copy counts as busy until
    /// its answer has been taken. What else there is is taken part by part.
    pub fn awaited(&self, part: usize) -> Vec<usize> {
        let is_read = |part: usize| self.purpose(part) == Some(Purpose::Read);
        match is_read(part) {
            true => self.in_flight().into_iter().filter(|n| is_read(*n)).collect(),
            false => vec![part],
        }
    }

    /// What to do next. Sending comes first, so that all servers work at once.
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

    /// What came of sending or receiving a part.
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

    /// Another copy of the part is asked at once.
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

    /// Layout, capability, map and tickets are new (or could not be had).
    pub fn refreshed(&mut self, result: Result<(), Error>) {
        self.refresh = false;
        if let Err(error) = result {
            self.failure = Some(error);
        }
    }

    /// Ends the call, because its waiter was interrupted.
    pub fn cancel(&mut self, error: Error) {
        self.failure = Some(error);
    }
}

#[cfg(test)]
mod tests;
