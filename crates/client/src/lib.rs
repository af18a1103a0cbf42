//! The client of Weir: striped reads and writes directly to the data servers, names and layouts
//! from the metadata server.
//!
//! The module `core` decides (no I/O, no clock), the other modules carry it out. All calls block,
//! all may be made from many threads, and every call ends within
//! [`ClientConfig::request_timeout_ms`], if it fails with an error that names the server.
//!
//! Layers, each of which uses those below it alone:
//!
//! ```text
//! client           the calls on a cluster: names, locks, administration; background threads
//! file             the calls on an open file
//! names   leases   names and attributes, their cache; leases, entered and given up
//! io               requests to data servers: one call, read-ahead, write-behind, sync
//! meta             requests to the metadata server: changes, layouts, closes, locks
//! state            what the client knows, holds and has under way; it sends nothing
//! rpc              session, connections to data servers, the time for which leases count
//! core             decisions; beside it configuration, context of a call, counters
//! ```
//!
//! Invariants
//! - Reading and writing sends nothing to the metadata server, except to extend a layout ahead of a
//!   writer, and for leases on a file that other clients have open. Counters prove it.
//! - No byte of a file is read, written or cached without a lease that the metadata server knows of
//!   (`leases`, `docs/leases.md`).

mod client;
mod config;
mod context;
pub mod core;
mod counters;
mod file;
mod io;
pub mod job;
mod leases;
pub mod losses;
mod meta;
mod names;
mod presence;
mod rpc;
mod state;

pub use client::Client;
pub use client::admin::{Administrator, Export};
pub use client::locations::{LocatedCopy, LocatedPage, Location, MAX_LOCATIONS, TargetPlace};
pub use client::namespace::CreateOptions;
pub use config::{ClientConfig, Consistency, ReadPolicy, Transport};
pub use context::{Context, LateGroups};
pub use file::hints::Hint;
pub use file::{File, set_nothing};
pub use io::fence::Fenced;
pub use io::read::parities::{Compared, Unequal};
pub use presence::{Event, Peer, Watch};
pub use state::UpperCache;
