//! A cell as a register with crashes. All orders of the calls that are still possible are followed
//! at once, step by step. A state consists of the value, the calls in progress that have been done,
//! and the values that a crash could bring back.
//!
//! A client with leases may still hold back its last writes if nobody else has seen them (`held`
//! values). They are lost with the client, or if it is told so, the last one first.

use super::data_ops::Told;
use crate::history::Position;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

/// Maximum number of states that are followed.
const MAX_STATES: usize = 20_000;
/// With this many states, redundant ones are looked for.
const MANY_STATES: RangeInclusive<usize> = 16..=1_000;
/// Maximum number of calls in progress.
const MAX_UNDER_WAY: usize = 64;

/// Whether a call is known to have been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The call has an end.
    Known,
    /// The call may be done at any time after its begin, once, often, or never.
    Unknown,
}

/// A call from the view of one cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CellOp {
    /// The client.
    pub client: u8,
    /// The run of the client.
    pub session: u32,
    /// Its position among all calls; calls of one client are in their order.
    pub seq: usize,
    /// The value written or read; 0: zeros.
    pub value: u64,
    /// Whether it writes.
    pub writes: bool,
    /// Whether its outcome is known.
    pub fate: Fate,
    /// When it began.
    pub begin: Position,
    /// When it ended.
    pub end: Position,
    /// For an unknown outcome: when its client had stopped sending it.
    pub given_up: Position,
    /// Whether its client may still hold it back.
    pub losable: bool,
    /// Whether it can no longer be done after another client was granted a lease, once it had been
    /// given up.
    pub fenced: bool,
    /// Whether all writes of its client are confirmed or given up when they return. Its next write,
    /// once done, ends the time of those that it had given up.
    pub in_line: bool,
    /// For an unknown outcome: it is over when its client gets a success.
    pub until_well: bool,
}

/// The next event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A call begins.
    Begin(usize),
    /// A call ends.
    End(usize),
    /// A sync of this client, call `seq`, has succeeded: its earlier writes are durable, and its
    /// writes since `opened` were not lost.
    Sync {
        /// The client.
        client: u8,
        /// Its position among all calls.
        seq: usize,
        /// The first call since the client opened the file.
        opened: usize,
    },
    /// A sync of this client, call `seq`, has failed: the client knows that its writes may be gone.
    Told {
        /// The client.
        client: u8,
        /// Its position among all calls.
        seq: usize,
    },
    /// A client with leases begins a call that reports its losses.
    Asks {
        /// The run of the client.
        session: u32,
    },
    /// The report arrives.
    Answered {
        /// The run of the client.
        session: u32,
        /// The report.
        kind: Told,
    },
    /// A cut has succeeded: writes that were given up before it began can no longer be done.
    Fence {
        /// When the cut began.
        begin: Position,
        /// Whether it cut this cell.
        cell: bool,
    },
    /// Everything that is not durable may be gone.
    Crash,
    /// As [`Step::Crash`], for one of several copies. What is left may be only in the memory of the
    /// others, and be gone when they crash.
    CrashOfOne,
    /// Everything that is not durable may be gone, or only seem to be there until the next crash.
    Forget,
    /// The remaining value is accepted, however old it is.
    Accept,
    /// As [`Step::Forget`], for the size that made the cell part of the file. Any sync of its
    /// writer reports that, also a sync of another file.
    ForgetSize,
}

impl Step {
    /// The order of events at one position. Writes of a client keep their order.
    pub fn order(&self) -> usize {
        match self {
            Step::Begin(i) | Step::End(i) => *i,
            _ => 0,
        }
    }

    fn is_crash(&self) -> bool {
        matches!(self, Step::Crash | Step::CrashOfOne | Step::Forget | Step::ForgetSize)
    }
}

/// The calls on a cell, and their events in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CellRun {
    /// The calls.
    pub ops: Vec<CellOp>,
    /// The events, with their positions in the history.
    pub steps: Vec<(Position, Step)>,
    /// For each client, when it may lose its write-behind.
    pub trouble: Vec<Vec<(Position, Position)>>,
}

/// The number of the call that wrote the value, plus one; 0: none yet.
type Value = u32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// Values that a crash may bring back, oldest first. The last one is the present value.
    kept: Vec<Value>,
    /// Calls in progress that have been done, by slot.
    done: u64,
    /// Values that were done and undone by a crash, with no write since.
    lost: Vec<Value>,
    /// Number of last values, all of one session, that it may be holding back.
    held: usize,
    /// Number of these, from the first on, that may be lost: the session was told so, or was
    /// killed.
    freed: usize,
    /// Sessions that have lost held-back values and must be told, and whether the next call has to
    /// report it.
    missing: BTreeMap<u32, bool>,
}

