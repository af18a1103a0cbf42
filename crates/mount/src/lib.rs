//! The mount: Weir as a file system of this machine, served by `weir_fuse`.

mod access_times;
mod callers;
mod dropper;
mod file_hints;
mod file_io;
mod file_pages;
mod given_up;
mod gone;
mod handles;
mod hints;
mod holes;
mod jobs;
mod kernel_acls;
mod kernel_attributes;
mod kernel_cache;
mod kernel_files;
mod kernel_size;
mod layouts;
mod lifetimes;
mod listing;
mod lock_kind;
mod locks;
mod metrics;
mod nodes;
mod pins;
mod quotas;
mod translate;
mod weirfs;

pub use access_times::AccessTimes;
pub use kernel_cache::KernelCache;
pub use metrics::tell_client;
pub use weirfs::{Options, WeirFs};
