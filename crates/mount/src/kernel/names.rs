//! Names that the kernel uses without asking, because it was told how long they are valid.
//!
//! Linux can end all names of a mount, but then unmounts what is mounted on them; or one name, but takes the lock of
//! its directory, which a change may hold that waits for this mount. So a name ends by time alone, after
//! [`LIFETIME`]. Its directory ends at once: before the kernel uses a name it checks the right to search the
//! directory, and for that it asks for the directory's attributes, unless they are valid. So when a name changes,
//!
//! 1. the directory is *closed*: names in it get no lifetime any more, nor do its own attributes;
//! 2. the kernel drops the directory's attributes ([`crate::kernel::attributes`]), which takes no lock;
//! 3. the change goes on: the event is acknowledged, or the request is sent;
//! 4. questions for the directory's attributes are answered once no name in it is valid any more.
//!
//! A lifetime begins when the thread that asked handles the reply. That is over when the thread asks again, sleeps
//! or is gone, and in any case after [`ACTS`]. Until then the reply is *unsettled*. A change by this kernel needs only
//! be handled: then the kernel has changed the name itself.
//!
//! The name of a file that is open here has no lifetime. Before the kernel is told a greater size of such a file it is
//! made to raise its own, and then ignores the very answer with its attributes. So a walk to it is to ask twice: for
//! the name, and for the attributes. A file may be opened while its name has a lifetime. When another client
//! then changes its attributes, the directories with its name are closed ([`Names::close_names_of`]).
//!
//! The state is pure: the time, and what threads do, are passed in.

use crate::kernel::lifetimes::ACTS;
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_types::FileId;

/// How long the kernel may use a name. Whoever meets a closed directory waits for as long.
pub(crate) const LIFETIME: Duration = Duration::from_millis(100);
/// A name is not used any more after this time: the kernel counts by ticks of at most 10 ms, and rounds up twice.
const OVER: Duration = Duration::from_millis(150);
/// Names in a directory have no lifetime for this time after another client has changed one.
const CALM: Duration = Duration::from_secs(2);
/// The same, after one thread of this machine has waited for another one's change.
const BUSY: Duration = Duration::from_secs(10);
/// The most directories with names: as many as the client caches.
const MAX_DIRECTORIES: usize = 65_536;
/// No name is used any more this long after it was told.
const LONGEST: Duration = ACTS.saturating_add(OVER);
/// The most files with names that were told in that time.
const MAX_FILES: usize = 65_536;
/// The most pairs of directories between which names were moved.
const MAX_MOVES: usize = 256;
/// The most threads with unsettled replies.
const MAX_THREADS: usize = 4096;
/// The shortest time between two searches for what is over.
const SWEEP: Duration = Duration::from_secs(1);
/// The longest time between two looks at threads.
const LOOK: Duration = Duration::from_millis(1);

/// A request of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// The thread; 0 if unknown.
    pub(crate) thread: u32,
    /// The number of the request.
    pub(crate) unique: u64,
}

/// What a thread is seen to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It waits for something that may be interrupted, which no thread does while it handles a lookup.
    Sleeps,
    Gone,
    Unknown,
}

/// The end of a change by this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It has changed nothing.
    Refused,
    /// The kernel does the same when it handles the reply.
    Done,
    /// The kernel may go on with what was before.
    Unknown,
}

#[derive(Debug, Default)]
struct Directory {
    /// Unsettled replies with names of it.
    unsettled: u32,
    /// No name is used after this time that was told in a settled reply.
    until: Option<Instant>,
    closed: bool,
    /// Changes by this kernel of which the reply is not settled.
    changes: u32,
    /// Names may get lifetimes after this time.
    calm: Option<Instant>,
}

impl Directory {
    fn has_names(&self, now: Instant) -> bool {
        self.unsettled > 0 || self.until.is_some_and(|until| now < until)
    }

    fn is_over(&self, now: Instant) -> bool {
        let is_calm = self.calm.is_none_or(|calm| now >= calm);
        self.changes == 0 && is_calm && !self.has_names(now)
    }

