//! Appended records: each acknowledged record is there once, intact, at the place that its writer
//! was told, and after everything that was acknowledged before it was begun.

use super::data_ops::{Action, Asked, Op, Told};
use super::facts::NEVER;
use super::{Violation, trouble_of};
use crate::history::{CELL_BYTES, Call, History, Node, Outcome, Position, What, tag_of_record};
use std::collections::BTreeMap;

/// A record whose place is known to its writer.
struct Placed<'a> {
    op: &'a Op,
    first: u32,
    end: u32,
}

/// Whether data that a server forgets at a position of the history may be lost.
type Gone<'a> = &'a dyn Fn(Position, u8) -> bool;

/// Judges the places of acknowledged records, and finds those of records with unknown outcome.
pub(super) fn judge(
    history: &History,
    file: u8,
    asked: &mut Asked,
    gone: Gone<'_>,
) -> Vec<Violation> {
    let mut violations: Vec<Violation> = history.entries.iter().filter_map(crooked).collect();
    let seen = seen_at(asked);
    for op in &mut asked.ops {
        let tag = u64::from(op.id) + 1;
        if let Action::Append { first: first @ None, .. } = &mut op.action {
            *first = seen.get(&tag).copied();
        }
    }
    violations.extend(overlaps(history, file, asked, gone));
    violations.truncate(1);
    violations
}

/// A record must not begin within a cell, because all writes are whole cells.
fn crooked(entry: &crate::history::Entry) -> Option<Violation> {
    match entry.what {
        What::End { id, outcome: Outcome::At(offset) } if offset % CELL_BYTES as u64 != 0 => {
            let what = format!("#{id} appended at {offset}, within a cell");
            Some(Violation { what, evidence: String::new() })
        }
        _ => None,
    }
}

/// The first place at which each record was seen.
fn seen_at(asked: &Asked) -> BTreeMap<u64, u32> {
    let mut places = BTreeMap::new();
    for op in &asked.ops {
        let Action::Read { first, seen } = &op.action else { continue };
        for (cell, value) in (*first..).zip(seen) {
            let tag = tag_of_record(*value);
            let within = (*value >> 40) as u32;
            if *value != 0 && *value != crate::history::TORN && cell >= within {
                places.entry(tag).or_insert(cell - within);
            }
        }
    }
    places
}

fn overlaps(history: &History, file: u8, asked: &Asked, gone: Gone<'_>) -> Option<Violation> {
    let place = |op: &Op| match op.action {
        Action::Append { first: Some(first), cells } if op.end != NEVER => {
            Some((first, first + cells))
        }
        _ => None,
    };
    let placed = asked.ops.iter().filter_map(|op| {
        let (first, end) = place(op)?;
        Some(Placed { op, first, end })
    });
    let placed: Vec<Placed<'_>> = placed.collect();
    for (i, a) in placed.iter().enumerate() {
        for b in &placed[i + 1..] {
            let in_order = a.op.end < b.op.begin;
            let shared = a.first < b.end && b.first < a.end;
            let last = a.op.end.max(b.op.end);
            // Of two concurrent records, either may have come first and been lost.
            let lost = may_be_gone(history, asked, a.op, last, gone)
                || !in_order && may_be_gone(history, asked, b.op, last, gone);
            if (in_order && b.first < a.end || shared) && !lost {
                let told = |p: &Placed<'_>| format!("#{} at cells {}..{}", p.op.id, p.first, p.end);
                let what = format!(
                    "file {file}: two records were appended at one place or in the wrong order: {} and {}",
                    told(a),
                    told(b)
                );
                let evidence = history
                    .excerpt(|id| id == a.op.id || id == b.op.id || is_about(history, id, file));
                return Some(Violation { what, evidence });
            }
        }
    }
    None
}

fn is_about(history: &History, wanted: u32, file: u8) -> bool {
    history.entries.iter().any(|entry| match &entry.what {
        What::Begin { id, call, .. } if *id == wanted => matches!(
            call,
            Call::Append { file: f, .. } | Call::Sync { file: f } | Call::Flush { file: f }
                if *f == file
        ),
        _ => false,
    })
}

/// Whether an acknowledged record may have been lost by then: by a crash, with its client, or in a
/// way that its client is told.
fn may_be_gone(history: &History, asked: &Asked, op: &Op, by: Position, gone: Gone<'_>) -> bool {
    let crashed = (op.end..by).any(|at| match history.entries[at].what {
        What::PowerCut(Node::Data(n)) | What::DiskForgets(Node::Data(n)) => gone(at, n),
        What::PowerCut(_) | What::DiskForgets(_) => true,
        _ => false,
    });
    let mut told = asked.told.iter().filter(|t| t.session == op.session && t.end > op.end);
    let settled = told.find(|t| t.kind != Told::Nothing);
    let lost = match settled {
        Some(told) => matches!(told.kind, Told::Lost | Told::Killed),
        // Nobody has asked since.
        None => trouble_of(history, op.client).iter().any(|(a, b)| *a < by && *b > op.end),
    };
    crashed || op.losable && lost
}
