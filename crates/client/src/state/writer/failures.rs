//! Failures of writes whose call had already returned, and which calls still have to report them.
//!
//! The next call of any kind reports a failure, once. If that is a write, a sync or close reports
//! it as well: a program that frees some space and repeats a refused write does not know that bytes
//! of an earlier write are lost.

use std::ops::RangeInclusive;
use weir_types::{Error, Result};

/// Failures of one file.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// For the next call of any kind.
    next: Option<Error>,
    /// For the next sync.
    sync: Option<Error>,
    /// For calls under way, by their numbers.
    own: Vec<(RangeInclusive<u64>, Error)>,
}

impl Failures {
    /// Adds a failure of bytes whose call has returned.
    pub(crate) fn note(&mut self, error: Error) {
        self.sync.get_or_insert_with(|| error.clone());
        self.next.get_or_insert(error);
    }

    /// Begins calls of which none has failed.
    pub(crate) fn begin_turn(&mut self) {
        self.own.clear();
    }

    /// Adds a failure of calls that have not returned.
    pub(crate) fn note_own(&mut self, calls: RangeInclusive<u64>, error: Error) {
        self.own.push((calls, error));
    }

    /// Returns the failure of a call under way.
    pub(crate) fn of_call(&self, call: u64) -> Result<()> {
        let own = self.own.iter().find(|(calls, _)| calls.contains(&call));
        own.map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// Returns the failure for the only call under way: an earlier one, or its own.
    pub(crate) fn tell_own(&mut self) -> Result<()> {
        let own = self.own.drain(..).map(|(_, error)| error).next();
        self.next.take().or(own).map_or(Ok(()), Err)
    }

    /// Returns the failure for a write, or for another call that makes nothing durable.
    pub(crate) fn tell_next(&mut self) -> Result<()> {
        self.next.take().map_or(Ok(()), Err)
    }

    /// Returns the failure for a sync.
    pub(crate) fn tell_all(&mut self) -> Result<()> {
        let sync = self.sync.take();
        self.next.take().or(sync).map_or(Ok(()), Err)
    }

    /// Returns the failure that a sync would report, without clearing it.
    pub(crate) fn show(&self) -> Result<()> {
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
        failures.note_own(1..=1, ErrorKind::NoSpace.into());
        assert!(failures.tell_own().is_err() && failures.tell_all().is_ok(), "nobody else's");
        assert!(failures.tell_own().is_ok(), "it was told");
    }

    #[test]
    fn calls_that_return_together_are_told_each_of_its_own() {
        let mut failures = Failures::default();
        failures.note(ErrorKind::Io.into());
        failures.note_own(10..=11, ErrorKind::NoSpace.into());
        assert_eq!(failures.of_call(10).unwrap_err().kind, ErrorKind::NoSpace);
        assert_eq!(failures.of_call(11).unwrap_err().kind, ErrorKind::NoSpace);
        assert!(failures.of_call(9).is_ok() && failures.of_call(12).is_ok());
        assert_eq!(failures.tell_next().unwrap_err().kind, ErrorKind::Io, "of an earlier call");
        failures.begin_turn();
        assert!(failures.of_call(10).is_ok());
    }
}
