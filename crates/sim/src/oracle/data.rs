//! The bytes of files: every write has a tag of its own, so a reader knows
//! which write it sees. Each cell of a file is judged by itself: a write of
//! several cells is not atomic.
//!
//! Write-behind: a write that has returned may still be on its way. It counts
//! as done when a later sync, flush or cut of its client has succeeded, and as
//! unknown when one has failed; meanwhile its own client sees it, which
//! "calls of one client take effect in their order" says.

use super::data_cell::{CellOp, CellRun, Fate, Step};
use super::{Verdict, Violation};
use crate::history::{Call, Entry, History, Node, Outcome, Position, What};
use std::collections::{BTreeMap, HashSet};
use weir_types::ErrorKind;

/// No position: never.
pub(super) const NEVER: Position = Position::MAX;
/// Violations told of one run.
const MAX_VIOLATIONS: usize = 3;

/// What the judge has to know of a file.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// Its cells.
    pub cells: u32,
    /// The data server that holds each cell.
    pub node_of_cell: Vec<u8>,
}

/// What is known of the clients.
#[derive(Clone, Debug)]
pub struct ClientFacts {
    /// Whether writes return before they are confirmed.
    pub write_behind: bool,
}

/// One call on one file, with what became of it.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub id: u32,
    pub client: u8,
    pub begin: Position,
    /// When it was done at the latest; [`NEVER`]: its fate is unknown.
    pub end: Position,
    /// For one of unknown fate: when its client had stopped sending it.
    pub given_up: Position,
    /// The run of its client, if that confirms each write before it returns.
    pub line: Option<u32>,
    /// A sync that has failed because something is lost.
    pub told: bool,
    /// Calls with smaller numbers were made before the client opened the file.
    pub opened: u32,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Write { first: u32, cells: u32 },
    Cut { keep: u32 },
    Read { first: u32, seen: Vec<u64> },
    Sync,
}

/// Judges all files.
pub fn judge(history: &History, files: &[FileFacts], clients: &[ClientFacts]) -> Verdict {
    let mut verdict = Verdict::default();
    for (index, facts) in files.iter().enumerate() {
        let ops = ops_of(history, index as u8, clients);
        judge_file(history, (index as u8, facts), &ops, &mut verdict);
    }
    verdict
}

/// A call on its way while the history is read.
struct Open {
    op: usize,
}

/// The calls on a file, with the ends that they have.
fn ops_of(history: &History, file: u8, clients: &[ClientFacts]) -> Vec<Op> {
    let mut ops: Vec<Op> = Vec::new();
    let mut open: BTreeMap<u32, Open> = BTreeMap::new();
    let (mut opened, mut next_id) = (vec![0; clients.len()], 0);
    let mut unsettled: Vec<Vec<usize>> = vec![Vec::new(); clients.len()];
    let mut runs = vec![0; clients.len()];
    for (at, entry) in history.entries.iter().enumerate() {
        match &entry.what {
            What::Begin { client, id, call } => {
                if *call == (Call::Flush { file }) {
                    opened[usize::from(*client)] = *id;
                }
                next_id = id + 1;
                if let Some(action) = action_of(call, file) {
                    open.insert(*id, Open { op: ops.len() });
                    let (id, client) = (*id, *client);
                    ops.push(Op {
                        id,
                        client,
                        begin: at,
                        end: NEVER,
                        given_up: NEVER,
                        line: (!clients[usize::from(client)].write_behind)
                            .then_some(runs[usize::from(client)]),
                        told: false,
                        opened: opened[usize::from(client)],
                        action,
                    });
                }
            }
            What::End { id, outcome } => {
                if let Some(Open { op }) = open.remove(id) {
                    let client = usize::from(ops[op].client);
                    let behind = clients[client].write_behind;
                    ended(&mut ops, op, at, outcome, &mut unsettled[client], behind);
                }
            }
            What::ClientKilled { client } => {
                opened[usize::from(*client)] = next_id;
                runs[usize::from(*client)] += 1;
                let lost = std::mem::take(&mut unsettled[usize::from(*client)]);
                let calls = open.values().map(|o| o.op).filter(|op| ops[*op].client == *client);
                for op in lost.into_iter().chain(calls.collect::<Vec<_>>()) {
                    ops[op].given_up = at;
                }
                open.retain(|_, o| ops[o.op].client != *client);
            }
            _ => {}
        }
    }
    // Of a read or sync without an answer nothing follows.
    ops.retain(|op| {
        let writes = matches!(op.action, Action::Write { .. } | Action::Cut { .. });
        op.end != NEVER || op.told || writes
    });
    ops
}

fn action_of(call: &Call, wanted: u8) -> Option<Action> {
    let (file, action) = match call {
        Call::Write { file, first, cells } => {
            (file, Action::Write { first: *first, cells: *cells })
        }
        Call::Read { file, first, .. } => (file, Action::Read { first: *first, seen: Vec::new() }),
        Call::Cut { file, keep } => (file, Action::Cut { keep: *keep }),
        // A flush settles what a sync does; it makes nothing durable.
        Call::Sync { file } => (file, Action::Sync),
        Call::Flush { file } => (file, Action::Read { first: 0, seen: Vec::new() }),
        _ => return None,
    };
    (*file == wanted).then_some(action)
}

