//! Messages to data servers.

use crate::capability::Capability;
use crate::key::Mac;
use crate::message::{records, requests};
use weir_layout::RegionList;
use weir_types::codec::{Decode, DecodeError, Encode, Reader};
use weir_types::{FsUsage, Generation, ObjectId, StripeMap, TargetId};

/// How a read is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFlags {
    /// Under the object's lock, every block verified: asked for after a
    /// checksum did not match, when a writer may have been at work.
    pub locked: bool,
    /// Send no checksums.
    pub unchecked: bool,
}
/// How a write is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Durable before the reply (O_DSYNC).
    pub sync: bool,
}

macro_rules! flags_codec {
    ($name:ident { $($field:ident = $bit:literal),* }) => {
        impl Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                let mut bits = 0u8;
                $(if self.$field { bits |= $bit; })*
                out.push(bits);
            }
        }
        impl Decode for $name {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let bits = u8::decode(r)?;
                let known = 0 $(| $bit)*;
                if bits & !known != 0 {
                    return Err(DecodeError::BadValue);
                }
                Ok(Self { $($field: bits & $bit != 0),* })
            }
        }
    };
}
flags_codec!(ReadFlags { locked = 1, unchecked = 2 });
flags_codec!(WriteFlags { sync = 1 });

records! {
    /// Names an object and shows the right to use it.
    Access {
        /// The target that stores it.
        target: TargetId,
        /// The object.
        object: ObjectId,
        /// The file's generation as the client knows it: older ones may not write.
        generation: Generation,
        /// What the client may do.
        capability: Capability,
        /// The capability's code for this target.
        mac: Mac,
    }
    /// Length of an object.
    ObjectLen {
        /// Bytes; what lies beyond reads as zeros.
        len: u64,
    }
    /// What is known of an object.
    ObjectStat {
        /// Whether it exists.
        exists: bool,
        /// Bytes.
        len: u64,
        /// Its truncate fence.
        generation: Generation,
    }
    /// State of one target.
    TargetStatus {
        /// The target.
        target: TargetId,
        /// Its directory.
        dir: String,
        /// Its space.
        usage: FsUsage,
        /// Requests accepted and not answered.
        in_flight: u32,
        /// Requests waiting for the disk.
        queue_depth: u32,
        /// What is wrong; empty: nothing.
        trouble: String,
    }
    /// Counters and state of a server.
    ServerStatus {
        /// Program version.
        version: String,
        /// Milliseconds since it started.
        uptime_ms: u64,
        /// Open connections.
        connections: u32,
        /// Name and value of each counter, sorted by name.
        counters: Vec<(String, u64)>,
        /// Targets of a data server.
        targets: Vec<TargetStatus>,
    }
}

requests! {
    /// Reads the part of some regions that lies on one column. The regions are
    /// relative to the segment and the same for every server; each works out
    /// its own share. The reply carries the pieces in order, clipped to the
    /// object's length, and one checksum for each block cut.
    ReadRequest(Read) -> ObjectLen {
        /// What to read from.
        access: Access,
        /// With the object's column: which bytes are there.
        stripe: StripeMap,
        /// How to read.
        flags: ReadFlags,
        /// Which bytes of the segment.
        regions: RegionList,
    }
    /// Writes the part of some regions that lies on one column; the payload
    /// carries the pieces in order, with one checksum for each block cut.
    WriteRequest(Write) -> ObjectLen {
        /// What to write to.
        access: Access,
        /// With the object's column: which bytes are there.
        stripe: StripeMap,
        /// How to write.
        flags: WriteFlags,
        /// Which bytes of the segment.
        regions: RegionList,
    }
    /// Makes an object durable. One that does not exist is no error: nothing
    /// was written to it.
    SyncRequest(Sync) -> () {
        /// Which object.
        access: Access,
    }
    /// Sets an object's length and truncate fence (`access.generation`).
    TruncateRequest(Truncate) -> ObjectLen {
        /// Which object.
        access: Access,
        /// Its length afterwards, at the most: a truncation never extends it.
        len: u64,
    }
    /// Asks for length and generation of an object.
    StatObjectRequest(StatObject) -> ObjectStat {
        /// Which object.
        access: Access,
    }
    /// Asks whether the server lives.
    PingRequest(Ping) -> () {}
    /// Asks for counters and state.
    StatusRequest(Status) -> ServerStatus {}
}
