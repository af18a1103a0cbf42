//! What event loops hand to other threads, and what these report back to the loops.

use crate::attempts::Sender;
use crate::machine::{Asker, Change, CopyWork, OpId, Outcome, RepairWork, Work};
use weir_host::net::Socket;
use weir_net::{ConnId, LoopHandle, PooledBuf, Tunnel};
use weir_types::{Result, TargetId};
use weir_wire::Header;

/// Events from other threads.
pub(crate) enum Event {
    /// An operation has ended.
    Done { op: OpId, result: Result<Outcome>, data: Data },
    /// A queue has space again.
    Resume(ConnId),
    /// Bytes that a change has waited for have arrived.
    Staged(ConnId, Box<ChangeTask>),
    /// The far server of a tunnel was reached, or not.
    Reached { conn: ConnId, header: Header, way: Result<Way> },
}

/// The bulk data of an operation.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// Bytes that were read, or are to be written.
    pub(crate) buf: Option<PooledBuf>,
    /// Their checksums.
    pub(crate) checks: Vec<u32>,
}

/// A task for a disk thread.
pub(crate) enum Job {
    /// An operation on the only copy, or on none in particular.
    Plain(Work),
    /// A change of the last copy in its chain.
    Follow(Box<Change>),
}

/// An operation in the queue.
pub(crate) struct Task {
    pub(crate) op: OpId,
    /// The requester; `None` if it does not wait any more.
    pub(crate) asker: Option<Asker>,
    pub(crate) work: Job,
    pub(crate) data: Data,
    /// The sender, for a change.
    pub(crate) sender: Option<Sender>,
    pub(crate) reply_to: LoopHandle<Event>,
}

impl Task {
    /// Whether it concerns one of several copies.
    pub(crate) fn is_of_copies(&self) -> bool {
        match &self.work {
            Job::Follow(_) => true,
            Job::Plain(Work::Read(read)) => read.of_copies,
            Job::Plain(Work::Seek { of_copies, .. } | Work::Stat { of_copies, .. }) => *of_copies,
            Job::Plain(Work::NoteGap { .. }) => true,
            Job::Plain(_) => false,
        }
    }
}

/// A task for a thread that waits for other servers.
pub(crate) enum MirrorJob {
    /// Order a change, or pass it on.
    Change(Box<Change>),
    /// Replace rotted blocks of another copy.
    Repair(Box<RepairWork>),
}

/// A change of several copies in the queue.
pub(crate) struct ChangeTask {
    pub(crate) op: OpId,
    pub(crate) target: TargetId,
    pub(crate) job: MirrorJob,
    pub(crate) data: Data,
    /// The client connection that has sent it.
    pub(crate) sender: Option<Sender>,
    pub(crate) reply_to: LoopHandle<Event>,
}

/// A copy in the queue.
pub(crate) struct CopyTask {
    pub(crate) op: OpId,
    /// Target that is written to.
    pub(crate) target: TargetId,
    pub(crate) work: Box<CopyWork>,
    pub(crate) sender: Option<Sender>,
    pub(crate) reply_to: LoopHandle<Event>,
}

/// A client that asks for a tunnel.
pub(crate) struct ForwardTask {
    pub(crate) conn: ConnId,
    /// Header of the reply.
    pub(crate) header: Header,
    pub(crate) to: TargetId,
    pub(crate) reply_to: LoopHandle<Event>,
}

/// A connection to the far server, and the place for its tunnel.
pub(crate) type Way = (Tunnel, Socket);
