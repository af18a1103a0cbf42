//! A TCP connection to an NFS server, version 3, with many requests in flight.
//!
//! One thread owns the library's context. Other threads queue their requests for it and wait.

use super::library::{Callback, Context, Library, OpenFile, Stat};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_int, c_short, c_void};
use std::io::{Error, Result};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A server that is silent for this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which the library checks its timeouts.
const LOOK: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// An open file: the address that the library gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File(pub usize);

/// A request to the server.
enum Ask {
    Mount { server: CString, export: CString },
    Stat(CString),
    Open(CString),
    Close(File),
    Read { file: File, offset: u64, bytes: u64 },
}

/// The result of a request.
enum Said {
    Nothing,
    Stat(Stat),
    File(File),
    Bytes(Vec<u8>),
}

/// The receiver of a result; an error is an errno.
type Answer = SyncSender<std::result::Result<Said, i32>>;

/// How to interpret the library's result.
#[derive(Clone, Copy)]
enum Kind {
    Nothing,
    Stat,
    File,
    Bytes,
}

/// A request on its way through the library.
struct Waiting {
    kind: Kind,
    answer: Answer,
}

#[derive(Default)]
struct Queue {
    asks: Mutex<VecDeque<(Ask, Answer)>>,
    ends: AtomicBool,
}

