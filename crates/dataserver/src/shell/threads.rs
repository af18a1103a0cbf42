//! Threads of a server, and the signal that ends them.

use std::time::Duration;
use weir_host::net::Signal;
use weir_host::thread::{self, JoinHandle};
use weir_types::{Error, Result};

/// Whether a signal is raised.
pub(crate) fn is_raised(signal: &Signal) -> Result<bool> {
    signal.wait(Some(Duration::ZERO)).map_err(|e| std::io::Error::from(e).into())
}

/// Starts a thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle> {
    thread::spawn(name, body).map_err(|e| Error::from(e).context("start a thread"))
}
