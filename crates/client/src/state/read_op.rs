//! A read whose replies have not all been received.

use crate::core::around::Asked;
use crate::core::job::JobReader;
use crate::core::plan::Plan;
use crate::core::transfer::Transfer;
use crate::rpc::servers::{DataConn, Slot};
use std::sync::Arc;
use weir_policy::Micros;
use weir_types::TargetId;

/// A read that was sent, or is about to be sent.
pub(crate) struct ReadOp {
    pub(crate) plan: Plan,
    pub(crate) transfer: Transfer,
    /// Time of the call, microseconds on the clock of [`weir_host::clock::uptime`].
    pub(crate) since: Micros,
    /// The reader whose progress counts parts that have arrived, and how many bytes.
    pub(crate) came: Option<(Arc<JobReader>, u64)>,
    pub(crate) conns: Vec<Option<DataConn>>,
    /// Slots of the parts; empty while no part is read from one of several copies.
    pub(crate) slots: Vec<Option<Slot>>,
    /// Length of the caller's buffer, bytes.
    pub(crate) len: usize,
    pub(crate) any_copy: bool,
    /// Whether this is a read-ahead, whose sender does not wait.
    pub(crate) ahead: bool,
    /// Target that is read where any copy may be read, if its copy is usable.
    pub(crate) preferred: Option<TargetId>,
    /// Columns that are computed instead of read.
    pub(crate) arounds: Vec<Around>,
    /// Whether an object was shorter than what was asked of it.
    pub(crate) is_short: bool,
    pub(crate) deadline_ms: u64,
}

/// The columns of a chunk of whole stripes that are computed from parities.
pub(crate) struct Around {
    pub(crate) chunk: usize,
    /// How the file was.
    pub(crate) asked: Asked,
    /// Number of parities of the segment.
    pub(crate) of: usize,
    /// The parts without requests.
    pub(crate) skipped: Vec<usize>,
    /// The parities that are read instead, by their numbers among all members.
    pub(crate) parities: Vec<(usize, ReadOp)>,
}

impl ReadOp {
    /// See [`Transfer::set_rounds`].
    pub(crate) fn set_rounds(&mut self, rounds: u32) {
        self.transfer.set_rounds(rounds);
    }

    /// The targets that have its parts.
    pub(crate) fn targets(&self) -> impl Iterator<Item = TargetId> + '_ {
        self.plan.parts.iter().map(|part| part.place.target)
    }
}

impl Drop for ReadOp {
    fn drop(&mut self) {
        if let Some((reader, bytes)) = &self.came {
            reader.ends(*bytes);
        }
    }
}
