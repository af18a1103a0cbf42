//! Threads that read requests and serve them.
//!
//! Each has its own clone of the device and its own warm buffers. A reply is sent through the clone
//! that its request came from; interrupts may arrive at any of them.

use std::cell::Cell;
use std::convert::Infallible;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::io::Errno as OsErrno;

use crate::filesystem::{Filesystem, RequestContext};
use crate::interrupts::arrivals::{Arrivals, Noted, Reader, What};
use crate::interrupts::heeds::Heeds;
use crate::interrupts::interrupt::{Interrupt, InterruptTable};
use crate::interrupts::killed::{Callers, was_killed};
use crate::notify::mark_serving_thread;
use crate::protocol::abi;
use crate::protocol::answer::Answer;
use crate::protocol::errno::Errno;
use crate::protocol::request::{Op, Request};
use crate::serving::crew::{Crew, Next, Taken, Urgency};
use crate::serving::dispatch::Dispatch;
use crate::serving::measured::Measured;
use crate::write_data::{REQUEST_START, RequestBuffer, WriteData, WritePool, request_buffer_bytes};
use weir_host::pages::Pages;

/// Stack of a thread that waits for a lock, bytes.
const WAITING_STACK_BYTES: usize = 256 << 10;
/// Buffer for a lock request, bytes; longer than any such request.
const LOCK_REQUEST_BYTES: usize = 4096;

/// The most queued requests while all threads are busy.
pub(crate) const MAX_QUEUED: usize = 256;

/// A request that waits for a thread.
pub(crate) struct Queued {
    unique: u64,
    pid: u32,
    heeds: Heeds,
    device: Arc<OwnedFd>,
    request: RequestBuffer,
    length: usize,
    noted: Option<Noted>,
}

/// State shared by the workers of one mount.
pub(crate) struct Shared<F> {
    pub(crate) fs: F,
    pub(crate) device: Arc<OwnedFd>,
    pub(crate) crew: Crew<Queued>,
    pub(crate) interrupts: Arc<InterruptTable>,
    pub(crate) callers: Callers,
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) pool: Arc<WritePool>,
    pub(crate) max_io_bytes: usize,
    pub(crate) setxattr_ext: bool,
    pub(crate) negative_ttl: Duration,
    pub(crate) io_flusher: bool,
    pub(crate) lock_waits: LockWaits,
    pub(crate) measured: Arc<Measured>,
    /// Why reading requests has failed, if it has.
    pub(crate) failure: Mutex<Option<OsErrno>>,
}

/// Number of calls that wait for locks. Each has its own thread: they may wait for ever, and the
/// unlock that they wait for needs a thread, too.
pub(crate) struct LockWaits {
    most: usize,
    now: AtomicUsize,
}

