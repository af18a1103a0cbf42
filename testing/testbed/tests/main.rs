//! The parts of a testbed, as root: disks, networks and models of hardware.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod disks;
mod memories;
mod models;
mod networks;
mod nfs;
