//! Operations of disks, and their results, by the id of their request.

use weir_types::{CopyIndex, Epoch, Generation, ObjectId, TargetId};
use weir_wire::data::{
    Access, Copied, CopyPiece, LackingPage, ObjectPage, ObjectStat, ScrubCursor, ScrubPage,
};

/// Id of a request in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(pub u32);

impl OpId {
    /// Index for tables. Small numbers are used again.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A read of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadWork {
    /// The object. One that does not exist has length 0.
    pub object: ObjectId,
    /// Generation of the request. The read is refused if the object has a higher one.
    pub generation: Generation,
    /// Offset and length of each piece, bytes; at most `MAX_PIECES`.
    pub pieces: Vec<(u64, u64)>,
    /// Sum of the lengths: the size of the buffer.
    pub bytes: u64,
    /// Whether to exclude writers and verify every block.
    pub locked: bool,
    /// Whether to send no checksums.
    pub unchecked: bool,
    /// Whether there are other copies, so that this one may have gaps.
    pub of_copies: bool,
    /// Whether to read in spite of gaps.
    pub as_is: bool,
}

/// The replacement of rotted blocks of another copy from this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairWork {
    /// Access of the request. It names the copy here, and all others.
    pub access: Access,
    /// Index of the rotted copy.
    pub copy: CopyIndex,
    /// First byte, and the first byte after the blocks.
    pub bytes: (u64, u64),
}

/// A copy of pieces of one object to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyWork {
    /// The destination. It is made if there is something to write.
    pub object: ObjectId,
    /// Generation of the request. The copy is refused if the destination has a higher one.
    pub generation: Generation,
    /// The source. It was checked if it is on this server; otherwise its server checks it.
    pub source: Access,
    /// Whether the source is on this server.
    pub local: bool,
    /// At least one piece, checked for range.
    pub pieces: Vec<CopyPiece>,
}

/// An operation for a disk thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read into the operation's buffer.
    Read(ReadWork),
    /// Store the operation's payload.
    Write {
        /// The object. It is made if it does not exist.
        object: ObjectId,
        /// Offset and length of each piece, bytes.
        pieces: Vec<(u64, u64)>,
        /// Generation of the request. It is refused if the object has a higher one.
        generation: Generation,
        /// Whether to make it durable before the reply.
        sync: bool,
    },
    /// Make an object durable, if it exists.
    Sync {
        /// The object.
        object: ObjectId,
    },
    /// Set length and fence.
    Truncate {
        /// The object. It is made if it does not exist, for the fence.
        object: ObjectId,
        /// The most bytes that it has afterwards.
        len: u64,
        /// The fence.
        generation: Generation,
    },
    /// Punch a hole.
    Punch {
        /// The object, if it exists.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Length, bytes.
        len: u64,
        /// Generation of the request. It is refused if the object has a higher one.
        generation: Generation,
    },
    /// Preallocate disk space.
    Allocate {
        /// The object. It is made if it does not exist.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Length, bytes.
        len: u64,
        /// Generation of the request. It is refused if the object has a higher one.
        generation: Generation,
    },
    /// Find data or a hole.
    Seek {
        /// The object.
        object: ObjectId,
        /// First byte to look at.
        offset: u64,
        /// Whether to look for a hole.
        hole: bool,
        /// Generation of the request. It is refused if the object has a higher one.
        generation: Generation,
        /// Whether there are other copies.
        of_copies: bool,
    },
    /// Take over the length and the fence of another copy.
    Align {
        /// The object. It is made if it does not exist, unless it would be empty.
        object: ObjectId,
        /// The new length, bytes.
        len: u64,
        /// The lowest fence afterwards.
        generation: Generation,
    },
    /// Note a gap of a copy.
    NoteGap {
        /// The object here.
        object: ObjectId,
        /// Target of the copy behind.
        behind: TargetId,
        /// Index of the copy behind.
        copy: CopyIndex,
        /// First byte, and the first byte after the gap.
        bytes: (u64, u64),
        /// Whether the copy behind knows the gap.
        told: bool,
        /// Whether to refuse if it lacked any of the bytes before.
        first: bool,
        /// Whether the gap is filled.
        filled: bool,
        /// Epoch of the map under which it was noted.
        epoch: Epoch,
    },
    /// Raise the fence, durably, and return the length.
    Fence {
        /// The object. It is made if it does not exist, for the fence.
        object: ObjectId,
        /// The lowest fence afterwards.
        generation: Generation,
    },
    /// Return length and fence.
    Stat {
        /// The object.
        object: ObjectId,
        /// Whether there are other copies.
        of_copies: bool,
        /// Whether the requester goes by what exists, and not by a layout.
        as_is: bool,
    },
    /// List objects.
    List {
        /// Objects after this one.
        after: Option<ObjectId>,
        /// The most objects.
        max: usize,
    },
    /// Verify objects.
    Scrub {
        /// Where to begin.
        cursor: Option<ScrubCursor>,
        /// Approximate number of bytes.
        budget_bytes: u32,
    },
    /// Remove objects, durably.
    Remove {
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// List bytes that copies here do not serve.
    ListLacking {
        /// First object.
        from: ObjectId,
        /// The most objects.
        max: usize,
    },
    /// Serve the bytes of the copy here, durably, although another copy had newer ones.
    AcceptLoss {
        /// The object.
        object: ObjectId,
        /// First byte, and the first byte after the range.
        bytes: (u64, u64),
    },
}

