//! Copies of files are made, moved and dropped while the files are in use.
#![allow(clippy::unwrap_used)]

#[path = "../harness/mod.rs"]
mod harness;

mod apart;
mod evening;
mod flapping;
mod groups;
mod making;
mod moving;
mod servers;
