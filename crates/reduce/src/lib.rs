//! Erasure codes over plain directories: `weir reduce`. Each directory is a target, and
//! files of one relative path are copies of each other. Encoding joins files to sets,
//! computes their parities and removes the copies that are no longer needed.
//!
//! ```text
//! DIR/.weir-reduce/target     which tree this is, and which number the directory has
//!                  target-copy
//!                  lock       held while something works on it
//!                  ID.set     the record of a set; ID is the hash of its bytes
//!                  ID.p0 ..   its parities
//!                  ID.m0 ..   members that were removed: what others are decoded with
//!                  ID.dead0 . marks of these, in every directory of the set
//!                  tmp-N      what is being written, under no name yet
//! ```
//!
//! Invariants: every file appears under its name when it is complete and durable. A copy is
//! removed after it was compared with what was encoded, when all parities are durable and
//! the record is so on every target of the set (`tests/crashes.rs`, at every step). What is
//! decoded gets its name only if its hash is the recorded one.

mod blocks;
mod candidate;
mod choosing;
mod cleaning;
mod copy;
mod dead;
mod doubles;
mod durable;
mod encode;
mod encoded;
mod extra;
mod failure;
mod finding;
mod making;
mod place;
mod reading;
mod record;
mod removal;
mod repair;
mod room;
mod scan;
mod state;
mod stream;
mod targets;
mod tree;
mod wishes;

pub use encode::encode;
pub use encoded::Encoded;
pub use failure::{Done, Failure};
pub use finding::{Finding, Trouble};
pub use removal::{Removed, remove_files};
pub use repair::{Repaired, repair};
pub use state::{Usage, Verified, verify};
pub use stream::{Step, Watch};
pub use targets::Purpose;
pub use tree::Tree;
pub use wishes::Wishes;
