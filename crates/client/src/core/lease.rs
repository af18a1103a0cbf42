//! The leases of one open file: what is held, which calls are under way under
//! it, what is being given up. Time comes in.
//!
//! Invariants: a call is under way only while a lease covers it; a lease is
//! given up only when no call is under way in its range.

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

    /// A round of dropping begins: what to drop. Of what is not held there is
    /// nothing to drop.
    pub fn begin_round(&mut self, now: Duration) -> Vec<Range<u64>> {
        let Some(recall) = &mut self.recall else { return Vec::new() };
        let (round, what) = match &mut recall.phase {
            Phase::Dropping { round, touched, .. } => (*round + 1, touched.take().unwrap_or(0..0)),
            _ => (1, recall.range.clone()),
        };
        recall.phase = Phase::Dropping { round, since: now, touched: None };
        let held = self.held.list().map(|(start, end, _)| start.max(what.start)..end.min(what.end));
        let mut ranges: Vec<Range<u64>> = held.filter(|range| range.start < range.end).collect();
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
        }
    }

    /// The server knows.
    pub fn end_recall(&mut self) {
        self.recall = None;
    }

    /// All leases are lost; whether there was one to write.
    pub fn lose(&mut self) -> bool {
        let wrote = self.held.list().any(|(.., mode)| mode == LeaseMode::Write);
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_wire::lease::LeaseMode::{Read, Write};

    const T: Duration = Duration::from_secs(5);

    fn entered(enter: Enter) -> u64 {
        match enter {
            Enter::Entered(id) => id,
            other => panic!("{other:?}"),
        }
    }

    fn leased(mode: LeaseMode) -> FileLease {
        let mut lease = FileLease::default();
        lease.grant(0, TO_THE_END, mode);
        lease
    }

    #[test]
    fn a_call_without_a_lease_is_told_what_is_missing_and_one_asks_for_all() {
        let mut lease = FileLease::default();
        let call = [4096..3 * 4096];
        let missing = Enter::Missing { start: 4096, end: 3 * 4096 };
        assert_eq!(lease.enter(T, &call, CallKind::Read, false), missing);
        let asking = lease.ask(4096, 3 * 4096, None);
        assert_eq!(lease.enter(T, &call, CallKind::Read, false), Enter::Wait(None));
        lease.grant(4096, 2 * 4096, Read);
        lease.asked(asking);
        let missing = Enter::Missing { start: 2 * 4096, end: 3 * 4096 };
        assert_eq!(lease.enter(T, &call, CallKind::Read, false), missing);
        lease.grant(2 * 4096, TO_THE_END, Read);
        entered(lease.enter(T, &call, CallKind::Read, false));
        let missing = Enter::Missing { start: 4096, end: 3 * 4096 };
        assert_eq!(lease.enter(T, &call, CallKind::Write, false), missing);
        lease.grant(0, TO_THE_END, Write);
        assert_eq!(lease.on_whole(), Some(Write));
    }

    #[test]
    fn a_lease_is_given_up_when_the_calls_under_it_have_ended_and_new_ones_wait() {
        let mut lease = leased(Write);
        let call = entered(lease.enter(T, &[0..4096], CallKind::Write, false));
        let elsewhere = entered(lease.enter(T, &[8192..12288], CallKind::Write, false));
        lease.begin_recall(0, 4096, Write);
        assert!(!lease.is_quiet());
        assert_eq!(lease.enter(T, &[0..4096], CallKind::Read, false), Enter::Wait(None));
        entered(lease.enter(T, &[4096..8192], CallKind::Write, false));
        assert!(lease.leave(call));
        assert!(lease.is_quiet());
        lease.close();
        lease.give_up();
        assert_eq!(lease.enter(T, &[0..4096], CallKind::Read, false), Enter::Wait(None));
        lease.end_recall();
        let missing = Enter::Missing { start: 0, end: 4096 };
        assert_eq!(lease.enter(T, &[0..8192], CallKind::Read, false), missing);
        assert!(!lease.leave(elsewhere));
    }

    #[test]
    fn a_lease_that_is_wanted_back_at_once_is_used_by_the_call_that_got_it() {
        let mut lease = leased(Write);
        lease.begin_recall(0, 4096, Write);
        assert_eq!(lease.enter(T, &[0..4096], CallKind::Write, false), Enter::Wait(None));
        let call = entered(lease.enter(T, &[0..4096], CallKind::Write, true));
        assert!(!lease.is_quiet());
        lease.leave(call);
        lease.begin_round(T);
        entered(lease.enter(T, &[0..4096], CallKind::Read, true));
        assert!(lease.end_round(), "what it reads is dropped again");
        lease.begin_round(T);
        assert!(!lease.end_round());
        assert_eq!(lease.enter(T, &[0..4096], CallKind::Read, true), Enter::Wait(None));
    }

    #[test]
    fn who_gives_up_the_right_to_write_goes_on_reading() {
        let mut lease = leased(Write);
        let writer = entered(lease.enter(T, &[0..4096], CallKind::Write, false));
        entered(lease.enter(T, &[0..4096], CallKind::Read, false));
        lease.begin_recall(0, TO_THE_END, Read);
        entered(lease.enter(T, &[0..4096], CallKind::Read, false));
        assert_eq!(lease.enter(T, &[0..4096], CallKind::Write, false), Enter::Wait(None));
        assert!(!lease.is_quiet());
        lease.leave(writer);
        assert!(lease.is_quiet());
        lease.close();
        lease.give_up();
        lease.end_recall();
        assert_eq!(lease.on_whole(), Some(Read));
    }

    #[test]
    fn what_is_read_while_pages_are_dropped_is_dropped_again() {
        let mut lease = leased(Write);
        lease.begin_recall(0, TO_THE_END, Write);
        assert_eq!(lease.enter(T, &[0..4096], CallKind::Read, false), Enter::Wait(None));
        // A page that the recall would wait for is not held up.
        entered(lease.enter(T, &[0..4096], CallKind::Page, false));
        assert!(lease.is_quiet());
        assert_eq!(lease.begin_round(T), [0..TO_THE_END]);
        entered(lease.enter(T, &[4096..8192], CallKind::Read, false));
        assert!(lease.end_round(), "what was read has to be dropped");
        assert_eq!(lease.begin_round(T), [4096..8192]);
        let wait = lease.enter(T + HOLD_BACK / 2, &[4096..8192], CallKind::Read, false);
        assert_eq!(wait, Enter::Wait(Some(HOLD_BACK / 2)));
        entered(lease.enter(T, &[4096..8192], CallKind::Page, false));
        entered(lease.enter(T + HOLD_BACK, &[0..4096], CallKind::Read, false));
        assert!(lease.end_round());
        assert_eq!(lease.begin_round(T), [0..4096]);
        assert!(!lease.end_round());
        let late = lease.enter(T + HOLD_BACK, &[0..4096], CallKind::Read, true);
        assert_eq!(late, Enter::Wait(None), "what it reads would not be dropped");
        assert_eq!(lease.enter(T, &[0..4096], CallKind::Page, false), Enter::Wait(None));
        assert!(!lease.is_quiet(), "pages are written back before the lease is given up");
    }

    #[test]
    fn dropping_does_not_wait_for_a_read_that_waits_for_a_lease() {
        let mut lease = FileLease::default();
        lease.grant(0, 8192, Write);
        let range = 4096..12288;
        let missing = Enter::Missing { start: 8192, end: 12288 };
        assert_eq!(lease.enter(T, std::slice::from_ref(&range), CallKind::Read, false), missing);
        let id = lease.begin_waiting(std::slice::from_ref(&range), CallKind::Read);
        lease.begin_recall(0, TO_THE_END, Write);
        assert_eq!(lease.begin_round(T), [0..4096]);
        lease.end_waiting(id);
        lease.end_recall();
        lease.begin_recall(0, TO_THE_END, Write);
        assert_eq!(lease.begin_round(T), [0..8192]);
    }

    /// As those of a copy and of `lseek`: the layer above has not locked any pages.
    #[test]
    fn who_only_looks_keeps_no_pages_from_being_dropped() {
        let mut lease = FileLease::default();
        lease.grant(0, 8192, Write);
        let id = lease.begin_waiting(&[4096..12288], CallKind::Look);
        lease.begin_recall(0, TO_THE_END, Write);
        assert_eq!(lease.begin_round(T), [0..8192]);
        lease.end_waiting(id);
    }

    #[test]
    fn read_ahead_ends_where_the_lease_does_or_is_wanted_back() {
        let mut lease = FileLease::default();
        assert_eq!(lease.reach(100), 100);
        lease.grant(0, 8192, Write);
        lease.grant(8192, 16384, Read);
        assert_eq!(lease.reach(100), 16384);
        lease.begin_recall(12288, 16384, Write);
        assert_eq!(lease.reach(100), 12288);
        lease.end_recall();
        lease.begin_recall(0, 4096, Read);
        assert_eq!(lease.reach(100), 16384);
        assert!(lease.lose());
        assert_eq!(lease.reach(100), 100);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Call(u64, u64, bool),
        Leave(usize),
        Grant(u64, u64, bool),
        Recall(u64, u64, bool),
        GoOn,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = || (0..8u64, 1..8u64, any::<bool>());
        let step = prop_oneof![
            3 => range().prop_map(|(at, len, w)| Step::Call(at, at + len, w)),
            3 => (0..8usize).prop_map(Step::Leave),
            2 => range().prop_map(|(at, len, w)| Step::Grant(at, at + len, w)),
            2 => range().prop_map(|(at, len, w)| Step::Recall(at, at + len, w)),
            3 => Just(Step::GoOn),
        ];
        proptest::collection::vec(step, 0..60)
    }

    fn mode(write: bool) -> LeaseMode {
        if write { Write } else { Read }
    }

    proptest! {
        /// Whatever happens in whatever order: calls are under way only under
        /// a lease, also while it is being given up.
        #[test]
        fn calls_are_always_covered(steps in steps()) {
            let mut lease = FileLease::default();
            let mut calls: Vec<(u64, Range<u64>, LeaseMode)> = Vec::new();
            let mut recall: Option<u32> = None;
            for step in steps {
                match step {
                    Step::Call(start, end, write) => {
                        let kind = if write { CallKind::Write } else { CallKind::Read };
                        let range = start * 4096..end * 4096;
                        if let Enter::Entered(id) = lease.enter(T, std::slice::from_ref(&range), kind, false) {
                            calls.push((id, range, kind.mode()));
                        }
                    }
                    Step::Leave(at) if at < calls.len() => drop(lease.leave(calls.remove(at).0)),
                    Step::Leave(_) => {}
                    Step::Grant(start, end, write) if recall.is_none() => {
                        lease.grant(start * 4096, end * 4096, mode(write));
                    }
                    Step::Grant(..) => {}
                    Step::Recall(start, end, write) if recall.is_none() => {
                        lease.begin_recall(start * 4096, end * 4096, mode(write));
                        recall = Some(0);
                    }
                    Step::Recall(..) => {}
                    Step::GoOn => match recall {
                        Some(0) if lease.is_quiet() => {
                            lease.begin_round(T);
                            recall = Some(1);
                        }
                        Some(1) if lease.end_round() => drop(lease.begin_round(T - HOLD_BACK)),
                        Some(1) => recall = Some(2),
                        Some(2) if lease.is_quiet() => {
                            lease.give_up();
                            recall = Some(3);
                        }
                        Some(3) => {
                            lease.end_recall();
                            recall = None;
                        }
                        _ => {}
                    },
                }
                for (_, range, mode) in &calls {
                    prop_assert_eq!(lease.held().missing(range.start, range.end, *mode), None);
                }
            }
        }
    }
}
