//! What disks are asked to do, and what comes of it.

use weir_types::{Generation, ObjectId};
use weir_wire::data::ObjectStat;

/// A read of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadWork {
    /// The object; one that does not exist has length 0.
    pub object: ObjectId,
    /// Offset and length of each piece of it, bytes; at most `MAX_PIECES`.
    pub pieces: Vec<(u64, u64)>,
    /// Bytes of all pieces: what the buffer must have room for.
    pub bytes: u64,
    /// Exclude writers and verify every block.
    pub locked: bool,
    /// Send no checksums.
    pub unchecked: bool,
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
    /// Ask for length and fence.
    Stat {
        /// The object.
        object: ObjectId,
    },
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
    /// Length and fence are set.
    Truncated {
        /// Length of the object.
        object_len: u64,
    },
    /// What is known of the object.
    Stat(ObjectStat),
}
