//! The vocabulary of Weir: identifiers, limits, errors, layouts and the byte codec of every crate.
//! Pure: no I/O, no clock, no randomness.

pub mod attr;
pub mod checksum;
pub mod codec;
pub mod consistency;
pub mod disk;
pub mod error;
pub mod host;
pub mod id;
pub mod layout;
pub mod limits;
pub mod restrictions;
pub mod room;
pub mod size;

pub use attr::{
    ACL_ACCESS, ACL_DEFAULT, Attr, Caller, Extras, FileKind, FsUsage, Timestamp, access_is_due,
};
pub use codec::{Decode, DecodeError, Encode, Reader};
pub use consistency::{CONSISTENCY_XATTR, Consistency};
pub use disk::Disks;
pub use error::{Error, ErrorKind, Result, Retry};
pub use host::{check_domain, check_host};
pub use id::*;
pub use layout::{
    Column, Duplication, FileLayout, Filling, LayoutKind, LayoutSpec, Placement, Scheme, Segment,
    SegmentState, StripeMap,
};
pub use restrictions::{ClientStanding, Restrictions, Squash};
