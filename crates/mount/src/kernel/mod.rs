//! What the kernel has of files, and what it may be told of them.

mod acls;
mod attributes;
pub(crate) mod cache;
mod dropper;
mod files;
mod lifetimes;
pub(crate) mod nodes;
mod pages;
mod seen;
pub(crate) mod size;
