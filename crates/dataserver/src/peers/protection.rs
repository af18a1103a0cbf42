//! How much connections of this server are protected at least.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use weir_wire::Level;

/// The lowest level of protection of connections from and to this server, as set by the metadata
/// server.
#[derive(Debug, Default)]
pub(crate) struct Protection(AtomicU8);

impl Protection {
    pub(crate) fn set(&self, least: Level) {
        self.0.store(least as u8, Relaxed);
    }

    /// The level; the lowest before the metadata server has said any.
    pub(crate) fn least(&self) -> Level {
        Level::from_code(self.0.load(Relaxed)).unwrap_or_default()
    }
}
