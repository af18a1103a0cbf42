//! Locks of programs on files, of all sessions: who holds what, and who waits.
//!
//! Pure, and in memory only: after a restart clients say again what they hold,
//! and who waits asks again. Locks are those of POSIX: what an owner holds
//! never stands in its own way, and a new lock replaces the old one where they
//! overlap. Waiting requests are granted in the order of their arrival as soon
//! as nothing stands in their way; they stand in nobody's.

mod deadlock;
#[cfg(test)]
mod model_tests;

use std::collections::{BTreeMap, BTreeSet};
use weir_types::{ErrorKind, FileId, SessionId};
use weir_wire::lock::{Lock, LockMode, LockOutcome, LockWait, apply, conflict};

/// The most locks of one session.
pub const MAX_LOCKS: usize = 65_536;
/// The most requests of one session that wait.
pub const MAX_WAITING: usize = 4096;
/// A request that waits and is not asked for again for so long is forgotten,
/// milliseconds. So is that one was granted and its client told: a client that
/// did not hear it has asked again by then, or said that it waits no longer.
pub const PATIENCE_MS: u64 = 40_000;

/// Who holds a lock.
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
    /// Whether it may be a link of a deadlock.
    counts: bool,
    state: Waits,
    /// When it was asked for last, or told.
    asked_ms: u64,
    /// When it was asked for first.
    since_ms: u64,
}

/// What a session holds.
#[derive(Debug, Default)]
struct Counts {
    /// Files that it has locks on, and how many.
    files: BTreeMap<FileId, usize>,
    /// Of all files: asked for with every request.
    all: usize,
}

impl Counts {
    /// The locks on a file were `before`, and are `now`, of one of its owners.
    fn change(&mut self, file: FileId, before: usize, now: usize) {
        self.all = self.all + now - before;
        let of_file = self.files.entry(file).or_default();
        *of_file = *of_file + now - before;
        if *of_file == 0 {
            self.files.remove(&file);
        }
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// Somebody stands in the way.
    Queued,
    /// The lock is held, and nobody was there to be told.
    Granted,
    /// The lock is held, and an answer that says so was sent.
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
    /// Waiting requests of each file in the order of their arrival.
    queues: BTreeMap<FileId, Vec<(u64, WaitId)>>,
    arrivals: u64,
    /// Requests with smaller numbers are over.
    floors: BTreeMap<SessionId, u64>,
}

impl Owner {
    fn of(session: SessionId, lock: &Lock) -> Self {
        Self { session, owner: lock.owner, flock: lock.flock }
    }
}

impl Locks {
    /// A request. Whoever can go on because of it is in `granted`.
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

    /// An answer that says that it was granted has been sent.
    pub fn told(&mut self, id: WaitId, now_ms: u64) {
        if let Some(waiter) = self.waiters.get_mut(&id)
            && waiter.state == Waits::Granted
        {
            (waiter.state, waiter.asked_ms) = (Waits::Told, now_ms);
        }
    }

    /// Requests of the session with smaller numbers are over. What one of them was
    /// granted and nobody was told of is given back.
    pub fn raise_floor(&mut self, session: SessionId, floor: u64, granted: &mut Vec<WaitId>) {
        let known = self.floors.entry(session).or_default();
        *known = floor.max(*known);
        let over: Vec<WaitId> =
            self.waiters.range((session, 0)..(session, floor)).map(|(id, _)| *id).collect();
        for id in over {
            self.give_back(id, granted);
        }
    }

    /// Forgets a request; a lock that nobody knows of goes with it.
    fn give_back(&mut self, id: WaitId, granted: &mut Vec<WaitId>) {
        let Some(waiter) = self.waiters.get(&id).cloned() else { return };
        self.forget_waiter(id);
        if waiter.state == Waits::Granted {
            let none = Lock { mode: LockMode::Unlock, ..waiter.lock };
            self.take(Owner::of(id.0, &none), &none);
            self.grant_waiting(none.file, granted);
        }
    }