impl Work {
    /// Whether it changes an object, so that its order matters.
    pub fn changes(&self) -> bool {
        match self {
            Work::Write { .. }
            | Work::Truncate { .. }
            | Work::Punch { .. }
            | Work::Allocate { .. }
            | Work::Fence { .. }
            | Work::Align { .. }
            | Work::NoteGap { .. }
            | Work::AcceptLoss { .. } => true,
            Work::Read(_)
            | Work::Sync { .. }
            | Work::Seek { .. }
            | Work::Stat { .. }
            | Work::List { .. }
            | Work::Scrub { .. }
            | Work::Remove { .. }
            | Work::ListLacking { .. } => false,
        }
    }

    /// The object that the operation expects here because of a layout. (Syncs and notes make no
    /// object.)
    pub fn by_layout(&self) -> Option<ObjectId> {
        match self {
            Work::Read(read) => Some(read.object),
            Work::Write { object, .. }
            | Work::Truncate { object, .. }
            | Work::Punch { object, .. }
            | Work::Allocate { object, .. }
            | Work::Seek { object, .. }
            | Work::Fence { object, .. }
            | Work::Stat { object, as_is: false, .. } => Some(*object),
            Work::Stat { as_is: true, .. }
            | Work::Sync { .. }
            | Work::Align { .. }
            | Work::NoteGap { .. }
            | Work::AcceptLoss { .. }
            | Work::List { .. }
            | Work::Scrub { .. }
            | Work::Remove { .. }
            | Work::ListLacking { .. } => None,
        }
    }

    /// Whether it only reads.
    pub fn only_reads(&self) -> bool {
        !self.changes() && !matches!(self, Work::Sync { .. } | Work::Remove { .. })
    }
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The data is in the buffer.
    Read {
        /// Number of bytes.
        bytes: u64,
        /// Length of the object, bytes.
        object_len: u64,
    },
    /// The data is stored.
    Written {
        /// Length of the object, bytes.
        object_len: u64,
    },
    /// The object is durable.
    Synced,
    /// The gap is noted, durably.
    Noted,
    /// The rotted blocks were replaced.
    Repaired,
    /// Length and fence are set.
    Truncated {
        /// Length of the object, bytes.
        object_len: u64,
    },
    /// Disk space was freed or preallocated.
    Reshaped {
        /// Length of the object, bytes.
        object_len: u64,
    },
    /// Where data or a hole begins.
    Found(Option<u64>),
    /// Pieces of another object were copied into it.
    Copied(Copied),
    /// State of the object.
    Stat(ObjectStat),
    /// The objects.
    Listed(ObjectPage),
    /// Bytes that copies here do not serve.
    Lacking(LackingPage),
    /// Findings of a verification.
    Scrubbed(ScrubPage),
    /// The objects are removed.
    Removed {
        /// Number of named objects.
        count: u64,
    },
}
