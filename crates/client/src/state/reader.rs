//! The read-ahead of a file: ranges that were requested, or are held, before a reader wants them.

use super::buffer::Buffer;
use super::read_op::ReadOp;
use crate::config::Consistency;
use crate::core::stream::Streams;
use std::ops::Range;
use std::time::{Duration, Instant};
use weir_host::clock;

/// Expiry of data that was fetched for a reader which does not come. Without a lease all fetched
/// data expires after this time, so that no stale data is read.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Expiry while the file is in use: fetched data pins connections and server replies.
const MAX_AGE_IN_USE: Duration = Duration::from_secs(10);

/// The bytes of a range.
pub(crate) enum Data {
    /// Requested; the replies are not received yet.
    Asked(Box<ReadOp>),
    /// Received.
    Held(Buffer),
}

/// A range that was fetched ahead.
pub(crate) struct Piece {
    pub(crate) range: Range<u64>,
    pub(crate) data: Data,
    pub(crate) since: Instant,
    /// Whether it was fetched under a lease.
    pub(crate) leased: bool,
}

/// The read-ahead of one file.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) streams: Streams,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) ahead: Vec<Range<u64>>,
    /// Number of calls under way. While there are any, other requested ranges are waited for,
    /// however slow the disk is.
    pub(crate) reading: u32,
    /// End of the last call.
    pub(crate) used: Option<Instant>,
    /// Incremented when everything fetched ahead becomes invalid.
    pub(crate) version: u64,
    /// Number of losses of leases when the data was fetched.
    pub(crate) losses: u64,
}

impl Reader {
    /// Drops everything fetched ahead (the file has changed).
    pub(crate) fn clear(&mut self) {
        if !self.pieces.is_empty() {
            self.pieces.clear();
        }
        self.streams.clear();
        self.version += 1;
    }

    /// Drops expired ranges.
    pub(crate) fn expire(&mut self) {
        let in_use =
            self.reading > 0 || self.used.is_some_and(|used| clock::elapsed(used) < MAX_AGE);
        let max_age = if in_use { MAX_AGE_IN_USE } else { MAX_AGE };
        self.pieces.retain(|p| clock::elapsed(p.since) < max_age);
    }

    /// A call has ended.
    pub(crate) fn ended(&mut self) {
        self.reading -= 1;
        self.used = Some(clock::now());
    }

    /// Takes out the range with a byte. `None`: there is none, or it is too old to be used.
    pub(crate) fn take(&mut self, offset: u64, consistency: Consistency) -> Option<Piece> {
        // Nobody changes what is under a lease.
        let leased = consistency == Consistency::Strict;
        let fresh = |p: &Piece| leased && p.leased || clock::elapsed(p.since) < MAX_AGE;
        let at = self.pieces.iter().position(|p| p.range.contains(&offset))?;
        let piece = self.pieces.remove(at);
        fresh(&piece).then_some(piece)
    }

    /// Bytes from an offset to the next range.
    pub(crate) fn gap(&self, offset: u64) -> u64 {
        let next = self.pieces.iter().map(|p| p.range.start).filter(|s| *s > offset).min();
        next.map_or(u64::MAX, |next| next - offset)
    }

    /// Gives up what was fetched of a range.
    pub(crate) fn done_with(&mut self, range: &Range<u64>) {
        self.pieces.retain(|p| p.range.start < range.start || p.range.end > range.end);
    }
}
