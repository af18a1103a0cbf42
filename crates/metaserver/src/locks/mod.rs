//! Locks of programs on files, of all sessions: who holds them, and who waits.
//!
//! Pure, and in memory only: after a restart clients report their locks again, and waiting clients
//! ask again. Locks follow POSIX: locks of one owner never conflict, and a new lock replaces the
//! old one where they overlap. Waiting requests are granted in order of arrival as soon as no lock
//! conflicts; waiting requests do not block others.

mod deadlock;
#[cfg(test)]
mod model_tests;

use std::collections::{BTreeMap, BTreeSet};
use weir_types::{ErrorKind, FileId, SessionId};
use weir_wire::lock::{Lock, LockMode, LockOutcome, LockWait, apply, conflict};

/// The most locks of one session.
pub const MAX_LOCKS: usize = 65_536;
/// The most waiting requests of one session.
pub const MAX_WAITING: usize = 4096;
/// A waiting request that is not repeated for this long is forgotten, milliseconds. So is the fact
/// that one was granted and its client told: a client that did not receive the reply has asked
/// again by then, or has cancelled.
pub const PATIENCE_MS: u64 = 40_000;

/// Owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    session: SessionId,
    owner: u64,
    flock: bool,
}

/// A request that waits, or has waited.
#[derive(Clone, Debug)]
struct Waiter {
    lock: Lock,
    /// Whether it takes part in deadlock detection.
    counts: bool,
    state: Waits,
    /// Time of the last request, or of the reply.
    asked_ms: u64,
    /// Time of the first request.
    since_ms: u64,
}

/// The locks of a session.
#[derive(Debug, Default)]
struct Counts {
    /// Number of its locks, by file.
    files: BTreeMap<FileId, usize>,
    /// Number of its locks on all files, for quick checks.
    all: usize,
}

impl Counts {
    /// Records that one owner's locks on a file have changed from `before` to `now`.
    fn change(&mut self, file: FileId, before: usize, now: usize) {
        self.all = self.all + now - before;
        let of_file = self.files.entry(file).or_default();
        *of_file = *of_file + now - before;
        if *of_file == 0 {
            self.files.remove(&file);
        }
    }
}

/// Stage of a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// A lock conflicts.
    Queued,
    /// The lock is granted, but no client was there to be told.
    Granted,
    /// The lock is granted, and the reply was sent.
    Told,
}

/// A waiting request: its session and number.
pub type WaitId = (SessionId, u64);

/// The locks of all files.
#[derive(Debug, Default)]
pub struct Locks {
    files: BTreeMap<FileId, BTreeMap<Owner, Vec<Lock>>>,
    counts: BTreeMap<SessionId, Counts>,
    waiters: BTreeMap<WaitId, Waiter>,
    /// Waiting requests of each file in order of arrival.
    queues: BTreeMap<FileId, Vec<(u64, WaitId)>>,
    arrivals: u64,
    /// Requests with smaller numbers are over, by session.
    floors: BTreeMap<SessionId, u64>,
}

impl Owner {
    fn of(session: SessionId, lock: &Lock) -> Self {
        Self { session, owner: lock.owner, flock: lock.flock }
    }
}

