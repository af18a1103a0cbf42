//! What a simulated machine has to offer. The simulator implements these
//! traits; everything else meets them only through the other modules.
//!
//! A simulation runs in one thread of the operating system. Its own threads
//! take turns: one runs until it waits for something. So between two waits
//! nothing else happens, and none of these calls needs a lock.

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

/// Whether any thread of this process ever had a simulated machine.
static EVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Option<Rc<dyn Machine>>> = const { RefCell::new(None) };
}

/// One simulated process on its node, as the thread that runs now sees it.
pub trait Machine {
    /// Virtual time since the simulation began.
    fn now(&self) -> Duration;
    /// What this node's clock shows: time since 1970, perhaps skewed.
    fn unix_now(&self) -> Duration;
    /// Lets the others run for so long.
    fn sleep(&self, time: Duration);
    /// Starts a thread of the same process.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>>;
    /// Waits until [`Machine::unpark`] is called with this key; false if the
    /// time is over first.
    fn park(&self, key: usize, timeout: Option<Duration>) -> bool;
    /// Wakes the one that has waited longest with this key, or all.
    fn unpark(&self, key: usize, all: bool);
    /// The running thread is about to take a lock: a moment to let others run,
    /// so that what happens between two locks is tried in many orders.
    fn before_lock(&self) {}
    /// Kills this process: it does not return, unless there is nobody to kill it.
    fn die(&self) {}
    /// Until the matching call with `false` no file operation of the running
    /// thread lets others run (it holds locks that are not ours).
    fn set_uninterrupted(&self, on: bool);
    /// A file operation takes so long: lets the others run, unless the running
    /// thread is uninterrupted.
    fn io_wait(&self, time: Duration);
    /// The process, unique in the simulation: locks of files belong to it.
    fn process(&self) -> u64;
    /// Bytes from the simulation's seed.
    fn fill_random(&self, bytes: &mut [u8]);
    /// The name of the node.
    fn host_name(&self) -> String;
    /// Begins to connect to `host:port`; the socket becomes writable when it
    /// stands, or fails.
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

/// A simulated stream socket or listener. Calls never wait: `AGAIN`.
pub trait Socket: Send + Sync {
    /// Unique in the simulation, pollers know it by this.
    fn id(&self) -> u64;
    /// Sends; returns the bytes taken.
    fn send(&self, bytes: &[IoSlice<'_>]) -> Result<usize>;
    /// Receives; 0 at the end of the stream.
    fn receive(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize>;
    /// No more will be sent.
    fn shut_down(&self) -> Result<()>;
    /// Of a listener: the next connection.
    fn accept(&self) -> Result<Arc<dyn Socket>>;
    /// Whether connecting failed.
    fn take_error(&self) -> Option<rustix::io::Errno>;
    /// Where a listener listens: `host:port`.
    fn local_address(&self) -> String;
    /// Waits until it is ready or broken; false if the time is over first.
    fn wait(&self, interest: Interest, timeout: Duration) -> bool;
}

/// A simulated [`crate::net::Poller`].
pub trait Poller: Send + Sync {
    /// Watches a socket or signal, by its id.
    fn add(&self, id: u64, token: u64, interest: Interest) -> Result<()>;
    /// Changes what is watched for.
    fn modify(&self, id: u64, token: u64, interest: Interest) -> Result<()>;
    /// Watches it no more.
    fn remove(&self, id: u64) -> Result<()>;
    /// Appends at most `max` events; waits at most `timeout` for the first.
    fn wait(&self, events: &mut Vec<Event>, max: usize, timeout: Duration) -> Result<()>;
}

/// A simulated [`crate::net::Signal`].
pub trait Signal: Send + Sync {
    /// Unique in the simulation, pollers know it by this.
    fn id(&self) -> u64;
    /// Raises it.
    fn raise(&self);
    /// Takes it back.
    fn clear(&self);
    /// Waits until it is raised; false if the time is over first.
    fn wait(&self, timeout: Option<Duration>) -> bool;
}

/// A simulated directory. Paths are relative, `a/b`, without `.` and `..`;
/// the empty path is the directory itself.
pub trait Directory: Send + Sync {
    /// Opens a directory in it.
    fn open_directory(&self, path: &str) -> Result<Arc<dyn Directory>>;
    /// Makes a directory in it.
    fn make_directory(&self, path: &str) -> Result<()>;
    /// Opens a file in it.
    fn open_file(&self, path: &str, how: OpenHow) -> Result<Arc<dyn File>>;
    /// Removes a file.
    fn unlink(&self, path: &str) -> Result<()>;
    /// Gives a file another name in it, in place of what had that.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// The names in it, without `.` and `..`.
    fn entries(&self) -> Result<Vec<Vec<u8>>>;
    /// Size and kind.
    fn stat(&self, path: &str) -> Result<Stat>;
    /// Makes its entries durable. `site` names the place in the code.
    fn sync(&self, site: &'static str) -> Result<()>;
    /// Makes everything of its file system durable.
    fn sync_file_system(&self, site: &'static str) -> Result<()>;
    /// Room on its file system.
    fn space(&self) -> Result<Space>;
    /// Another number whenever its file system has lost what was not synced and was mounted anew.
    fn mounts(&self) -> u64 {
        0
    }
    /// Makes the file if need be and locks it until the value is dropped or
    /// the process dies. `WOULDBLOCK` if it is locked.
    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>>;
}

/// A simulated open file.
pub trait File: Send + Sync {
    /// Reads at a position; short only at the end. `AGAIN` if the bytes are
    /// not in memory and `nowait` is set.
    fn read_at(&self, into: &mut [IoSliceMut<'_>], position: u64, nowait: bool) -> Result<usize>;
    /// Writes at a position; returns the bytes written.
    fn write_at(&self, bytes: &[IoSlice<'_>], position: u64) -> Result<usize>;
    /// Its length, bytes.
    fn size(&self) -> Result<u64>;
    /// Whether it is a regular file.
    fn is_regular(&self) -> Result<bool>;
    /// Cuts or extends it.
    fn set_len(&self, bytes: u64) -> Result<()>;
    /// Reserves room; the length grows only without `keep_size`.
    fn allocate(&self, position: u64, bytes: u64, keep_size: bool) -> Result<()>;
    /// Makes a range a hole; the length stays.
    fn punch(&self, position: u64, bytes: u64) -> Result<()>;
    /// The first byte at or after a position that is not in a hole; `None`
    /// behind the last. A disk need not know of holes.
    fn next_data(&self, position: u64) -> Result<Option<u64>> {
        Ok((position < self.size()?).then_some(position))
    }
    /// The first byte at or after a position that is in a hole or behind the
    /// end.
    fn next_hole(&self, position: u64) -> Result<u64> {
        Ok(position.max(self.size()?))
    }
    /// Whether all of a range has its place on the disk: written, or reserved. A disk need not
    /// know of holes.
    fn has_room(&self, position: u64, bytes: u64) -> Result<bool> {
        Ok(self.size()? >= position.saturating_add(bytes))
    }
    /// Bytes of disk that it takes. A disk need not know of holes.
    fn allocated(&self) -> Result<u64> {
        self.size()
    }
    /// Makes its data and length durable. `site` names the place in the code.
    fn sync(&self, site: &'static str) -> Result<()>;
}

/// Makes this thread run on `machine` (`None`: on the operating system) until
/// the next call; returns what it ran on before.
pub fn install(machine: Option<Rc<dyn Machine>>) -> Option<Rc<dyn Machine>> {
    if machine.is_some() {
        EVER.store(true, Ordering::Relaxed);
    }
    CURRENT.with(|current| current.replace(machine))
}

/// The simulated machine that this thread runs on, if it does.
pub fn current() -> Option<Rc<dyn Machine>> {
    if !EVER.load(Ordering::Relaxed) {
        return None;
    }
    CURRENT.with(|current| current.borrow().clone())
}
