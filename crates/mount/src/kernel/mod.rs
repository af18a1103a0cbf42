//! What the kernel has of files, and what it may be told of them.

pub(crate) mod acls;
pub(crate) mod attributes;
pub(crate) mod cache;
pub(crate) mod dropper;
pub(crate) mod files;
pub(crate) mod lifetimes;
pub(crate) mod nodes;
pub(crate) mod pages;
pub(crate) mod size;
