//! Actions that the shell carries out for the machine.

use super::change::Change;
use super::work::{CopyWork, OpId, ReadWork, RepairWork, Work};
use weir_types::codec::Encode;
use weir_types::{Error, ObjectId, SessionId, TargetId};
use weir_wire::Header;
use weir_wire::audit::AuditPage;
use weir_wire::data::{
    Copied, LackingPage, ObjectLen, ObjectPage, ObjectStat, ReadersPage, ScrubPage,
};

/// An action of the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<C> {
    /// Try at once to read from the page cache, into a buffer for `work.bytes`; then call
    /// [`super::Machine::on_done`] or [`super::Machine::on_miss`].
    Probe {
        /// The operation.
        op: OpId,
        /// Connection that pauses if there is no buffer.
        conn: C,
        /// Target to read from.
        target: TargetId,
        /// The read.
        work: ReadWork,
    },
    /// Put the operation into the target's queue; when done, call [`super::Machine::on_done`].
    Disk {
        /// The operation.
        op: OpId,
        /// Connection that pauses if the queue is full.
        conn: C,
        /// Target of the queue.
        target: TargetId,
        /// The work.
        work: Work,
    },
    /// Change an object with several copies; when done, call [`super::Machine::on_done`].
    Change {
        /// The operation.
        op: OpId,
        /// Connection that pauses if too many changes wait.
        conn: C,
        /// Target of the copy here.
        target: TargetId,
        /// The change.
        change: Box<Change>,
    },
    /// Stage the data of the request for a write that will name it, and reply.
    Stage {
        /// Connection of the request.
        conn: C,
        /// Header of the reply.
        header: Header,
        /// Key that the write will name.
        ticket: (SessionId, u64, ObjectId),
        /// Pieces of the object that the data is for.
        pieces: Vec<(u64, u64)>,
    },
    /// Connect to the server of another copy, reply, and turn the connection into a tunnel.
    Forward {
        /// Connection of the request.
        conn: C,
        /// Header of the reply.
        header: Header,
        /// Target of the other copy.
        to: TargetId,
    },
    /// Replace rotted blocks of another copy; when done, call [`super::Machine::on_done`].
    Repair {
        /// The operation.
        op: OpId,
        /// Connection that pauses if too many changes wait.
        conn: C,
        /// Target of the copy here.
        target: TargetId,
        /// The repair.
        work: Box<RepairWork>,
    },
    /// Copy; when done, call [`super::Machine::on_done`].
    Copy {
        /// The operation.
        op: OpId,
        /// Connection that pauses if too many copies wait.
        conn: C,
        /// Target that is written to.
        target: TargetId,
        /// The copy.
        work: Box<CopyWork>,
    },
    /// Reply. The lengths in the header are not filled in.
    Reply {
        /// Connection of the request.
        conn: C,
        /// Header of the reply.
        header: Header,
        /// Body of the reply.
        body: Body,
        /// Operation whose stored payload and checksums are sent.
        data_of: Option<OpId>,
    },
    /// Reply with counters and state.
    Status {
        /// Connection of the request.
        conn: C,
        /// Header of the reply.
        header: Header,
    },
}

impl<C> Action<C> {
    /// The operation that the action belongs to; `None` if the action ends a request or has no
    /// operation.
    pub fn op(&self) -> Option<OpId> {
        match self {
            Action::Probe { op, .. }
            | Action::Disk { op, .. }
            | Action::Change { op, .. }
            | Action::Repair { op, .. }
            | Action::Copy { op, .. } => Some(*op),
            Action::Stage { .. }
            | Action::Forward { .. }
            | Action::Reply { .. }
            | Action::Status { .. } => None,
        }
    }
}

/// The body of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// No contents.
    Empty,
    /// Reply to reads, writes and truncations.
    Len(ObjectLen),
    /// Reply to [`weir_wire::data::StatObjectRequest`] and [`weir_wire::data::FenceRequest`].
    Stat(ObjectStat),
    /// Reply to [`weir_wire::data::SeekRequest`].
    Found(Option<u64>),
    /// Reply to copies.
    Copied(Copied),
    /// Reply to [`weir_wire::data::ListObjectsRequest`].
    Objects(ObjectPage),
    /// Reply to [`weir_wire::data::ListLackingRequest`].
    Lacking(LackingPage),
    /// Reply to [`weir_wire::data::ScrubRequest`].
    Scrub(ScrubPage),
    /// Reply to [`weir_wire::data::ListReadersRequest`].
    Readers(ReadersPage),
    /// Reply to [`weir_wire::audit::ListAuditRequest`].
    Audit(AuditPage),
    /// Failure.
    Error(Error),
}

impl Encode for Body {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Body::Empty => {}
            Body::Len(len) => len.encode(out),
            Body::Stat(stat) => stat.encode(out),
            Body::Found(found) => found.encode(out),
            Body::Copied(copied) => copied.encode(out),
            Body::Objects(page) => page.encode(out),
            Body::Lacking(page) => page.encode(out),
            Body::Scrub(page) => page.encode(out),
            Body::Readers(page) => page.encode(out),
            Body::Audit(page) => page.encode(out),
            Body::Error(error) => error.encode(out),
        }
    }
}
