//! What is done for the operations of the kernel.

mod access_times;
mod attributes;
pub(crate) mod callers;
pub(crate) mod changes;
mod file_hints;
mod file_io;
mod find;
pub(crate) mod gone;
mod hints;
mod holes;
mod layouts;
mod listing;
mod lock_kind;
mod locks;
mod quotas;
mod ranges;
pub(crate) mod told;
mod xattrs;
