//! The namespace: looks for an order of the calls that a small model tree explains. All orders are
//! followed at once, step by step. A power cut of the metadata server takes the tree back to an
//! earlier state of the same order, which contains everything that was synced, or acknowledged more
//! than a moment before.

use super::names_model::{Inode, Tree};
use super::{Verdict, Violation};
use crate::history::{Call, History, NameCall, NameReply, Node, Outcome, Position, What};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;
use std::time::Duration;
use weir_types::ErrorKind;

/// Maximum number of states that are followed.
const MAX_STATES: usize = 4_000;
/// Maximum number of calls in progress, including those with unknown outcome.
const MAX_UNDER_WAY: usize = 64;

/// Facts for the judge.
#[derive(Clone, Debug)]
pub struct NamesFacts {
    /// Directories that exist from the beginning, empty.
    pub directories: Vec<u64>,
    /// Changes that were acknowledged this long before a power cut survive it.
    pub settle: Duration,
    /// Maximum time after its start during which the metadata server waits until all clients know
    /// of it. Until then clients may answer from their caches.
    pub grace: Duration,
}

struct Op<'a> {
    id: u32,
    client: u8,
    call: &'a NameCall,
    /// `None`: unknown.
    reply: Option<&'a NameReply>,
    begin: Position,
    end: Option<Position>,
}

/// A tree, and the call that led to it (`usize::MAX`: none).
type Past = (Rc<Tree>, usize);

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    /// States that a power cut may bring back, oldest first. The last one is the present state.
    kept: Vec<Past>,
    /// Calls in progress that have been done, by slot.
    done: u64,
    /// Calls that were done and undone by a power cut.
    lost: BTreeSet<usize>,
    /// Whether a power cut has happened of which clients have not heard: they continue from their
    /// caches.
    cut: bool,
}

impl State {
    fn tree(&self) -> &Rc<Tree> {
        // Never empty: it begins with one element, and a crash leaves one.
        &self.kept[self.kept.len() - 1].0
    }
}

struct Follow<'a> {
    history: &'a History,
    ops: &'a [Op<'a>],
    settle: Duration,
    grace: Duration,
    states: HashSet<State>,
    slots: [Option<usize>; MAX_UNDER_WAY],
    crashes: usize,
    /// When the process of each killed client was killed.
    killed: BTreeMap<u8, Position>,
    /// Since when the server runs; `None`: it does not.
    up_since: Option<Duration>,
    /// Changes acknowledged before this are durable without a sync.
    settled: Duration,
    /// When everybody has heard of the last power cut.
    unheard: Option<Duration>,
    /// Whether there were too many states: then the remaining ones prove nothing.
    too_many: bool,
}

/// Judges all calls on names.
pub fn judge(history: &History, facts: &NamesFacts) -> Verdict {
    let ops = ops_of(history);
    let mut verdict = Verdict::default();
    verdict.violations.extend(reused_id(&ops, history));
    let mut tree = Tree::default();
    for (inode, id) in facts.directories.iter().enumerate() {
        tree.add_directory(inode as Inode, *id);
    }
    let start = State {
        kept: vec![(Rc::new(tree), usize::MAX)],
        done: 0,
        lost: BTreeSet::new(),
        cut: false,
    };
    let is_crash = |what: &What| *what == What::PowerCut(Node::Meta);
    let mut follow = Follow {
        history,
        ops: &ops,
        settle: facts.settle,
        grace: facts.grace,
        states: HashSet::from([start]),
        slots: [None; MAX_UNDER_WAY],
        killed: BTreeMap::new(),
        up_since: Some(Duration::ZERO),
        settled: Duration::ZERO,
        unheard: None,
        too_many: false,
        crashes: history.entries.iter().filter(|e| is_crash(&e.what)).count(),
    };
    match follow.run() {
        Ok(true) => {}
        Ok(false) => verdict.undecided += 1,
        Err(at) => verdict.violations.push(violation(history, &ops, at)),
    }
    verdict
}

fn ops_of(history: &History) -> Vec<Op<'_>> {
    let mut ops = Vec::new();
    let mut open = BTreeMap::new();
    for (at, entry) in history.entries.iter().enumerate() {
        match &entry.what {
            What::Begin { client, id, call: Call::Names(call) } => {
                open.insert(*id, ops.len());
                let (id, client) = (*id, *client);
                ops.push(Op { id, client, call, reply: None, begin: at, end: None });
            }
            What::End { id, outcome: Outcome::Names(reply) } => {
                if let Some(op) = open.remove(id) {
                    let op: &mut Op<'_> = &mut ops[op];
                    (op.reply, op.end) = (Some(reply), Some(at));
                }
            }
            _ => {}
        }
    }
    // A query without a result proves nothing.
    ops.retain(|op| op.end.is_some() || op.call.changes());
    ops
}