    fn calms_until(&mut self, time: Instant) {
        self.calm = Some(self.calm.map_or(time, |calm| calm.max(time)));
    }

    fn ends_at(&mut self, end: Instant) {
        self.until = Some(self.until.map_or(end, |until| until.max(end)));
    }
}

/// An unsettled reply. A thread has one at a time.
#[derive(Debug)]
struct Unsettled {
    unique: u64,
    /// Directories with names in it.
    named: Vec<FileId>,
    /// Directories that the request has changed.
    changed: Vec<FileId>,
    sent: Option<Instant>,
    /// The thread may sleep while it handles a listing: its buffer may have to be read from a disk.
    listing: bool,
}

impl Unsettled {
    /// Time by which it was handled, if it was.
    fn handled(&self, now: Instant, doing: Doing) -> Option<Instant> {
        let latest = self.sent? + ACTS;
        let is_handled = match doing {
            Doing::Gone => true,
            Doing::Sleeps => !self.listing,
            Doing::Unknown => false,
        };
        if is_handled { Some(now.min(latest)) } else { (now >= latest).then_some(latest) }
    }
}

#[derive(Debug, Default)]
struct State {
    directories: HashMap<FileId, Directory>,
    /// Directories in which a file was named, and when that was last.
    files: HashMap<FileId, (Vec<FileId>, Instant)>,
    /// Between which directories this kernel has moved names, and when it began the last of these moves; the latest
    /// is at the end.
    moves: VecDeque<(Instant, Vec<FileId>)>,
    /// When there was no room for one more of these last.
    moved: Option<Instant>,
    threads: HashMap<u32, Unsettled>,
    swept: Option<Instant>,
}

/// All names with lifetimes.
#[derive(Debug, Default)]
pub(crate) struct Names {
    state: Mutex<State>,
    /// Notified when a reply is settled.
    settled: Condvar,
}

impl Names {
    /// Records that a thread asks: it has handled what it was told before.
    pub(crate) fn asks(&self, asker: Asker, now: Instant) {
        let mut state = self.lock();
        if state.threads.get(&asker.thread).is_some_and(|last| last.unique != asker.unique) {
            state.settle(asker.thread, now);
            self.settled.notify_all();
        }
    }

    /// Records that the kernel is about to be told a name of a file in a directory, with a lifetime. To be followed by
    /// [`Names::sent`] or [`Names::tells_none`]. Returns `false` if it must have none.
    pub(crate) fn begins(
        &self,
        asker: Asker,
        (dir, file): (FileId, FileId),
        listing: bool,
        now: Instant,
    ) -> bool {
        self.asks(asker, now);
        let mut state = self.lock();
        if asker.thread == 0 || !state.has_room(now) {
            return false;
        }
        let directory = state.directories.entry(dir).or_default();
        if directory.closed || directory.changes > 0 || directory.calm.is_some_and(|c| now < c) {
            return false;
        }
        state.is_named(asker, dir);
        let (dirs, last) = state.files.entry(file).or_insert_with(|| (Vec::new(), now));
        *last = now;
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
        if let Some(reply) = state.threads.get_mut(&asker.thread) {
            reply.listing |= listing;
        }
        true
    }

    /// Records that a request is answered without a lifetime of a name after all.
    pub(crate) fn tells_none(&self, asker: Asker) {
        let mut state = self.lock();
        if state.threads.get(&asker.thread).is_some_and(|reply| reply.unique == asker.unique)
            && let Some(reply) = state.threads.remove(&asker.thread)
        {
            for dir in reply.named {
                state.directories.entry(dir).and_modify(|dir| dir.unsettled -= 1);
            }
            self.settled.notify_all();
        }
    }

    /// Records that a reply was sent, or refused by the kernel.
    pub(crate) fn sent(&self, asker: Asker, now: Instant) {
        let mut state = self.lock();
        if let Some(reply) = state.threads.get_mut(&asker.thread)
            && reply.unique == asker.unique
        {
            reply.sent = Some(now);
        }
    }

