//! Commands for files of a cluster without a mount: cp, cat, spread, take, ls, stat, rm, mkdir.

pub mod copy;
pub mod list;
pub mod local;
pub mod local_held;
pub mod name;
pub mod near;
pub mod owners;
pub mod progress;
pub mod remote;
pub mod remote_tree;
pub mod rm;
pub mod simple;
pub mod spread;
pub mod stat;
pub mod take;
pub mod tree;
pub mod upward;