/// Checks that no two new files have the same id.
fn reused_id(ops: &[Op<'_>], history: &History) -> Option<Violation> {
    let mut made: BTreeMap<u64, u32> = BTreeMap::new();
    for op in ops {
        let makes = matches!(
            op.call,
            NameCall::Create { exclusive: true, .. }
                | NameCall::Mkdir { .. }
                | NameCall::Symlink { .. }
        );
        let Some(NameReply::Attr(seen)) = op.reply.filter(|_| makes) else { continue };
        if let Some(first) = made.insert(seen.id, op.id) {
            let what = format!("id {} was given to two files, by #{first} and #{}", seen.id, op.id);
            let evidence = history.excerpt(|id| id == first || id == op.id);
            return Some(Violation { what, evidence });
        }
    }
    None
}

impl Follow<'_> {
    fn run(&mut self) -> Result<bool, Position> {
        let begins: BTreeMap<Position, usize> =
            self.ops.iter().enumerate().map(|(i, op)| (op.begin, i)).collect();
        let ends: BTreeMap<Position, usize> =
            self.ops.iter().enumerate().filter_map(|(i, op)| Some((op.end?, i))).collect();
        let mut syncs: BTreeMap<u32, (Position, u8)> = BTreeMap::new();
        for (at, entry) in self.history.entries.iter().enumerate() {
            if self.unheard.is_some_and(|time| time < entry.at) {
                self.heard();
            }
            match &entry.what {
                What::Begin { id, call, client } if call.syncs_names() => {
                    syncs.insert(*id, (at, *client));
                }
                What::End { id, outcome: Outcome::Done } => {
                    if let Some((begin, client)) = syncs.remove(id) {
                        self.sync(begin, client);
                    }
                }
                What::End { id, outcome: Outcome::Unknown(error) } => {
                    let sync = syncs.remove(id).filter(|_| error.kind == ErrorKind::Io);
                    if let Some((_, client)) = sync {
                        self.told(client);
                    }
                }
                // The next run of the client does not know what this one had done.
                What::ClientKilled { client } => {
                    self.killed.insert(*client, at);
                }
                What::Down(Node::Meta) => self.down(entry.at),
                What::Up(Node::Meta) => {
                    self.up_since = Some(entry.at);
                    self.unheard = Some(entry.at + self.grace);
                }
                What::PowerCut(Node::Meta) => {
                    // Clients may not have heard of the previous one either.
                    self.unheard = None;
                    self.down(entry.at);
                    self.crash(at);
                }
                _ => {}
            }
            if let Some(op) = begins.get(&at) {
                match self.slots.iter_mut().find(|slot| slot.is_none()) {
                    Some(slot) => *slot = Some(*op),
                    None => return Ok(false),
                }
            }
            if let Some(op) = ends.get(&at) {
                self.end(*op);
            }
            if self.too_many || self.states.len() > MAX_STATES {
                return Ok(false);
            }
            if self.states.is_empty() {
                return Err(at);
            }
        }
        Ok(true)
    }

    fn next(&self, state: &State, slot: usize, op: usize) -> Vec<State> {
        let done = &self.ops[op];
        let trees = state.tree().after(done.call, done.reply, fresh(op));
        let next = |tree: Tree| {
            let mut kept = state.kept.clone();
            if *state.tree().as_ref() != tree {
                // If no crash is to come, the past is irrelevant.
                let by = if self.crashes == 0 { usize::MAX } else { op };
                if self.crashes == 0 {
                    kept.clear();
                }
                kept.push((Rc::new(tree), by));
            }
            let cut = state.cut;
            State { kept, done: state.done | 1 << slot, lost: state.lost.clone(), cut }
        };
        let may = |tree: &Tree| !state.cut || *state.tree().as_ref() == *tree;
        trees.into_iter().filter(may).map(next).collect()
    }

    /// Adds all states that can be reached by doing calls in progress. Where `until` has been done,
    /// the others can wait.
    fn explore(&mut self, until: Option<usize>) {
        let until = until.and_then(|op| self.slots.iter().position(|s| *s == Some(op)));
        let mut work: Vec<State> = self.states.drain().collect();
        let mut seen: HashSet<State> = HashSet::new();
        let mut found = HashSet::new();
        while let Some(state) = work.pop() {
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
                if until.is_some() {
                    continue;
                }
            }
            if state.cut {
                work.extend(self.crashed(&state));
            }
            for (slot, op) in self.slots.iter().enumerate() {
                let Some(op) = op.filter(|_| state.done & (1 << slot) == 0) else { continue };
                let known = self.ops[op].end.is_some();
                for next in self.next(&state, slot, op) {
                    // A call with unknown outcome and without effect may as well be done later.
                    if known || next.tree() != state.tree() {
                        work.push(next);
                    }
                }
            }
        }
        self.states = found;
    }

    fn end(&mut self, op: usize) {
        self.explore(Some(op));
        let Some(slot) = self.slots.iter().position(|s| *s == Some(op)) else { return };
        self.slots[slot] = None;
        let states = std::mem::take(&mut self.states);
        self.states = states
            .into_iter()
            .filter(|state| state.done & (1 << slot) != 0)
            .map(|state| State { done: state.done & !(1 << slot), ..state })
            .collect();
    }

    /// Makes everything durable that was acknowledged before this position.
    fn keep_from(&mut self, acknowledged_before: Position) {
        let states = std::mem::take(&mut self.states);
        for mut state in states {
            // It is only in the caches of clients.
            if state.cut {
                self.states.insert(state);
                continue;
            }
            let durable = |(_, op): &Past| {
                self.ops
                    .get(*op)
                    .is_some_and(|op| op.end.is_some_and(|end| end < acknowledged_before))
            };
            if let Some(last) = state.kept.iter().rposition(durable) {
                state.kept.drain(..last);
            }
            self.states.insert(state);
        }
    }

    /// A sync has succeeded: the earlier changes of its client were not lost, and everything that
    /// was acknowledged before is durable.
    fn sync(&mut self, begin: Position, client: u8) {
        self.notice_cut();
        let ops = self.ops;
        let started = self.killed.get(&client).copied();
        let covers = |op: &usize| {
            let op = &ops[*op];
            let mine = op.client == client && started.is_none_or(|at| op.begin > at);
            mine && op.end.is_some_and(|end| end < begin)
        };
        self.states.retain(|state| !state.lost.iter().any(covers));
        if self.crashes > 0 {
            self.keep_from(begin);
        }
    }

    /// A client knows that changes of its own may be lost.
    fn told(&mut self, client: u8) {
        let states = std::mem::take(&mut self.states);
        for mut state in states {
            state.lost.retain(|op| self.ops[*op].client != client);
            self.states.insert(state);
        }
    }

    /// A server that has run long enough has synced all but the last changes.
    fn down(&mut self, now: Duration) {
        let up_since = self.up_since.take();
        if up_since.is_some_and(|since| since + self.settle <= now) {
            self.settled = now - self.settle;
        }
    }

    fn crash(&mut self, at: Position) {
        self.explore(None);
        let old = self.history.entries.partition_point(|e| e.at < self.settled);
        self.keep_from(old.min(at));
        self.crashes -= 1;
        let states = std::mem::take(&mut self.states);
        for state in states {
            self.states.extend(self.crashed(&state));
            self.states.insert(State { cut: true, ..state });
        }
    }

    /// The possible states after a power cut.
    fn crashed(&self, state: &State) -> Vec<State> {
        let left = |(i, past): (usize, &Past)| {
            let mut lost = state.lost.clone();
            // Nobody expects anything from calls without a result.
            let known = |op: &usize| self.ops.get(*op).is_some_and(|op| op.end.is_some());
            lost.extend(state.kept[i + 1..].iter().map(|past| past.1).filter(known));
            // The call that led there no longer matters.
            let kept = vec![(past.0.clone(), usize::MAX)];
            State { kept, done: state.done, lost, cut: false }
        };
        state.kept.iter().enumerate().map(left).collect()
    }

    /// Everybody has heard of the last power cut.
    fn heard(&mut self) {
        self.unheard = None;
        self.notice_cut();
    }

    /// A result came from a server that has started since.
    fn notice_cut(&mut self) {
        if self.states.iter().any(|state| state.cut) {
            self.explore(None);
            self.states.retain(|state| !state.cut);
        }
    }
}

