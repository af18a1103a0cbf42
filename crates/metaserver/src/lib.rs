//! The metadata server: namespace, layouts, membership, capabilities.
//!
//! From the inside out: [`schema`] has the stored records, [`ops`] are pure functions over a
//! transaction, [`machine`] runs them (sessions, exactly-once, background work) without opening a
//! socket or reading a clock, and [`run()`] is the shell around it: one event loop and the embedded
//! engine ([`serve`]: any engine). Within the machine the namespace, the coordinator of data servers
//! and the requests of administrators stand side by side: each uses sessions and the state below
//! them, none another one.
//!
//! Invariants
//! - The metadata server is not on the data path: it refuses operations on data, and counts them
//!   (`tests/`).
//! - A mutation is carried out exactly once, however often it is sent, across restarts too
//!   (`tests/exactly_once.rs`).
//! - The server opens no connections: data servers and clients connect to it.
//! - A change waits until no other client caches or leases anything that contradicts it
//!   (`docs/leases.md`, `tests/leases`).
//! - Of several servers with one journal, one leads. The others answer nothing, and one that has
//!   lost the lead answers nothing from then on (`tests/members.rs`).
//! - An object is named for removal only when it is durable that no file has it.

pub mod acl;
pub mod audit;
mod candidate;
pub mod config;
mod disk_watch;
mod fault;
mod history;
pub mod init;
pub mod keys;
pub mod leases;
pub mod locks;
pub mod machine;
mod member;
mod metrics;
pub mod mover;
mod news;
mod observed;
mod offline;
pub mod open_files;
pub mod ops;
pub mod quota;
mod receive;
pub mod restore;
pub mod revoked;
mod run;
pub mod schema;
mod service;
pub mod signing;
pub mod target_keys;
mod timed;

pub use config::{JournalConfig, MetaServerConfig};
pub use init::NewFileSystem;
pub use machine::{MetaMachine, Moment, Times};
pub use member::run_member;
pub use metrics::Observer;
pub use observed::{Follows, Members};
pub use offline::{leave_journal, take_in_journal};
pub use run::{Notify, ReadyInfo, init, run, run_observed, serve};
pub use weir_metastore::Journal;
