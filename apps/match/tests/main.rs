//! The program on real files.
#![allow(clippy::unwrap_used)] // A failed helper fails the test.

mod cluster;
mod plain;
