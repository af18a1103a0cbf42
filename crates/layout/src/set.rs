//! Sets: what is redundant together by an erasure code. A set has members, which
//! are whole objects of one file or of several, and parities. Members differ in
//! length: a parity is as long as the longest. A set with fewer members than its
//! code has counts the others as empty.
//!
//! - [`SetCode`]: RAID 6, RAID 5 and mirror, or Reed-Solomon, and what each costs.
//! - [`Arrangement`]: which targets hold the blocks of a new set.
//! - [`Set`]: the record of a set, the check of its places, and how lost blocks
//!   come back.
//!
//! Invariants: a set that [`Set::check`] passes bears the loss of any two nodes
//! under RAID 6 and under RAID 5 and mirror, and of any `m` under `k+m`, while
//! there are as many nodes as blocks (`tests/sets.rs`, exhaustively). Nothing is
//! decoded from a block whose generation is not the one on record.

mod arrange;
mod code;
mod record;

pub use arrange::{Arrangement, Site, TooFew};
pub use code::{DEFAULT_MEMBERS, NoSuchCode, SetCode};
pub use record::{Block, Fault, Member, Parity, Recovery, Set, Unrecoverable};
