//! A change of an object with several copies, as it is applied here and as it is
//! handed on.

use super::lines::{Line, Parcel};
use super::staged::Ticket;
use crate::disk::Data;
use crate::machine::Work;
use std::ops::Range;
use weir_layout::RegionList;
use weir_net::Wait;
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{CopyIndex, ErrorKind, ObjectId, Result, StripeMap, TargetId};
use weir_wire::data::{
    Access, AlignRequest, AllocateRequest, CopyAccess, FenceRequest, ObjectLen, ObjectStat,
    PunchRequest, Relay, Staged, SyncRequest, TruncateRequest, WriteFlags, WriteRequest,
};

/// What was asked for, without the access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Bytes.
    Write {
        /// The stripe.
        stripe: StripeMap,
        /// How.
        flags: WriteFlags,
        /// Which bytes of the segment.
        regions: RegionList,
        /// Which copies have had the bytes from the client.
        staged: Option<Staged>,
    },
    /// Durability.
    Sync,
    /// A shorter object.
    Truncate {
        /// Its length.
        len: u64,
    },
    /// Zeros.
    Punch {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Room.
    Allocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A fence.
    Fence,
    /// The length of another copy.
    Align {
        /// The length.
        len: u64,
    },
}

/// See the top of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What was shown: it names the copy here, and all others.
    pub access: Access,
    /// What was asked for.
    pub asked: Asked,
    /// What that is for the disk here.
    pub work: Work,
}

impl Change {
    /// The bytes of the object that are not the same everywhere while this is under
    /// way; all of them where the length changes too. `None`: it changes nothing.
    pub(crate) fn range(&self) -> Option<Range<u64>> {
        match (&self.asked, &self.work) {
            (Asked::Write { .. }, Work::Write { pieces, .. }) => {
                let start = pieces.iter().map(|piece| piece.0).min()?;
                let end = pieces.iter().map(|piece| piece.0 + piece.1).max()?;
                Some(start..end)
            }
            (Asked::Sync, _) => None,
            (Asked::Punch { offset, len } | Asked::Allocate { offset, len }, _) => {
                Some(*offset..offset.saturating_add(*len))
            }
            _ => Some(0..MAX_FILE_BYTES),
        }
    }

    /// Whether a copy that refused it with this error has all the bytes that it had, and lacks
    /// none: a reservation changes none, and there was no room for it.
    pub(crate) fn leaves_bytes(&self, refusal: ErrorKind) -> bool {
        matches!(self.asked, Asked::Allocate { .. }) && refusal == ErrorKind::NoSpace
    }

    /// What a copy lacks that does not take it. Of a sync that is not any bytes, but that
    /// they are durable: the last one that there can be stands for that, since who brings
    /// it there makes all of the object durable.
    pub(crate) fn lacked(&self) -> Range<u64> {
        self.range().unwrap_or(MAX_FILE_BYTES - 1..MAX_FILE_BYTES)
    }

    /// The pieces of the object that its disk changes, for the intent log.
    pub(crate) fn pieces(&self) -> Vec<(u64, u64)> {
        match (&self.work, self.range()) {
            (Work::Write { pieces, .. }, _) => pieces.clone(),
            // Its header only.
            (Work::Fence { .. }, _) => Vec::new(),
            (_, Some(range)) => vec![(range.start, range.end - range.start)],
            (_, None) => Vec::new(),
        }
    }

    /// Whether it is to be acknowledged before the other copies have it. What is to be
    /// durable is to be so on all of them.
    pub(crate) fn is_later(&self) -> bool {
        matches!(self.asked, Asked::Write { flags: WriteFlags { later: true, sync: false }, .. })
    }

    fn staged(&self) -> Option<&Staged> {
        match &self.asked {
            Asked::Write { staged, .. } => staged.as_ref(),
            _ => None,
        }
    }

    /// Whether any other copy has had the bytes from the client.
    pub(crate) fn is_staged_anywhere(&self) -> bool {
        self.staged().is_some()
    }

    /// Whether another copy has had the bytes from the client.
    pub(crate) fn is_staged(&self, to: usize) -> bool {
        self.staged().is_some_and(|staged| staged.copies & 1 << to != 0)
    }

    /// Under what its bytes were left here, if it has come without them.
    pub(crate) fn left_under(&self, data: &Data) -> Option<Ticket> {
        let staged = self.staged().filter(|_| self.access.relay.is_some() && data.buf.is_none())?;
        Some((self.access.capability.session, staged.ticket, self.access.object))
    }

    /// Takes the answer of another copy.
    pub(crate) fn receive(&self, line: Line<'_>, wait: &Wait) -> Result<()> {
        match self.asked {
            Asked::Sync => line.receive::<()>(wait),
            Asked::Fence => line.receive::<ObjectStat>(wait).map(drop),
            _ => line.receive::<ObjectLen>(wait).map(drop),
        }
    }

    /// The same for another copy, handed on by `relay`.
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

    /// Sends it to another copy.
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

/// The object of the same column that is another copy.
pub(crate) fn copy_of(object: ObjectId, copy: usize) -> ObjectId {
    ObjectId { copy: CopyIndex(copy as u8), ..object }
}

/// The copies of a column that are not these.
pub(crate) fn others<'a>(
    copies: &'a [CopyAccess],
    own: TargetId,
    lacking: &'a [TargetId],
) -> impl Iterator<Item = (usize, TargetId)> + 'a {
    let takes = move |copy: &&CopyAccess| {
        ![own, TargetId::NONE].contains(&copy.target) && !lacking.contains(&copy.target)
    };
    copies.iter().enumerate().filter(move |(_, c)| takes(c)).map(|(at, c)| (at, c.target))
}