impl LockWaits {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, now: AtomicUsize::new(0) }
    }

    /// Counts another wait, if there is space.
    fn enter(&self) -> bool {
        let more = |now| (now < self.most).then_some(now + 1);
        self.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One worker.
struct Worker<F> {
    shared: Arc<Shared<F>>,
    /// Whether it serves a single request, and may wait for ever.
    waits: bool,
    device: Arc<OwnedFd>,
    request: RequestBuffer,
    reply: Pages,
    interrupt: Arc<Interrupt>,
    /// The request in the buffer, if later ones may have to wait for it.
    noted: Option<Noted>,
    /// Last field, so that it is dropped after `shared`.
    there: There,
}

/// Held by each user of the file system. Nothing is ever sent.
pub(crate) type There = mpsc::Sender<Infallible>;

/// Result of the first look at a request.
enum Seen {
    /// It needs the file system, which may block.
    Serve { unique: u64, urgency: Urgency },
    /// It is finished.
    Done,
}

/// Starts another worker.
///
/// # Errors
/// The system grants no thread, memory or descriptors.
pub(crate) fn start<F: Filesystem>(shared: &Arc<Shared<F>>, there: &There) -> std::io::Result<()> {
    shared.crew.join();
    start_counted(shared, there)
}

/// Replies to killed callers until the end: those of requests being served, and those of queued
/// requests. (The kernel reports a signal, but perhaps no thread is left to receive it.)
pub(crate) fn watch_callers<F>(shared: &Shared<F>) {
    while shared.callers.next_look() {
        shared.callers.answer_killed(&shared.interrupts);
        let queued = shared.crew.queued(|queued| (queued.unique, queued.pid));
        for (unique, _) in queued.into_iter().filter(|(_, pid)| was_killed(*pid)) {
            if let Some(queued) = shared.crew.remove_queued(|queued| queued.unique == unique) {
                Answer::new(&*queued.device, unique).error(Errno::EINTR);
            }
        }
    }
}

/// As [`start`], for a worker that the crew has counted already.
fn start_counted<F: Filesystem>(shared: &Arc<Shared<F>>, there: &There) -> std::io::Result<()> {
    let started = Worker::new(shared, there).and_then(|worker| {
        std::thread::Builder::new().name("weir-fuse".into()).spawn(move || worker.run())
    });
    if started.is_err() {
        shared.crew.leave_reading();
    }
    started.map(drop)
}

impl<F: Filesystem> Worker<F> {
    fn new(shared: &Arc<Shared<F>>, there: &There) -> std::io::Result<Self> {
        let request = Pages::new(request_buffer_bytes(shared.max_io_bytes))?;
        Ok(Self {
            shared: Arc::clone(shared),
            waits: false,
            device: clone_device(&shared.device),
            request: RequestBuffer(request),
            reply: Pages::new(shared.max_io_bytes)?,
            interrupt: Arc::new(Interrupt::new()?),
            noted: None,
            there: there.clone(),
        })
    }

    fn run(mut self) {
        mark_serving_thread();
        if self.shared.io_flusher {
            become_io_flusher();
        }
        let reader = self.shared.arrivals.join();
        self.read_and_serve(&reader);
        self.shared.arrivals.leave(&reader);
    }

    fn read_and_serve(&mut self, reader: &Reader) {
        while let Some(length) = self.receive(reader) {
            // A panic here would lose a thread that the crew counts on.
            let seen = catch_unwind(AssertUnwindSafe(|| self.look(length)));
            reader.has_looked();
            let Ok(Seen::Serve { unique, urgency }) = seen else { continue };
            match self.shared.crew.took(urgency) {
                Taken::Serve => self.serve(length),
                Taken::StartAnother => {
                    if let Err(error) = start_counted(&self.shared, &self.there) {
                        tracing::warn!(%error, "cannot start another thread for the mount");
                    }
                    self.serve(length);
                }
                Taken::Enqueue => {
                    if self.enqueue(unique, length) {
                        continue;
                    }
                }
            }
            if !self.finish_round() {
                return;
            }
        }
        self.shared.crew.close();
        self.shared.crew.leave_reading();
    }

    /// After a request: serves queued ones, or rests. Returns `false` at the end.
    fn finish_round(&mut self) -> bool {
        loop {
            match self.shared.crew.done() {
                Next::Read => return true,
                Next::Leave => {
                    // It has rested long: there is less to do than there was.
                    self.shared.pool.free_spare();
                    return false;
                }
                Next::Serve(queued) => {
                    let own = std::mem::replace(&mut self.device, queued.device);
                    (self.request, self.noted) = (queued.request, queued.noted);
                    self.serve(queued.length);
                    self.device = own;
                }
            }
        }
    }

    /// Reads the next request; `None` after the end of the mount.
    fn receive(&mut self, reader: &Reader) -> Option<usize> {
        reader.reads();
        loop {
            match rustix::io::read(&self.device, &mut self.request.0[REQUEST_START..]) {
                Ok(0) | Err(OsErrno::NODEV | OsErrno::CONNABORTED) => return None,
                Ok(length) => return Some(length),
                // ENOENT: the request was withdrawn while it was read.
                Err(OsErrno::INTR | OsErrno::AGAIN | OsErrno::NOENT) => {}
                Err(errno) => {
                    tracing::error!(%errno, "cannot read requests from /dev/fuse");
                    let mut failure =
                        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
                    failure.get_or_insert(errno);
                    return None;
                }
            }
        }
    }

    /// Handles requests at once that need no reply and cannot block.
    fn look(&mut self, length: usize) -> Seen {
        let bytes = &self.request.0[REQUEST_START..REQUEST_START + length];
        let shared = &self.shared;
        match Request::parse(bytes, shared.setxattr_ext) {
            Err(bad) => {
                tracing::debug!(?bad, "a request that cannot be served");
                if let Some(unique) = bad.unique {
                    Answer::new(&*self.device, unique).error(bad.errno);
                }
                Seen::Done
            }
            Ok(Request { op: Op::Forget { nlookup }, header }) => {
                shared.fs.forget(header.node, nlookup);
                Seen::Done
            }
            Ok(Request { op: Op::BatchForget(list), .. }) => {
                list.iter().for_each(|(node, lookups)| shared.fs.forget(node, lookups));
                Seen::Done
            }
            Ok(Request { op: Op::Interrupt { unique }, .. }) => {
                self.interrupt_other(unique & !abi::INT_REQ_BIT);
                Seen::Done
            }
            Ok(Request { header, op }) => {
                let urgency = match op {
                    Op::Write { args, .. } if args.from_page_cache => Urgency::WritesBack,
                    Op::Read { args, .. } if !args.is_past_pages() => Urgency::Fills,
                    _ => Urgency::Normal,
                };
                let what = match op {
                    Op::Release { .. } => Some(What::Close),
                    Op::Write { args, .. } if args.appends() => Some(What::Append),
                    _ => None,
                };
                let note = |what| shared.arrivals.note(header.unique, header.node, what);
                self.noted = what.map(note);
                Seen::Serve { unique: header.unique, urgency }
            }
        }
    }

    /// Passes an interrupt on. A queued request ends at once, if it reacts to the signal.
    fn interrupt_other(&self, unique: u64) {
        let crew = &self.shared.crew;
        let heeds = Cell::new(None);
        crew.remove_queued(|queued| {
            if queued.unique == unique {
                heeds.set(Some(queued.heeds));
            }
            false
        });
        if heeds.get().is_some_and(Heeds::now)
            && let Some(queued) = crew.remove_queued(|queued| queued.unique == unique)
        {
            Answer::new(&*queued.device, unique).error(Errno::EINTR);
        } else {
            // If it is in the queue still, whoever serves it will ask again.
            self.shared.interrupts.interrupt(unique);
        }
    }

    /// Queues the request. Returns `false` if it was served here after all.
    fn enqueue(&mut self, unique: u64, length: usize) -> bool {
        let bytes = &self.request.0[REQUEST_START..REQUEST_START + length];
        let parsed = Request::parse(bytes, self.shared.setxattr_ext);
        let (pid, heeds) =
            parsed.map_or((0, Heeds::Any), |r| (r.header.pid, Heeds::of(&r.op, r.header.pid)));
        let Ok(fresh) = Pages::new(self.request.0.len()) else {
            self.serve(length);
            return false;
        };
        let request = std::mem::replace(&mut self.request, RequestBuffer(fresh));
        let device = Arc::clone(&self.device);
        let noted = self.noted.take();
        let queued = Queued { unique, pid, heeds, device, request, length, noted };
        match self.shared.crew.enqueue(queued) {
            Ok(()) => true,
            Err(back) => {
                (self.request, self.noted) = (back.request, back.noted);
                self.serve(length);
                false
            }
        }
    }

    /// Serves the request in the buffer, and always replies.
    fn serve(&mut self, length: usize) {
        // Until it is answered, at most.
        let mut noted = self.noted.take();
        let Self { shared, device, request, reply, interrupt, waits, noted: _, there: _ } = self;
        let bytes = &request.0[REQUEST_START..REQUEST_START + length];
        let Ok(Request { header, op }) = Request::parse(bytes, shared.setxattr_ext) else { return };
        let heeds = Heeds::of(&op, header.pid);
        let answer = Answer::new(&**device, header.unique);
        if let Op::Flush { fh, lock_owner } = op
            && shared.callers.is_dying(header.pid)
        {
            // The release that follows writes what there is.
            answer.error(Errno::EINTR);
            shared.fs.abandon(header.node, fh, lock_owner);
            return;
        }
        let begun = shared.measured.begin(&op);
        let active = shared.interrupts.begin(header.unique, interrupt, heeds);
        let waiting = shared.callers.begin(header.unique, header.pid, device);
        let ctx = RequestContext::new(&header, interrupt, shared.measured.group_reads());
        let dispatch = Dispatch {
            fs: &shared.fs,
            ctx: &ctx,
            node: header.node,
            answer: &answer,
            arrivals: &shared.arrivals,
            noted: &mut noted,
            buffer: reply,
            negative_ttl: shared.negative_ttl,
        };
        let outcome = if let (Op::SetLk { args, wait: true }, false) = (&op, *waits) {
            let now =
                catch_unwind(AssertUnwindSafe(|| shared.fs.setlk(&ctx, header.node, args, false)));
            if matches!(now, Ok(Err(Errno::EAGAIN))) {
                drop(waiting);
                begun.handed_on();
                active.hand_on();
                self.wait_aside(length);
                return;
            }
            now.map(|done| done.map(|()| answer.empty()))
        } else if let Op::Write { fh, offset, data, args } = op {
            let start = data.as_ptr().addr() - request.0.as_ptr().addr();
            let range = start..start + data.len();
            let data = WriteData { request, range, pool: &shared.pool, interrupt };
            let take_turn = || {
                let all_known = shared.fs.appends_here(fh, offset);
                shared.arrivals.take_turn((header.node, header.unique), all_known, interrupt)
            };
            if args.appends() && !take_turn() {
                shared.fs.write_is_refused(&ctx, fh);
                Ok(Err(Errno::EINTR))
            } else {
                catch_unwind(AssertUnwindSafe(|| dispatch.write(fh, offset, data, &args)))
            }
        } else {
            catch_unwind(AssertUnwindSafe(|| dispatch.serve(op)))
        };
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(errno)) => {
                begun.failed(errno);
                answer.error(errno);
            }
            Err(_) => {
                tracing::error!(node = header.node, "an operation panicked; its caller gets EIO");
                begun.failed(Errno::EIO);
                answer.error(Errno::EIO);
            }
        }
        drop((active, waiting, begun));
    }
}

