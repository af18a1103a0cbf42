//! One TCP connection to an NFS server, of version 3, on which many requests may be under way.
//!
//! A thread has the library's context for itself; others leave it what they want and wait.

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

/// A server that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The library looks at its own clock so often.
const LOOK: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// An open file, by the address that the library gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File(pub usize);

/// What is asked of the server.
enum Ask {
    Mount { server: CString, export: CString },
    Stat(CString),
    Open(CString),
    Close(File),
    Read { file: File, offset: u64, bytes: u64 },
}

/// What comes of it.
enum Said {
    Nothing,
    Stat(Stat),
    File(File),
    Bytes(Vec<u8>),
}

/// Who waits for that; an error is that of the system.
type Answer = SyncSender<std::result::Result<Said, i32>>;

/// How the result of the library is to be read.
#[derive(Clone, Copy)]
enum Kind {
    Nothing,
    Stat,
    File,
    Bytes,
}

/// Passed through the library.
struct Waiting {
    kind: Kind,
    answer: Answer,
}

#[derive(Default)]
struct Queue {
    asks: Mutex<VecDeque<(Ask, Answer)>>,
    ends: AtomicBool,
}

/// Dropped, it is closed.
pub struct Connection {
    queue: Arc<Queue>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Connection {
    /// Connects to an export, with the ports of [`super::NfsServer`], from the network that the
    /// caller is in.
    pub fn open(library: Library, server: Ipv4Addr, export: &str) -> Result<Self> {
        let (nfs, mount) = (super::server::NFS_PORT, super::server::MOUNT_PORT);
        // Nothing is cached or fetched ahead but by the kernel.
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

    /// Opens a file to read it.
    pub fn open_file(&self, path: &CStr) -> Result<File> {
        match self.ask(Ask::Open(path.to_owned()))? {
            Said::File(file) => Ok(file),
            _ => Err(unknown()),
        }
    }

    /// Nobody reads it any more.
    pub fn close_file(&self, file: File) -> Result<()> {
        self.ask(Ask::Close(file)).map(drop)
    }

    /// So many bytes, or what there is of them.
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
        // The thread looks by itself now and then.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

fn unknown() -> Error {
    Error::other("libnfs: not understood")
}

/// The thread's own.
struct Service {
    library: Library,
    context: *mut Context,
}

impl Service {
    /// Until the connection is dropped, or cannot be used any more: who asks then gets no answer.
    fn serve(library: Library, url: &CStr, queue: &Queue, wake: &OwnedFd) {
        // SAFETY: a context of this thread alone, destroyed when this returns.
        let context = unsafe { (library.init_context)() };
        if context.is_null() {
            return;
        }
        let service = Self { library, context };
        // SAFETY: the context is there, and the address a C string; its parts are not used.
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

    /// Waits for something to do, and does what the library has to; false: it cannot go on.
    fn turn(&self, wake: &OwnedFd) -> bool {
        // SAFETY: the context is this thread's, and there.
        let (fd, events) = unsafe {
            ((self.library.get_fd)(self.context), (self.library.which_events)(self.context))
        };
        let mut polled = vec![PollFd::new(wake, PollFlags::IN)];
        if fd >= 0 {
            // SAFETY: the library keeps it open at least until it is called again.
            let socket = unsafe { BorrowedFd::borrow_raw(fd) };
            let flags = PollFlags::from_bits_truncate(events as u16);
            polled.push(PollFd::from_borrowed_fd(socket, flags));
        }
        if poll(&mut polled, Some(&LOOK)).is_err_and(|e| e != rustix::io::Errno::INTR) {
            return false;
        }
        let came = polled.get(1).map_or(0, |socket| socket.revents().bits() as c_short);
        if !polled[0].revents().is_empty() {
            // That somebody has asked is all that it says.
            let _ = rustix::io::read(wake.as_fd(), &mut [0; 8]);
        }
        // SAFETY: as above; callbacks get what `begin` has passed.
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
        // SAFETY: the context is this thread's; strings live until the call returns, and the
        // library copies them; `given` is freed by `done`, which is called once unless the call
        // fails. An open file is one that the library gave, and nobody uses it once it is closed.
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
            // SAFETY: the library did not take it.
            drop(unsafe { Box::from_raw(given.cast::<Waiting>()) });
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // SAFETY: nobody uses it afterwards; operations that are under way get an error.
        unsafe { (self.library.destroy_context)(self.context) };
    }
}

fn lock(queue: &Queue) -> std::sync::MutexGuard<'_, VecDeque<(Ask, Answer)>> {
    queue.asks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called by the library, in its thread, when an operation is done.
unsafe extern "C" fn done(error: c_int, _: *mut Context, data: *mut c_void, given: *mut c_void) {
    // SAFETY: `begin` has passed it, and this is called once.
    let waiting = unsafe { Box::from_raw(given.cast::<Waiting>()) };
    let said = if error < 0 {
        Err(-error)
    } else {
        // SAFETY: by `libnfs.h` the result of an operation that did not fail: attributes, the open
        // file, or as many bytes as `error` says; all but the file are gone afterwards.
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
    // Who has waited too long has gone.
    let _ = waiting.answer.send(said);
}