fn ended(
    ops: &mut [Op],
    op: usize,
    at: Position,
    outcome: &Outcome,
    unsettled: &mut Vec<usize>,
    write_behind: bool,
) {
    let is_flush = matches!(&ops[op].action, Action::Read { .. }) && *outcome == Outcome::Done;
    let settles = is_flush || matches!(ops[op].action, Action::Sync | Action::Cut { .. });
    match outcome {
        Outcome::Unknown(error) => {
            ops[op].given_up = at;
            ops[op].told = error.kind == ErrorKind::Io && ops[op].action == Action::Sync;
            // The error may be that of any write before. Those may still be on
            // their way: nobody knows when they are given up.
            unsettled.clear();
        }
        Outcome::Cells(tags) => {
            ops[op].end = at;
            if let Action::Read { seen, .. } = &mut ops[op].action {
                seen.clone_from(tags);
            }
        }
        _ if write_behind && matches!(ops[op].action, Action::Write { .. }) => unsettled.push(op),
        _ => {
            ops[op].end = at;
            if settles {
                for write in unsettled.drain(..) {
                    ops[write].end = at;
                }
            }
        }
    }
}

fn judge_file(
    history: &History,
    (file, facts): (u8, &FileFacts),
    ops: &[Op],
    verdict: &mut Verdict,
) {
    let crashes = crashes_of(history);
    let doubtful = doubtful_cuts(history, ops);
    let mut judged = HashSet::new();
    for cell in 0..facts.cells {
        if verdict.violations.len() >= MAX_VIOLATIONS {
            return;
        }
        let node = facts.node_of_cell[cell as usize];
        let run = steps_of(ops, cell, node, &crashes, &doubtful);
        // Neighbours mostly have the same story.
        if judged.contains(&run) {
            continue;
        }
        match run.check() {
            Ok(decided) => verdict.undecided += u64::from(!decided),
            Err(at) => verdict.violations.push(violation(history, file, cell, node, ops, at)),
        }
        judged.insert(run);
    }
    verdict.violations.extend(short_read(history, file, ops));
}

/// Files have their full size from the beginning; only a cut may change that.
/// After one whose end is not known, or which another client does not know of,
/// or that a power cut has taken back, a file may be shorter.
fn short_read(history: &History, file: u8, ops: &[Op]) -> Option<Violation> {
    let first_cut = history.entries.iter().position(|e| e.what == What::PowerCut(Node::Meta));
    let excused = |read: &Op| {
        first_cut.is_some_and(|cut| cut < read.end)
            || ops.iter().any(|op| {
                let cut = matches!(op.action, Action::Cut { .. }) && op.begin < read.end;
                cut && (op.end == NEVER || op.client != read.client)
            })
    };
    let is_short = |op: &&Op| match history.entries.get(op.begin).map(|e| &e.what) {
        Some(What::Begin { call: Call::Read { cells, .. }, .. }) => match &op.action {
            Action::Read { seen, .. } => seen.len() < *cells as usize,
            _ => false,
        },
        _ => false,
    };
    let read = ops.iter().filter(is_short).find(|op| !excused(op))?;
    let what = format!("file {file}: read #{} ends before the end of the file", read.id);
    let about = |id: u32| ops.iter().any(|op| op.id == id && op.begin <= read.begin);
    Some(Violation { what, evidence: history.excerpt(about) })
}

/// When unsynced data of a data server may be gone.
fn crashes_of(history: &History) -> Vec<(Position, u8, Step)> {
    let crash = |(at, entry): (Position, &Entry)| match entry.what {
        What::PowerCut(Node::Data(n)) => Some((at, n, Step::Crash)),
        What::DiskForgets(Node::Data(n)) => Some((at, n, Step::Forget)),
        _ => None,
    };
    history.entries.iter().enumerate().filter_map(crash).collect()
}

/// Cuts whose record a power cut of the metadata server may have taken back:
/// whoever opens the file next may carry them out once more.
fn doubtful_cuts(history: &History, ops: &[Op]) -> Vec<(Position, usize)> {
    let mut doubtful = Vec::new();
    let synced_between = |from: Position, to: Position| synced_names(history, from, to);
    for (at, entry) in history.entries.iter().enumerate() {
        if entry.what != What::PowerCut(Node::Meta) {
            continue;
        }
        for (i, op) in ops.iter().enumerate() {
            let cut = matches!(op.action, Action::Cut { .. });
            if cut && op.end < at && !synced_between(op.end, at) {
                doubtful.push((at, i));
            }
        }
    }
    doubtful
}

