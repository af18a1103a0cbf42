//! `weir scrub` and `weir fsck`: check that the servers keep what was written, and that all of it
//! belongs together.

pub mod accept;
pub mod fsck;
pub mod lacking;
pub mod parities;
mod repair;
pub mod scrub;
pub mod snapshot;
pub mod spool;
