//! Locks. They are those of the standard library without poisoning, because a panic under a lock
//! ends the process anyway. In a simulation, a thread that finds a lock taken lets other threads
//! run.

use crate::simulated;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// Tries to take a lock until it succeeds. Other threads run between two attempts.
fn take_turns<G>(
    machine: &dyn simulated::Machine,
    key: usize,
    attempt: impl Fn() -> Result<G, TryLockError<G>>,
) -> G {
    machine.before_lock();
    loop {
        match attempt() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(e)) => return e.into_inner(),
            Err(TryLockError::WouldBlock) => {
                machine.park(key, None);
            }
        }
    }
}

/// Mutual exclusion.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    inner: std::sync::Mutex<T>,
}

/// Access to the value of a locked [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    /// `None` only while it is being dropped or waits in a [`Condvar`].
    guard: Option<std::sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { inner: std::sync::Mutex::new(value) }
    }

    /// The guarded value, from a mutex that nobody else shares.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let guard = match simulated::current() {
            None => self.inner.lock().unwrap_or_else(PoisonError::into_inner),
            Some(machine) => take_turns(&*machine, self.key(), || self.inner.try_lock()),
        };
        MutexGuard { guard: Some(guard), mutex: self }
    }

    /// Locks the mutex if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = match self.inner.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { guard: Some(guard), mutex: self })
    }

    /// The guarded value. `&mut self` proves that no other thread has access.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(&self.inner).cast::<u8>() as usize
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    fn held(&self) -> &T {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("a guard holds its lock while anyone can see it"),
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held()
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("a guard holds its lock while anyone can see it"),
        }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.guard.take().is_some()
            && let Some(machine) = simulated::current()
        {
            machine.unpark(self.mutex.key(), false);
        }
    }
}

/// Lets threads wait for a change of a value that a [`Mutex`] guards.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: std::sync::Condvar,
    /// In a simulation the address of this field is the key of waiting threads. A type of size 0
    /// would have no address of its own.
    _key: u8,
}

impl Condvar {
    /// A condition that no thread waits for.
    pub const fn new() -> Self {
        Self { inner: std::sync::Condvar::new(), _key: 0 }
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex;
        if let Some(machine) = simulated::current() {
            drop(guard);
            machine.park(self.key(), None);
            return mutex.lock();
        }
        if let Some(held) = guard.guard.take() {
            let held = self.inner.wait(held).unwrap_or_else(PoisonError::into_inner);
            guard.guard = Some(held);
        }
        guard
    }

    /// As [`Condvar::wait`], for at most this time.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> MutexGuard<'a, T> {
        let mutex = guard.mutex;
        if let Some(machine) = simulated::current() {
            drop(guard);
            machine.park(self.key(), Some(time));
            return mutex.lock();
        }
        if let Some(held) = guard.guard.take() {
            let woken = self.inner.wait_timeout(held, time);
            guard.guard = Some(woken.unwrap_or_else(PoisonError::into_inner).0);
        }
        guard
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        match simulated::current() {
            Some(machine) => machine.unpark(self.key(), false),
            None => self.inner.notify_one(),
        }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        match simulated::current() {
            Some(machine) => machine.unpark(self.key(), true),
            None => self.inner.notify_all(),
        }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(&self._key) as usize
    }
}

/// A lock for one writer or many readers.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized> {
    inner: std::sync::RwLock<T>,
}

/// Read access to the value of an [`RwLock`].
#[derive(Debug)]
pub struct ReadGuard<'a, T: ?Sized> {
    guard: Option<std::sync::RwLockReadGuard<'a, T>>,
    lock: &'a RwLock<T>,
}

/// Write access to the value of an [`RwLock`].
#[derive(Debug)]
pub struct WriteGuard<'a, T: ?Sized> {
    guard: Option<std::sync::RwLockWriteGuard<'a, T>>,
    lock: &'a RwLock<T>,
}

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { inner: std::sync::RwLock::new(value) }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no thread has write access.
    pub fn read(&self) -> ReadGuard<'_, T> {
        let guard = match simulated::current() {
            None => self.inner.read().unwrap_or_else(PoisonError::into_inner),
            Some(machine) => take_turns(&*machine, self.key(), || self.inner.try_read()),
        };
        ReadGuard { guard: Some(guard), lock: self }
    }

    /// Waits until no other thread has access.
    pub fn write(&self) -> WriteGuard<'_, T> {
        let guard = match simulated::current() {
            None => self.inner.write().unwrap_or_else(PoisonError::into_inner),
            Some(machine) => take_turns(&*machine, self.key(), || self.inner.try_write()),
        };
        WriteGuard { guard: Some(guard), lock: self }
    }

    /// Write access, if no thread has any access.
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        let guard = match self.inner.try_write() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(WriteGuard { guard: Some(guard), lock: self })
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(&self.inner).cast::<u8>() as usize
    }

    fn released(&self) {
        if let Some(machine) = simulated::current() {
            machine.unpark(self.key(), true);
        }
    }
}

impl<T: ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("a guard holds its lock while anyone can see it"),
        }
    }
}

impl<T: ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("a guard holds its lock while anyone can see it"),
        }
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("a guard holds its lock while anyone can see it"),
        }
    }
}

impl<T: ?Sized> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        self.guard = None;
        self.lock.released();
    }
}

impl<T: ?Sized> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        self.guard = None;
        self.lock.released();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_condvar_hands_a_value_over() {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let other = shared.clone();
        let thread = crate::thread::spawn("other", move || {
            *other.0.lock() = 7;
            other.1.notify_all();
        });
        let mut guard = shared.0.lock();
        while *guard == 0 {
            guard = shared.1.wait(guard);
        }
        assert_eq!(*guard, 7);
        drop(guard);
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn a_wait_ends_with_its_time() {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let start = crate::clock::now();
        drop(condvar.wait_timeout(mutex.lock(), Duration::from_millis(10)));
        assert!(crate::clock::elapsed(start) >= Duration::from_millis(9));
        assert!(mutex.try_lock().is_some());
    }
}
