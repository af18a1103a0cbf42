//! Handles: numbers that C programs hold. An invalid or closed handle is detected.
//!
//! A handle consists of kind (4 bits), generation (28 bits) and place (32 bits). When a place is
//! reused, its generation changes.

use crate::process::{gate, this};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use weir_types::{Error, ErrorKind, Result};

/// A connection to a cluster. 0 is never valid.
pub type weir_fs_t = u64;
/// An open file. 0 is never valid.
pub type weir_file_t = u64;
/// An open directory. 0 is never valid.
pub type weir_dir_t = u64;
/// A queue of asynchronous calls. 0 is never valid.
pub type weir_queue_t = u64;
/// A layout lease. 0 is never valid.
pub type weir_lease_t = u64;
/// A process of a job. 0 is never valid.
pub type weir_job_t = u64;

/// Maximum number of handles of a process.
const MAX_HANDLES: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };
/// Number of generations of a place.
const GENERATIONS: u64 = 1 << 28;

/// An object that a handle can stand for.
pub(crate) trait Handled: Any + Send + Sync {
    /// Number of the kind. Never 0, so that no handle is 0.
    const KIND: u64;
    /// Name of the kind, for messages.
    const NAME: &'static str;
    /// Whether a child of `fork` may use the object.
    const SURVIVES_FORK: bool;
}

struct Place {
    generation: u64,
    process: u64,
    value: Option<Arc<dyn Any + Send + Sync>>,
}

struct Table {
    places: Vec<Place>,
    free: Vec<usize>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { places: Vec::new(), free: Vec::new() });

fn with<T>(run: impl FnOnce(&mut Table) -> T) -> T {
    let _gate = gate();
    run(&mut TABLE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Makes a handle for an object.
pub(crate) fn add<T: Handled>(value: Arc<T>) -> Result<u64> {
    // A refused object is dropped after the guards, because its destructor may need them.
    let mut value: Option<Arc<dyn Any + Send + Sync>> = Some(value);
    with(|table| {
        let at = match table.free.pop() {
            Some(at) => at,
            None if table.places.len() < MAX_HANDLES => {
                table.places.push(Place { generation: 0, process: 0, value: None });
                table.places.len() - 1
            }
            None => {
                let text = format!("{MAX_HANDLES} handles are open: close some");
                return Err(Error::new(ErrorKind::TooManyOpen, text));
            }
        };
        let place = &mut table.places[at];
        place.generation = (place.generation + 1) % GENERATIONS;
        place.process = this();
        place.value = value.take();
        Ok(T::KIND << 60 | place.generation << 32 | at as u64)
    })
}

fn bad<T: Handled>(what: &str) -> Error {
    Error::new(ErrorKind::BadHandle, format!("{}: {what}", T::NAME))
}

/// The object of a handle.
pub(crate) fn get<T: Handled>(handle: u64) -> Result<Arc<T>> {
    with(|table| look::<T>(table, handle).map(|(_, value)| value))
}

/// Closes a handle and returns its object.
pub(crate) fn remove<T: Handled>(handle: u64) -> Result<Arc<T>> {
    with(|table| {
        let (at, value) = look::<T>(table, handle)?;
        table.places[at].value = None;
        table.free.push(at);
        Ok(value)
    })
}

fn look<T: Handled>(table: &Table, handle: u64) -> Result<(usize, Arc<T>)> {
    let at = (handle & 0xffff_ffff) as usize;
    let generation = handle >> 32 & (GENERATIONS - 1);
    if handle >> 60 != T::KIND {
        return Err(bad::<T>("the handle is 0, or that of something else"));
    }
    let closed = || bad::<T>("the handle is closed, or was never opened");
    let place = table.places.get(at).filter(|place| place.generation == generation);
    let place = place.ok_or_else(closed)?;
    let value = place.value.clone().ok_or_else(closed)?;
    if !T::SURVIVES_FORK && place.process != this() {
        std::mem::forget(value);
        return Err(bad::<T>("it belongs to the process that has forked: make a new one"));
    }
    value.downcast().map(|value| (at, value)).map_err(|_| closed())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;
    impl Handled for One {
        const KIND: u64 = 14;
        const NAME: &'static str = "one";
        const SURVIVES_FORK: bool = true;
    }
    struct Other;
    impl Handled for Other {
        const KIND: u64 = 15;
        const NAME: &'static str = "other";
        const SURVIVES_FORK: bool = true;
    }

    /// Held by each test, because they share the table.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn what_finds_the_table_full_may_use_it_as_it_is_dropped() {
        struct Curious(std::sync::mpsc::Sender<bool>);
        impl Handled for Curious {
            const KIND: u64 = 13;
            const NAME: &'static str = "curious";
            const SURVIVES_FORK: bool = true;
        }
        impl Drop for Curious {
            fn drop(&mut self) {
                let _ = self.0.send(get::<One>(0).is_err());
            }
        }
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut handles = Vec::new();
        let error = loop {
            match add(Arc::new(One)) {
                Ok(handle) => handles.push(handle),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind, handles.len()), (ErrorKind::TooManyOpen, MAX_HANDLES));
        let (sender, dropped) = std::sync::mpsc::channel();
        std::thread::spawn(move || add(Arc::new(Curious(sender))).is_err());
        assert_eq!(dropped.recv_timeout(std::time::Duration::from_secs(60)), Ok(true));
        handles.into_iter().for_each(|handle| drop(remove::<One>(handle).unwrap()));
    }

    #[test]
    fn closed_foreign_and_invented_handles_are_found_out() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = add(Arc::new(One)).unwrap();
        assert!(get::<One>(handle).is_ok());
        assert_eq!(get::<Other>(handle).err().unwrap().kind, ErrorKind::BadHandle);
        assert!(remove::<One>(handle).is_ok());
        assert!(remove::<One>(handle).is_err() && get::<One>(handle).is_err());
        let again = add(Arc::new(One)).unwrap();
        assert!(get::<One>(handle).is_err() && again != handle);
        for invented in [0, u64::MAX, again + 1, again ^ 1 << 40, One::KIND << 60] {
            assert!(get::<One>(invented).is_err(), "{invented:x}");
        }
        assert!(remove::<One>(again).is_ok());
    }
}
