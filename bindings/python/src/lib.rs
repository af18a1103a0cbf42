//! The extension module of the Python package `weir`.
//!
//! Every call releases the interpreter's lock while it waits for the cluster. A mutex in here is
//! held for moments and only under that lock, so that a fork finds none of them taken.
//!
//! Invariant: a session is used by the process that opened it and by no other. Whoever finds one
//! of another process (`session.rs`) leaves it as it is and opens its own.

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

/// The names that `weir` offers.
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
