//! Judges of a history. Pure: a history goes in, violations come out.
//!
//! They are exact for the promises of `docs/semantics.md`. A history is accepted if and only if
//! some order of the calls explains every result, with each call at one moment between its begin
//! and its end, where
//! - a call without a result (killed client, timeout) may have been done, or not, or be done later;
//! - a power cut undoes everything that no sync had made durable;
//! - what an administrator has accepted as lost may be any earlier value.

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

/// A violation of a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A description in one line.
    pub what: String,
    /// The calls that prove it, one per line.
    pub evidence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.what, self.evidence)
    }
}

/// The verdict of an oracle.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Violations, at most a few.
    pub violations: Vec<Violation>,
    /// Number of judgements given up because there were too many orders. They count as right.
    pub undecided: u64,
}

/// Periods in which something kept a client from servers.
fn trouble_of(history: &History, client: u8) -> Vec<(Position, Position)> {
    trouble_unless(history, client, &|_| false)
}

/// As [`trouble_of`], without faults of one data server during which others served its data.
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
