//! `weir scrub` and `weir fsck`: whether what the servers keep is what was
//! written, and whether it all belongs together.

pub mod accept;
pub mod fsck;
pub mod lacking;
mod repair;
pub mod scrub;
pub mod snapshot;
pub mod spool;
