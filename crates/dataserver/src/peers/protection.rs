//! How much connections of this server are protected at least.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use weir_types::{Error, ErrorKind, Result};
use weir_wire::Level;

/// No level has this code.
const UNTOLD: u8 = 0;

/// The lowest level of protection of connections from and to this server, as set by the metadata
/// server. A server that has just started serves no client before it has heard it: clients would
/// send data with less protection than the cluster requires.
#[derive(Debug)]
pub(crate) struct Protection(AtomicU8);

impl Default for Protection {
    /// Of a server that has no metadata server to ask.
    fn default() -> Self {
        Self::new(true)
    }
}

impl Protection {
    /// The lowest level; without `told`, clients are refused until the metadata server has said one.
    pub(crate) fn new(told: bool) -> Self {
        Self(AtomicU8::new(if told { Level::default() as u8 } else { UNTOLD }))
    }

    /// Sets the level. Returns the one before, if there was any.
    pub(crate) fn set(&self, least: Level) -> Option<Level> {
        Level::from_code(self.0.swap(least as u8, Relaxed))
    }

    /// The level; the lowest before the metadata server has said any.
    pub(crate) fn least(&self) -> Level {
        Level::from_code(self.0.load(Relaxed)).unwrap_or_default()
    }

    /// The level.
    ///
    /// # Errors
    /// `NotCurrent`: the metadata server has said none yet.
    pub(crate) fn told(&self) -> Result<Level> {
        Level::from_code(self.0.load(Relaxed)).ok_or_else(|| {
            let what = "the server has just started, and does not know yet how connections are to \
                        be protected: it waits for the metadata server";
            Error::new(ErrorKind::NotCurrent, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_just_started_knows_no_level_before_it_is_told() {
        let protection = Protection::new(false);
        assert_eq!(protection.told().unwrap_err().kind, ErrorKind::NotCurrent);
        assert_eq!(protection.set(Level::Private), None);
        assert_eq!(protection.told().unwrap(), Level::Private);
        assert_eq!(protection.set(Level::Data), Some(Level::Private));
        assert_eq!(protection.least(), Level::Data);
        assert_eq!(Protection::default().told().unwrap(), Level::Args);
    }
}
