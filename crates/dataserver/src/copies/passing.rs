//! A change as it is passed on to another copy.

use crate::machine::change::{Asked, Change, copy_of};
use crate::peers::lines::{Line, Parcel};
use weir_net::Wait;
use weir_types::Result;
use weir_wire::data::{
    Access, AlignRequest, AllocateRequest, FenceRequest, ObjectLen, ObjectStat, PunchRequest,
    Relay, SyncRequest, TruncateRequest, WriteFlags, WriteRequest,
};

impl Change {
    /// Receives the reply of another copy.
    pub(crate) fn receive(&self, line: Line<'_>, wait: &Wait) -> Result<()> {
        match self.asked {
            Asked::Sync => line.receive::<()>(wait),
            Asked::Fence => line.receive::<ObjectStat>(wait).map(drop),
            _ => line.receive::<ObjectLen>(wait).map(drop),
        }
    }

    /// The access for another copy, passed on by `relay`.
    fn access_for(&self, to: usize, relay: &Relay) -> Access {
        let copy = &self.access.copies[to];
        Access {
            target: copy.target,
            object: copy_of(self.access.object, to),
            mac: copy.mac,
            relay: Some(relay.clone()),
            ..self.access.clone()
        }
    }

    /// Sends the change to another copy.
    pub(crate) fn send(&self, to: usize, relay: &Relay, parcel: &mut Parcel<'_>) -> Result<()> {
        let access = self.access_for(to, relay);
        match &self.asked {
            Asked::Write { stripe, flags, regions, staged } => {
                let flags = WriteFlags { later: false, ..*flags };
                let (stripe, regions, staged) = (*stripe, regions.clone(), staged.clone());
                parcel.send(&WriteRequest { access, stripe, flags, regions, staged })
            }
            Asked::Sync => parcel.send(&SyncRequest { access }),
            Asked::Truncate { len } => parcel.send(&TruncateRequest { access, len: *len }),
            Asked::Punch { offset, len } => {
                parcel.send(&PunchRequest { access, offset: *offset, len: *len })
            }
            Asked::Allocate { offset, len } => {
                parcel.send(&AllocateRequest { access, offset: *offset, len: *len })
            }
            Asked::Fence => parcel.send(&FenceRequest { access }),
            Asked::Align { len } => parcel.send(&AlignRequest { access, len: *len }),
        }
    }
}
