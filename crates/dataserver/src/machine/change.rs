//! A change of an object with several copies.

use super::work::Work;
use std::ops::Range;
use weir_layout::RegionList;
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{CopyIndex, Error, ErrorKind, ObjectId, StripeMap, TargetId};
use weir_wire::data::{Access, CopyAccess, Staged, WriteFlags};

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

    /// The copies at which the client has staged the bytes.
    pub(crate) fn staged(&self) -> Option<&Staged> {
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

    /// Whether another copy would take the change if it came with its bytes: the bytes that its
    /// client has staged there are missing or damaged.
    pub(crate) fn wants_bytes(&self, to: usize, error: &Error) -> bool {
        let missing = matches!(error.kind, ErrorKind::NotStaged | ErrorKind::ChecksumMismatch);
        missing && self.is_staged(to)
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