impl<F: Filesystem> Worker<F> {
    /// Serves the lock request in the buffer in a separate thread.
    fn wait_aside(&self, length: usize) {
        let bytes = &self.request.0[REQUEST_START..REQUEST_START + length];
        let Ok(Request { header, .. }) = Request::parse(bytes, self.shared.setxattr_ext) else {
            return;
        };
        let refuse = || Answer::new(&*self.device, header.unique).error(Errno::ENOLCK);
        if !self.shared.lock_waits.enter() {
            tracing::warn!("too many calls wait for locks; one more is refused");
            refuse();
            return;
        }
        let started = self.aside(bytes).and_then(|mut worker| {
            let builder = std::thread::Builder::new().name("weir-lock".into());
            builder.stack_size(WAITING_STACK_BYTES).spawn(move || {
                mark_serving_thread();
                worker.serve(length);
                worker.shared.lock_waits.leave();
            })
        });
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start a thread that waits for a lock");
            self.shared.lock_waits.leave();
            refuse();
        }
    }

    fn aside(&self, bytes: &[u8]) -> std::io::Result<Self> {
        let mut request = Pages::new(request_buffer_bytes(LOCK_REQUEST_BYTES))?;
        let room = request.get_mut(REQUEST_START..REQUEST_START + bytes.len());
        room.ok_or(std::io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
        Ok(Self {
            shared: Arc::clone(&self.shared),
            waits: true,
            device: Arc::clone(&self.device),
            request: RequestBuffer(request),
            reply: Pages::new(LOCK_REQUEST_BYTES)?,
            interrupt: Arc::new(Interrupt::new()?),
            noted: None,
            there: self.there.clone(),
        })
    }
}

/// A separate descriptor for a worker, so that workers do not share the kernel's list of requests
/// in progress. An old kernel refuses; then they do.
fn clone_device(main: &Arc<OwnedFd>) -> Arc<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    let Ok(clone) = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
        return Arc::clone(main);
    };
    let source = main.as_raw_fd().cast_unsigned();
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, which `source` is.
    let done = unsafe { libc::ioctl(clone.as_raw_fd(), abi::DEV_IOC_CLONE, &raw const source) };
    if done == 0 { Arc::new(clone) } else { Arc::clone(main) }
}

/// Tells the kernel that this thread writes memory back for it: it may then use reserves and is not
/// throttled by the very pages it cleans.
fn become_io_flusher() {
    /// Missing in `libc`.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: PR_SET_IO_FLUSHER takes plain numbers and changes this thread only.
    let done = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    if done != 0 {
        tracing::debug!("PR_SET_IO_FLUSHER is not permitted; going on without");
    }
}
