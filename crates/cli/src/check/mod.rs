//! `weir scrub` and `weir fsck`: whether what the servers keep is what was
//! written, and whether it all belongs together.

pub mod fsck;
mod progress;
mod repair;
pub mod scrub;
mod snapshot;
mod spool;
