//! The leases of one open file: which leases are held, which calls are under way under them, and
//! which lease is being given up. The time is passed in.
//!
//! Invariants
//! - A call is under way only while a lease covers it, or after its lease was lost.
//! - A lease is given up only when no call is under way in its range.
//! - After a lease was lost, data that the layer above may have cached under it is dropped when the
//!   range is recalled.

use super::held::Held;
use std::ops::Range;
use std::time::Duration;
use weir_host::net::Signal;
use weir_types::limits::BLOCK;
use weir_wire::lease::{LeaseMode, TO_THE_END};

/// How long calls are held back in favour of a later round of dropping.
const HOLD_BACK: Duration = Duration::from_millis(20);

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Reads into locked pages of the layer above. Pages that show nothing yet need not be dropped.
    Read,
    /// Reads without the pages of the layer above, which may cache some of the range.
    Look,
    /// Writes.
    Write,
    /// Writes in several steps, between which no other call of this client writes the file.
    Whole,
    /// Writes back a page of a shared mapping. It cannot wait for a lease that is being given up,
    /// since giving it up waits for the page.
    Page,
}

impl CallKind {
    /// The lease mode that the call needs.
    pub fn mode(self) -> LeaseMode {
        match self {
            CallKind::Read | CallKind::Look => LeaseMode::Read,
            CallKind::Write | CallKind::Whole | CallKind::Page => LeaseMode::Write,
        }
    }
}

/// What a new call has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enter {
    /// Go on. At the end call [`FileLease::leave`] with this number.
    Entered(u64),
    /// Wait for a change, at most for this time, and ask again.
    Wait(Option<Duration>),
    /// Acquire this lease and ask again.
    Missing {
        /// First byte.
        start: u64,
        /// End, exclusive.
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
    /// Wakes the write-back of a page that waits for the lease. Once the lease is recalled, the
    /// page no longer needs it.
    kick: Option<Signal>,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.id, self.range)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// New calls wait until those under way have ended.
    Waiting,
    /// The layer above drops its data of the range. Calls go on, and the ranges that they touch are
    /// dropped again.
    Dropping { round: u32, since: Duration, touched: Option<Range<u64>> },
    /// New calls wait. Written data goes to the servers, and then the lease is given up.
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
    /// Smallest range that covers all lost leases. The server may count them as held, and the layer
    /// above may have data under them.
    lost: Option<Range<u64>>,
    calls: Vec<CallUnderWay>,
    /// Ranges that are being requested from the server.
    asking: Vec<Asking>,
    /// Reads that wait for a lease. The layer above has no data of these ranges yet, but has locked
    /// the pages that it would have to drop, until the reads are served.
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

/// The smallest range that covers the rest of a range without another one.
fn without(range: Range<u64>, gone: &Range<u64>) -> Range<u64> {
    let start = if gone.start <= range.start { gone.end } else { 0 };
    let end = if gone.end >= range.end { gone.start } else { TO_THE_END };
    range.start.max(start)..range.end.min(end)
}

/// The blocks that contain a range.
pub fn blocks(range: &Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(BLOCK).unwrap_or(TO_THE_END);
    range.start / BLOCK * BLOCK..end
}

impl FileLease {
    /// Admits a call on these ranges (whole blocks, at least one), or says what it has to wait for.
    /// `granted` says that the server has just granted its lease. That lease may be recalled
    /// already; the call then goes first, or it might never.
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

