//! What the shell has to do for the machine.

use super::OpId;
use super::work::{CopyWork, ReadWork, RepairWork, Work};
use crate::copies::Change;
use weir_types::codec::Encode;
use weir_types::{Error, ObjectId, SessionId, TargetId};
use weir_wire::Header;
use weir_wire::data::{
    Copied, LackingPage, ObjectLen, ObjectPage, ObjectStat, ReadersPage, ScrubPage,
};

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<C> {
    /// Try to read from the page cache, at once, into a buffer for
    /// `work.bytes`; then call [`super::Machine::on_done`] or [`super::Machine::on_miss`].
    Probe {
        /// For.
        op: OpId,
        /// Who pauses if there is no buffer.
        conn: C,
        /// From.
        target: TargetId,
        /// What.
        work: ReadWork,
    },
    /// Put into the target's queue; when done, call [`super::Machine::on_done`].
    Disk {
        /// For.
        op: OpId,
        /// Who pauses if the queue is full.
        conn: C,
        /// Whose queue.
        target: TargetId,
        /// What.
        work: Work,
    },
    /// Change an object of which there are several copies; when done, call
    /// [`super::Machine::on_done`].
    Change {
        /// For.
        op: OpId,
        /// Who pauses if too many changes wait.
        conn: C,
        /// The copy here.
        target: TargetId,
        /// What.
        change: Box<Change>,
    },
    /// Keep the data that came with it for a write that will name it, and answer.
    Stage {
        /// On this connection.
        conn: C,
        /// With this header.
        header: Header,
        /// What the write will name.
        ticket: (SessionId, u64, ObjectId),
        /// The parts of the object that it is for.
        pieces: Vec<(u64, u64)>,
    },
    /// Connect to the server of another copy, answer, and let the connection go on there.
    Forward {
        /// Which.
        conn: C,
        /// With this header.
        header: Header,
        /// The target of the other copy.
        to: TargetId,
    },
    /// Replace what has rotted in another copy; when done, call
    /// [`super::Machine::on_done`].
    Repair {
        /// For.
        op: OpId,
        /// Who pauses if too many changes wait.
        conn: C,
        /// The copy here.
        target: TargetId,
        /// What.
        work: Box<RepairWork>,
    },
    /// Copy; when done, call [`super::Machine::on_done`].
    Copy {
        /// For.
        op: OpId,
        /// Who pauses if too many copies wait.
        conn: C,
        /// What is written to.
        target: TargetId,
        /// What.
        work: Box<CopyWork>,
    },
    /// Answer. The lengths in the header are not filled in.
    Reply {
        /// On this connection.
        conn: C,
        /// With this header.
        header: Header,
        /// And this body.
        body: Body,
        /// And the payload and checksums filed under this number.
        data_of: Option<OpId>,
    },
    /// Answer with counters and state.
    Status {
        /// On this connection.
        conn: C,
        /// With this header.
        header: Header,
    },
}

impl<C> Action<C> {
    /// The operation that it belongs to; `None`: it ends what was asked, or has none.
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
    /// Nothing to say.
    Empty,
    /// Of reads, writes and truncations.
    Len(ObjectLen),
    /// Of [`weir_wire::data::StatObjectRequest`] and [`weir_wire::data::FenceRequest`].
    Stat(ObjectStat),
    /// Of [`weir_wire::data::SeekRequest`].
    Found(Option<u64>),
    /// Of copies.
    Copied(Copied),
    /// Of [`weir_wire::data::ListObjectsRequest`].
    Objects(ObjectPage),
    /// Of [`weir_wire::data::ListLackingRequest`].
    Lacking(LackingPage),
    /// Of [`weir_wire::data::ScrubRequest`].
    Scrub(ScrubPage),
    /// Of [`weir_wire::data::ListReadersRequest`].
    Readers(ReadersPage),
    /// Of failures.
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
            Body::Error(error) => error.encode(out),
        }
    }
}
