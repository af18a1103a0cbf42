//! The mount: Weir as a file system of this machine, on a `/dev/fuse`
//! transport of our own.

mod dir_attrs;
pub mod fuse;
mod handles;
mod weirfs;

pub use weirfs::{Options, WeirFs};
