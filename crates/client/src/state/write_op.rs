//! A write that servers have not all confirmed: its bytes, and who has them.

use super::bytes::Bytes;
use crate::core::durable::Taken;
use crate::core::plan::{Place, Plan};
use crate::core::transfer::Transfer;
use crate::rpc::servers::{DataConn, Servers};
use std::ops::Range;
use weir_net::Wait;
use weir_types::{Epoch, Generation, TargetId};
use weir_wire::data::Access;

/// A write that was sent.
pub(crate) struct WriteOp {
    pub(crate) range: Range<u64>,
    pub(crate) data: Bytes,
    pub(crate) plan: Plan,
    pub(crate) transfer: Transfer,
    pub(crate) conns: Vec<Option<DataConn>>,
    /// The server and the copies that have taken each part, when it was confirmed.
    pub(crate) taken: Vec<Option<Taken>>,
    /// The copies for which each part was last sent.
    pub(crate) sent: Vec<Sent>,
    /// Connections over which bytes of each part were staged at copies.
    pub(crate) left: Vec<Vec<DataConn>>,
    /// Number of losses of leases when it was written.
    pub(crate) losses: u64,
    /// Generation under which it was written.
    pub(crate) generation: Generation,
}

/// The copies for which a change was sent, and the epoch of the map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    /// Whom it was asked of.
    target: TargetId,
    epoch: Epoch,
    pub(crate) copies: Vec<TargetId>,
}

impl Sent {
    /// The copies in a request that is about to be sent. `later` says that the other copies get the
    /// change only after it was confirmed.
    pub(crate) fn of(access: &Access, later: bool, servers: &Servers) -> Self {
        let copies = match &access.copies[..] {
            [] => vec![access.target],
            _ if later => vec![access.target],
            copies => {
                // One that is being made may lack anything.
                let whole = copies.iter().filter(|copy| !copy.filling);
                let targets = whole.map(|copy| copy.target);
                targets.filter(|target| *target != TargetId::NONE).collect()
            }
        };
        Self { target: access.target, epoch: servers.epoch(), copies }
    }

    /// It was confirmed on this connection.
    pub(crate) fn taken_by(&mut self, conn: &DataConn) -> Taken {
        let copies = std::mem::take(&mut self.copies);
        Taken { by: conn.run_of(self.target), epoch: self.epoch, copies }
    }
}

impl WriteOp {
    /// The plan of the write.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The confirmed parts so far, each with the server and copies that have taken it.
    pub(crate) fn confirmed(&self) -> impl Iterator<Item = (Place, Taken)> + '_ {
        let parts = self.plan.parts.iter().zip(&self.taken);
        parts.filter_map(|(part, taken)| Some((part.place, taken.clone()?)))
    }

    /// The end of the last confirmed bytes; 0 if none were confirmed.
    pub(crate) fn confirmed_end(&self) -> u64 {
        let taken = self.taken.iter().enumerate().filter(|(_, taken)| taken.is_some());
        taken.filter_map(|(part, _)| self.plan.end_of(part, &self.range)).max().unwrap_or(0)
    }

    /// Whether some of it may still be carried out: a part has failed while others were on their
    /// way.
    pub(crate) fn may_be_done_yet(&self) -> bool {
        self.transfer.outstanding().next().is_some()
    }

    /// Whether no reply is outstanding any more, after at most `wait`. Parts that could not be sent
    /// count as answered.
    pub(crate) fn is_answered(&self, wait: &Wait) -> bool {
        self.conns.iter().flatten().all(|conn| conn.conn.wait_for_reply(wait).is_ok())
    }

    /// Bytes that are kept for a retry.
    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }
}
