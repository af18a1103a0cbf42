//! Identifiers. Each is a newtype, so that a file id can never be passed as a target id. Ids are
//! never reused and do not depend on inode numbers of local file systems, so that a rebuilt
//! namespace finds its objects again (for the same purpose CEFT-PVFS names its data files by MD5,
//! paper 2).

use crate::codec::{Decode, DecodeError, Encode, Reader};
use std::fmt;

macro_rules! newtype_id {
    ($($(#[$meta:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl From<$inner> for $name {
            fn from(raw: $inner) -> Self {
                Self(raw)
            }
        }
        impl Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
        }
        impl Decode for $name {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self(<$inner>::decode(r)?))
            }
        }
    )*};
}

newtype_id! {
    /// A file, directory or symbolic link of the namespace (an inode number).
    FileId(u64);
    /// One storage directory that a data server serves: the unit of placement.
    TargetId(u32);
    /// A local file system of a machine while the machine runs. Targets with the same id share its
    /// space. See [`DiskId::UNKNOWN`].
    DiskId(u64);
    /// One data server process.
    ServerId(u32);
    /// One client credential.
    ClientId(u64);
    /// One run of a client: spans all its connections.
    SessionId(u64);
    /// A version of the cluster map or of a layout; grows by one at each change.
    Epoch(u64);
    /// Grows at each truncation of a file; fences writes issued before it.
    Generation(u64);
    /// The key generation of a target.
    KeyGeneration(u32);
    /// A segment of a file; never reused within the file.
    SegmentIndex(u32);
    /// A position in the stripe of a segment.
    ColumnIndex(u16);
    /// 0 is the primary, 1.. are further replicas of the column.
    CopyIndex(u8);
    /// Matches a reply to its request on one connection.
    RequestId(u64);
    /// Counts the frames of one direction of one connection.
    Sequence(u64);
    /// One of a session's slots for mutations in flight. The result of its last mutation is kept.
    SlotId(u16);
    /// Counts the mutations of a slot: the same number means the same mutation.
    SlotSequence(u64);
    /// An SPMD program whose ranks should finish together. 0 stands for none.
    JobId(u64);
    /// One process of a job.
    Rank(u32);
}

impl DiskId {
    /// The disk is unknown.
    pub const UNKNOWN: DiskId = DiskId(0);
}

impl TargetId {
    /// No target: stands for a copy that a column no longer has.
    pub const NONE: TargetId = TargetId(u32::MAX);
}

impl FileId {
    /// The root directory.
    pub const ROOT: FileId = FileId(1);
}

/// Identifies an object of a target: one copy of one column of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The file.
    pub file: FileId,
    /// The segment of the file.
    pub segment: SegmentIndex,
    /// The column of the segment.
    pub column: ColumnIndex,
    /// The copy of the column.
    pub copy: CopyIndex,
}

impl ObjectId {
    /// The smallest id.
    pub const FIRST: ObjectId = ObjectId {
        file: FileId(0),
        segment: SegmentIndex(0),
        column: ColumnIndex(0),
        copy: CopyIndex(0),
    };
}

crate::codec_struct!(ObjectId { file, segment, column, copy });

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}.{}.{}", self.file.0, self.segment, self.column, self.copy)
    }
}
