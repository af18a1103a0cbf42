//! Sets: blocks that an erasure code makes redundant together. A set has members, which are whole
//! objects of one file or of several, and parities. Members differ in length: a parity is as long
//! as the longest. Missing members of a set that is not full count as empty.
//!
//! - [`SetCode`]: RAID 6, RAID 5 and mirror, or Reed-Solomon, and the cost of each.
//! - [`Arrangement`]: which targets hold the blocks of a new set.
//! - [`Set`]: the record of a set, the check of its places, and the recovery of lost blocks.
//!
//! Invariants: a set that passes [`Set::check`] survives the loss of any two nodes under RAID 6 and
//! under RAID 5 and mirror, and of any `m` nodes under `k+m`, while there are as many nodes as
//! blocks (`tests/sets.rs`, exhaustively). Nothing is decoded from a block whose generation differs
//! from the recorded one.

mod arrange;
mod code;
mod record;

pub use arrange::{Arrangement, Site, TooFew};
pub use code::{DEFAULT_MEMBERS, NoSuchCode, SetCode};
pub use record::{Block, Fault, Member, Parity, Recovery, Set, Unrecoverable};
