//! Judges of a history. Pure: a history goes in, what is wrong with it comes
//! out.
//!
//! They are exact for what `docs/semantics.md` promises: a history is accepted
//! if and only if some order of the calls, each at one moment between its
//! begin and its end, explains every answer, where
//! - a call without an answer (killed client, time over) may have been done,
//!   or not, or be done later;
//! - a power cut takes back what no sync had made durable;
//! - what an administrator has accepted as lost may be anything that was written there before.

mod appends;
pub mod available;
pub mod data;
mod data_cell;
mod data_ops;
pub mod errors;
mod facts;
pub mod health;
pub mod losses;
pub mod names;
mod names_model;
pub mod published;
pub mod stats;

use crate::history::{History, Position, What};
use std::fmt;
use std::time::Duration;

/// Something that must not happen has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// In one line.
    pub what: String,
    /// The calls that show it, one a line.
    pub evidence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.what, self.evidence)
    }
}

/// What an oracle says.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What is wrong, at most a few.
    pub violations: Vec<Violation>,
    /// How often there were too many orders to try: judged to be right.
    pub undecided: u64,
}

/// When something kept a client from servers: from one position to another.
fn trouble_of(history: &History, client: u8) -> Vec<(Position, Position)> {
    trouble_unless(history, client, &|_| false)
}

/// As [`trouble_of`], without what was wrong with one data server only at times at
/// which others served what it has.
fn trouble_unless(
    history: &History,
    client: u8,
    served: &dyn Fn((Duration, Duration)) -> bool,
) -> Vec<(Position, Position)> {
    let entries = &history.entries;
    let trouble = |(at, entry): (Position, &crate::history::Entry)| match entry.what {
        What::Trouble { until, one_data_server: true, .. } if served((entry.at, until)) => None,
        What::Trouble { client: who, until, .. } if who.is_none_or(|who| who == client) => {
            Some((at, entries.partition_point(|entry| entry.at <= until)))
        }
        _ => None,
    };
    entries.iter().enumerate().filter_map(trouble).collect()
}
