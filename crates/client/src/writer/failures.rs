//! What has failed after its write call had returned, and who has still to be told.
//!
//! Whoever calls next is told, once. If that is a write, a sync or close is told as well: who
//! frees some room and writes again what a write has refused does not know that bytes are gone
//! that an earlier one had taken.

use weir_types::{Error, Result};

/// Of one file.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// For whoever calls next.
    next: Option<Error>,
    /// For a sync.
    sync: Option<Error>,
}

impl Failures {
    /// Of bytes that a call had taken, and returned.
    pub(super) fn note(&mut self, error: Error) {
        self.sync.get_or_insert_with(|| error.clone());
        self.next.get_or_insert(error);
    }

    /// Of bytes of a call that has not returned.
    pub(super) fn note_own(&mut self, error: Error) {
        self.next.get_or_insert(error);
    }

    /// Tells a write, or something else that makes nothing durable.
    pub(super) fn tell_next(&mut self) -> Result<()> {
        self.next.take().map_or(Ok(()), Err)
    }

    /// Tells a sync.
    pub(super) fn tell_all(&mut self) -> Result<()> {
        let sync = self.sync.take();
        self.next.take().or(sync).map_or(Ok(()), Err)
    }

    /// Shows what a sync will be told.
    pub(super) fn show(&self) -> Result<()> {
        self.next.as_ref().or(self.sync.as_ref()).map_or(Ok(()), |error| Err(error.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::ErrorKind;

    #[test]
    fn a_sync_is_told_though_a_write_was_and_everybody_once() {
        let mut failures = Failures::default();
        failures.note(ErrorKind::NoSpace.into());
        failures.note(ErrorKind::Io.into());
        assert_eq!(failures.tell_next().unwrap_err().kind, ErrorKind::NoSpace, "the first one");
        assert!(failures.tell_next().is_ok());
        assert_eq!(failures.show().unwrap_err().kind, ErrorKind::NoSpace);
        assert_eq!(failures.tell_all().unwrap_err().kind, ErrorKind::NoSpace);
        assert!(failures.tell_all().is_ok() && failures.show().is_ok());
        failures.note(ErrorKind::Io.into());
        assert_eq!(failures.tell_all().unwrap_err().kind, ErrorKind::Io);
        assert!(failures.tell_next().is_ok(), "it was told");
        failures.note_own(ErrorKind::NoSpace.into());
        assert!(failures.tell_next().is_err() && failures.tell_all().is_ok(), "nobody else's");
    }
}
