//! The metadata server: namespace, layouts, membership, capabilities.
//!
//! From the inside out: [`schema`] has the stored records, [`ops`] are pure functions over a
//! transaction, [`machine`] runs them (sessions, exactly-once, background work) without opening a
//! socket or reading a clock, and [`run()`] is the shell around it: one event loop and the embedded
//! engine ([`serve`]: any engine).
//!
//! Invariants
//! - The metadata server is not on the data path: it refuses operations on data, and counts them
//!   (`tests/`).
//! - A mutation is carried out exactly once, however often it is sent, across restarts too
//!   (`tests/exactly_once.rs`).
//! - The server opens no connections: data servers and clients connect to it.
//! - A change waits until no other client caches or leases anything that contradicts it
//!   (`docs/leases.md`, `tests/leases`).
//! - An object is named for removal only when it is durable that no file has it.

pub mod acl;
pub mod audit;
pub mod config;
pub mod init;
pub mod keys;
pub mod leases;
pub mod locks;
pub mod machine;
mod metrics;
pub mod mover;
pub mod open_files;
pub mod ops;
pub mod quota;
pub mod restore;
pub mod revoked;
mod run;
pub mod schema;
mod service;
pub mod signing;

pub use config::MetaServerConfig;
pub use init::NewFileSystem;
pub use machine::{MetaMachine, Moment, Times};
pub use metrics::Observer;
pub use run::{Notify, ReadyInfo, init, run, run_observed, serve};
