//! Data servers as their clients and the metadata server see them. One program of all tests:
//! linking takes longer than running them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // Tests use the real ones.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod administrators;
mod cluster;
mod copies;
mod late;
mod objects;
mod overload;
mod protection;
mod refusals;
mod registration;
