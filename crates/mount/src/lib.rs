//! The mount: Weir as a file system of this machine, served by `weir_fuse`.
//!
//! Each layer uses those below it alone:
//!
//! ```text
//! filesystem   the operations of the kernel, as they come from `weir_fuse`
//! operations   what is done for them, one file for each kind
//! weirfs       the file system: its client, and the state of the layers below
//! open         what programs have open
//! kernel       what the kernel has of files: pages, sizes, attributes, numbers
//! translate    the kernel's terms in those of the client
//! ```

mod filesystem;
mod kernel;
mod metrics;
mod open;
mod operations;
mod translate;
mod weirfs;

pub use kernel::cache::KernelCache;
pub use metrics::tell_client;
pub use open::access::AccessTimes;
pub use weirfs::{Options, WeirFs};
