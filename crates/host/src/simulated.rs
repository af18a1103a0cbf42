//! The interface of a simulated machine. The simulator implements these traits; all other code
//! reaches them through the other modules of this crate.
//!
//! A simulation runs in one thread of the operating system. Its simulated threads take turns: one
//! runs until it waits. Between two waits no other simulated thread runs, so that these calls need
//! no locks.

use crate::fs::kinds::{OpenHow, Space, Stat};
use crate::net::kinds::{Event, Interest};
use rustix::io::Result;
use std::any::Any;
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether any thread of this process has ever run on a simulated machine.
static EVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Option<Rc<dyn Machine>>> = const { RefCell::new(None) };
}

/// A simulated process on its node, as seen by the simulated thread that runs.
pub trait Machine {
    /// Virtual time since the simulation began.
    fn now(&self) -> Duration;
    /// The wall clock of this node: time since 1970, perhaps skewed.
    fn unix_now(&self) -> Duration;
    /// Lets the other simulated threads run for this time.
    fn sleep(&self, time: Duration);
    /// Starts a thread of the same process.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>>;
    /// Waits until [`Machine::unpark`] is called with this key; `false` if `timeout` passes first.
    fn park(&self, key: usize, timeout: Option<Duration>) -> bool;
    /// Wakes the thread that has waited longest with this key, or all of them.
    fn unpark(&self, key: usize, all: bool);
    /// Called before the running thread takes a lock. It may let other threads run, so that code
    /// between two locks is tried in many orders.
    fn before_lock(&self) {}
    /// Kills this process. Does not return, unless the simulator cannot kill it.
    fn die(&self) {}
    /// After a call with `true`, and until one with `false`, file operations of the running thread
    /// do not let others run: the thread holds locks of foreign code.
    fn set_uninterrupted(&self, on: bool);
    /// A file operation takes this long: lets the others run, unless the running thread is
    /// uninterrupted.
    fn io_wait(&self, time: Duration);
    /// Id of the process, unique in the simulation. It owns the process's file locks.
    fn process(&self) -> u64;
    /// Fills the buffer with bytes derived from the simulation's seed.
    fn fill_random(&self, bytes: &mut [u8]);
    /// The name of the node.
    fn host_name(&self) -> String;
    /// Begins to connect to `host:port`. The socket becomes writable when the connection is
    /// established or has failed.
    fn connect(&self, address: &str) -> Result<Arc<dyn Socket>>;
    /// Listens on `host:port`.
    fn listen(&self, address: &str) -> Result<Arc<dyn Socket>>;
    /// A new poller.
    fn poller(&self) -> Arc<dyn Poller>;
    /// A new signal, not raised.
    fn signal(&self) -> Arc<dyn Signal>;
    /// The root directory of the node's disks.
    fn root(&self) -> Arc<dyn Directory>;
}

/// A simulated thread.
pub trait Thread: Send + Sync {
    /// Waits for its end; false if it panicked.
    fn join(&self) -> bool;
    /// Whether it has ended.
    fn is_finished(&self) -> bool;
}

