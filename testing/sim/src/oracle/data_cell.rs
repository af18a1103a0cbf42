//! One cell: a register with crashes. All orders of the calls that are still
//! possible are followed at once, step by step: a state is the value, which of
//! the calls under way have been done, and what a crash could bring back.
//!
//! What a client with leases has written last and nobody else has seen it may
//! still hold back (`held` values): they are lost with it, or if it is told so,
//! the last first.

use super::data_ops::Told;
use crate::history::Position;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

/// States followed at once.
const MAX_STATES: usize = 20_000;
/// With so many it is worth while to look for those that say nothing new.
const MANY_STATES: RangeInclusive<usize> = 16..=1_000;
/// Calls under way at once.
const MAX_UNDER_WAY: usize = 64;

/// Whether a call is known to have been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It has an end.
    Known,
    /// It may be done at any time after its begin, once, often, or never.
    Unknown,
}

/// A call as one cell sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CellOp {
    /// Who.
    pub client: u8,
    /// One run of it.
    pub session: u32,
    /// Its place among all calls; of one client in its own order.
    pub seq: usize,
    /// What it writes or has read; 0: zeros.
    pub value: u64,
    /// Whether it writes.
    pub writes: bool,
    /// Whether it has an end.
    pub fate: Fate,
    /// When it began.
    pub begin: Position,
    /// When it ended.
    pub end: Position,
    /// Of an unknown one: when its client had stopped sending.
    pub given_up: Position,
    /// Its client may still hold it back.
    pub losable: bool,
    /// Nothing of it comes through any more once another client was let in
    /// after it had been given up.
    pub fenced: bool,
    /// By a client whose every write was confirmed or given up when it returned:
    /// its next one, once done, ends the time of those that it had given up.
    pub in_line: bool,
    /// Of an unknown one: it is over when its client hears that all is well.
    pub until_well: bool,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A call begins.
    Begin(usize),
    /// A call ends.
    End(usize),
    /// A sync of this client, the call `seq`, has succeeded: what it wrote
    /// before is durable; what it wrote since `opened` has not been lost.
    Sync {
        /// Who.
        client: u8,
        /// Its place among all calls.
        seq: usize,
        /// The first call since the client has the file open.
        opened: usize,
    },
    /// A sync of this client, the call `seq`, has failed: it knows that what it
    /// wrote may be gone.
    Told {
        /// Who.
        client: u8,
        /// Its place among all calls.
        seq: usize,
    },
    /// A client with leases begins a call that tells it what it has lost.
    Asks {
        /// Which run of it.
        session: u32,
    },
    /// It is told.
    Answered {
        /// Which run of it.
        session: u32,
        /// What.
        kind: Told,
    },
    /// A cut has succeeded: no write that was given up before it began comes
    /// through any more.
    Fence {
        /// When the cut began.
        begin: Position,
        /// Whether it cut this cell.
        cell: bool,
    },
    /// What was not durable may be gone.
    Crash,
    /// As [`Step::Crash`], of one of several copies: what is left may still be in the
    /// memory of the others alone, and be gone when they crash.
    CrashOfOne,
    /// What was not durable may be gone, or only seem to be there until the
    /// next crash.
    Forget,
    /// What is left is accepted, however old it is.
    Accept,
    /// As [`Step::Forget`], of the size that made it part of the file: any sync of its
    /// writer tells of that, also one of another file.
    ForgetSize,
}

impl Step {
    /// Which of several at one position comes first: writes of a client in
    /// their order.
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

/// The calls on a cell and what happens in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CellRun {
    /// The calls.
    pub ops: Vec<CellOp>,
    /// What happens, and where in the history.
    pub steps: Vec<(Position, Step)>,
    /// Of each client: when it may lose what it holds back.
    pub trouble: Vec<Vec<(Position, Position)>>,
}

