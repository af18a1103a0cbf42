//! Names that the kernel may use without asking, because it was told how long they are valid.
//!
//! When a name changes elsewhere the kernel is told ([`crate::kernel_names`]). For that it takes the
//! lock of the directory. So every reply that it handles under this lock has been handled by then:
//! lookups of what it does not have, listings, and its own changes. A name that it has already it
//! asks for again without the lock. Such a reply has been handled when the thread that asked makes
//! its next request, sleeps or ends, or some time later. Until then the kernel is not told.
//!
//! The lock may be held by a change of this mount's own, which may wait for the very client that
//! waits for this one. So lifetimes are short, and a directory in which others change names that the
//! kernel uses has none for a while.
//!
//! Invariant: a name stays here from before it is compared with the client's cache, which is before
//! the reply, until it has been ended or its lifetime is over.

use crate::fuse::NodeId;
use crate::lifetimes::ACTS;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_types::FileId;

/// The longest lifetime of a name.
pub(crate) const LIFETIME: Duration = Duration::from_millis(250);
/// How long the kernel uses such a name at the most: it counts ticks of up to 10 ms, one too many, and
/// the one that has begun.
pub(crate) const LASTS: Duration = LIFETIME.saturating_add(Duration::from_millis(30));
/// How long a name stays here: from before the reply until its lifetime is over.
const SPAN: Duration = LASTS.saturating_add(ACTS.saturating_mul(2));
/// How long names of a directory have no lifetime after one was changed elsewhere.
const QUIET: Duration = Duration::from_secs(30);
/// The same after a lifetime had to be waited for.
const LONG_QUIET: Duration = Duration::from_secs(600);
/// A name that is asked for again within this time is on many paths.
const OFTEN: Duration = Duration::from_millis(100);
/// The most names told within [`SPAN`].
const MAX_NAMES: usize = 131_072;
/// The most directories without lifetimes. Beyond it all have some again.
const MAX_SHARED: usize = 16_384;
/// With more threads, those are dropped that must have handled their replies.
const MAX_THREADS: usize = 1024;
/// Places for the names that were asked for last.
const RECENT: usize = 1024;

/// A name in a directory of the kernel.
pub(crate) type Name = (NodeId, Box<[u8]>);

#[derive(Debug, Default)]
struct Generation {
    dirs: HashMap<FileId, HashSet<Name>>,
    names: usize,
}

impl Generation {
    fn insert(&mut self, dir: FileId, name: Name) {
        self.names += usize::from(self.dirs.entry(dir).or_default().insert(name));
    }

    /// Removes and returns a name of a directory, or all of them.
    fn take(&mut self, dir: FileId, name: Option<&[u8]>) -> HashSet<Name> {
        let Some(told) = self.dirs.get_mut(&dir) else { return HashSet::new() };
        let taken: HashSet<Name> = match name {
            None => take(told),
            Some(name) => told.extract_if(|(_, of)| **of == *name).collect(),
        };
        if told.is_empty() {
            self.dirs.remove(&dir);
        }
        self.names -= taken.len();
        taken
    }
}

/// A reply that a thread may not have handled.
#[derive(Debug)]
struct Reply {
    dir: FileId,
    /// The name, if the reply may be handled without the lock.
    unlocked: Option<Box<[u8]>>,
    at: Instant,
    is_sent: bool,
}

/// Whether a thread has run since its last reply was sent; to be asked for replies that were sent.
pub(crate) type HasRun<'a> = &'a dyn Fn(u32) -> bool;

#[derive(Debug, Default)]
struct State {
    young: Generation,
    old: Generation,
    /// When the young names began to be collected.
    begun: Option<Instant>,
    /// Directories in which others change names, and until when they have no lifetimes.
    shared: HashMap<FileId, Instant>,
    /// Replies that may not have been handled, by thread.
    replies: HashMap<u32, Reply>,
    /// Names that were asked for last, by place.
    recent: Vec<Option<(u64, Instant)>>,
}

/// All names with lifetimes.
#[derive(Debug, Default)]
pub(crate) struct NameLifetimes {
    state: Mutex<State>,
    /// Number of replies that may not have been handled.
    replies: AtomicUsize,
    hasher: RandomState,
}

impl NameLifetimes {
    /// Records that the kernel is about to be told a name with a lifetime. Returns `false` if it may
    /// have none.
    pub(crate) fn begins(&self, dir: FileId, name: Name, now: Instant) -> bool {
        let mut state = self.lock();
        state.advance(now);
        if state.is_shared(dir, now) || state.young.names + state.old.names >= MAX_NAMES {
            return false;
        }
        state.young.insert(dir, name);
        true
    }

    /// Records that the kernel moves what it has, with its lifetime, to this name.
    pub(crate) fn moves(&self, dir: FileId, name: Name, now: Instant) {
        let mut state = self.lock();
        state.advance(now);
        state.young.insert(dir, name);
    }

    /// Whether names of a directory may have lifetimes now.
    pub(crate) fn may_begin(&self, dir: FileId, now: Instant) -> bool {
        !self.lock().is_shared(dir, now)
    }

    /// Whether the kernel may have been told any name of a directory with a lifetime that is not over.
    pub(crate) fn has_told(&self, dir: FileId) -> bool {
        let state = self.lock();
        state.young.dirs.contains_key(&dir) || state.old.dirs.contains_key(&dir)
    }

