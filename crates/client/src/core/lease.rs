//! The leases of one open file: what is held, which calls are under way under
//! it, what is being given up. Time comes in.
//!
//! Invariants: a call is under way only while a lease covers it, or was lost under it; a
//! lease is given up only when no call is under way in its range; what the layer above may
//! have kept under a lease that was lost is dropped when that is wanted back.

use super::held::Held;
use std::ops::Range;
use std::time::Duration;
use weir_host::net::Signal;
use weir_wire::lease::{LeaseMode, TO_THE_END};

/// Leases are on whole blocks of so many bytes.
pub const BLOCK_BYTES: u64 = 4096;
/// So long calls are held back for a later round of dropping.
const HOLD_BACK: Duration = Duration::from_millis(20);

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Reads into pages of the layer above, which has them locked: of what shows nothing
    /// yet, nothing has to be dropped.
    Read,
    /// Reads past the pages of the layer above, which may have some of the range.
    Look,
    /// Writes.
    Write,
    /// Writes a page of a shared mapping back. It cannot wait for a lease that
    /// is being given up, since that waits for the page.
    Page,
}

impl CallKind {
    /// The lease that it takes.
    pub fn mode(self) -> LeaseMode {
        match self {
            CallKind::Read | CallKind::Look => LeaseMode::Read,
            CallKind::Write | CallKind::Page => LeaseMode::Write,
        }
    }
}

/// What a call that comes has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enter {
    /// Go on; call [`FileLease::leave`] with this number at the end.
    Entered(u64),
    /// Wait for a change, or so long, and ask again.
    Wait(Option<Duration>),
    /// Get this lease and ask again.
    Missing {
        /// First byte.
        start: u64,
        /// The byte after the last.
        end: u64,
    },
}

#[derive(Debug)]
struct CallUnderWay {
    id: u64,
    range: Range<u64>,
    kind: CallKind,
}

struct Asking {
    id: u64,
    range: Range<u64>,
    /// A page that is written back waits for the answer, and does not need it any
    /// more once the lease is recalled.
    kick: Option<Signal>,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.id, self.range)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// New calls wait; those under way are waited for.
    Waiting,
    /// The layer above drops what it has of the range. Calls go on, and what
    /// they touched is dropped again.
    Dropping { round: u32, since: Duration, touched: Option<Range<u64>> },
    /// New calls wait; what was written goes to the servers, and then the lease
    /// is given up.
    Closing,
}

#[derive(Debug)]
struct Recall {
    range: Range<u64>,
    mode: LeaseMode,
    phase: Phase,
}

/// The leases of one open file.
#[derive(Debug, Default)]
pub struct FileLease {
    held: Held,
    /// From the first byte to the last of what was lost: the server may take it for held yet,
    /// and the layer above have something of it.
    lost: Option<Range<u64>>,
    calls: Vec<CallUnderWay>,
    /// Ranges for which somebody asks the server.
    asking: Vec<Asking>,
    /// Reads that wait for a lease. The layer above has nothing of these ranges
    /// yet, and holds what it would drop of them until they have been served.
    waiting: Vec<(u64, Range<u64>)>,
    recall: Option<Recall>,
    next_id: u64,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn hull(a: Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.min(b.start)..a.end.max(b.end)
}

/// What is left of a range, from the first byte to the last, without another one.
fn without(range: Range<u64>, gone: &Range<u64>) -> Range<u64> {
    let start = if gone.start <= range.start { gone.end } else { 0 };
    let end = if gone.end >= range.end { gone.start } else { TO_THE_END };
    range.start.max(start)..range.end.min(end)
}

/// The blocks that hold a range.
pub fn blocks(range: &Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(TO_THE_END);
    range.start / BLOCK_BYTES * BLOCK_BYTES..end
}

impl FileLease {
    /// A call on these ranges (whole blocks, at least one) comes. `granted`: the server
    /// has just given it a lease, which may be wanted back already: it goes first, or it might
    /// never.
    pub fn enter(
        &mut self,
        now: Duration,
        ranges: &[Range<u64>],
        kind: CallKind,
        granted: bool,
    ) -> Enter {
        let Some(whole) = ranges.iter().cloned().reduce(|a, b| hull(a, &b)) else {
            return Enter::Missing { start: 0, end: 0 };
        };
        if let Some(recall) = &self.recall
            && ranges.iter().any(|range| overlap(range, &recall.range))
            && kind.mode() >= opposed_by(recall.mode)
        {
            let first = granted || kind == CallKind::Page;
            match &recall.phase {
                Phase::Waiting if !first => return Enter::Wait(None),
                Phase::Closing => return Enter::Wait(None),
                Phase::Dropping { round, since, .. } if *round > 1 && !first => {
                    let until = *since + HOLD_BACK;
                    if now < until {
                        return Enter::Wait(Some(until - now));
                    }
                }
                Phase::Waiting | Phase::Dropping { .. } => {}
            }
        }
        // A page that was changed under a lease to read: whoever wants that back gets
        // what is in it, and has nothing yet.
        let given_up = |range: &Range<u64>| {
            let recalled = self.recall.as_ref().filter(|recall| recall.mode == LeaseMode::Write);
            kind == CallKind::Page && recalled.is_some_and(|recall| overlap(range, &recall.range))
        };
        let lacks = |range: &Range<u64>| self.held.missing(range.start, range.end, kind.mode());
        if let Some((start, end)) = ranges.iter().filter(|range| !given_up(range)).find_map(lacks) {
            let range = start..end;
            if self.asking.iter().any(|other| overlap(&other.range, &range)) {
                return Enter::Wait(None);
            }
            return Enter::Missing { start, end };
        }
        if let Some(Recall { range, phase: Phase::Dropping { touched, .. }, .. }) = &mut self.recall
            && kind != CallKind::Page
            && overlap(range, &whole)
        {
            *touched = Some(touched.take().map_or(whole.clone(), |touched| hull(touched, &whole)));
        }
        let id = self.new_id();
        self.calls.push(CallUnderWay { id, range: whole, kind });
        Enter::Entered(id)
    }