impl Locks {
    /// Handles a request. Requests that can go on because of it are added to `granted`.
    ///
    /// # Errors
    /// `Stale` if it comes too late, `InvalidArgument`, `Deadlock`, `NoLocks`.
    pub fn set(
        &mut self,
        session: SessionId,
        number: u64,
        lock: &Lock,
        wait: LockWait,
        now_ms: u64,
        granted: &mut Vec<WaitId>,
    ) -> Result<LockOutcome, ErrorKind> {
        self.check(session, number, lock)?;
        let id = (session, number);
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.asked_ms = now_ms;
            if waiter.state == Waits::Queued {
                return Ok(LockOutcome::Waiting);
            }
            // Should this answer be lost too, it is asked for once more.
            waiter.state = Waits::Told;
            return Ok(LockOutcome::Granted);
        }
        let owner = Owner::of(session, lock);
        if lock.flock {
            // Changing the mode of one gives the old one up first, as on Linux.
            let held = self.held(lock.file, owner).first().map(|held| held.mode);
            if held.is_some_and(|mode| mode != lock.mode) {
                let none = Lock { mode: LockMode::Unlock, ..lock.clone() };
                self.take(owner, &none);
                self.grant_waiting(lock.file, granted);
            }
        }
        if self.in_the_way(owner, lock).is_none() {
            if self.count(session) >= MAX_LOCKS && lock.mode != LockMode::Unlock {
                return Err(ErrorKind::NoLocks);
            }
            self.take(owner, lock);
            // An unlock, or an exclusive lock that became a shared one.
            self.grant_waiting(lock.file, granted);
            return Ok(LockOutcome::Granted);
        }
        if wait == LockWait::No {
            return Ok(LockOutcome::Conflict);
        }
        let mine = self.waiters.range((session, 0)..=(session, u64::MAX));
        if mine.filter(|(_, waiter)| waiter.state != Waits::Told).count() >= MAX_WAITING {
            return Err(ErrorKind::NoLocks);
        }
        let counts = wait == LockWait::UnlessDeadlock;
        if counts && self.would_deadlock(owner, lock) {
            return Err(ErrorKind::Deadlock);
        }
        let (lock, state) = (lock.clone(), Waits::Queued);
        let file = lock.file;
        self.waiters.insert(id, Waiter { lock, counts, state, asked_ms: now_ms, since_ms: now_ms });
        self.arrivals += 1;
        self.queues.entry(file).or_default().push((self.arrivals, id));
        Ok(LockOutcome::Waiting)
    }

    fn check(&self, session: SessionId, number: u64, lock: &Lock) -> Result<(), ErrorKind> {
        if number < self.floors.get(&session).copied().unwrap_or(0) {
            return Err(ErrorKind::Stale);
        }
        if lock.start > lock.last || lock.last > weir_wire::lock::LAST_BYTE {
            return Err(ErrorKind::InvalidArgument);
        }
        Ok(())
    }

    /// Records that a reply with the grant was sent.
    pub fn told(&mut self, id: WaitId, now_ms: u64) {
        if let Some(waiter) = self.waiters.get_mut(&id)
            && waiter.state == Waits::Granted
        {
            (waiter.state, waiter.asked_ms) = (Waits::Told, now_ms);
        }
    }

    /// Ends the requests of the session with smaller numbers. Granted locks without a reply are
    /// released.
    pub fn raise_floor(&mut self, session: SessionId, floor: u64, granted: &mut Vec<WaitId>) {
        let known = self.floors.entry(session).or_default();
        *known = floor.max(*known);
        let over: Vec<WaitId> =
            self.waiters.range((session, 0)..(session, floor)).map(|(id, _)| *id).collect();
        for id in over {
            self.give_back(id, granted);
        }
    }

    /// Forgets a request. A granted lock without a reply is released.
    fn give_back(&mut self, id: WaitId, granted: &mut Vec<WaitId>) {
        let Some(waiter) = self.waiters.get(&id).cloned() else { return };
        self.forget_waiter(id);
        if waiter.state == Waits::Granted {
            let none = Lock { mode: LockMode::Unlock, ..waiter.lock };
            self.take(Owner::of(id.0, &none), &none);
            self.grant_waiting(none.file, granted);
        }
    }

    /// A lock that conflicts with this one; exclusive locks of other owners come first.
    pub fn test(&self, session: SessionId, lock: &Lock) -> Option<Lock> {
        self.in_the_way(Owner::of(session, lock), lock).map(|(_, found)| found.clone())
    }

    /// The sessions whose locks conflict with a waiting request.
    pub fn blockers(&self, id: WaitId) -> BTreeSet<SessionId> {
        let Some(waiter) = self.waiters.get(&id) else { return BTreeSet::new() };
        let owner = Owner::of(id.0, &waiter.lock);
        self.all_in_the_way(owner, &waiter.lock).map(|(owner, _)| owner.session).collect()
    }

    /// The sessions whose locks conflict with a lock.
    pub fn holders(&self, session: SessionId, lock: &Lock) -> BTreeSet<SessionId> {
        let owner = Owner::of(session, lock);
        self.all_in_the_way(owner, lock).map(|(owner, _)| owner.session).collect()
    }

    /// Cancels a waiting request. Returns whether it was granted meanwhile.
    pub fn cancel(&mut self, session: SessionId, number: u64) -> bool {
        let granted = self.waiters.get(&(session, number));
        let granted = granted.is_some_and(|waiter| waiter.state != Waits::Queued);
        self.forget_waiter((session, number));
        // Should a copy of the request still be on its way, it comes too late:
        // the client raises the floor with its next request.
        granted
    }

    /// Takes over a lock that a session reports after a restart. Returns whether the session still
    /// holds it.
    pub fn reassert(&mut self, session: SessionId, lock: &Lock) -> bool {
        let owner = Owner::of(session, lock);
        let valid = lock.start <= lock.last && lock.mode != LockMode::Unlock;
        let free = self.in_the_way(owner, lock).is_none() && self.count(session) < MAX_LOCKS;
        if valid && free {
            self.take(owner, lock);
        }
        valid && free
    }

    /// Removes the locks of a session that has ended, or lost them.
    pub fn end(&mut self, session: SessionId, granted: &mut Vec<WaitId>) {
        self.floors.remove(&session);
        let mine: Vec<WaitId> =
            self.waiters.range((session, 0)..=(session, u64::MAX)).map(|(id, _)| *id).collect();
        for id in mine {
            self.forget_waiter(id);
        }
        for file in self.counts.remove(&session).unwrap_or_default().files.into_keys() {
            if let Some(owners) = self.files.get_mut(&file) {
                owners.retain(|owner, _| owner.session != session);
                if owners.is_empty() {
                    self.files.remove(&file);
                }
            }
            self.grant_waiting(file, granted);
        }
    }

    /// Forgets waiting requests that are not repeated any more, and releases what such requests
    /// were granted.
    pub fn forget_abandoned(&mut self, now_ms: u64, granted: &mut Vec<WaitId>) {
        let old = |waiter: &Waiter| now_ms.saturating_sub(waiter.asked_ms) >= PATIENCE_MS;
        let abandoned: Vec<WaitId> =
            self.waiters.iter().filter(|(_, waiter)| old(waiter)).map(|(id, _)| *id).collect();
        for id in abandoned {
            self.give_back(id, granted);
        }
    }

    /// Excludes the time in which this process was stopped from the age of requests.
    pub fn forgive(&mut self, now_ms: u64) {
        self.waiters.values_mut().for_each(|waiter| waiter.asked_ms = now_ms);
    }

    /// Number of held locks, and of waiting requests.
    pub fn totals(&self) -> (usize, usize) {
        let held = self.counts.values().map(|counts| counts.all).sum();
        let waiting = self.waiters.values().filter(|waiter| waiter.state != Waits::Told);
        (held, waiting.count())
    }

    /// Number of waiting requests of a session.
    pub fn waiting(&self, session: SessionId) -> usize {
        let mine = self.waiters.range((session, 0)..=(session, u64::MAX));
        mine.filter(|(_, waiter)| waiter.state == Waits::Queued).count()
    }

    /// The next file with held or waiting locks, from this one on.
    pub fn next_file(&self, from: FileId) -> Option<FileId> {
        let held = self.files.range(from..).next().map(|(file, _)| *file);
        let awaited = self.queues.range(from..).next().map(|(file, _)| *file);
        held.into_iter().chain(awaited).min()
    }

    /// The held locks of a file, then its waiting requests with the time of each.
    pub fn of_file(&self, file: FileId) -> impl Iterator<Item = (SessionId, &Lock, Option<u64>)> {
        let held = self.files.get(&file).into_iter().flatten();
        let held =
            held.flat_map(|(owner, locks)| locks.iter().map(|lock| (owner.session, lock, None)));
        let queue = self.queues.get(&file).into_iter().flatten();
        let awaited = queue.filter_map(|(_, id)| {
            let waiter = self.waiters.get(id)?;
            Some((id.0, &waiter.lock, Some(waiter.since_ms)))
        });
        held.chain(awaited)
    }

    /// Number of locks of a session.
    pub fn count(&self, session: SessionId) -> usize {
        self.counts.get(&session).map_or(0, |counts| counts.all)
    }

    fn held(&self, file: FileId, owner: Owner) -> &[Lock] {
        self.files.get(&file).and_then(|owners| owners.get(&owner)).map_or(&[], Vec::as_slice)
    }

    fn all_in_the_way<'a>(
        &'a self,
        owner: Owner,
        lock: &'a Lock,
    ) -> impl Iterator<Item = (Owner, &'a Lock)> {
        let others = self.files.get(&lock.file).into_iter().flatten();
        others
            .filter(move |(other, _)| **other != owner)
            .flat_map(|(other, held)| held.iter().map(move |lock| (*other, lock)))
            .filter(move |(_, held)| conflict(held, lock))
    }

    fn in_the_way<'a>(&'a self, owner: Owner, lock: &'a Lock) -> Option<(Owner, &'a Lock)> {
        self.all_in_the_way(owner, lock).next()
    }

    /// Sets the owner's lock.
    fn take(&mut self, owner: Owner, lock: &Lock) {
        let owners = self.files.entry(lock.file).or_default();
        let held = owners.entry(owner).or_default();
        let before = held.len();
        apply(held, lock);
        let now = held.len();
        if now == 0 {
            owners.remove(&owner);
        }
        if owners.is_empty() {
            self.files.remove(&lock.file);
        }
        let counts = self.counts.entry(owner.session).or_default();
        counts.change(lock.file, before, now);
        if counts.all == 0 {
            self.counts.remove(&owner.session);
        }
    }

    /// Grants waiting requests that no lock conflicts with any more.
    fn grant_waiting(&mut self, file: FileId, granted: &mut Vec<WaitId>) {
        // A lock that replaces a stronger one of its owner lets others in again.
        while self.grant_once(file, granted) {}
    }

    /// Grants in one pass. Returns whether anything was granted.
    fn grant_once(&mut self, file: FileId, granted: &mut Vec<WaitId>) -> bool {
        let before = granted.len();
        let queue: Vec<WaitId> =
            self.queues.get(&file).into_iter().flatten().map(|(_, id)| *id).collect();
        for id in queue {
            let Some(waiter) = self.waiters.get(&id) else { continue };
            let (lock, owner) = (waiter.lock.clone(), Owner::of(id.0, &waiter.lock));
            if waiter.state != Waits::Queued || self.in_the_way(owner, &lock).is_some() {
                continue;
            }
            self.take(owner, &lock);
            self.leave_queue(file, id);
            if let Some(waiter) = self.waiters.get_mut(&id) {
                waiter.state = Waits::Granted;
            }
            granted.push(id);
        }
        granted.len() > before
    }

    fn leave_queue(&mut self, file: FileId, id: WaitId) {
        if let Some(queue) = self.queues.get_mut(&file) {
            queue.retain(|(_, waiting)| *waiting != id);
            if queue.is_empty() {
                self.queues.remove(&file);
            }
        }
    }

    fn forget_waiter(&mut self, id: WaitId) {
        if let Some(waiter) = self.waiters.remove(&id) {
            self.leave_queue(waiter.lock.file, id);
        }
    }
}