/// Whether a sync of the metadata began after `from` and ended before `to`.
fn synced_names(history: &History, from: Position, to: Position) -> bool {
    let mut begun = std::collections::BTreeSet::new();
    for entry in &history.entries[from + 1..to] {
        match &entry.what {
            What::Begin { id, call, .. } if call.syncs_names() => {
                begun.insert(*id);
            }
            What::End { id, outcome: Outcome::Done } if begun.contains(id) => return true,
            _ => {}
        }
    }
    false
}

/// What happens to one cell.
fn steps_of(
    ops: &[Op],
    cell: u32,
    node: u8,
    crashes: &[(Position, u8, Step)],
    doubtful: &[(Position, usize)],
) -> CellRun {
    let mut run = CellRun::default();
    let mut steps: Vec<(Position, u8, Step)> = Vec::new();
    for (seq, op) in ops.iter().enumerate() {
        let known = op.end != NEVER;
        let fate = if known { Fate::Known } else { Fate::Unknown };
        let value = match &op.action {
            Action::Write { first, cells } if (*first..first + cells).contains(&cell) => {
                Some((u64::from(op.id) + 1, true))
            }
            Action::Cut { keep } if cell >= *keep => Some((0, true)),
            Action::Read { first, seen } if cell >= *first => {
                seen.get((cell - first) as usize).map(|tag| (*tag, false))
            }
            Action::Sync if known => {
                let opened = ops.partition_point(|other| other.id < op.opened);
                steps.push((op.end, 2, Step::Sync { client: op.client, seq, opened }));
                None
            }
            Action::Sync if op.told => {
                steps.push((op.given_up, 2, Step::Told { client: op.client, seq }));
                None
            }
            _ => None,
        };
        if let (Action::Cut { keep }, true) = (&op.action, known) {
            let step = Step::Fence { begin: op.begin, cell: cell >= *keep };
            steps.push((op.end, 3, step));
        }
        let Some((value, writes)) = value else { continue };
        let index = run.ops.len();
        // A cut that is late is not fenced off: it is the metadata server's.
        let is_cut = matches!(op.action, Action::Cut { .. });
        let (client, given_up) = (op.client, if is_cut { NEVER } else { op.given_up });
        let (begin, line) = (op.begin, if is_cut { None } else { op.line });
        run.ops.push(CellOp { client, seq, value, writes, fate, given_up, begin, line });
        steps.push((op.begin, 0, Step::Begin(index)));
        if known {
            // Settled writes end before the call that settled them.
            steps.push((op.end, if writes { 0 } else { 1 }, Step::End(index)));
        }
        for (at, _) in doubtful.iter().filter(|(_, cut)| *cut == seq) {
            run.ops.push(CellOp { fate: Fate::Unknown, given_up: NEVER, ..run.ops[index].clone() });
            steps.push((*at, 4, Step::Begin(run.ops.len() - 1)));
        }
    }
    if run.ops.is_empty() {
        return run;
    }
    let here = crashes.iter().filter(|(_, n, _)| *n == node);
    steps.extend(here.map(|(at, _, step)| (*at, 4, step.clone())));
    steps.sort_by_key(|(at, rank, step)| (*at, *rank, step.order()));
    run.steps = steps.into_iter().map(|(at, _, step)| (at, step)).collect();
    run
}

fn violation(
    history: &History,
    file: u8,
    cell: u32,
    node: u8,
    ops: &[Op],
    at: Position,
) -> Violation {
    let touches = |op: &&Op| match &op.action {
        Action::Write { first, cells } => (*first..first + cells).contains(&cell),
        Action::Cut { .. } | Action::Sync => true,
        Action::Read { first, seen } => cell >= *first && ((cell - first) as usize) < seen.len(),
    };
    let mut evidence = String::new();
    for op in ops.iter().filter(touches).filter(|op| op.begin <= at) {
        let time = |p: Position| match history.entries.get(p) {
            Some(entry) => format!("{:.4}", entry.at.as_secs_f64()),
            None => "unknown".into(),
        };
        let what = match &op.action {
            Action::Read { first, seen } => {
                let tag = seen[(cell - first) as usize];
                match tag {
                    crate::history::TORN => "read TORN".to_owned(),
                    0 => "read zeros".to_owned(),
                    tag => format!("read #{}", tag - 1),
                }
            }
            other => format!("{other:?}"),
        };
        let (begin, end) = (time(op.begin), time(op.end));
        evidence.push_str(&format!("  {begin} .. {end} s client{} #{} {what}\n", op.client, op.id));
    }
    for (position, entry) in history.entries.iter().enumerate().take(at + 1) {
        let crash = matches!(
            &entry.what,
            What::PowerCut(_) | What::DiskForgets(_) | What::ClientKilled { .. }
        );
        if crash && position <= at {
            evidence.push_str(&format!("  {:.4} s {:?}\n", entry.at.as_secs_f64(), entry.what));
        }
    }
    let when = history.entries.get(at).map_or(0.0, |e| e.at.as_secs_f64());
    let what = format!(
        "file {file}, cell {cell} (on data{node}): no order of the calls explains what is seen at {when:.4} s"
    );
    Violation { what, evidence }
}
