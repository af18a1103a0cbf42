//! The extension module of the Python package `weir`.
//!
//! Every call releases the interpreter's lock while it waits for the cluster. A mutex of this crate
//! is held only for short moments and only under that lock, so that a fork finds none of them
//! locked.
//!
//! Invariant: a session is used only by the process that opened it. Another process that finds it
//! (`session.rs`) leaves it alone and opens its own.

mod cat;
mod client;
mod copying;
mod file;
mod opening;
mod options;
mod parallel;
mod problem;
mod ranges;
mod session;
mod stat;
mod tree;
mod whereabouts;

use pyo3::prelude::*;

/// The names in the module `weir`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::file::{File, end};
    #[pymodule_export]
    use crate::stat::Stat;
    #[pymodule_export]
    use crate::whereabouts::{Copy, Location};
}
