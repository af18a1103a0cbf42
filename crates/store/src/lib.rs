//! The store of a data server for one target: a local directory of objects. Each object is one
//! local file that holds its data and a CRC-32C for every 4 KiB of it. The crate does blocking file
//! I/O and has no sockets and no threads of its own. The bytes on disk are drawn in
//! `docs/format-store.md`.
//!
//! Invariants
//! - A target directory is served by one process at a time (`lock`).
//! - There is at most one [`Object`] per object file in a process: its cached length and its lock
//!   are authoritative.
//! - A full block is read without computing its checksum: the stored checksum goes to the reader,
//!   who verifies. A block that is sent in part is verified here first.
//! - Slots of blocks behind the end of an object are zero, and so are the bytes behind the end in
//!   its last block: holes verify as zeros.
//! - Checksums are written before the data they cover. So a full disk fails a write before any data
//!   has changed, or leaves the data verifiable.
//! - Everything that may not match its checksum if the machine stops now is marked in the intent
//!   log. Recovery repairs marked parts and nothing else.
//! - After a failed sync nothing is changed any more: the target is out of service.

mod backing;
mod blocks;
mod directories;
#[doc(hidden)]
pub mod fuzz;
pub mod gaps;
mod geometry;
mod header;
mod intents;
mod listing;
mod mend;
mod object;
mod open_files;
mod piece;
mod pledge;
mod read;
mod recovery;
mod recovery_progress;
mod resync;
mod room;
mod scrub;
mod site;
mod space;
mod superblock;
mod target;
mod write;

pub use directories::HASH_DIRECTORIES;
pub use gaps::{ELSEWHERE, Gap, HELD, Note, RangeSet, UNHEARD, gap_parts};
pub use listing::{Listing, Objects};
pub use object::Object;
pub use pledge::Pledge;
pub use read::{ReadMode, ReadOutcome};
pub use recovery::RecoveryReport;
pub use recovery_progress::RecoveryProgress;
pub use resync::MAX_SLOTS;
pub use scrub::{Damage, Finding, ScrubCursor, ScrubStep};
pub use superblock::TargetIdentity;
pub use target::{Opening, Target, TargetOptions};