/// A value is the number of the call that wrote it, plus one; 0: none yet.
type Value = u32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// What a crash may bring back, oldest first; the last is the value.
    kept: Vec<Value>,
    /// Calls under way that have been done, by slot.
    done: u64,
    /// Done, and taken back by a crash; nothing was written since.
    lost: Vec<Value>,
    /// So many of the last values, all of one session, may be held back by it.
    held: usize,
    /// So many of these, the first ones: it was told that they may be lost, or
    /// it was killed.
    freed: usize,
    /// Sessions that have lost something that they held back and have still to
    /// be told, and whether the next call has to tell.
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
    /// Writes of unknown fate that may come through.
    loose: Vec<usize>,
    /// Crashes that are still to come.
    crashes: usize,
    /// Everything that is ever read.
    read: HashSet<u64>,
    trouble: &'a [Vec<(Position, Position)>],
    /// Of each client: when a sync says for the last time that nothing was lost.
    last_sync: BTreeMap<u8, Position>,
    now: Position,
    /// There were more states than are followed: those that were left say nothing.
    too_many: bool,
}

impl CellRun {
    /// Whether some order explains everything; the position where none does.
    /// `Ok(false)`: too many to follow.
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
    /// False: more calls under way than there are slots.
    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Begin(op) if self.ops[*op].fate == Fate::Unknown => {
                // What nobody ever sees may as well not have been done.
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

    /// The slots of calls that have not been done in this state.
    fn waiting(&self, state: &State) -> impl Iterator<Item = (usize, usize)> + '_ {
        let done = state.done;
        let slots = self.slots.iter().enumerate();
        slots.filter_map(move |(slot, op)| {
            op.filter(|_| done & (1 << slot) == 0).map(|op| (slot, op))
        })
    }

    /// Whether an earlier write of the same client is still to be done.
    fn must_wait(&self, state: &State, op: usize) -> bool {
        let CellOp { client, seq, .. } = self.ops[op];
        self.waiting(state).any(|(_, other)| {
            let other = &self.ops[other];
            other.writes && other.client == client && other.seq < seq
        })
    }

    /// Reads that see the value as it is now may as well be done now.
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

    /// The reads under way that see the value as it is.
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

    /// If nothing can come back any more, what was is of no interest.
    fn forget_past(&self, state: &mut State) {
        if self.crashes == 0 {
            let past = state.kept.len().saturating_sub(state.held + 1);
            state.kept.drain(..past);
        }
    }

    /// This state, if the last `count` values that are held back are lost.
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

    /// Everything that can have been done by now. Where `until` has been done,
    /// the rest can wait.
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
                        // Sent by now, or lost.
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
                // Whoever else sees it shows that it has been sent; or it was
                // lost before.
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

    /// The server did nothing after this write that its client had given up
    /// before. What a crash may bring back is followed only as loose, so this
    /// waits for the last crash.
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

    /// A sync covers the writes of its own client that were done before it.
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
            // What another run of a client holds back it does not know of.
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

    /// Whoever begins a write, sync, flush or cut is told of everything that
    /// was lost before.
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
                    // Of what it was told may be lost this says nothing.
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
                    // The error may be that of any write before: of none of them a
                    // later sync says anything.
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

    /// Anything that was written before may be what is left, or nothing.
    fn accept(&mut self) {
        self.explore(None);
        let ops = self.ops.iter().enumerate();
        let written = ops.filter(|(_, op)| op.writes && op.begin < self.now);
        // What nobody ever sees may as well not be there.
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

    /// Values are lost, of which a later sync may say that they are not.
    fn lose(&self, lost: &mut Vec<Value>, values: &[Value]) {
        lost.extend(values.iter().filter(|value| self.matters(**value)));
        lost.sort_unstable();
        lost.dedup();
    }

    /// Whether a sync is still to come of who wrote it.
    fn matters(&self, value: Value) -> bool {
        let client = value.checked_sub(1).map(|op| self.ops[op as usize].client);
        let last = client.and_then(|client| self.last_sync.get(&client));
        last.is_some_and(|last| *last > self.now)
    }

    /// Forgets states of which another one allows all that they allow.
    fn leave_out(&mut self) {
        let mut all: Vec<State> = self.states.drain().collect();
        // Those that allow more come first.
        all.sort_by_key(|state| (Reverse(state.kept.len()), state.lost.len()));
        let mut stay: Vec<State> = Vec::new();
        for state in all {
            if !stay.iter().any(|other| self.allows(other, &state)) {
                stay.push(state);
            }
        }
        self.states.extend(stay);
    }

    /// Whether the first state allows all that the second one does: a crash may bring
    /// back the same and more, and no sync says more of what was lost.
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
            // Values that are held back are not on the disk that crashes.
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
