//! When files were read, as the layer above notes it: told to the metadata server a little
//! later, many at a time, before it is told that they are closed.
//!
//! Who reads waits for none of that, nor does who asks for attributes: what is noted is shown with
//! them, as the server will have it. (The kernel asks for attributes at each end of a file.)

use crate::client::Inner;
use crate::context::Context;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_types::limits::MAX_ACCESSED;
use weir_types::{Attr, ErrorKind, FileId, Timestamp, access_is_due};
use weir_wire::meta::{AccessedRequest, FileAccess};

/// Files that are noted; beyond that, that one was read is forgotten.
const MAX_NOTED: usize = 65_536;
/// Longest wait without a look at the time.
const SLICE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
struct Noted {
    /// By this machine's clock: what is shown meanwhile, and kept.
    at: Timestamp,
    always: bool,
}

impl Noted {
    /// Shows it with the attributes of the file; whether it changes them.
    fn show(&self, attr: &mut Attr) -> bool {
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
    /// The server changes nothing for this client, whose key only reads.
    is_refused: AtomicBool,
}

impl Accesses {
    /// A file is being read. `always`: its time of access is to be now, whatever it is; else
    /// the metadata server judges whether that is due.
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

    /// Shows what is noted of a file, if that is news: the server will keep it.
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

    /// How many messages what is noted now takes.
    fn messages(&self) -> usize {
        if !self.any.load(Ordering::Acquire) {
            return 0;
        }
        self.state.lock().noted.len().div_ceil(MAX_ACCESSED)
    }

    /// Some of what is noted, to be told now; `None`: there is nothing, or others are being told.
    fn take(&self) -> Option<Vec<FileAccess>> {
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

    /// What was sent.
    fn was_told(&self) -> BTreeMap<FileId, Noted> {
        let mut state = self.state.lock();
        let sent = std::mem::take(&mut state.sending);
        self.any.store(!state.noted.is_empty(), Ordering::Release);
        drop(state);
        self.told.notify_all();
        sent
    }
}

impl Inner {
    /// Tells the metadata server what was read until now, each time within so long. What is read
    /// meanwhile is for the next turn.
    pub(crate) fn send_accesses(&self, time_ms: u64) {
        for _ in 0..self.accesses.messages() {
            let Some(files) = self.accesses.take() else { return };
            let request = AccessedRequest { files };
            let (told, _) = self.session.ask_within(&Context::root(), &request, time_ms);
            let sent = self.accesses.was_told();
            match told {
                // Whoever keeps the attributes of a file sees no older time than before.
                Ok(()) => {
                    let mut kept = self.holdings.kept.lock();
                    for (file, noted) in &sent {
                        kept.was_accessed(*file, |attr| noted.show(attr));
                    }
                }
                Err(error) => {
                    if error.kind == ErrorKind::ReadOnly {
                        self.accesses.is_refused.store(true, Ordering::Relaxed);
                    }
                    tracing::debug!("when files were read: {error}");
                    return;
                }
            }
        }
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
