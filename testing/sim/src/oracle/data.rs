//! The bytes of files. Every write has a tag of its own, so a reader knows which write it sees.
//! Each cell is judged alone, because a write of several cells is not atomic. `data_ops` interprets
//! calls and results.

use super::data_cell::{CellOp, CellRun, Fate, Step};
use super::data_ops::{Action, Asked, Op, Told, asked_of};
pub use super::facts::{ClientFacts, FileFacts};

use super::facts::NEVER;
use super::health::Health;
use super::losses::Losses;
use super::{Verdict, Violation, appends, trouble_unless};
use crate::history::{Call, Entry, History, Node, Outcome, Position, TORN, What, tag_of_record};
use std::collections::HashSet;

/// Maximum number of violations reported for a run.
const MAX_VIOLATIONS: usize = 3;

/// Judges all files.
pub fn judge(history: &History, files: &[FileFacts], clients: &[ClientFacts]) -> Verdict {
    let mut verdict = Verdict::default();
    let health = Health::of(history);
    let losses = Losses::of(history, files);
    for (index, facts) in files.iter().enumerate() {
        let file = index as u8;
        let mut asked = asked_of(history, file, facts.log.then_some(facts.cells), clients);
        if facts.log {
            let gone = |at: Position, node: u8| {
                facts
                    .nodes_of_cells
                    .iter()
                    .any(|nodes| facts.takes((history, &health), nodes, at, node))
            };
            verdict.violations.extend(appends::judge(history, file, &mut asked, &gone));
        }
        judge_file((history, &health, &losses), (file, facts), (&asked, clients), &mut verdict);
    }
    verdict
}

fn judge_file(
    (history, health, losses): (&History, &Health, &Losses),
    (file, facts): (u8, &FileFacts),
    (asked, clients): (&Asked, &[ClientFacts]),
    verdict: &mut Verdict,
) {
    let ops = &asked.ops;
    let mut happened = Happened {
        crashes: crashes_of(history, facts.log.then_some(file)),
        doubtful: doubtful_cuts(history, ops),
        trouble: (0..clients.len() as u8)
            .map(|client| trouble_unless(history, client, &|span| facts.are_served(health, span)))
            // Where data is lost, write-behind is not accepted.
            .map(|trouble| {
                trouble.into_iter().chain(losses.of_file(file).map(|l| (l.start, l.end)))
            })
            .map(Iterator::collect)
            .collect(),
        accepted: Vec::new(),
    };
    let all = happened.crashes.clone();
    let mut judged = HashSet::new();
    for cell in 0..facts.cells {
        if verdict.violations.len() >= MAX_VIOLATIONS {
            return;
        }
        let nodes = &facts.nodes_of_cells[cell as usize];
        let here = |(at, node, _): &&(Position, Option<u8>, Step)| {
            node.is_none_or(|node| facts.takes((history, health), nodes, *at, node))
        };
        let of_copies = |(at, node, step): &(Position, Option<u8>, Step)| match step {
            Step::Crash | Step::Forget if nodes.len() > 1 => (*at, *node, Step::CrashOfOne),
            other => (*at, *node, other.clone()),
        };
        happened.crashes = all.iter().filter(here).map(of_copies).collect();
        happened.accepted = losses.of_cell(file, cell).collect();
        let run = steps_of(asked, cell, &happened, clients);
        // Neighbouring cells mostly have the same history.
        if judged.contains(&run) {
            continue;
        }
        match run.check() {
            Ok(decided) => verdict.undecided += u64::from(!decided),
            Err(at) => verdict.violations.push(violation(history, (file, cell), nodes, ops, at)),
        }
        judged.insert(run);
    }
    if !facts.log {
        verdict.violations.extend(short_read(history, file, ops, clients));
    }
}