impl State {
    fn value(&self) -> Value {
        self.kept.last().copied().unwrap_or(0)
    }
}

struct Follow<'a> {
    ops: &'a [CellOp],
    states: HashSet<State>,
    /// The call of each slot.
    slots: [Option<usize>; MAX_UNDER_WAY],
    /// Writes of unknown outcome that may still be done.
    loose: Vec<usize>,
    /// Number of crashes still to come.
    crashes: usize,
    /// All values that are ever read.
    read: HashSet<u64>,
    trouble: &'a [Vec<(Position, Position)>],
    /// For each client, its last sync that reports no loss.
    last_sync: BTreeMap<u8, Position>,
    now: Position,
    /// Whether there were too many states: then the remaining ones prove nothing.
    too_many: bool,
}

impl CellRun {
    /// Whether some order explains everything; the error is the position where none does.
    /// `Ok(false)`: there are too many orders.
    pub fn check(&self) -> Result<bool, Position> {
        let start = State { kept: vec![0], ..State::default() };
        let crashes = self.steps.iter().filter(|(_, s)| s.is_crash()).count();
        let syncs = self.steps.iter().filter_map(|(at, step)| match step {
            Step::Sync { client, .. } => Some((*client, *at)),
            _ => None,
        });
        let last_sync = syncs.collect();
        let mut follow = Follow {
            last_sync,
            ops: &self.ops,
            states: HashSet::from([start]),
            slots: [None; MAX_UNDER_WAY],
            loose: Vec::new(),
            crashes,
            read: self.ops.iter().filter(|op| !op.writes).map(|op| op.value).collect(),
            trouble: &self.trouble,
            now: 0,
            too_many: false,
        };
        for (at, step) in &self.steps {
            follow.now = *at;
            let decided = follow.step(step);
            if MANY_STATES.contains(&follow.states.len()) {
                follow.leave_out();
            }
            if !decided || follow.too_many || follow.states.len() > MAX_STATES {
                return Ok(false);
            }
            if follow.states.is_empty() {
                return Err(*at);
            }
        }
        Ok(true)
    }
}

