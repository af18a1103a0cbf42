//! When files were read, as the layer above notes it: told to the metadata server a little
//! later, many at a time, before it is told that they are closed.
//!
//! Who reads waits for none of that. Who asks for the attributes of a file that is noted waits
//! until the server knows, and so sees no other time than everybody else.

use crate::client::Inner;
use crate::context::Context;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_types::FileId;
use weir_types::limits::MAX_ACCESSED;
use weir_wire::meta::{AccessedRequest, FileAccess};

/// Files that are noted; beyond that, that one was read is forgotten.
const MAX_NOTED: usize = 65_536;
/// Longest wait without a look at the time.
const SLICE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
struct Noted {
    at: Duration,
    always: bool,
}

#[derive(Debug, Default)]
struct State {
    noted: BTreeMap<FileId, Noted>,
    /// On their way; one request at a time.
    sending: BTreeMap<FileId, Noted>,
}

/// What was read and is not told yet.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    state: Mutex<State>,
    told: Condvar,
    /// There is something: mostly not.
    any: AtomicBool,
}

impl Accesses {
    /// A file is being read. `always`: its time of access is to be now, whatever it is.
    pub(crate) fn note(&self, file: FileId, always: bool) {
        let mut state = self.state.lock();
        if state.noted.len() < MAX_NOTED || state.noted.contains_key(&file) {
            state.noted.insert(file, Noted { at: clock::uptime(), always });
            self.any.store(true, Ordering::Release);
        }
    }

    /// The time of access is about to be set: what was read before that must not come after
    /// it. Waits for what is on its way, for so long at the most.
    pub(crate) fn forget(&self, file: FileId, longest: Duration) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let until = clock::uptime() + longest;
        let mut state = self.state.lock();
        state.noted.remove(&file);
        while state.sending.contains_key(&file) && clock::uptime() < until {
            state = self.told.wait_timeout(state, SLICE);
        }
    }

    /// Some of what is noted, this file first if one is named, to be told now. Waits while
    /// others are being told, for so long at the most; `None`: there is nothing (more) of this
    /// file.
    fn take(&self, first: Option<FileId>, longest: Duration) -> Option<Vec<FileAccess>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let until = clock::uptime() + longest;
        let mut state = self.state.lock();
        let concerns = |some: &BTreeMap<FileId, Noted>| match first {
            Some(file) => some.contains_key(&file),
            None => !some.is_empty(),
        };
        while !state.sending.is_empty() && (concerns(&state.sending) || concerns(&state.noted)) {
            if clock::uptime() >= until {
                return None;
            }
            state = self.told.wait_timeout(state, SLICE);
        }
        if !concerns(&state.noted) {
            return None;
        }
        if let Some(file) = first
            && let Some(noted) = state.noted.remove(&file)
        {
            state.sending.insert(file, noted);
        }
        while state.sending.len() < MAX_ACCESSED
            && let Some((file, noted)) = state.noted.pop_first()
        {
            state.sending.insert(file, noted);
        }
        let now = clock::uptime();
        let access = |(file, noted): (&FileId, &Noted)| FileAccess {
            file: *file,
            age_ms: now.saturating_sub(noted.at).as_millis() as u64,
            always: noted.always,
        };
        Some(state.sending.iter().map(access).collect())
    }

    fn was_told(&self) {
        let mut state = self.state.lock();
        state.sending.clear();
        self.any.store(!state.noted.is_empty(), Ordering::Release);
        drop(state);
        self.told.notify_all();
    }
}

impl Inner {
    /// Tells the metadata server what was read, each time within so long.
    pub(crate) fn send_accesses(&self, time_ms: u64) {
        while self.send_some_accesses(None, time_ms) {}
    }

    /// Somebody asks for the attributes of a file.
    pub(crate) fn settle_access(&self, file: FileId, time_ms: u64) {
        self.send_some_accesses(Some(file), time_ms);
    }

    /// Whether there may be more to be told.
    fn send_some_accesses(&self, first: Option<FileId>, time_ms: u64) -> bool {
        let longest = Duration::from_millis(time_ms);
        let Some(files) = self.accesses.take(first, longest) else { return false };
        let request = AccessedRequest { files };
        let (told, _) = self.session.ask_within(&Context::root(), &request, time_ms);
        for access in &request.files {
            self.forget(access.file);
        }
        self.accesses.was_told();
        told.inspect_err(|error| tracing::debug!("when files were read: {error}")).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(700);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn no_more_than_fits_is_told_at_once_and_first_what_somebody_asks_for() {
        let accesses = Accesses::default();
        assert!(accesses.take(None, SHORT).is_none());
        accesses.note(FILE, false);
        for file in 0..MAX_ACCESSED as u64 {
            accesses.note(FileId(100 + file), true);
        }
        let first = accesses.take(Some(FILE), SHORT).unwrap();
        assert_eq!(first.len(), MAX_ACCESSED);
        assert!(first.iter().any(|access| access.file == FILE && !access.always));
        assert!(accesses.take(None, SHORT).is_none(), "one request at a time");
        assert!(accesses.take(Some(FileId(5)), SHORT).is_none(), "it is not noted");
        accesses.was_told();
        assert!(accesses.take(Some(FILE), SHORT).is_none(), "it was told");
        assert_eq!(accesses.take(None, SHORT).unwrap().len(), 1);
        accesses.was_told();
        assert!(accesses.take(None, SHORT).is_none());
    }

    #[test]
    fn what_was_read_before_the_time_is_set_is_not_told_after_that() {
        let accesses = Accesses::default();
        accesses.note(FILE, true);
        accesses.forget(FILE, Duration::from_secs(1));
        assert!(accesses.take(None, SHORT).is_none());
        accesses.note(FILE, true);
        assert_eq!(accesses.take(None, SHORT).unwrap().len(), 1);
        // It is on its way, and the server does not answer.
        accesses.forget(FILE, SHORT);
        accesses.was_told();
    }
}
