//! A change of an object with several copies, as it is applied here and as it is passed on.

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

/// The requested change, without the access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Write bytes.
    Write {
        /// Striping of the segment.
        stripe: StripeMap,
        /// Flags.
        flags: WriteFlags,
        /// Regions of the segment.
        regions: RegionList,
        /// Copies at which the client has staged the bytes.
        staged: Option<Staged>,
    },
    /// Make the object durable.
    Sync,
    /// Truncate the object.
    Truncate {
        /// New length, bytes.
        len: u64,
    },
    /// Punch a hole.
    Punch {
        /// First byte.
        offset: u64,
        /// Length, bytes.
        len: u64,
    },
    /// Preallocate disk space.
    Allocate {
        /// First byte.
        offset: u64,
        /// Length, bytes.
        len: u64,
    },
    /// Raise the fence.
    Fence,
    /// Take over the length of another copy.
    Align {
        /// The length, bytes.
        len: u64,
    },
}

/// A change; see the top of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The access of the request. It names the copy here, and all others.
    pub access: Access,
    /// The requested change.
    pub asked: Asked,
    /// The operation for the disk here.
    pub work: Work,
}

impl Change {
    /// The bytes of the object that may differ between copies while the change is under way; all
    /// bytes if the length changes too. `None` if it changes nothing.
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

    /// Whether a copy that has refused the change with this error still has all its bytes. That is
    /// so for a preallocation that found no space, because it changes no bytes.
    pub(crate) fn leaves_bytes(&self, refusal: ErrorKind) -> bool {
        matches!(self.asked, Asked::Allocate { .. }) && refusal == ErrorKind::NoSpace
    }

    /// The bytes that a copy lacks if it does not take the change. A sync changes no bytes but
    /// makes them durable. The last possible byte stands for that: bringing it to a copy makes all
    /// of the object durable there.
    pub(crate) fn lacked(&self) -> Range<u64> {
        self.range().unwrap_or(MAX_FILE_BYTES - 1..MAX_FILE_BYTES)
    }

    /// The pieces of the object that the disk changes, for the intent log.
    pub(crate) fn pieces(&self) -> Vec<(u64, u64)> {
        match (&self.work, self.range()) {
            (Work::Write { pieces, .. }, _) => pieces.clone(),
            // Its header only.
            (Work::Fence { .. }, _) => Vec::new(),
            (_, Some(range)) => vec![(range.start, range.end - range.start)],
            (_, None) => Vec::new(),
        }
    }

    /// Whether the change may be acknowledged before the other copies have it. A durable change has
    /// to be durable on all of them.
    pub(crate) fn is_later(&self) -> bool {
        matches!(self.asked, Asked::Write { flags: WriteFlags { later: true, sync: false }, .. })
    }

    fn staged(&self) -> Option<&Staged> {
        match &self.asked {
            Asked::Write { staged, .. } => staged.as_ref(),
            _ => None,
        }
    }

    /// Whether the client has staged the bytes at any other copy.
    pub(crate) fn is_staged_anywhere(&self) -> bool {
        self.staged().is_some()
    }

    /// Whether the client has staged the bytes at another copy.
    pub(crate) fn is_staged(&self, to: usize) -> bool {
        self.staged().is_some_and(|staged| staged.copies & 1 << to != 0)
    }

    /// The ticket of its staged bytes, if it has come without them.
    pub(crate) fn left_under(&self, data: &Data) -> Option<Ticket> {
        let staged = self.staged().filter(|_| self.access.relay.is_some() && data.buf.is_none())?;
        Some((self.access.capability.session, staged.ticket, self.access.object))
    }

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

/// The object of another copy of the same column.
pub(crate) fn copy_of(object: ObjectId, copy: usize) -> ObjectId {
    ObjectId { copy: CopyIndex(copy as u8), ..object }
}

/// The copies of a column without these.
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
