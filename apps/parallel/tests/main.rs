//! The programs on real files, alone and as the processes of a job.
#![allow(clippy::unwrap_used)] // A failed helper fails the test.

#[path = "../../../bindings/c/tests/cluster/mod.rs"]
mod cluster;
mod layouts;
mod local;
mod runs;
