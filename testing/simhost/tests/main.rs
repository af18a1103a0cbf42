//! What the simulated host does, beside what the real one does.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod network;
mod processes;
mod server;
mod threads;
