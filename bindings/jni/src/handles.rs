//! Handles: numbers that Java holds for objects. An invalid number is an error and is never used as
//! an address.
//!
//! Invariant: no number is given out twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use weir_types::{Error, ErrorKind, Result};

/// The most objects of one kind that a process holds.
const MAX_HANDLES: usize = 1 << 20;

/// Objects by number.
pub struct Handles<T> {
    next: AtomicI64,
    held: RwLock<HashMap<i64, Arc<T>>>,
    what: &'static str,
}

impl<T> Handles<T> {
    /// A table. Messages call its objects `what`.
    pub fn new(what: &'static str) -> Self {
        // 0 is the result of a call that has thrown an exception.
        Self { next: AtomicI64::new(1), held: RwLock::default(), what }
    }

    /// Adds an object and returns its number.
    pub fn add(&self, object: T) -> Result<i64> {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= MAX_HANDLES {
            let text = format!("{MAX_HANDLES} of {} are open: close some", self.what);
            return Err(Error::new(ErrorKind::TooManyOpen, text));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        held.insert(number, Arc::new(object));
        Ok(number)
    }

    /// The object of a number.
    pub fn get(&self, number: i64) -> Result<Arc<T>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.get(&number).cloned().ok_or_else(|| self.closed())
    }

    /// Removes an object by its number, which is invalid afterwards.
    pub fn remove(&self, number: i64) -> Result<Arc<T>> {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.remove(&number).ok_or_else(|| self.closed())
    }

    fn closed(&self) -> Error {
        Error::new(ErrorKind::BadHandle, format!("{} is closed", self.what))
    }
}

/// Sessions.
pub static SESSIONS: LazyLock<Handles<crate::session::Session>> =
    LazyLock::new(|| Handles::new("this file system"));
/// Open files.
pub static FILES: LazyLock<Handles<crate::file::OpenFile>> =
    LazyLock::new(|| Handles::new("this file"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_back_is_refused() {
        let table = Handles::new("a thing");
        let number = table.add(7).unwrap();
        assert_eq!(*table.get(number).unwrap(), 7);
        table.remove(number).unwrap();
        for error in [table.get(number).unwrap_err(), table.remove(number).unwrap_err()] {
            assert_eq!((error.kind, &*error.message), (ErrorKind::BadHandle, "a thing is closed"));
        }
        assert_ne!(table.add(8).unwrap(), number);
        assert!(table.get(0).is_err() && table.get(-1).is_err());
    }
}