    /// Whether the kernel may have been told a name with a lifetime that is not over.
    pub(crate) fn is_told(&self, dir: FileId, name: &Name) -> bool {
        let state = self.lock();
        let has = |told: &Generation| told.dirs.get(&dir).is_some_and(|dir| dir.contains(name));
        has(&state.young) || has(&state.old)
    }

    /// Whether a name was asked for a moment ago, too.
    pub(crate) fn is_asked_often(&self, name: &Name, now: Instant) -> bool {
        let hash = self.hasher.hash_one(name);
        let mut state = self.lock();
        state.recent.resize(RECENT, None);
        let Some(place) = state.recent.get_mut(hash as usize % RECENT) else { return false };
        let before = place.replace((hash, now));
        before.is_some_and(|(other, at)| other == hash && now < at + OFTEN)
    }

    /// Records a reply to a thread with names of a directory, before it is sent; with the name if the
    /// kernel may handle it without the lock. (Nobody knows which thread 0 is.)
    pub(crate) fn replies(&self, by: u32, dir: FileId, unlocked: Option<&[u8]>, now: Instant) {
        let mut state = self.lock();
        if state.replies.len() >= MAX_THREADS {
            state.replies.retain(|_, reply| now < reply.at + ACTS);
        }
        let unlocked = unlocked.map(Box::from);
        state.replies.insert(by, Reply { dir, unlocked, at: now, is_sent: false });
        self.replies.store(state.replies.len(), Ordering::SeqCst);
    }

    /// Records that the reply to a thread was sent, or will not be.
    pub(crate) fn sent(&self, by: u32) {
        if let Some(reply) = self.lock().replies.get_mut(&by) {
            reply.is_sent = true;
        }
    }

    /// Records another request of a thread: it has handled all replies.
    pub(crate) fn goes_on(&self, by: u32) {
        if by != 0 && self.replies.load(Ordering::SeqCst) > 0 {
            let mut state = self.lock();
            state.replies.remove(&by);
            self.replies.store(state.replies.len(), Ordering::SeqCst);
        }
    }

    /// Whether the kernel has handled all replies that it handles without the lock, about a name or
    /// any of the directory.
    pub(crate) fn is_handled(
        &self,
        dir: FileId,
        name: Option<&[u8]>,
        now: Instant,
        has_run: HasRun<'_>,
    ) -> bool {
        let is_it = |of: &[u8]| name.is_none_or(|name| of == name);
        let such = |reply: &Reply| reply.unlocked.as_deref().is_some_and(is_it);
        self.has_none(|reply| reply.dir == dir && such(reply), now, has_run)
    }

    /// The same for all directories.
    pub(crate) fn is_all_handled(&self, now: Instant, has_run: HasRun<'_>) -> bool {
        self.has_none(|reply| reply.unlocked.is_some(), now, has_run)
    }

    /// Whether the kernel has handled all replies about names of the directory. (A thread that has the
    /// lock may sleep before it has handled its reply.)
    pub(crate) fn are_all_handled(&self, dir: FileId, now: Instant) -> bool {
        self.has_none(|reply| reply.dir == dir, now, &|_| false)
    }

    fn has_none(&self, such: impl Fn(&Reply) -> bool, now: Instant, has_run: HasRun<'_>) -> bool {
        let state = self.lock();
        let is_it = |reply: &Reply| now < reply.at + ACTS && such(reply);
        let found = state.replies.iter().filter(|(_, reply)| is_it(reply));
        let threads: Vec<(u32, bool)> = found.map(|(by, reply)| (*by, reply.is_sent)).collect();
        drop(state);
        threads.into_iter().all(|(by, is_sent)| is_sent && has_run(by))
    }

    /// Removes and returns what has to be ended because another client changes a name, or perhaps
    /// all names of a directory.
    pub(crate) fn change(&self, dir: FileId, name: Option<&[u8]>, now: Instant) -> Vec<Name> {
        let mut state = self.lock();
        let mut told = state.young.take(dir, name);
        told.extend(state.old.take(dir, name));
        if !told.is_empty() && name.is_some() {
            state.shares(dir, QUIET, now);
        }
        told.into_iter().collect()
    }

    /// Records that lifetimes of names of a directory had to be waited for.
    pub(crate) fn was_waited_for(&self, dir: FileId, now: Instant) {
        self.lock().shares(dir, LONG_QUIET, now);
    }

    /// Removes and returns all names.
    pub(crate) fn take_all(&self) -> Vec<Name> {
        let mut state = self.lock();
        let both = [take(&mut state.young), take(&mut state.old)];
        both.into_iter().flat_map(|told| told.dirs.into_values().flatten()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops names of which the lifetime is over.
    fn advance(&mut self, now: Instant) {
        let begun = *self.begun.get_or_insert(now);
        if now >= begun + SPAN {
            self.old = take(&mut self.young);
            self.begun = Some(now);
        }
    }

    fn is_shared(&self, dir: FileId, now: Instant) -> bool {
        self.shared.get(&dir).is_some_and(|until| now < *until)
    }

    /// Gives names of a directory no lifetimes for so long.
    fn shares(&mut self, dir: FileId, quiet: Duration, now: Instant) {
        if self.shared.len() >= MAX_SHARED {
            self.shared.retain(|_, until| now < *until);
        }
        if self.shared.len() >= MAX_SHARED {
            self.shared.clear();
        }
        let until = self.shared.entry(dir).or_insert(now);
        *until = (*until).max(now + quiet);
    }
}

#[cfg(test)]
#[path = "name_lifetimes_tests.rs"]
mod tests;