    /// A lock in the way of this one; exclusive ones of other owners first.
    pub fn test(&self, session: SessionId, lock: &Lock) -> Option<Lock> {
        self.in_the_way(Owner::of(session, lock), lock).map(|(_, found)| found.clone())
    }

    /// The session that holds something in the way of a waiting request.
    pub fn blockers(&self, id: WaitId) -> BTreeSet<SessionId> {
        let Some(waiter) = self.waiters.get(&id) else { return BTreeSet::new() };
        let owner = Owner::of(id.0, &waiter.lock);
        self.all_in_the_way(owner, &waiter.lock).map(|(owner, _)| owner.session).collect()
    }

    /// The sessions that hold something in the way of a lock.
    pub fn holders(&self, session: SessionId, lock: &Lock) -> BTreeSet<SessionId> {
        let owner = Owner::of(session, lock);
        self.all_in_the_way(owner, lock).map(|(owner, _)| owner.session).collect()
    }

    /// Waits no longer. Whether it was granted meanwhile.
    pub fn cancel(&mut self, session: SessionId, number: u64) -> bool {
        let granted = self.waiters.get(&(session, number));
        let granted = granted.is_some_and(|waiter| waiter.state != Waits::Queued);
        self.forget_waiter((session, number));
        // Should a copy of the request still be on its way, it comes too late:
        // the client raises the floor with its next request.
        granted
    }

    /// After a restart: a session says that it holds this. Whether it does.
    pub fn reassert(&mut self, session: SessionId, lock: &Lock) -> bool {
        let owner = Owner::of(session, lock);
        let valid = lock.start <= lock.last && lock.mode != LockMode::Unlock;
        let free = self.in_the_way(owner, lock).is_none() && self.count(session) < MAX_LOCKS;
        if valid && free {
            self.take(owner, lock);
        }
        valid && free
    }

    /// A session has ended, or lost its locks.
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

    /// Forgets waiting requests that nobody asks for any more, and gives back
    /// what such were granted.
    pub fn forget_abandoned(&mut self, now_ms: u64, granted: &mut Vec<WaitId>) {
        let old = |waiter: &Waiter| now_ms.saturating_sub(waiter.asked_ms) >= PATIENCE_MS;
        let abandoned: Vec<WaitId> =
            self.waiters.iter().filter(|(_, waiter)| old(waiter)).map(|(id, _)| *id).collect();
        for id in abandoned {
            self.give_back(id, granted);
        }
    }

    /// The process itself was away: that was nobody else's silence.
    pub fn forgive(&mut self, now_ms: u64) {
        self.waiters.values_mut().for_each(|waiter| waiter.asked_ms = now_ms);
    }

    /// Locks that are held, and requests that wait.
    pub fn totals(&self) -> (usize, usize) {
        let held = self.counts.values().map(|counts| counts.all).sum();
        let waiting = self.waiters.values().filter(|waiter| waiter.state != Waits::Told);
        (held, waiting.count())
    }

    /// How many requests of a session wait.
    pub fn waiting(&self, session: SessionId) -> usize {
        let mine = self.waiters.range((session, 0)..=(session, u64::MAX));
        mine.filter(|(_, waiter)| waiter.state == Waits::Queued).count()
    }

    /// The next file, from this one on, of which something is held or waited for.
    pub fn next_file(&self, from: FileId) -> Option<FileId> {
        let held = self.files.range(from..).next().map(|(file, _)| *file);
        let awaited = self.queues.range(from..).next().map(|(file, _)| *file);
        held.into_iter().chain(awaited).min()
    }

    /// What is held of a file, and then what is waited for and since when.
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

    /// How many locks a session holds.
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

    /// The owner holds this now (or no longer).
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

    /// Grants what nothing stands in the way of any more.
    fn grant_waiting(&mut self, file: FileId, granted: &mut Vec<WaitId>) {
        // A lock that replaces a stronger one of its owner lets others in again.
        while self.grant_once(file, granted) {}
    }

    /// Whether anything was granted.
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
