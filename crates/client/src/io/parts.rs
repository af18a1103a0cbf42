//! What a call consists of: requests that are sent and answered independently of each other.

use crate::core::choices::Wanted;
use crate::core::copies::Purpose;
use crate::core::plan::Place;
use crate::rpc::servers::{DataConn, Slot};
use crate::state::Call;
use weir_net::Wait;
use weir_types::{Result, TargetId};

/// The parts of a call: how to send each, and how to receive its reply.
pub(crate) trait Parts {
    /// Destination of a part. Its copy is chosen again whenever the part is sent.
    fn place(&mut self, part: usize) -> &mut Place;
    /// Whether the part changes an object, so that carrying it out late could undo a newer change.
    fn changes(&self, part: usize) -> bool;
    /// Purpose of the request to a copy.
    fn purpose(&self, part: usize) -> Purpose {
        if self.changes(part) { Purpose::Change } else { Purpose::Read }
    }
    /// Whether any current copy of a column may be used.
    fn may_read_any_copy(&self) -> bool {
        false
    }
    /// The target that is read first where any current copy may be used, whatever the speeds.
    fn preferred(&self) -> Option<TargetId> {
        None
    }
    /// Whether the call goes on without a part that can be computed from others of its segment.
    fn may_lack(&self) -> bool {
        false
    }
    /// Whether parts wait for space at copies independently of each other.
    fn is_cut(&self) -> bool {
        false
    }
    /// Whether no caller waits for the call yet.
    fn is_ahead(&self) -> bool {
        false
    }
    /// Timeout for connecting to the server of an only copy, after this many failures. `None` for
    /// the timeout of the call.
    fn connect_ms(&self, _failures: u32) -> Option<u64> {
        None
    }
    /// Whether something else is to be done as soon as all was sent. What has failed twice is then
    /// tried again after it.
    fn hurries(&self) -> bool {
        false
    }
    /// Whether replies are received in order of arrival even without other copies.
    fn takes_as_they_come(&self) -> bool {
        false
    }
    /// The bytes that a part reads, if it reads bytes.
    fn wanted(&mut self, _part: usize) -> Option<Wanted> {
        None
    }
    /// Keeps the slot of a part. Its read counts as outstanding at the copy until the slot is
    /// dropped.
    fn keep(&mut self, _part: usize, _slot: Option<Slot>) {}
    /// The kept slot of a part.
    fn kept(&self, _part: usize) -> Option<&Slot> {
        None
    }
    /// Sends the request of a part.
    fn send(&mut self, part: usize, locked: bool, conn: &mut DataConn, wait: &Wait) -> Result<()>;
    /// Receives the reply to a part.
    fn receive(&mut self, part: usize, conn: &mut DataConn, wait: &Wait) -> Result<()>;
    /// The connections of the parts with outstanding replies.
    fn conns(&mut self) -> &mut [Option<DataConn>];
    /// Renews what a server has refused as out of date.
    fn refresh(&mut self, call: Call<'_>) -> Result<()> {
        call.file.refresh(call.inner, call.ctx)
    }
}

/// How far to drive a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until all parts are sent.
    Sent,
    /// Until the call has ended.
    Done,
}
