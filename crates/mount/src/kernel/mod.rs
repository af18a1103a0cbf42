//! What the kernel has of files, and what it may be told of them.
//!
//! ```text
//! answers  opening                           sizes that are told; what open handles do
//! drops                                      pages that are dropped
//! attributes  closing                        attributes and names that are ended
//! cache                                      all of this mount's files
//! pages  size  names  lifetimes  seen  acls  the state of one file, or of a kind
//! files  nodes  dropper  threads             numbers; messages to the kernel; programs
//! ```

mod acls;
pub(crate) mod answers;
mod attributes;
pub(crate) mod cache;
mod closing;
mod dropper;
mod drops;
mod files;
mod lifetimes;
pub(crate) mod names;
pub(crate) mod nodes;
pub(crate) mod opening;
mod pages;
mod seen;
pub(crate) mod size;
mod threads;
