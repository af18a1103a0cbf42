//! Access times. The layer above notes each read; the metadata server is told a little later, many
//! files at a time, and before it is told that they are closed.
//!
//! Reads never wait for these messages, and neither does a `stat`: noted times are added to the
//! attributes as the server will record them. (The kernel asks for attributes at each end of a
//! file.)

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_types::limits::MAX_ACCESSED;
use weir_types::{Attr, FileId, Timestamp, access_is_due};
use weir_wire::meta::FileAccess;

/// The most noted files. Further reads are not noted.
const MAX_NOTED: usize = 65_536;
/// Longest wait between two looks at the clock.
const SLICE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// Time of the read by this machine's clock. It is shown and cached until the server is told.
    at: Timestamp,
    always: bool,
}

impl Noted {
    /// Adds the noted time to the attributes of the file. Returns whether that changes them.
    pub(crate) fn show(&self, attr: &mut Attr) -> bool {
        let due = self.always || access_is_due(attr.atime, [attr.mtime, attr.ctime], self.at);
        let shows = due && self.at > attr.atime;
        if shows {
            attr.atime = self.at;
        }
        shows
    }
}

#[derive(Debug, Default)]
struct State {
    noted: BTreeMap<FileId, Noted>,
    /// Times on their way to the server, in one request at a time.
    sending: BTreeMap<FileId, Noted>,
}

/// Reads that the metadata server was not told of yet.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    state: Mutex<State>,
    told: Condvar,
    /// Whether anything is noted. Mostly nothing is.
    any: AtomicBool,
    /// Whether the server refuses access times from this client, because its key is read-only.
    pub(crate) is_refused: AtomicBool,
}

impl Accesses {
    /// Notes that a file is being read. With `always` its access time becomes the present time in
    /// any case; otherwise the metadata server decides whether to record it.
    pub(crate) fn note(&self, file: FileId, always: bool) {
        if self.is_refused.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        if state.noted.len() < MAX_NOTED || state.noted.contains_key(&file) {
            let at = Timestamp(clock::unix_now().as_nanos() as i64);
            state.noted.insert(file, Noted { at, always });
            self.any.store(true, Ordering::Release);
        }
    }

    /// Drops the noted time of a file whose access time is about to be set, so that the old time
    /// does not arrive after the new one. Waits at most `longest` for times on their way.
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

    /// Adds the noted time of a file to its attributes, if the server will record it.
    pub(crate) fn show(&self, attr: &mut Attr) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        match state.noted.get_mut(&attr.file) {
            Some(noted) => noted.always |= noted.show(attr),
            None => {
                if let Some(sent) = state.sending.get(&attr.file) {
                    sent.show(attr);
                }
            }
        }
    }

    /// Number of messages for the times noted now.
    pub(crate) fn messages(&self) -> usize {
        if !self.any.load(Ordering::Acquire) {
            return 0;
        }
        self.state.lock().noted.len().div_ceil(MAX_ACCESSED)
    }

    /// Takes some noted times for one message. Returns `None` if there are none, or if a message is
    /// under way.
    pub(crate) fn take(&self) -> Option<Vec<FileAccess>> {
        let mut state = self.state.lock();
        if !state.sending.is_empty() || state.noted.is_empty() {
            return None;
        }
        while state.sending.len() < MAX_ACCESSED
            && let Some((file, noted)) = state.noted.pop_first()
        {
            state.sending.insert(file, noted);
        }
        let access = |(file, noted): (&FileId, &Noted)| FileAccess {
            file: *file,
            at: noted.at,
            always: noted.always,
        };
        Some(state.sending.iter().map(access).collect())
    }

    /// Ends the message under way and returns its times.
    pub(crate) fn was_told(&self) -> BTreeMap<FileId, Noted> {
        let mut state = self.state.lock();
        let sent = std::mem::take(&mut state.sending);
        self.any.store(!state.noted.is_empty(), Ordering::Release);
        drop(state);
        self.told.notify_all();
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(700);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn no_more_than_fits_is_told_at_once_and_no_more_than_was_there() {
        let accesses = Accesses::default();
        assert_eq!(accesses.messages(), 0);
        for file in 0..MAX_ACCESSED as u64 {
            accesses.note(FileId(100 + file), true);
        }
        accesses.note(FILE, false);
        assert_eq!(accesses.messages(), 2);
        let first = accesses.take().unwrap();
        assert_eq!(first.len(), MAX_ACCESSED);
        assert!(accesses.take().is_none(), "one request at a time");
        assert_eq!(accesses.was_told().len(), MAX_ACCESSED);
        let last = accesses.take().unwrap();
        assert!(last.len() == 1 && last[0].file == FILE && !last[0].always);
        accesses.was_told();
        assert!(accesses.take().is_none());
    }

    #[test]
    fn what_is_noted_is_shown_until_it_was_told() {
        let accesses = Accesses::default();
        let old = Timestamp(5);
        let shown = || {
            let mut attr = Attr { atime: old, ..crate::core::sample::attr(FILE, 0, 0) };
            accesses.show(&mut attr);
            attr.atime
        };
        assert_eq!(shown(), old);
        accesses.note(FILE, false);
        assert!(shown() > old);
        assert_eq!(accesses.take().unwrap().len(), 1);
        assert!(shown() > old, "it is on its way");
        accesses.was_told();
        assert_eq!(shown(), old, "the server says it from now on");
    }

    #[test]
    fn what_is_not_due_is_not_shown_and_what_was_shown_is_told_as_such() {
        let accesses = Accesses::default();
        let shown = |read: i64| {
            let mut attr = crate::core::sample::attr(FILE, 1, 0);
            attr.atime = Timestamp(read);
            accesses.show(&mut attr);
            attr.atime != Timestamp(read)
        };
        let now = clock::unix_now().as_nanos() as i64;
        accesses.note(FILE, false);
        assert!(!shown(now), "others have read it since it was changed");
        assert!(!accesses.take().unwrap()[0].always);
        accesses.was_told();
        accesses.note(FILE, false);
        assert!(shown(0) && shown(now));
        assert!(accesses.take().unwrap()[0].always);
    }

    #[test]
    fn what_was_read_before_the_time_is_set_is_not_told_after_that() {
        let accesses = Accesses::default();
        accesses.note(FILE, true);
        accesses.forget(FILE, Duration::from_secs(1));
        assert!(accesses.take().is_none());
        accesses.note(FILE, true);
        assert_eq!(accesses.take().unwrap().len(), 1);
        // It is on its way, and the server does not answer.
        accesses.forget(FILE, SHORT);
        accesses.was_told();
    }
}