impl Follow<'_> {
    /// Handles an event; `false`: more calls are in progress than there are slots.
    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Begin(op) if self.ops[*op].fate == Fate::Unknown => {
                // A write that nobody ever reads may be treated as not done.
                if self.read.contains(&self.ops[*op].value) {
                    self.loose.push(*op);
                }
            }
            Step::Begin(op) => match self.slots.iter_mut().find(|slot| slot.is_none()) {
                Some(slot) => *slot = Some(*op),
                None => return false,
            },
            Step::End(op) => self.end(*op),
            Step::Sync { client, seq, opened } => self.sync(*client, *seq, *opened),
            Step::Told { client, seq } => self.told(*client, *seq),
            Step::Asks { session } => self.asks(*session),
            Step::Answered { session, kind } => self.answered(*session, *kind),
            Step::Fence { begin, cell } => self.fence(*begin, *cell),
            Step::Crash => self.crash(false),
            Step::CrashOfOne => self.crash(true),
            Step::Forget => self.forget(true),
            Step::ForgetSize => self.forget(false),
            Step::Accept => self.accept(),
        }
        true
    }

    fn visible(&self, value: Value) -> u64 {
        value.checked_sub(1).map_or(0, |op| self.ops[op as usize].value)
    }

    /// Slots of calls that have not been done in this state.
    fn waiting(&self, state: &State) -> impl Iterator<Item = (usize, usize)> + '_ {
        let done = state.done;
        let slots = self.slots.iter().enumerate();
        slots.filter_map(move |(slot, op)| {
            op.filter(|_| done & (1 << slot) == 0).map(|op| (slot, op))
        })
    }

    /// Whether an earlier write of the same client has not been done.
    fn must_wait(&self, state: &State, op: usize) -> bool {
        let CellOp { client, seq, .. } = self.ops[op];
        self.waiting(state).any(|(_, other)| {
            let other = &self.ops[other];
            other.writes && other.client == client && other.seq < seq
        })
    }

    /// Does all reads in progress that match the present value.
    fn take_reads(&self, state: &mut State) {
        let holder = self.holder(state);
        let reads: Vec<usize> = self
            .reads_of(state)
            .filter(|(_, op)| holder.is_none_or(|session| session == self.ops[*op].session))
            .map(|(slot, _)| slot)
            .collect();
        for slot in reads {
            state.done |= 1 << slot;
        }
    }

    /// The reads in progress that match the present value.
    fn reads_of<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (usize, usize)> + 'a {
        let value = self.visible(state.value());
        self.waiting(state)
            .filter(move |(_, op)| !self.ops[*op].writes && self.ops[*op].value == value)
            .filter(|(_, op)| !self.must_wait(state, *op))
    }

    /// The session that may hold back the last values.
    fn holder(&self, state: &State) -> Option<u32> {
        let last = state.value().checked_sub(1).filter(|_| state.held > 0);
        last.map(|op| self.ops[op as usize].session)
    }

    fn sent(&self, state: &mut State) {
        (state.held, state.freed) = (0, 0);
        self.forget_past(state);
    }

    /// Drops old values if no crash can bring them back.
    fn forget_past(&self, state: &mut State) {
        if self.crashes == 0 {
            let past = state.kept.len().saturating_sub(state.held + 1);
            state.kept.drain(..past);
        }
    }

    /// This state after losing the last `count` held-back values.
    fn without(&self, state: &State, count: usize) -> Option<State> {
        let session = self.holder(state)?;
        let stay = state.kept.len() - count;
        let returned = |value: &Value| self.ops[*value as usize - 1].end;
        let first = state.kept[stay..].iter().map(returned).min()?;
        let trouble = self.trouble.get((session & 0xff) as usize);
        let troubled =
            trouble.is_some_and(|t| t.iter().any(|(from, to)| *from <= self.now && *to >= first));
        let to_be_told = state.held > state.freed;
        if to_be_told && !troubled {
            return None;
        }
        let mut next = state.clone();
        next.kept.truncate(stay);
        next.held -= count;
        next.freed = next.freed.min(next.held);
        if to_be_told {
            next.missing.entry(session).or_default();
        }
        Some(next)
    }

    fn written(&self, state: &State, op: usize) -> State {
        let mut next = state.clone();
        let CellOp { session, losable, .. } = self.ops[op];
        if !losable || self.holder(state) != Some(session) {
            (next.held, next.freed) = (0, 0);
        }
        next.kept.push(op as Value + 1);
        next.held += usize::from(losable);
        next.lost.clear();
        self.forget_past(&mut next);
        next
    }

    /// Adds all states that can be reached by doing calls in progress. Where `until` has been done,
    /// the others can wait.
    fn explore(&mut self, until: Option<usize>) {
        let until = until.and_then(|op| self.slots.iter().position(|s| *s == Some(op)));
        let mut work: Vec<State> = self.states.drain().collect();
        let mut seen: HashSet<State> = HashSet::new();
        let mut found = HashSet::new();
        while let Some(mut state) = work.pop() {
            self.take_reads(&mut state);
            if !seen.insert(state.clone()) {
                continue;
            }
            if seen.len() > MAX_STATES {
                self.too_many = true;
                break;
            }
            let reached = until.is_none_or(|slot| state.done & (1 << slot) != 0);
            if reached {
                found.insert(state.clone());
            }
            if reached && until.is_some() {
                continue;
            }
            for (slot, op) in self.waiting(&state).collect::<Vec<_>>() {
                if self.ops[op].writes && !self.must_wait(&state, op) {
                    let mut before = vec![state.clone()];
                    if self.holder(&state).is_some_and(|held| held != self.ops[op].session) {
                        // Sent by then, or lost.
                        before.extend((1..=state.held).filter_map(|n| self.without(&state, n)));
                    }
                    for state in before {
                        let mut next = self.written(&state, op);
                        next.done |= 1 << slot;
                        work.push(next);
                    }
                }
            }
            if state.held > 0 {
                // If another client reads the value, it has been sent; or it was lost before.
                for (slot, _) in self.reads_of(&state) {
                    let mut next = state.clone();
                    next.done |= 1 << slot;
                    self.sent(&mut next);
                    work.push(next);
                }
            }
            let wanted = |value: u64| {
                let mut reads = self.waiting(&state).filter(|(_, read)| !self.ops[*read].writes);
                reads.any(|(_, read)| self.ops[read].value == value)
            };
            for op in &self.loose {
                let value = self.ops[*op].value;
                if wanted(value) && self.visible(state.value()) != value {
                    work.push(self.written(&state, *op));
                }
            }
            for count in 1..=state.held {
                let below = state.kept.len().checked_sub(count + 1).map_or(0, |i| state.kept[i]);
                if wanted(self.visible(below)) {
                    work.extend(self.without(&state, count));
                }
            }
        }
        self.states = found;
    }

    fn end(&mut self, op: usize) {
        self.explore(Some(op));
        let Some(slot) = self.slots.iter().position(|s| *s == Some(op)) else { return };
        self.slots[slot] = None;
        let CellOp { session, begin, .. } = self.ops[op];
        self.loose.retain(|loose| {
            let loose = &self.ops[*loose];
            !loose.fenced || loose.session == session || loose.given_up >= begin
        });
        let states = std::mem::take(&mut self.states);
        self.states = states
            .into_iter()
            .filter(|state| state.done & (1 << slot) != 0)
            .map(|state| State { done: state.done & !(1 << slot), ..state })
            .collect();
        self.end_of_late(op);
    }

    /// The server did no earlier given-up writes of the client after this write. Values that a
    /// crash may bring back are only tracked as loose, so this waits for the last crash.
    fn end_of_late(&mut self, op: usize) {
        let CellOp { session, begin, in_line, writes, .. } = self.ops[op];
        if !writes || !in_line || self.crashes > 0 {
            return;
        }
        let ops = self.ops;
        self.loose.retain(|late| {
            let late = &ops[*late];
            late.session != session || !late.in_line || late.given_up >= begin
        });
    }

    /// Whether a sync covers a value: a write of its own client, done before it.
    fn covered(&self, value: Value, client: u8, seq: usize) -> bool {
        value.checked_sub(1).is_some_and(|op| {
            let op = &self.ops[op as usize];
            op.client == client && op.seq < seq && op.fate == Fate::Known
        })
    }

    fn sync(&mut self, client: u8, seq: usize, opened: usize) {
        let states = std::mem::take(&mut self.states);
        for mut state in states {
            let since_open = |value: Value| {
                value.checked_sub(1).is_some_and(|op| self.ops[op as usize].seq >= opened)
            };
            let covers = |value: Value| self.covered(value, client, seq) && since_open(value);
            if state.lost.iter().any(|value| covers(*value)) {
                continue;
            }
            // The client does not know of values held back by another run of it.
            let sent = &state.kept[..state.kept.len() - state.held];
            let last = sent.iter().rposition(|value| self.covered(*value, client, seq));
            if let Some(last) = last {
                state.kept.drain(..last);
            }
            self.states.insert(state);
        }
    }

    fn told(&mut self, client: u8, seq: usize) {
        let states = std::mem::take(&mut self.states);
        for mut state in states {
            let lost = std::mem::take(&mut state.lost);
            state.lost = lost.into_iter().filter(|v| !self.covered(*v, client, seq)).collect();
            self.states.insert(state);
        }
    }

    /// Begins a write, sync, flush or cut of a session, which reports all earlier losses.
    fn asks(&mut self, session: u32) {
        let states = std::mem::take(&mut self.states);
        for mut state in states {
            if let Some(due) = state.missing.get_mut(&session) {
                *due = true;
            }
            self.states.insert(state);
        }
    }

    fn answered(&mut self, session: u32, kind: Told) {
        if kind == Told::AllIsWell {
            let ops = self.ops;
            self.loose.retain(|op| !ops[*op].until_well || ops[*op].session != session);
        }
        let states = std::mem::take(&mut self.states);
        for mut state in states {
            let holds = self.holder(&state) == Some(session);
            match (kind, state.missing.get(&session)) {
                (Told::Nothing, Some(true)) | (Told::AllIsWell, Some(_)) => continue,
                (Told::AllIsWell, None) if holds => {
                    // This says nothing about values that were reported as possibly lost.
                    if state.held == state.freed {
                        for count in 1..=state.held {
                            let Some(mut less) = self.without(&state, count) else { continue };
                            self.sent(&mut less);
                            self.states.insert(less);
                        }
                    }
                    self.sent(&mut state);
                }
                (Told::Gone, _) => {
                    state.missing.remove(&session);
                    if holds && state.freed == 0 {
                        self.sent(&mut state);
                    }
                }
                (Told::Lost | Told::Killed, _) => {
                    state.missing.remove(&session);
                    // The error may belong to any earlier write, so later syncs say nothing about
                    // them.
                    let ops = self.ops;
                    state.lost.retain(|value| {
                        let op = value.checked_sub(1).map(|op| &ops[op as usize]);
                        op.is_none_or(|op| op.session != session)
                    });
                    if holds {
                        state.freed = state.held;
                    }
                }
                _ => {}
            }
            self.states.insert(state);
        }
    }

    fn fence(&mut self, begin: Position, cell: bool) {
        let (gone, stay): (Vec<usize>, Vec<usize>) =
            self.loose.iter().partition(|op| self.ops[**op].given_up < begin);
        if gone.is_empty() {
            return;
        }
        if !cell {
            // The last moment for each of them.
            self.explore(None);
            for op in gone {
                let more: Vec<State> =
                    self.states.iter().map(|state| self.written(state, op)).collect();
                self.states.extend(more);
            }
        }
        self.loose = stay;
    }

    fn forget(&mut self, is_told: bool) {
        self.explore(None);
        self.crashes -= 1;
        let states = std::mem::take(&mut self.states);
        for state in states {
            for i in 0..state.kept.len() {
                let (mut kept, mut lost) = (state.kept.clone(), state.lost.clone());
                if is_told {
                    self.lose(&mut lost, &kept[i + 1..]);
                }
                let stays = i + 1 == kept.len();
                let seen = kept.remove(i);
                kept.push(seen);
                let held = if stays { state.held } else { 0 };
                self.states.insert(State { kept, lost, held, ..state.clone() });
            }
        }
    }

    /// The remaining value may be any earlier one, or none.
    fn accept(&mut self) {
        self.explore(None);
        let ops = self.ops.iter().enumerate();
        let written = ops.filter(|(_, op)| op.writes && op.begin < self.now);
        // A value that nobody ever reads need not be tracked.
        let seen = written.filter(|(_, op)| self.read.contains(&op.value));
        let older: Vec<Value> = [0].into_iter().chain(seen.map(|(i, _)| i as Value + 1)).collect();
        for state in self.states.clone() {
            let held = &state.kept[state.kept.len() - state.held..];
            for value in &older {
                let kept = [&[*value], held].concat();
                self.states.insert(State { kept, lost: Vec::new(), ..state.clone() });
            }
        }
    }

    /// Notes lost values for which a later sync could report success.
    fn lose(&self, lost: &mut Vec<Value>, values: &[Value]) {
        lost.extend(values.iter().filter(|value| self.matters(**value)));
        lost.sort_unstable();
        lost.dedup();
    }

    /// Whether a sync of its writer is still to come.
    fn matters(&self, value: Value) -> bool {
        let client = value.checked_sub(1).map(|op| self.ops[op as usize].client);
        let last = client.and_then(|client| self.last_sync.get(&client));
        last.is_some_and(|last| *last > self.now)
    }

    /// Drops states that another state makes redundant.
    fn leave_out(&mut self) {
        let mut all: Vec<State> = self.states.drain().collect();
        // States that allow more come first.
        all.sort_by_key(|state| (Reverse(state.kept.len()), state.lost.len()));
        let mut stay: Vec<State> = Vec::new();
        for state in all {
            if !stay.iter().any(|other| self.allows(other, &state)) {
                stay.push(state);
            }
        }
        self.states.extend(stay);
    }

    /// Whether the first state allows everything that the second one does: a crash may bring back
    /// at least as much, and its losses contradict no more syncs.
    fn allows(&self, more: &State, less: &State) -> bool {
        let same = |state: &State| (state.value(), state.done, state.held, state.freed);
        let mut rest = less.kept.iter().rev().peekable();
        let all_there = more.kept.iter().rev().all(|value| match rest.next_if_eq(&value) {
            Some(_) => true,
            None => !self.matters(*value),
        });
        same(more) == same(less)
            && more.missing == less.missing
            && all_there
            && rest.next().is_none()
            && more.lost.iter().all(|value| less.lost.contains(value))
    }

    fn crash(&mut self, others_have_it: bool) {
        self.explore(None);
        self.crashes -= 1;
        let states = std::mem::take(&mut self.states);
        for state in states {
            // Held-back values are not on the disk that crashes.
            let base = state.kept.len() - state.held;
            for (i, value) in state.kept.iter().enumerate() {
                let mut lost = state.lost.clone();
                self.lose(&mut lost, &state.kept[i + 1..]);
                if i < base {
                    let kept = match others_have_it {
                        true => state.kept[..=i].to_vec(),
                        false => vec![*value],
                    };
                    self.states.insert(State { kept, lost, held: 0, ..state.clone() });
                    continue;
                }
                for (last, below) in state.kept[..base].iter().enumerate() {
                    let mut kept = match others_have_it {
                        true => state.kept[..=last].to_vec(),
                        false => vec![*below],
                    };
                    kept.extend(&state.kept[base..=i]);
                    let held = i + 1 - base;
                    self.states.insert(State { kept, lost: lost.clone(), held, ..state.clone() });
                }
            }
        }
    }
}
