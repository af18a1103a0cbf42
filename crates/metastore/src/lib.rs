//! The ordered transactional key-value engine below the metadata server.
//!
//! A small optimistic trait, [`Engine`], with etcd's limits. Operations are
//! pure functions over a [`Tx`]: they read and write through it, it records
//! what they saw and what they want, and [`Engine::commit`] applies the result
//! unless something they saw has changed since.
//!
//! Engines: [`Embedded`] (redb behind an operation log, one process) and
//! [`ModelEngine`] (in memory, for tests and the simulator). Both pass the same
//! conformance suite (feature `conformance`). Only this crate knows redb.
//!
//! Invariants
//! - A commit is acknowledged only after [`Engine::flush`]; what was flushed
//!   survives the death of the process.
//! - What was flushed is on the disk about a second later, in order, and when
//!   [`Engine::synced`] has reached it.
//! - redb takes in only what the log already holds durably.
//! - With a [`Journal`], shared with other servers, nothing is in the log or in redb that is not in
//!   the journal.
//! - After a failed append or sync every later commit fails: no silent retry.
//! - A full disk is no failure: room for the log and for redb is set aside
//!   (`reserve.rs`), and a commit for which there is none is refused before
//!   anything has changed.

mod applier;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod directory;
mod embedded;
mod engine;
pub mod export;
#[doc(hidden)]
pub mod fuzz;
mod ids;
mod journal;
#[cfg(any(test, feature = "conformance"))]
pub mod journal_conformance;
mod log;
mod model;
mod model_journal;
mod overlay;
mod pages;
mod reception;
mod record;
mod replay;
mod reserve;
mod syncer;
mod tree;
mod tx;
mod verify;

pub use embedded::member::Progress;
pub use embedded::{Embedded, EmbeddedConfig};
pub use engine::{
    Check, Commit, CommitOutcome, Engine, Key, MAX_KEY_BYTES, MAX_OPERATIONS, MAX_REQUEST_BYTES,
    Sequence, Snapshot, Value, Verified, Versioned, Write, key_after, prefix_end,
};
pub use ids::IdAllocator;
pub use journal::{Batch, Begun, Extent, Held, Journal, MAX_BATCH_BYTES};
pub use model::{Injection, ModelEngine};
pub use model_journal::{LostAppend, ModelJournal};
pub use reception::Reception;
pub use tx::{Tx, TxError, transact};
