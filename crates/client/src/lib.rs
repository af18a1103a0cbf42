//! The client of Weir: striped reads and writes straight to the data servers,
//! names and layouts from the metadata server.
//!
//! `core` decides (no I/O, no clock), the rest carries it out. All calls
//! block, all may be made from many threads, and every one ends within
//! [`ClientConfig::request_timeout_ms`] with an error that names the server.
//!
//! Invariant: reading and writing sends nothing to the metadata server (but to
//! extend a layout ahead of a writer, and for leases on a file that others have
//! open); counters prove it.
//!
//! Invariant: nothing of a file is read, written or kept without a lease that
//! the metadata server knows of (`leases.rs`, `docs/leases.md`).

mod accesses;
mod admin;
mod allocated;
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
pub use leases::UpperCache;
pub use locations::{LocatedCopy, Location, MAX_LOCATIONS, TargetPlace};
pub use namespace::CreateOptions;
pub use presence::{Event, Peer, Watch};
pub use spread::{Fragment, MAX_BATCH_BYTES, MAX_BYTES, MAX_LANES, Spread, SpreadOptions};
pub use take::{Block, Input, Take, TakeOptions, TakeSummary};
