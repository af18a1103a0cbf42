//! Losses that an administrator has accepted. Each must have been possible, and until the
//! acceptance calls on it are refused.
//!
//! Servers lose their knowledge about each other's copies with a gap log, if no other copy is up to
//! date at that time. And if a write is acknowledged when one copy has it, a power cut of that
//! server loses what it had not forwarded.

use super::Violation;
use super::facts::FileFacts;
use super::health::Health;
use crate::history::{Call, History, Node, Outcome, Position, What};
use std::ops::Range;
use weir_types::ErrorKind;

/// A loss in a column of a file.
struct Loss {
    file: u8,
    nodes: Vec<u8>,
    /// All cells of the column: those that are not lost have been written again meanwhile.
    column: Vec<u32>,
    cells: Vec<u32>,
    /// Since when it may have been lost; `None`: it cannot have been.
    since: Option<Position>,
    /// When the first refused change of the file began. Any later call on the file first completes
    /// it if it was a cut, or fences off its late requests, in all columns.
    refused: Option<Position>,
    /// When it was accepted.
    until: Position,
}

/// A call that ended.
pub(super) struct Asked<'a> {
    pub call: &'a Call,
    /// Whether its client may be told the outcome of earlier writes.
    pub behind: bool,
    /// From its begin to its end.
    pub span: (Position, Position),
}

/// All losses of a run.
#[derive(Default)]
pub struct Losses(Vec<Loss>);

impl Losses {
    /// Finds them in a history.
    pub fn of(history: &History, files: &[FileFacts]) -> Self {
        let health = Health::of(history);
        let accepted = history.entries.iter().enumerate().filter_map(|(until, entry)| {
            let What::LossAccepted { file, nodes, column, cells } = &entry.what else {
                return None;
            };
            let (file, nodes) = (*file, nodes.clone());
            let early = files[usize::from(file)].early;
            let since = (0..until).find(|at| may_lose((history, &health), &nodes, early, *at));
            let (column, cells) = (column.clone(), cells.clone());
            let refused = since.and_then(|since| refused_change(history, file, since..until));
            Some(Loss { file, nodes, column, cells, since, refused, until })
        });
        Self(accepted.collect())
    }

    /// Judges whether each loss was possible.
    pub fn judge(&self, history: &History) -> Option<Violation> {
        let loss = self.0.iter().find(|loss| loss.since.is_none())?;
        let Loss { file, nodes, cells, .. } = loss;
        let what = format!(
            "cells {cells:?} of file {file}, on data{nodes:?}, were lost, although one of these \
             had all of it and knew so all the time"
        );
        Some(Violation { what, evidence: history.excerpt(|_| false) })
    }

    /// Whether a call was refused because of a loss that was not accepted yet.
    pub(super) fn explain(&self, error: ErrorKind, asked: &Asked<'_>) -> bool {
        error == ErrorKind::NotCurrent && self.met(asked).is_some()
    }

    /// When the last of the losses that a call met was accepted.
    pub(super) fn met(&self, asked: &Asked<'_>) -> Option<Position> {
        let (begin, end) = asked.span;
        let meets =
            |loss: &&Loss| loss.since.is_some_and(|since| since < end) && begin < loss.until;
        let met = self.0.iter().filter(meets).filter(|loss| concerns(loss, asked));
        met.map(|loss| loss.until).max()
    }

    /// Periods in which something of a file was lost.
    pub(super) fn of_file(&self, file: u8) -> impl Iterator<Item = Range<Position>> + '_ {
        let of_it = self.0.iter().filter(move |loss| loss.file == file);
        of_it.filter_map(|loss| Some(loss.since?..loss.until))
    }

    /// When a loss in a cell of a file was accepted.
    pub(super) fn of_cell(&self, file: u8, cell: u32) -> impl Iterator<Item = Position> + '_ {
        let of_it = move |loss: &&Loss| loss.file == file && loss.cells.contains(&cell);
        self.0.iter().filter(of_it).map(|loss| loss.until)
    }
}

/// Whether an event may leave no server that has the last changes of a column and knows it.
fn may_lose(
    (history, health): (&History, &Health),
    nodes: &[u8],
    early: bool,
    at: Position,
) -> bool {
    match history.entries[at].what {
        What::GapsLost(Node::Data(n)) => health.is_last(history, nodes, at, n),
        What::PowerCut(Node::Data(n)) | What::DiskForgets(Node::Data(n)) if early => {
            health.is_last(history, nodes, at, n)
        }
        _ => false,
    }
}

/// The first refused change of a file within a part of a history.
fn refused_change(history: &History, file: u8, within: Range<Position>) -> Option<Position> {
    let entries = &history.entries[..within.end];
    let is_refused = |wanted: u32| {
        entries.iter().any(|entry| match &entry.what {
            What::End { id, outcome: Outcome::Unknown(_) } => *id == wanted,
            _ => false,
        })
    };
    (within.start..within.end).find(|at| match &entries[*at].what {
        What::Begin { id, call, .. } => changed_by(call) == Some(file) && is_refused(*id),
        _ => false,
    })
}

/// The file that a call changes or syncs.
pub(super) fn changed_by(call: &Call) -> Option<u8> {
    match call {
        Call::Write { file, .. }
        | Call::Append { file, .. }
        | Call::Cut { file, .. }
        | Call::Sync { file }
        | Call::Flush { file } => Some(*file),
        _ => None,
    }
}

/// Whether a call needs the column. Calls without a range need all columns.
fn concerns(loss: &Loss, asked: &Asked<'_>) -> bool {
    let after_one = loss.refused.is_some_and(|refused| refused < asked.span.1);
    match *asked.call {
        Call::Read { file, .. } | Call::Write { file, .. } if after_one => file == loss.file,
        Call::Write { file, .. } if asked.behind => file == loss.file,
        Call::Write { file, first, cells } | Call::Read { file, first, cells } => {
            let touched = first..first + cells;
            file == loss.file && loss.column.iter().any(|cell| touched.contains(cell))
        }
        Call::Append { file, .. }
        | Call::Stat { file }
        | Call::Cut { file, .. }
        | Call::Sync { file }
        | Call::Flush { file } => file == loss.file,
        _ => false,
    }
}