    /// Closes a directory, because another client changes a name in it.
    pub(crate) fn close(&self, dir: FileId, now: Instant) {
        if let Some(directory) = self.lock().directories.get_mut(&dir) {
            directory.closed = true;
            directory.calms_until(now + CALM);
        }
    }

    /// Closes directories that may have a name of a file, and returns them: their attributes have to be ended.
    pub(crate) fn close_names_of(&self, file: FileId, now: Instant) -> Vec<FileId> {
        let mut state = self.lock();
        let state = &mut *state;
        let is_lately = |at: Instant| now < at + LONGEST;
        let named = state.files.get(&file).filter(|(_, last)| is_lately(*last));
        let Some((dirs, _)) = named else { return Vec::new() };
        let mut dirs = dirs.clone();
        if state.moved.is_some_and(is_lately) {
            // Nobody knows where its names are.
            dirs = state.directories.keys().copied().collect();
        }
        let mut ways: Vec<_> = state.moves.iter().filter(|(at, _)| is_lately(*at)).collect();
        while let Some(next) = ways.iter().position(|(_, way)| way.iter().any(|d| dirs.contains(d)))
        {
            let (_, way) = ways.swap_remove(next);
            let new: Vec<_> = way.iter().filter(|dir| !dirs.contains(dir)).copied().collect();
            dirs.extend(new);
        }
        for dir in &dirs {
            if let Some(directory) = state.directories.get_mut(dir) {
                directory.closed = true;
            }
        }
        dirs
    }

    /// Closes all directories.
    pub(crate) fn close_all(&self) {
        self.lock().directories.values_mut().for_each(|directory| directory.closed = true);
    }

    /// Closes directories until a removal or a move by this kernel has ended. What is moved takes its lifetime to the
    /// other directory.
    pub(crate) fn change_begins(&self, asker: Asker, dirs: &[FileId], now: Instant) {
        self.asks(asker, now);
        let mut state = self.lock();
        // What is over is forgotten; a change is never refused.
        state.has_room(now);
        for dir in dirs {
            state.directories.entry(*dir).or_default().changes += 1;
        }
        if dirs.len() > 1 {
            state.moves(dirs, now);
            state.join(dirs);
        }
    }

    /// Records that a change has ended. If it is done [`Names::sent`] has to follow.
    pub(crate) fn change_ends(&self, asker: Asker, dirs: &[FileId], how: Ended) {
        let mut state = self.lock();
        let is_known = asker.thread != 0 && !state.threads.contains_key(&asker.thread);
        if how == Ended::Done && is_known && state.threads.len() < MAX_THREADS {
            let changed = dirs.to_vec();
            let Asker { thread, unique } = asker;
            let reply =
                Unsettled { unique, named: Vec::new(), changed, sent: None, listing: false };
            state.threads.insert(thread, reply);
            return;
        }
        for dir in dirs {
            if let Some(directory) = state.directories.get_mut(dir) {
                directory.changes -= 1;
                directory.closed |= how != Ended::Refused;
            }
        }
        self.settled.notify_all();
    }

    /// Whether attributes of a directory must not get a lifetime.
    pub(crate) fn is_closed(&self, dir: FileId) -> bool {
        let state = self.lock();
        state.directories.get(&dir).is_some_and(|dir| dir.closed || dir.changes > 0)
    }

    /// Threads to look at before the attributes of a directory are told, each with the number of its reply. `None`: the
    /// directory is open, and they may be told now.
    pub(crate) fn waits_for(&self, dir: FileId, now: Instant) -> Option<Vec<(u32, u64)>> {
        let mut state = self.lock();
        let directory = state.directories.get_mut(&dir)?;
        if !directory.closed && directory.changes == 0 {
            return None;
        }
        if !directory.has_names(now) {
            directory.closed = false;
            return None;
        }
        if directory.changes > 0 {
            directory.calms_until(now + BUSY);
        }
        let of_dir = |reply: &Unsettled| {
            reply.sent.is_some() && (reply.named.contains(&dir) || reply.changed.contains(&dir))
        };
        let threads = state.threads.iter().filter(|(_, reply)| of_dir(reply));
        Some(threads.map(|(thread, reply)| (*thread, reply.unique)).collect())
    }

