//! Facts: small pieces of a snapshot and of listings, which can be distributed to parts.

use crate::schema::{Inode, SegmentPage, WrittenPage};
use weir_types::codec::{Bytes, DecodeError, Reader};
use weir_types::{Decode, Encode, FileId, FileKind, ObjectId, TargetId};

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A file exists.
    Inode {
        /// The file.
        file: FileId,
        /// Its inode.
        inode: Box<Inode>,
    },
    /// A directory has a name for the file.
    Named {
        /// The file.
        file: FileId,
        /// The directory.
        dir: FileId,
        /// The kind according to the name.
        kind: FileKind,
        /// The name.
        name: Bytes,
    },
    /// A directory has names.
    Holds {
        /// The directory.
        dir: FileId,
        /// Number of names that are directories.
        subdirs: u64,
    },
    /// A directory has a listing.
    Listed {
        /// The directory.
        dir: FileId,
        /// The last cookie of the listing.
        last_cookie: u64,
    },
    /// A page of segments.
    Segments {
        /// The file.
        file: FileId,
        /// The list.
        list: u32,
        /// First byte, according to its key.
        start: u64,
        /// The page.
        page: SegmentPage,
    },
    /// Which columns of a page were written.
    Written {
        /// The file.
        file: FileId,
        /// The list.
        list: u32,
        /// First byte of the page of segments.
        start: u64,
        /// The columns.
        page: WrittenPage,
    },
    /// A list of segments is to become garbage.
    Dead {
        /// The file.
        file: FileId,
        /// The list.
        list: u32,
    },
    /// An object is to be removed.
    Garbage {
        /// Target of the object.
        target: TargetId,
        /// The object.
        object: ObjectId,
    },
    /// The file has no name but may be open.
    Orphan {
        /// The file.
        file: FileId,
    },
    /// A symbolic link has a target.
    Link {
        /// The link.
        file: FileId,
        /// Length of the link's target, bytes.
        len: u64,
    },
    /// A file with several names has names in a directory.
    InDirectory {
        /// The file.
        file: FileId,
        /// The directory.
        dir: FileId,
        /// Number of names.
        names: u32,
    },
    /// A file has an extended attribute.
    Xattr {
        /// The file.
        file: FileId,
        /// Length of its name, bytes.
        name_bytes: u32,
    },
    /// A target holds an object.
    Object {
        /// The target.
        target: TargetId,
        /// The object.
        object: ObjectId,
        /// Its length, bytes.
        len: u64,
    },
    /// A name record for lookups.
    ByName {
        /// The directory.
        dir: FileId,
        /// The name.
        name: Bytes,
        /// The file.
        file: FileId,
        /// Kind of the file.
        kind: FileKind,
        /// Cookie in the listing.
        cookie: u64,
    },
    /// A name record for listings.
    ByCookie {
        /// The directory.
        dir: FileId,
        /// Cookie in the listing.
        cookie: u64,
        /// The name.
        name: Bytes,
        /// The file.
        file: FileId,
        /// Kind of the file.
        kind: FileKind,
    },
}

/// Declares codec and owner of each variant. The owner is the first field, except in facts about an
/// object.
macro_rules! facts {
    ($($tag:literal $name:ident { $($field:ident),* })*) => {
        impl Encode for Fact {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Fact::$name { $($field),* } => {
                        out.push($tag);
                        $($field.encode(out);)*
                    })*
                }
            }
        }
        impl Decode for Fact {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                match u8::decode(r)? {
                    $($tag => Ok(Fact::$name { $($field: Decode::decode(r)?),* }),)*
                    _ => Err(DecodeError::BadValue),
                }
            }
        }
    };
}
facts! {
    1 Inode { file, inode }
    2 Named { file, dir, kind, name }
    3 Holds { dir, subdirs }
    4 Listed { dir, last_cookie }
    5 Segments { file, list, start, page }
    6 Written { file, list, start, page }
    7 Dead { file, list }
    8 Garbage { target, object }
    9 Orphan { file }
    10 Link { file, len }
    11 Xattr { file, name_bytes }
    12 Object { target, object, len }
    13 ByName { dir, name, file, kind, cookie }
    14 ByCookie { dir, cookie, name, file, kind }
    15 InDirectory { file, dir, names }
}

impl Fact {
    /// The file (or directory) of the fact.
    pub fn file(&self) -> FileId {
        match self {
            Fact::Inode { file, .. }
            | Fact::Named { file, .. }
            | Fact::Segments { file, .. }
            | Fact::Written { file, .. }
            | Fact::Dead { file, .. }
            | Fact::Orphan { file }
            | Fact::Link { file, .. }
            | Fact::InDirectory { file, .. }
            | Fact::Xattr { file, .. } => *file,
            Fact::Garbage { object, .. } | Fact::Object { object, .. } => object.file,
            Fact::Holds { dir, .. }
            | Fact::Listed { dir, .. }
            | Fact::ByName { dir, .. }
            | Fact::ByCookie { dir, .. } => *dir,
        }
    }

    /// A number that all facts to be judged together share. The numbers are evenly spread.
    pub fn unit(&self) -> u64 {
        match self {
            // A directory may have more names than fit into memory.
            Fact::ByName { dir, name, .. } | Fact::ByCookie { dir, name, .. } => {
                let start = unit_of_file(*dir);
                name.iter().fold(start, |hash, byte| mix(hash ^ u64::from(*byte)))
            }
            other => unit_of_file(other.file()),
        }
    }
}

/// The [`Fact::unit`] of facts about a file.
pub(super) fn unit_of_file(file: FileId) -> u64 {
    mix(file.0)
}

/// The finalizer of SplitMix64.
fn mix(mut n: u64) -> u64 {
    n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

impl Fact {
    /// The [`Fact::unit`] of all facts about a file except the two records of its names.
    pub fn unit_of(file: FileId) -> u64 {
        unit_of_file(file)
    }
}