/// The model's id of the file that a call makes.
fn fresh(op: usize) -> Inode {
    1000 + op as Inode
}

fn violation(history: &History, ops: &[Op<'_>], at: Position) -> Violation {
    let about = ops.iter().find(|op| op.end == Some(at));
    let when = history.entries.get(at).map_or(0.0, |e| e.at.as_secs_f64());
    let what = match about {
        Some(op) => format!(
            "names: no order of the calls explains the answer to #{} of client{} at {when:.4} s: {:?} -> {:?}",
            op.id, op.client, op.call, op.reply
        ),
        None => format!("names: no order of the calls is possible at {when:.4} s"),
    };
    let begun: BTreeSet<u32> = ops.iter().filter(|op| op.begin <= at).map(|op| op.id).collect();
    Violation { what, evidence: history.excerpt(|id| begun.contains(&id)) }
}

/// Whether an error proves that nothing was changed, and why.
pub fn is_refusal(kind: ErrorKind) -> bool {
    use ErrorKind as K;
    matches!(
        kind,
        K::NotFound
            | K::Exists
            | K::NotDirectory
            | K::IsDirectory
            | K::NotEmpty
            | K::NotPermitted
            | K::InvalidArgument
            | K::NoAttribute
            | K::SymlinkLoop
            | K::Stale
            | K::Unsupported
    )
}