/// A connection. Dropping it closes it.
pub struct Connection {
    queue: Arc<Queue>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Connection {
    /// Connects to an export, with the ports of [`super::NfsServer`], from the caller's network.
    pub fn open(library: Library, server: Ipv4Addr, export: &str) -> Result<Self> {
        let (nfs, mount) = (super::server::NFS_PORT, super::server::MOUNT_PORT);
        // The library caches and prefetches nothing: the kernel does.
        let url = format!(
            "nfs://{server}{export}?version=3&nfsport={nfs}&mountport={mount}&readahead=0\
             &auto-traverse-mounts=0&dircache=0"
        );
        let (url, queue) = (CString::new(url)?, Arc::new(Queue::default()));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (shared, awake) = (Arc::clone(&queue), Arc::clone(&wake));
        let serve = move || Service::serve(library, &url, &shared, &awake);
        let thread = Some(Builder::new().name("nfs".into()).spawn(serve)?);
        let connection = Self { queue, wake, thread };
        let (server, export) = (CString::new(server.to_string())?, CString::new(export)?);
        connection.ask(Ask::Mount { server, export })?;
        Ok(connection)
    }

    /// Attributes of a path below the export.
    pub fn stat(&self, path: &CStr) -> Result<Stat> {
        match self.ask(Ask::Stat(path.to_owned()))? {
            Said::Stat(stat) => Ok(stat),
            _ => Err(unknown()),
        }
    }

    /// Opens a file for reading.
    pub fn open_file(&self, path: &CStr) -> Result<File> {
        match self.ask(Ask::Open(path.to_owned()))? {
            Said::File(file) => Ok(file),
            _ => Err(unknown()),
        }
    }

    /// Closes a file that nobody reads any longer.
    pub fn close_file(&self, file: File) -> Result<()> {
        self.ask(Ask::Close(file)).map(drop)
    }

    /// Reads this many bytes, or fewer at the end of the file.
    pub fn read(&self, file: File, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        match self.ask(Ask::Read { file, offset, bytes })? {
            Said::Bytes(bytes) => Ok(bytes),
            _ => Err(unknown()),
        }
    }

    fn ask(&self, ask: Ask) -> Result<Said> {
        let (answer, said): (Answer, Receiver<_>) = sync_channel(1);
        let late = || Error::other("the NFS server does not answer, or the connection has ended");
        if self.queue.ends.load(Relaxed) {
            return Err(late());
        }
        lock(&self.queue).push_back((ask, answer));
        rustix::io::write(&*self.wake, &1u64.to_ne_bytes())?;
        said.recv_timeout(PATIENCE).map_err(|_| late())?.map_err(Error::from_raw_os_error)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.queue.ends.store(true, Relaxed);
        // If this fails, the thread looks by itself from time to time.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

fn unknown() -> Error {
    Error::other("libnfs: not understood")
}

/// The state of the thread.
struct Service {
    library: Library,
    context: *mut Context,
}

impl Service {
    /// Serves until the connection is dropped or unusable. Later requests then get no answer.
    fn serve(library: Library, url: &CStr, queue: &Queue, wake: &OwnedFd) {
        // SAFETY: the context is used by this thread only, and destroyed when this returns.
        let context = unsafe { (library.init_context)() };
        if context.is_null() {
            return;
        }
        let service = Self { library, context };
        // SAFETY: the context is valid, and the address is a C string; its parts are not used.
        unsafe {
            let parsed = (library.parse_url_dir)(context, url.as_ptr());
            if !parsed.is_null() {
                (library.destroy_url)(parsed);
            }
        }
        while !queue.ends.load(Relaxed) && service.turn(wake) {
            let asks = std::mem::take(&mut *lock(queue));
            asks.into_iter().for_each(|(ask, answer)| service.begin(ask, answer));
        }
        queue.ends.store(true, Relaxed);
        lock(queue).clear();
    }

    /// Waits for work, and lets the library do its own. `false`: it cannot go on.
    fn turn(&self, wake: &OwnedFd) -> bool {
        // SAFETY: the context is valid and belongs to this thread.
        let (fd, events) = unsafe {
            ((self.library.get_fd)(self.context), (self.library.which_events)(self.context))
        };
        let mut polled = vec![PollFd::new(wake, PollFlags::IN)];
        if fd >= 0 {
            // SAFETY: the library keeps the socket open until it is called again.
            let socket = unsafe { BorrowedFd::borrow_raw(fd) };
            let flags = PollFlags::from_bits_truncate(events as u16);
            polled.push(PollFd::from_borrowed_fd(socket, flags));
        }
        if poll(&mut polled, Some(&LOOK)).is_err_and(|e| e != rustix::io::Errno::INTR) {
            return false;
        }
        let came = polled.get(1).map_or(0, |socket| socket.revents().bits() as c_short);
        if !polled[0].revents().is_empty() {
            // The value does not matter: it only signals a request.
            let _ = rustix::io::read(wake.as_fd(), &mut [0; 8]);
        }
        // SAFETY: the context is valid and belongs to this thread; callbacks get what `begin` has
        // passed.
        fd < 0 || unsafe { (self.library.service)(self.context, c_int::from(came)) } == 0
    }

    fn begin(&self, ask: Ask, answer: Answer) {
        let Self { library, context } = self;
        let kind = match &ask {
            Ask::Mount { .. } | Ask::Close(_) => Kind::Nothing,
            Ask::Stat(_) => Kind::Stat,
            Ask::Open(_) => Kind::File,
            Ask::Read { .. } => Kind::Bytes,
        };
        let given: *mut c_void = Box::into_raw(Box::new(Waiting { kind, answer })).cast();
        let done: Callback = done;
        // SAFETY: the context is valid and belongs to this thread. Strings outlive the call, and
        // the library copies them. `given` is freed by `done`, which is called once unless the call
        // fails. An open file was returned by the library, and is not used after it is closed.
        let failed = unsafe {
            match &ask {
                Ask::Mount { server, export } => {
                    (library.mount)(*context, server.as_ptr(), export.as_ptr(), done, given)
                }
                Ask::Stat(path) => (library.stat)(*context, path.as_ptr(), done, given),
                Ask::Open(path) => {
                    (library.open)(*context, path.as_ptr(), libc::O_RDONLY, done, given)
                }
                Ask::Close(file) => (library.close)(*context, file.0 as *mut OpenFile, done, given),
                Ask::Read { file, offset, bytes } => {
                    let file = file.0 as *mut OpenFile;
                    (library.read)(*context, file, *offset, *bytes, done, given)
                }
            }
        };
        if failed != 0 {
            // SAFETY: the library has refused it.
            drop(unsafe { Box::from_raw(given.cast::<Waiting>()) });
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // SAFETY: the context is not used afterwards; operations in progress get an error.
        unsafe { (self.library.destroy_context)(self.context) };
    }
}

fn lock(queue: &Queue) -> std::sync::MutexGuard<'_, VecDeque<(Ask, Answer)>> {
    queue.asks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Callback of the library, in its thread, when an operation is complete.
unsafe extern "C" fn done(error: c_int, _: *mut Context, data: *mut c_void, given: *mut c_void) {
    // SAFETY: `begin` has passed it, and this is called once.
    let waiting = unsafe { Box::from_raw(given.cast::<Waiting>()) };
    let said = if error < 0 {
        Err(-error)
    } else {
        // SAFETY: by `libnfs.h` this is the result of a successful operation: attributes, the open
        // file, or as many bytes as `error` says. All but the file are freed afterwards.
        Ok(unsafe {
            match waiting.kind {
                Kind::Nothing => Said::Nothing,
                Kind::Stat => Said::Stat(*data.cast::<Stat>()),
                Kind::File => Said::File(File(data as usize)),
                Kind::Bytes if error == 0 => Said::Bytes(Vec::new()),
                Kind::Bytes => {
                    let bytes = std::slice::from_raw_parts(data.cast::<u8>(), error as usize);
                    Said::Bytes(bytes.to_vec())
                }
            }
        })
    };
    // The receiver may have timed out.
    let _ = waiting.answer.send(said);
}
