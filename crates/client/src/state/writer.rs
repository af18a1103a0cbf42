//! The write-behind of a file: what was gathered, what is on its way, and what is still to be told.
//!
//! Invariant: two requests that overlap are never in flight at the same time, so the later write
//! persists.

mod failures;

pub(crate) use self::failures::Failures;

use super::bytes::Bytes;
use super::write_op::WriteOp;
use crate::core::durable::Unsynced;
use crate::core::filled::Filled;
use crate::core::graduated::Graduated;
use crate::core::tail::Tail;
use crate::core::written::Written;
use std::collections::VecDeque;
use std::time::Instant;
use weir_host::clock;
use weir_layout::begins_block;
use weir_policy::Micros;
use weir_types::{FileLayout, TargetId};
use weir_wire::meta::WrittenColumns;

/// Bytes that were gathered and not sent yet.
pub(crate) struct Gathered {
    pub(crate) start: u64,
    pub(crate) bytes: Bytes,
    /// Number of the call with the oldest bytes.
    pub(crate) call: u64,
}

/// A request on its way.
pub(crate) struct InFlight {
    /// Number of the call with its oldest bytes.
    pub(crate) by: u64,
    /// Time at which it was sent.
    pub(crate) at: Micros,
    /// With graduated writing: see `Writer::outstanding`.
    pub(crate) outstanding: Vec<(TargetId, u64, u64)>,
    /// The ranges that it fills, if that is not all of its range: first byte, and the first byte
    /// after it.
    pub(crate) fills: Vec<(u64, u64)>,
    pub(crate) op: WriteOp,
}

/// The write-behind of one file.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) gathered: Option<Gathered>,
    pub(crate) in_flight: VecDeque<InFlight>,
    pub(crate) in_flight_bytes: usize,
    /// Speeds of targets, for graduated writing.
    pub(crate) graduated: Graduated,
    /// Time of the last look for replies.
    pub(crate) looked: Micros,
    /// Number of calls so far, including those that send data of earlier ones.
    pub(crate) calls: u64,
    /// Number of the first call that has not returned.
    pub(crate) under_way: u64,
    pub(crate) failures: Failures,
    /// The end of the file as this writer has written it.
    pub(crate) tail: Tail,
    /// Columns of which servers have confirmed bytes.
    pub(crate) written: Written,
    /// Ranges of which servers have confirmed all bytes.
    pub(crate) filled: Filled,
    /// Columns written since the last sync.
    pub(crate) unsynced: Unsynced,
    /// Whether `unsynced` has all columns, because data from before this client opened the file is
    /// known to be durable.
    pub(crate) complete: bool,
    /// Since when there is uncommitted data, and the number of the call with its oldest bytes.
    pub(crate) since: Option<(Instant, u64)>,
    /// Since when there are times to report of writes that were confirmed before they returned and
    /// did not extend the file.
    pub(crate) late: Option<Instant>,
    /// Number of losses of leases when the last write began. Data from before another loss is not
    /// sent any more.
    pub(crate) losses: u64,
    /// The run of the metadata server to which the written columns were reported: see
    /// [`OpenState::server_runs`](crate::state::OpenState::server_runs).
    pub(crate) told: u64,
}

impl Gathered {
    /// First byte, and number of bytes.
    pub(crate) fn held(&self) -> (u64, usize) {
        (self.start, self.bytes.len())
    }

    /// Whether bytes at this offset may be appended by copying.
    pub(crate) fn takes_at(&self, layout: &FileLayout, offset: u64) -> bool {
        !self.bytes.ends_with_given() || begins_block(layout, offset)
    }
}

impl Writer {
    /// Begins one or several calls that return together.
    pub(crate) fn begin_turn(&mut self) {
        self.under_way = self.calls + 1;
        self.failures.begin_turn();
    }

    /// Records that there is uncommitted data.
    pub(crate) fn is_to_be_committed(&mut self) {
        let by = self.calls;
        self.since.get_or_insert_with(|| (clock::now(), by));
    }

    /// Since when there is uncommitted data.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since.map(|(since, _)| since).into_iter().chain(self.late).min()
    }

    /// Records that no write call is under way, since this one has the lock: data lost now is of
    /// calls that have returned.
    pub(crate) fn between_calls(&mut self) {
        self.calls += 1;
        self.under_way = self.calls;
    }

    /// Whether the metadata server has to be told what data servers have confirmed.
    pub(crate) fn has_news(&self) -> bool {
        self.written.has_news() || self.filled.has_news()
    }

    /// Bytes that are gathered or on their way.
    pub(crate) fn held_bytes(&self) -> u64 {
        let gathered = self.gathered.as_ref().map_or(0, |gathered| gathered.held().1);
        (gathered + self.in_flight_bytes) as u64
    }

    /// Whether a large write can be sent at once, because nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.gathered.is_none() && self.in_flight.is_empty()
    }

    /// The columns that the metadata server is to be told of with the close of the file.
    pub(crate) fn leave_columns(&mut self) -> Vec<WrittenColumns> {
        let left = self.written.report();
        self.written.reported(&left);
        left
    }

    /// Forgets everything about the contents, because the file was just made or emptied by this
    /// client.
    pub(crate) fn forget_objects(&mut self) {
        self.gathered = None;
        self.tail = Tail::default();
        self.unsynced.clear();
        self.written.forget();
        self.filled.forget();
        self.complete = true;
    }
}