    /// A call has ended; whether somebody may wait for that.
    pub fn leave(&mut self, id: u64) -> bool {
        self.calls.retain(|call| call.id != id);
        self.recall.is_some()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// A call of these ranges begins to wait.
    pub fn begin_waiting(&mut self, ranges: &[Range<u64>], kind: CallKind) -> u64 {
        let id = self.new_id();
        let whole = ranges.iter().cloned().reduce(|a, b| hull(a, &b));
        self.waiting.extend(whole.filter(|_| kind == CallKind::Read).map(|whole| (id, whole)));
        id
    }

    /// It waits no more.
    pub fn end_waiting(&mut self, id: u64) {
        self.waiting.retain(|(other, _)| *other != id);
    }

    /// Somebody asks the server for this range; `kick`: for a page, see
    /// [`FileLease::begin_recall`].
    pub fn ask(&mut self, start: u64, end: u64, kick: Option<Signal>) -> u64 {
        let id = self.new_id();
        self.asking.push(Asking { id, range: start..end, kick });
        id
    }

    /// The server has answered, or has not.
    pub fn asked(&mut self, id: u64) {
        self.asking.retain(|other| other.id != id);
    }

    /// A lease came.
    pub fn grant(&mut self, start: u64, end: u64, mode: LeaseMode) {
        self.held.add(start, end, mode);
    }

    /// The server wants a lease back. One at a time. Pages in this range that wait for
    /// a lease are kicked: the recall waits for them, and they go on under it.
    pub fn begin_recall(&mut self, start: u64, end: u64, mode: LeaseMode) {
        let range = start..end;
        for asking in &self.asking {
            if let Some(kick) = asking.kick.as_ref().filter(|_| mode == LeaseMode::Write)
                && overlap(&asking.range, &range)
            {
                kick.raise();
            }
        }
        self.recall = Some(Recall { range: start..end, mode, phase: Phase::Waiting });
    }

    /// Whether no call is under way that the recall waits for now.
    pub fn is_quiet(&self) -> bool {
        let Some(recall) = &self.recall else { return true };
        let closing = recall.phase == Phase::Closing;
        let opposed = opposed_by(recall.mode);
        !self.calls.iter().any(|call| {
            overlap(&call.range, &recall.range)
                && call.kind.mode() >= opposed
                && (closing || call.kind != CallKind::Page)
        })
    }

    /// The calls under way, for people.
    pub fn under_way(&self) -> String {
        let call = |call: &CallUnderWay| {
            format!("{:?} {}..{}", call.kind, call.range.start, call.range.end)
        };
        self.calls.iter().map(call).collect::<Vec<_>>().join(", ")
    }

    /// A round of dropping begins: what to drop. Of what was not held there is
    /// nothing to drop.
    pub fn begin_round(&mut self, now: Duration) -> Vec<Range<u64>> {
        let Some(recall) = &mut self.recall else { return Vec::new() };
        let (round, what) = match &mut recall.phase {
            Phase::Dropping { round, touched, .. } => (*round + 1, touched.take().unwrap_or(0..0)),
            _ => (1, recall.range.clone()),
        };
        recall.phase = Phase::Dropping { round, since: now, touched: None };
        let within = |range: &Range<u64>| range.start.max(what.start)..range.end.min(what.end);
        let lost = self.lost.iter().map(within).find(|range| range.start < range.end);
        let held = self.held.list().map(|(start, end, _)| within(&(start..end)));
        // What was lost and has come again is dropped once.
        let apart = |range: &Range<u64>| {
            let covered =
                lost.as_ref().is_some_and(|l| l.start <= range.start && range.end <= l.end);
            range.start < range.end && !covered
        };
        let mut ranges: Vec<Range<u64>> = held.filter(apart).chain(lost.clone()).collect();
        for (_, waits) in &self.waiting {
            let cut = |range: Range<u64>| {
                let (before, after) = (
                    range.start..range.end.min(waits.start),
                    range.start.max(waits.end)..range.end,
                );
                [before, after].into_iter().filter(|range| range.start < range.end)
            };
            ranges = ranges.into_iter().flat_map(cut).collect();
        }
        ranges
    }

    /// A round of dropping has ended; whether there has to be another. If not, nothing new
    /// comes in from now on: what came in between would be kept above, and never dropped.
    pub fn end_round(&mut self) -> bool {
        let phase = self.recall.as_ref().map(|recall| &recall.phase);
        let again = matches!(phase, Some(Phase::Dropping { touched: Some(_), .. }));
        if !again {
            self.close();
        }
        again
    }

    /// From now on nothing new comes in.
    pub fn close(&mut self) {
        if let Some(recall) = &mut self.recall {
            recall.phase = Phase::Closing;
        }
    }

    /// Everything is written back: the lease is not held any more. Calls wait
    /// until [`FileLease::end_recall`], when the server knows.
    pub fn give_up(&mut self) {
        if let Some(recall) = &self.recall {
            self.held.give_up(recall.range.start, recall.range.end, recall.mode);
            let kept = self.lost.take().map(|lost| match recall.mode {
                LeaseMode::Write => without(lost, &recall.range),
                // What may be read may be kept.
                LeaseMode::Read => lost,
            });
            self.lost = kept.filter(|range| range.start < range.end);
        }
    }

    /// The server knows.
    pub fn end_recall(&mut self) {
        self.recall = None;
    }

    /// All leases are lost; whether there was one to write.
    pub fn lose(&mut self) -> bool {
        let wrote = self.held.list().any(|(.., mode)| mode == LeaseMode::Write);
        let held = self.held.list().map(|(start, end, _)| start..end);
        self.lost = held.chain(self.lost.clone()).reduce(|a, b| hull(a, &b));
        self.held.clear();
        wrote
    }

    /// How far from `start` on the file may be read under leases that nobody
    /// wants back.
    pub fn reach(&self, start: u64) -> u64 {
        let reach = self.held.reach(start, LeaseMode::Read);
        match &self.recall {
            Some(recall) if recall.mode == LeaseMode::Write && recall.range.end > start => {
                reach.min(recall.range.start.max(start))
            }
            _ => reach,
        }
    }

    /// What may be read, and not written.
    pub fn read_only(&self) -> Vec<Range<u64>> {
        let held = self.held.list().filter(|(.., mode)| *mode == LeaseMode::Read);
        held.map(|(first, last, _)| first..last).collect()
    }

    /// What is held on the whole file.
    pub fn on_whole(&self) -> Option<LeaseMode> {
        let holds = |mode| self.held.reach(0, mode) == TO_THE_END;
        [LeaseMode::Write, LeaseMode::Read].into_iter().find(|mode| holds(*mode))
    }

    /// What is held.
    pub fn held(&self) -> &Held {
        &self.held
    }
}

/// Calls that a recall stops need at least this lease.
fn opposed_by(recall: LeaseMode) -> LeaseMode {
    match recall {
        LeaseMode::Write => LeaseMode::Read,
        LeaseMode::Read => LeaseMode::Write,
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // Calls may have many.
mod tests;