    /// Records what a thread is seen to do since it was sent the reply of this number. Returns whether that settles it.
    pub(crate) fn is_seen(&self, (thread, unique): (u32, u64), doing: Doing, now: Instant) -> bool {
        let mut state = self.lock();
        let reply = state.threads.get(&thread).filter(|reply| reply.unique == unique);
        let handled = reply.and_then(|reply| reply.handled(now, doing));
        if let Some(handled) = handled {
            state.settle(thread, handled);
            self.settled.notify_all();
        }
        handled.is_some()
    }

    /// Waits until a reply is settled, or for a moment.
    pub(crate) fn wait(&self) {
        drop(self.settled.wait_timeout(self.lock(), LOOK));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A thread has handled its last reply by this time.
    fn settle(&mut self, thread: u32, handled: Instant) {
        let Some(reply) = self.threads.remove(&thread) else { return };
        for dir in reply.named {
            if let Some(directory) = self.directories.get_mut(&dir) {
                directory.unsettled -= 1;
                directory.ends_at(handled + OVER);
            }
        }
        for dir in reply.changed {
            self.directories.entry(dir).and_modify(|directory| directory.changes -= 1);
        }
    }

    fn is_named(&mut self, Asker { thread, unique }: Asker, dir: FileId) {
        let none = || Unsettled {
            unique,
            named: Vec::new(),
            changed: Vec::new(),
            sent: None,
            listing: false,
        };
        let reply = self.threads.entry(thread).or_insert_with(none);
        if !reply.named.contains(&dir) {
            reply.named.push(dir);
            self.directories.entry(dir).or_default().unsettled += 1;
        }
    }

    /// Records that a name goes from one of these directories to the other.
    fn moves(&mut self, dirs: &[FileId], now: Instant) {
        while self.moves.front().is_some_and(|(at, _)| now >= *at + LONGEST) {
            self.moves.pop_front();
        }
        self.moves.retain(|(_, way)| way != dirs);
        if self.moves.len() < MAX_MOVES {
            self.moves.push_back((now, dirs.to_vec()));
        } else {
            self.moved = Some(now);
        }
    }

    /// Each name of one of these directories may be one of the others from now on.
    fn join(&mut self, dirs: &[FileId]) {
        let until = dirs.iter().filter_map(|dir| self.directories.get(dir)?.until).max();
        for reply in self.threads.values_mut() {
            if !dirs.iter().any(|dir| reply.named.contains(dir)) {
                continue;
            }
            for dir in dirs {
                if !reply.named.contains(dir) {
                    reply.named.push(*dir);
                    self.directories.entry(*dir).or_default().unsettled += 1;
                }
            }
        }
        for dir in dirs {
            if let (Some(until), Some(directory)) = (until, self.directories.get_mut(dir)) {
                directory.ends_at(until);
            }
        }
    }

    fn has_room(&mut self, now: Instant) -> bool {
        let is_full = |state: &Self| {
            state.directories.len() >= MAX_DIRECTORIES
                || state.threads.len() >= MAX_THREADS
                || state.files.len() >= MAX_FILES
        };
        if is_full(self) && self.swept.is_none_or(|swept| now > swept + SWEEP) {
            self.swept = Some(now);
            let handled = |(thread, reply): (&u32, &Unsettled)| {
                reply.handled(now, Doing::Unknown).map(|handled| (*thread, handled))
            };
            let over: Vec<_> = self.threads.iter().filter_map(handled).collect();
            over.into_iter().for_each(|(thread, handled)| self.settle(thread, handled));
            self.directories.retain(|_, directory| !directory.is_over(now));
            self.files.retain(|_, (_, last)| now < *last + LONGEST);
        }
        !is_full(self)
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