    /// Ends a call. Returns whether another call may wait for that.
    pub fn leave(&mut self, id: u64) -> bool {
        self.calls.retain(|call| call.id != id);
        self.recall.is_some()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Records that a call begins to wait for a lease.
    pub fn begin_waiting(&mut self, ranges: &[Range<u64>], kind: CallKind) -> u64 {
        let id = self.new_id();
        let whole = ranges.iter().cloned().reduce(|a, b| hull(a, &b));
        self.waiting.extend(whole.filter(|_| kind == CallKind::Read).map(|whole| (id, whole)));
        id
    }

    /// Records that a call has stopped waiting.
    pub fn end_waiting(&mut self, id: u64) {
        self.waiting.retain(|(other, _)| *other != id);
    }

    /// Records that this range is being requested from the server. `kick` is for a page, see
    /// [`FileLease::begin_recall`].
    pub fn ask(&mut self, start: u64, end: u64, kick: Option<Signal>) -> u64 {
        let id = self.new_id();
        self.asking.push(Asking { id, range: start..end, kick });
        id
    }

    /// Records that a request to the server has ended.
    pub fn asked(&mut self, id: u64) {
        self.asking.retain(|other| other.id != id);
    }

    /// Adds a granted lease.
    pub fn grant(&mut self, start: u64, end: u64, mode: LeaseMode) {
        self.held.add(start, end, mode);
    }

    /// Begins the recall of a lease, one at a time. Pages in its range that wait for a lease are
    /// woken: the recall waits for them, and they go on under it.
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

    /// Whether no call is under way that the recall has to wait for.
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

    /// Formats the calls under way for messages.
    pub fn under_way(&self) -> String {
        let call = |call: &CallUnderWay| {
            format!("{:?} {}..{}", call.kind, call.range.start, call.range.end)
        };
        self.calls.iter().map(call).collect::<Vec<_>>().join(", ")
    }

    /// Begins a round of dropping and returns the ranges to drop. Ranges without a lease have
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

    /// Ends a round of dropping. Returns whether another round is needed. If not, no new call is
    /// admitted from now on: data that came in between would stay in the layer above.
    pub fn end_round(&mut self) -> bool {
        let phase = self.recall.as_ref().map(|recall| &recall.phase);
        let again = matches!(phase, Some(Phase::Dropping { touched: Some(_), .. }));
        if !again {
            self.close();
        }
        again
    }

    /// Admits no new calls from now on.
    pub fn close(&mut self) {
        if let Some(recall) = &mut self.recall {
            recall.phase = Phase::Closing;
        }
    }

    /// Removes the lease after everything was written back. Calls wait until
    /// [`FileLease::end_recall`], when the server knows.
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

    /// Ends the recall: the server knows.
    pub fn end_recall(&mut self) {
        self.recall = None;
    }

    /// Removes all leases, which were lost. Returns whether one of them was a write lease.
    pub fn lose(&mut self) -> bool {
        let wrote = self.held.list().any(|(.., mode)| mode == LeaseMode::Write);
        let held = self.held.list().map(|(start, end, _)| start..end);
        self.lost = held.chain(self.lost.clone()).reduce(|a, b| hull(a, &b));
        self.held.clear();
        wrote
    }

    /// End of the leases from `start` on under which the file may be read and that are not
    /// recalled.
    pub fn reach(&self, start: u64) -> u64 {
        let reach = self.held.reach(start, LeaseMode::Read);
        match &self.recall {
            Some(recall) if recall.mode == LeaseMode::Write && recall.range.end > start => {
                reach.min(recall.range.start.max(start))
            }
            _ => reach,
        }
    }

    /// Ranges that may be read and not written.
    pub fn read_only(&self) -> Vec<Range<u64>> {
        let held = self.held.list().filter(|(.., mode)| *mode == LeaseMode::Read);
        held.map(|(first, last, _)| first..last).collect()
    }

    /// The mode of a lease on the whole file.
    pub fn on_whole(&self) -> Option<LeaseMode> {
        let holds = |mode| self.held.reach(0, mode) == TO_THE_END;
        [LeaseMode::Write, LeaseMode::Read].into_iter().find(|mode| holds(*mode))
    }

    /// The held leases.
    pub fn held(&self) -> &Held {
        &self.held
    }
}

/// The lowest mode of calls that a recall stops.
fn opposed_by(recall: LeaseMode) -> LeaseMode {
    match recall {
        LeaseMode::Write => LeaseMode::Read,
        LeaseMode::Read => LeaseMode::Write,
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // Calls may have many.
mod tests;
