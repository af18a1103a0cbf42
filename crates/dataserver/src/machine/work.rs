//! What disks are asked to do, and what comes of it.

use weir_types::{CopyIndex, Epoch, Generation, ObjectId, TargetId};
use weir_wire::data::{
    Access, Copied, CopyPiece, LackingPage, ObjectPage, ObjectStat, ScrubCursor, ScrubPage,
};

/// A read of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadWork {
    /// The object; one that does not exist has length 0.
    pub object: ObjectId,
    /// Refused if the object has a higher one.
    pub generation: Generation,
    /// Offset and length of each piece of it, bytes; at most `MAX_PIECES`.
    pub pieces: Vec<(u64, u64)>,
    /// Bytes of all pieces: what the buffer must have room for.
    pub bytes: u64,
    /// Exclude writers and verify every block.
    pub locked: bool,
    /// Send no checksums.
    pub unchecked: bool,
    /// There are other copies: this one may lack something.
    pub of_copies: bool,
    /// That is known.
    pub as_is: bool,
}

/// What has rotted in another copy and is to be replaced from this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairWork {
    /// What was shown: it names the copy here, and all others.
    pub access: Access,
    /// The one that has rotted.
    pub copy: CopyIndex,
    /// First byte, and the first one after.
    pub bytes: (u64, u64),
}

/// A copy of pieces of one object to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyWork {
    /// What is written to; it is made if there is something to write.
    pub object: ObjectId,
    /// Refused if that has a higher one.
    pub generation: Generation,
    /// What is read from. Checked if it is here, and else to be checked there.
    pub source: Access,
    /// Whether this server has it.
    pub local: bool,
    /// At least one, checked for range.
    pub pieces: Vec<CopyPiece>,
}

/// An operation for a disk thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read into the buffer that is filed under the operation.
    Read(ReadWork),
    /// Store the payload that is filed under the operation.
    Write {
        /// The object; it is made if it is not there.
        object: ObjectId,
        /// Offset and length of each piece of it, bytes.
        pieces: Vec<(u64, u64)>,
        /// Refused if the object has a higher one.
        generation: Generation,
        /// Durable before the reply.
        sync: bool,
    },
    /// Make an object durable, if it is there.
    Sync {
        /// The object.
        object: ObjectId,
    },
    /// Set length and fence.
    Truncate {
        /// The object; it is made if it is not there, for the fence.
        object: ObjectId,
        /// Its length afterwards, at the most.
        len: u64,
        /// The fence.
        generation: Generation,
    },
    /// Make a range zeros and give its room back.
    Punch {
        /// The object, if it is there.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Refused if the object has a higher one.
        generation: Generation,
    },
    /// Reserve room.
    Allocate {
        /// The object; it is made if it is not there.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Refused if the object has a higher one.
        generation: Generation,
    },
    /// Find data or a hole.
    Seek {
        /// The object.
        object: ObjectId,
        /// From here on.
        offset: u64,
        /// A hole.
        hole: bool,
        /// Refused if the object has a higher one.
        generation: Generation,
        /// There are other copies.
        of_copies: bool,
    },
    /// Give it the length and the fence of another copy.
    Align {
        /// The object; it is made if it is not there, unless it would be empty.
        object: ObjectId,
        /// Its length afterwards.
        len: u64,
        /// Its fence, at the least.
        generation: Generation,
    },
    /// Note that a copy lacks something.
    NoteGap {
        /// The object here.
        object: ObjectId,
        /// Whose copy.
        behind: TargetId,
        /// Which.
        copy: CopyIndex,
        /// First byte, and the first one after.
        bytes: (u64, u64),
        /// The copy that lacks it knows.
        told: bool,
        /// Only if it lacked nothing of it before.
        first: bool,
        /// It lacks it no more.
        filled: bool,
        /// Of the map that it was noted under.
        epoch: Epoch,
    },
    /// Raise the fence, durably, and ask for the length.
    Fence {
        /// The object; it is made if it is not there, for the fence.
        object: ObjectId,
        /// The fence, at the least.
        generation: Generation,
    },
    /// Ask for length and fence.
    Stat {
        /// The object.
        object: ObjectId,
        /// There are other copies.
        of_copies: bool,
        /// By who goes by what is there, and not by a layout.
        as_is: bool,
    },
    /// List objects.
    List {
        /// Those after this one.
        after: Option<ObjectId>,
        /// So many at the most.
        max: usize,
    },
    /// Verify objects.
    Scrub {
        /// From here on.
        cursor: Option<ScrubCursor>,
        /// About so many bytes.
        budget_bytes: u32,
    },
    /// Remove objects, durably.
    Remove {
        /// Which.
        objects: Vec<ObjectId>,
    },
    /// List what copies here do not serve.
    ListLacking {
        /// From this object on.
        from: ObjectId,
        /// So many objects at the most.
        max: usize,
    },
    /// Serve what the copy here has, durably, though another had something else.
    AcceptLoss {
        /// The object.
        object: ObjectId,
        /// First byte, and the first one after.
        bytes: (u64, u64),
    },
}

impl Work {
    /// Whether it changes an object: then the order matters in which it is done.
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

    /// The object that it is about because a layout says that it is here. (What is made durable, or
    /// noted, makes no object.)
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

    /// Whether it does nothing but read.
    pub fn only_reads(&self) -> bool {
        !self.changes() && !matches!(self, Work::Sync { .. } | Work::Remove { .. })
    }
}

/// What an operation led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The data is in the buffer.
    Read {
        /// Bytes of it.
        bytes: u64,
        /// Length of the object.
        object_len: u64,
    },
    /// The data is stored.
    Written {
        /// Length of the object.
        object_len: u64,
    },
    /// The object is durable.
    Synced,
    /// The gap is noted, durably.
    Noted,
    /// What had rotted was replaced.
    Repaired,
    /// Length and fence are set.
    Truncated {
        /// Length of the object.
        object_len: u64,
    },
    /// Room was given back or reserved.
    Reshaped {
        /// Length of the object.
        object_len: u64,
    },
    /// Where data or a hole begins.
    Found(Option<u64>),
    /// Pieces of another object are in it.
    Copied(Copied),
    /// What is known of the object.
    Stat(ObjectStat),
    /// The objects.
    Listed(ObjectPage),
    /// What copies here do not serve.
    Lacking(LackingPage),
    /// What is wrong.
    Scrubbed(ScrubPage),
    /// The objects are gone.
    Removed {
        /// How many were named.
        count: u64,
    },
}