/// A simulated stream socket or listener. No call waits: it returns `AGAIN` instead.
pub trait Socket: Send + Sync {
    /// Id, unique in the simulation, by which pollers know the socket.
    fn id(&self) -> u64;
    /// Sends bytes; returns how many were accepted.
    fn send(&self, bytes: &[IoSlice<'_>]) -> Result<usize>;
    /// Receives bytes; returns 0 at the end of the stream.
    fn receive(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize>;
    /// Closes the sending direction.
    fn shut_down(&self) -> Result<()>;
    /// Accepts the next connection of a listener.
    fn accept(&self) -> Result<Arc<dyn Socket>>;
    /// The error of a failed connection attempt.
    fn take_error(&self) -> Option<rustix::io::Errno>;
    /// The address of a listener: `host:port`.
    fn local_address(&self) -> String;
    /// Waits until the socket is ready or broken; `false` if `timeout` passes first.
    fn wait(&self, interest: Interest, timeout: Duration) -> bool;
}

/// A simulated [`crate::net::Poller`].
pub trait Poller: Send + Sync {
    /// Watches a socket or signal, by its id.
    fn add(&self, id: u64, token: u64, interest: Interest) -> Result<()>;
    /// Changes the events for which a socket or signal is watched.
    fn modify(&self, id: u64, token: u64, interest: Interest) -> Result<()>;
    /// Stops watching a socket or signal.
    fn remove(&self, id: u64) -> Result<()>;
    /// Appends at most `max` events; waits at most `timeout` for the first one.
    fn wait(&self, events: &mut Vec<Event>, max: usize, timeout: Duration) -> Result<()>;
}

/// A simulated [`crate::net::Signal`].
pub trait Signal: Send + Sync {
    /// Id, unique in the simulation, by which pollers know the signal.
    fn id(&self) -> u64;
    /// Raises the signal.
    fn raise(&self);
    /// Clears the signal.
    fn clear(&self);
    /// Waits until the signal is raised; `false` if `timeout` passes first.
    fn wait(&self, timeout: Option<Duration>) -> bool;
}

/// A simulated directory. Paths are relative, `a/b`, without `.` and `..`;
/// the empty path is the directory itself.
pub trait Directory: Send + Sync {
    /// Opens a subdirectory.
    fn open_directory(&self, path: &str) -> Result<Arc<dyn Directory>>;
    /// Makes a subdirectory.
    fn make_directory(&self, path: &str) -> Result<()>;
    /// Opens a file of this directory.
    fn open_file(&self, path: &str, how: OpenHow) -> Result<Arc<dyn File>>;
    /// Removes a file.
    fn unlink(&self, path: &str) -> Result<()>;
    /// Renames a file within this directory; replaces a file of the new name.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// The names in this directory, without `.` and `..`.
    fn entries(&self) -> Result<Vec<Vec<u8>>>;
    /// Size and kind of a name.
    fn stat(&self, path: &str) -> Result<Stat>;
    /// Makes the entries of this directory durable. `site` names the place in the code.
    fn sync(&self, site: &'static str) -> Result<()>;
    /// Makes everything on this directory's file system durable.
    fn sync_file_system(&self, site: &'static str) -> Result<()>;
    /// Free and total space of this directory's file system.
    fn space(&self) -> Result<Space>;
    /// Number of times that the file system was mounted after losing its unsynced writes.
    fn mounts(&self) -> u64 {
        0
    }
    /// Locks a file, which is made if it is missing. The lock ends when the value is dropped or the
    /// process dies. `WOULDBLOCK` if it is locked.
    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>>;
}

/// A simulated open file.
pub trait File: Send + Sync {
    /// Reads at a position; fewer bytes only at the end of the file. With `nowait`, `AGAIN` if the
    /// bytes are not in memory.
    fn read_at(&self, into: &mut [IoSliceMut<'_>], position: u64, nowait: bool) -> Result<usize>;
    /// Writes at a position; returns the bytes written.
    fn write_at(&self, bytes: &[IoSlice<'_>], position: u64) -> Result<usize>;
    /// Length of the file, bytes.
    fn size(&self) -> Result<u64>;
    /// Whether it is a regular file.
    fn is_regular(&self) -> Result<bool>;
    /// Truncates or extends the file.
    fn set_len(&self, bytes: u64) -> Result<()>;
    /// Reserves space. The file grows only without `keep_size`.
    fn allocate(&self, position: u64, bytes: u64, keep_size: bool) -> Result<()>;
    /// Makes a range a hole; the length stays.
    fn punch(&self, position: u64, bytes: u64) -> Result<()>;
    /// The first byte at or after a position that is not in a hole; `None` if there is none. An
    /// implementation may report no holes.
    fn next_data(&self, position: u64) -> Result<Option<u64>> {
        Ok((position < self.size()?).then_some(position))
    }
    /// The first byte at or after a position that is in a hole or at the end of the file.
    fn next_hole(&self, position: u64) -> Result<u64> {
        Ok(position.max(self.size()?))
    }
    /// Whether space is allocated for a whole range, written or reserved. An implementation may
    /// report no holes.
    fn has_room(&self, position: u64, bytes: u64) -> Result<bool> {
        Ok(self.size()? >= position.saturating_add(bytes))
    }
    /// Allocated space, bytes. An implementation may report no holes.
    fn allocated(&self) -> Result<u64> {
        self.size()
    }
    /// Makes the data and length of the file durable. `site` names the place in the code.
    fn sync(&self, site: &'static str) -> Result<()>;
}

/// Makes this thread run on `machine` (`None`: on the operating system) until the next call.
/// Returns the previous machine.
pub fn install(machine: Option<Rc<dyn Machine>>) -> Option<Rc<dyn Machine>> {
    if machine.is_some() {
        EVER.store(true, Ordering::Relaxed);
    }
    CURRENT.with(|current| current.replace(machine))
}

/// The simulated machine that this thread runs on; `None` on the operating system.
pub fn current() -> Option<Rc<dyn Machine>> {
    if !EVER.load(Ordering::Relaxed) {
        return None;
    }
    CURRENT.with(|current| current.borrow().clone())
}