/// Files have their full size from the beginning, and only a cut may change that. A file may be
/// shorter while a cut is in progress, after a cut with an unknown end, after one that a client
/// without leases does not know of, or after one that a power cut has undone.
fn short_read(
    history: &History,
    file: u8,
    ops: &[Op],
    clients: &[ClientFacts],
) -> Option<Violation> {
    let first_cut = history.entries.iter().position(|e| e.what == What::PowerCut(Node::Meta));
    let excused = |read: &Op| {
        first_cut.is_some_and(|cut| cut < read.end)
            || ops.iter().any(|op| {
                let cut = matches!(op.action, Action::Cut { .. }) && op.begin < read.end;
                let knows = clients[usize::from(read.client)].leases || op.client == read.client;
                cut && (op.end == NEVER
                    || !knows
                    || op.end > read.begin && op.client != read.client)
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

/// Events of all cells, besides calls.
struct Happened {
    /// The place; `None`: everywhere. While a cell is judged: the events that affect it.
    crashes: Vec<(Position, Option<u8>, Step)>,
    doubtful: Vec<(Position, usize)>,
    /// When the remaining bytes of the cell were accepted.
    accepted: Vec<Position>,
    /// For each client, when it may lose its write-behind.
    trouble: Vec<Vec<(Position, Position)>>,
}

/// When unsynced data of a data server may be gone.
fn crashes_of(history: &History, log: Option<u8>) -> Vec<(Position, Option<u8>, Step)> {
    let crash = |(at, entry): (Position, &Entry)| match entry.what {
        What::PowerCut(Node::Data(n)) => Some((at, Some(n), Step::Crash)),
        What::DiskForgets(Node::Data(n)) => Some((at, Some(n), Step::Forget)),
        _ => None,
    };
    let mut crashes: Vec<_> = history.entries.iter().enumerate().filter_map(crash).collect();
    if let Some(file) = log {
        crashes.extend(lost_sizes(history, file).map(|(at, step)| (at, None, step)));
    }
    crashes
}

/// When the metadata server's size of a growing file may be lost. A client that knows the size uses
/// it until it hears of the loss, while others see what is left, so both may be read until then.
/// Bytes below a size that survived are as durable as before.
fn lost_sizes(history: &History, file: u8) -> impl Iterator<Item = (Position, Step)> + '_ {
    let entries = &history.entries;
    entries.iter().enumerate().filter(|(_, e)| e.what == What::PowerCut(Node::Meta)).flat_map(
        move |(at, entry)| {
            let trouble = entries[..at].iter().filter_map(|e| match e.what {
                What::Trouble { client: None, until, .. } => Some(until),
                _ => None,
            });
            let until = trouble.max().unwrap_or(entry.at).max(entry.at);
            let heard = entries.partition_point(|e| e.at <= until).max(at + 1) - 1;
            let began = move |(at, entry): (Position, &Entry)| {
                let read = matches!(entry.what, What::Begin { call: Call::Read { file: f, .. }, .. } if f == file);
                read.then_some(at)
            };
            let reads = entries.iter().enumerate().skip(at).take(heard - at).filter_map(began);
            let all: Vec<Position> = [at, heard].into_iter().chain(reads).collect();
            all.into_iter().map(|at| (at, Step::ForgetSize))
        },
    )
}

/// Cuts whose record a power cut of the metadata server may have undone. Whoever opens the file
/// next may carry them out again.
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

/// The events of one cell.
fn steps_of(asked: &Asked, cell: u32, happened: &Happened, clients: &[ClientFacts]) -> CellRun {
    let ops = &asked.ops;
    let mut run = CellRun { trouble: happened.trouble.clone(), ..CellRun::default() };
    let mut steps: Vec<(Position, u8, Step)> = Vec::new();
    for (seq, op) in ops.iter().enumerate() {
        let known = op.end != NEVER;
        let fate = if known { Fate::Known } else { Fate::Unknown };
        match &op.action {
            Action::Sync if known => {
                let opened = ops.partition_point(|other| other.id < op.opened);
                steps.push((op.end, 2, Step::Sync { client: op.client, seq, opened }));
            }
            Action::Sync if op.told => {
                steps.push((op.given_up, 2, Step::Told { client: op.client, seq }));
            }
            Action::Cut { keep } if known => {
                let step = Step::Fence { begin: op.begin, cell: cell >= *keep };
                steps.push((op.end, 3, step));
            }
            _ => {}
        }
        let written = op.action.writes(op.id, cell);
        let Some(value) = written.or_else(|| op.action.read(cell)) else { continue };
        let lost_below =
            || happened.crashes.iter().any(|(at, node, _)| node.is_some() && *at < op.end);
        if written.is_none() && clients[usize::from(op.client)].keeps_pages && lost_below() {
            continue;
        }
        let index = run.ops.len();
        // A late cut is not fenced off: it is ordered by the metadata server.
        let is_cut = matches!(op.action, Action::Cut { .. });
        let this = CellOp {
            client: op.client,
            session: op.session,
            seq,
            value,
            writes: written.is_some(),
            fate,
            begin: op.begin,
            end: op.end,
            given_up: if is_cut { NEVER } else { op.given_up },
            losable: op.losable && written.is_some() && !is_cut,
            fenced: op.fenced && !is_cut,
            in_line: op.in_line && !is_cut,
            until_well: false,
        };
        steps.push((op.begin, 0, Step::Begin(index)));
        if known {
            // Settled writes end before the call that settled them.
            steps.push((op.end, if this.writes { 0 } else { 1 }, Step::End(index)));
        }
        run.ops.push(this.clone());
        let again = happened.doubtful.iter().filter(|(_, cut)| *cut == seq);
        let again = again.map(|(at, _)| (*at, NEVER));
        let again = again.chain(op.loose.filter(|_| written.is_some()));
        let late = op.late.filter(|_| written.is_some()).map(|at| (at, NEVER));
        let again = again.map(|l| (l, false)).chain(late.map(|l| (l, true)));
        for ((at, given_up), until_well) in again {
            let (fate, losable) = (Fate::Unknown, false);
            let copy = CellOp { fate, given_up, losable, until_well, ..this.clone() };
            run.ops.push(copy);
            steps.push((at, 4, Step::Begin(run.ops.len() - 1)));
        }
    }
    if run.ops.is_empty() {
        return run;
    }
    for told in &asked.told {
        let (session, kind) = (told.session, told.kind);
        if !matches!(kind, Told::Killed | Told::Gone) {
            steps.push((told.begin, 1, Step::Asks { session }));
        }
        steps.push((told.end, 1, Step::Answered { session, kind }));
    }
    steps.extend(happened.crashes.iter().map(|(at, _, step)| (*at, 4, step.clone())));
    steps.extend(happened.accepted.iter().map(|at| (*at, 4, Step::Accept)));
    steps.sort_by_key(|(at, rank, step)| (*at, *rank, step.order()));
    run.steps = steps.into_iter().map(|(at, _, step)| (at, step)).collect();
    run
}

fn violation(
    history: &History,
    (file, cell): (u8, u32),
    nodes: &[u8],
    ops: &[Op],
    at: Position,
) -> Violation {
    let touches = |op: &&Op| {
        let whole = matches!(op.action, Action::Cut { .. } | Action::Sync);
        let tells = op.tells && op.losable;
        whole || tells || op.action.writes(op.id, cell).is_some() || op.action.read(cell).is_some()
    };
    let mut evidence = String::new();
    for op in ops.iter().filter(touches).filter(|op| op.begin <= at) {
        let time = |p: Position| match history.entries.get(p) {
            Some(entry) => format!("{:.4}", entry.at.as_secs_f64()),
            None => "unknown".into(),
        };
        let what = match &op.action {
            Action::Read { .. } => match op.action.read(cell) {
                None => "told what became of earlier writes".to_owned(),
                Some(TORN) => "read TORN".to_owned(),
                Some(0) => "read zeros".to_owned(),
                Some(seen) => format!("read #{}", tag_of_record(seen) - 1),
            },
            other => format!("{other:?}"),
        };
        let (begin, end) = (time(op.begin), time(op.end));
        evidence.push_str(&format!("  {begin} .. {end} s client{} #{} {what}\n", op.client, op.id));
    }
    for (position, entry) in history.entries.iter().enumerate().take(at + 1) {
        let crash = matches!(
            &entry.what,
            What::PowerCut(_)
                | What::DiskForgets(_)
                | What::ClientKilled { .. }
                | What::Trouble { .. }
                | What::LossAccepted { .. }
        );
        if crash && position <= at {
            evidence.push_str(&format!("  {:.4} s {:?}\n", entry.at.as_secs_f64(), entry.what));
        }
    }
    let when = history.entries.get(at).map_or(0.0, |e| e.at.as_secs_f64());
    let nodes: Vec<String> = nodes.iter().map(|n| Node::Data(*n).to_string()).collect();
    let nodes = nodes.join(", ");
    let what = format!(
        "file {file}, cell {cell} (on {nodes}): no order of the calls explains what is seen at {when:.4} s"
    );
    Violation { what, evidence }
}
