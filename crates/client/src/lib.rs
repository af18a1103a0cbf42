//! The client of Weir: striped reads and writes directly to the data servers, names and layouts
//! from the metadata server.
//!
//! The module `core` decides (no I/O, no clock), the other modules carry it out. All calls block,
//! all may be made from many threads, and every call ends within
//! [`ClientConfig::request_timeout_ms`], if it fails with an error that names the server.
//!
//! Invariants
//! - Reading and writing sends nothing to the metadata server, except to extend a layout ahead of a
//!   writer, and for leases on a file that other clients have open. Counters prove it.
//! - No byte of a file is read, written or cached without a lease that the metadata server knows of
//!   (`leases.rs`, `docs/leases.md`).

mod accesses;
mod admin;
mod allocated;
mod answered;
mod buffer;
mod bytes;
mod client;
mod config;
mod context;
mod control;
mod copy;
pub mod core;
mod counters;
mod damage;
mod drive;
mod drops;
mod events;
mod fence;
mod file;
mod hints;
mod holdings;
pub mod job;
mod lease_clock;
mod leases;
mod locations;
mod locks;
pub mod losses;
mod metadata;
mod namespace;
mod pairs;
mod presence;
mod read;
mod reader;
mod servers;
mod session;
mod slots;
mod space;
mod spread;
mod stage;
mod take;
mod unsynced;
mod write;
mod writer;

pub use admin::{Administrator, Export};
pub use client::Client;
pub use config::{ClientConfig, Consistency, ReadPolicy, Transport};
pub use context::{Context, LateGroups};
pub use core::records::Record;
pub use fence::Fenced;
pub use file::{File, set_nothing};
pub use hints::Hint;
pub use leases::UpperCache;
pub use locations::{LocatedCopy, Location, MAX_LOCATIONS, TargetPlace};
pub use namespace::CreateOptions;
pub use presence::{Event, Peer, Watch};
pub use spread::{Fragment, MAX_BATCH_BYTES, MAX_BYTES, MAX_LANES, Spread, SpreadOptions};
pub use take::{Block, Input, Take, TakeOptions, TakeSummary};
