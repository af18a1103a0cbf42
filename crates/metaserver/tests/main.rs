//! The metadata server as its clients and data servers see it. One program of all tests:
//! linking takes longer than running them.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod accessed;
mod acls;
mod administrators;
mod audit;
mod broken_disk;
mod cluster;
mod copies;
#[cfg(debug_assertions)] // Bugs are planted in no other build.
mod copies_planted;
mod departures;
mod exactly_once;
mod export;
mod find_copies;
mod formats;
mod harness;
mod holders;
mod holes;
mod layouts;
mod leases;
mod leases_planted;
mod list_copies;
mod loads;
mod members;
mod membership;
mod mover;
mod namespace_model;
mod orphans;
mod permissions;
mod quota;
mod quota_random;
mod readdir;
mod recorded;
mod rename;
mod restrictions;
mod revoked;
mod server;
mod settings;
mod standings;
mod subtree_random;
