//! A mounted file system, from the INIT exchange to its end.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use zerocopy::IntoBytes;

use crate::filesystem::{Filesystem, Negotiated};
use crate::interrupts::interrupt::InterruptTable;
use crate::mounting::config::Config;
use crate::mounting::mount::{self, Mounted};
use crate::mounting::mount_error::MountError;
use crate::notify::Notifier;
use crate::protocol::abi::{self, init};
use crate::protocol::answer::Answer;
use crate::protocol::errno::Errno;
use crate::protocol::request::{Init, Op, Request};
use crate::serving::crew::Crew;
use crate::serving::measured::Measured;
use crate::serving::worker::{self, LockWaits, MAX_QUEUED, Shared};
use crate::write_data::{WritePool, request_buffer_bytes};
use weir_host::pages::PAGE_BYTES;

/// Longest wait for the kernel's INIT.
const INIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A mounted file system. Dropping it before its end unmounts it (lazily).
pub struct Session<F: Filesystem> {
    shared: Arc<Shared<F>>,
    handle: Handle,
    negotiated: Negotiated,
    waiting_workers: usize,
}

/// Ends a mount, or sends notifications, from any thread.
#[derive(Clone, Debug)]
pub struct Handle {
    mounted: Mounted,
    device: Arc<OwnedFd>,
    interrupts: Arc<InterruptTable>,
    drain_timeout: Duration,
}

impl<F: Filesystem> Session<F> {
    /// Mounts and agrees on the protocol. [`Session::run`] then serves.
    ///
    /// A dead FUSE mount at the mountpoint (its daemon was killed) is replaced. As root there is no
    /// moment at which nothing is mounted there; as another user there is, see [`Session::hidden`].
    ///
    /// # Errors
    /// [`MountError`]; each says what to do.
    pub fn mount(fs: F, mountpoint: &Path, config: &Config) -> Result<Self, MountError> {
        if let Some(problem) = config.problem() {
            return Err(MountError::BadConfig(problem));
        }
        let (device, mounted) = mount::mount(mountpoint, config)?;
        let agreed = greet(&device, config).inspect_err(|_| {
            // The first error is the one to tell.
            let _ = mounted.unmount(true);
        })?;
        mount::set_read_ahead(&mounted, config.read_ahead_kib);
        let negotiated = agreed.negotiated();
        fs.init(&negotiated);

        let device = Arc::new(device);
        let interrupts = Arc::new(InterruptTable::default());
        let buffer_bytes = request_buffer_bytes(agreed.max_io_bytes);
        let shared = Arc::new(Shared {
            fs,
            device: Arc::clone(&device),
            crew: Crew::new(config.waiting_workers, config.max_workers, MAX_QUEUED),
            interrupts: Arc::clone(&interrupts),
            callers: Default::default(),
            arrivals: Arc::default(),
            pool: Arc::new(WritePool::new(buffer_bytes, config.write_pool_bytes)),
            max_io_bytes: agreed.max_io_bytes,
            setxattr_ext: agreed.flags & init::SETXATTR_EXT != 0,
            negative_ttl: config.negative_ttl,
            io_flusher: config.io_flusher,
            lock_waits: LockWaits::new(config.max_lock_waits),
            measured: Arc::default(),
            failure: Mutex::new(None),
        });
        Ok(Self {
            shared,
            handle: Handle { mounted, device, interrupts, drain_timeout: config.drain_timeout },
            negotiated,
            waiting_workers: config.waiting_workers,
        })
    }

    /// Handle for ending the mount from another thread, or for sending notifications.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Counters of its operations.
    pub fn measured(&self) -> Arc<Measured> {
        Arc::clone(&self.shared.measured)
    }

    /// Features agreed with the kernel.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// What programs have made in the directory below the mountpoint while it was bare, because a
    /// dead mount had to be detached first. The mount hides it.
    pub fn hidden(&self) -> &[OsString] {
        &self.handle.mounted.hidden
    }

    /// The file system.
    pub fn filesystem(&self) -> &F {
        &self.shared.fs
    }

    /// Serves until the file system is unmounted, by any process. Then it interrupts running
    /// operations, waits for them ([`Config::drain_timeout`]), calls [`Filesystem::destroy`], and
    /// drops the file system, which no thread uses any more unless one did not end in time, which
    /// is logged.
    ///
    /// # Errors
    /// No thread could be started, or requests can no longer be read.
    pub fn run(self) -> Result<(), MountError> {
        let (there, gone) = mpsc::channel();
        for started in 0..self.waiting_workers {
            match worker::start(&self.shared, &there) {
                Ok(()) => {}
                Err(error) if started > 0 => tracing::warn!(%error, "fewer threads than wished"),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
                    return Err(MountError::System { what: "starting threads", errno });
                }
            }
        }
        drop(there);
        let shared = &self.shared;
        let watch = watch_callers(shared);
        let left = shared.crew.wait(self.handle.drain_timeout, || shared.interrupts.close());
        shared.callers.close();
        if watch.is_some_and(|watch| watch.join().is_err()) {
            tracing::error!("the thread that looks for killed callers panicked");
        }
        if left > 0 {
            tracing::warn!(threads = left, "operations still run after the mount has ended");
        } else if gone.recv_timeout(self.handle.drain_timeout) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("a call that waited for a lock still runs after the mount has ended");
        }
        let failure = *shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match failure {
            Some(errno) => Err(MountError::system("reading requests")(errno)),
            None => Ok(()),
        }
    }
}

/// Starts the thread that replies to killed callers. Without it they wait until their operation
/// ends by itself.
fn watch_callers<F: Filesystem>(shared: &Arc<Shared<F>>) -> Option<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let watch = move || worker::watch_callers(&shared);
    let started = std::thread::Builder::new().name("weir-killed".into()).spawn(watch);
    started.inspect_err(|error| tracing::warn!(%error, "killed callers are not looked for")).ok()
}

impl<F: Filesystem> Drop for Session<F> {
    fn drop(&mut self) {
        // Most often it is gone already, which is why this runs.
        let _ = self.handle.unmount(true);
        self.shared.fs.destroy();
    }
}

impl Handle {
    /// Unmounts; [`Session::run`] then returns. With `lazy` the mount is detached at once, and gone
    /// after its last use.
    ///
    /// The kernel waits for its own reads in progress, even if their readers are gone. After
    /// [`Config::drain_timeout`] they are interrupted.
    ///
    /// # Errors
    /// [`MountError::InUse`] unless lazy; [`MountError::NotMounted`].
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        let (done, waits) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let waits = waits;
                while waits.recv_timeout(self.drain_timeout) == Err(RecvTimeoutError::Timeout) {
                    self.interrupts.interrupt_all();
                }
            });
            let result = self.mounted.unmount(lazy);
            drop(done);
            result
        })
    }

    /// The mountpoint, without symbolic links.
    pub fn mountpoint(&self) -> PathBuf {
        self.mounted.mountpoint.clone()
    }

    /// Notifier for invalidating what the kernel caches.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.device))
    }
}

/// Result of the INIT exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Agreed {
    minor: u32,
    flags: u64,
    max_readahead: u32,
    max_io_bytes: usize,
}

impl Agreed {
    fn negotiated(&self) -> Negotiated {
        let has = |flag| self.flags & flag != 0;
        Negotiated {
            minor: self.minor,
            max_io_bytes: self.max_io_bytes,
            posix_locks: has(init::POSIX_LOCKS),
            flock_locks: has(init::FLOCK_LOCKS),
            posix_acl: has(init::POSIX_ACL),
            explicit_inval_data: has(init::EXPLICIT_INVAL_DATA),
            writeback_cache: has(init::WRITEBACK_CACHE),
            kill_suidgid: has(init::HANDLE_KILLPRIV_V2),
        }
    }

    fn reply(&self, max_background: u16) -> abi::InitOut {
        abi::InitOut {
            major: abi::MAJOR,
            minor: self.minor,
            max_readahead: self.max_readahead,
            flags: self.flags as u32,
            flags2: (self.flags >> 32) as u32,
            max_background,
            congestion_threshold: max_background / 4 * 3,
            max_write: self.max_io_bytes as u32,
            time_gran: 1,
            max_pages: (self.max_io_bytes / PAGE_BYTES) as u16,
            ..Default::default()
        }
    }
}

/// The features to request, of those that the kernel offers. Truncation by open (`ATOMIC_O_TRUNC`)
/// is left out: it would truncate the file of a running program, and fail afterwards.
fn agree(offer: &Init, config: &Config) -> Agreed {
    let mut wanted = init::ASYNC_READ
        | init::EXPORT_SUPPORT
        | init::BIG_WRITES
        | init::HAS_IOCTL_DIR
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::MAX_PAGES
        | init::CACHE_SYMLINKS
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::INIT_EXT
        | init::HAS_EXPIRE_ONLY
        | init::DIRECT_IO_ALLOW_MMAP;
    wanted |=
        if config.explicit_inval_data { init::EXPLICIT_INVAL_DATA } else { init::AUTO_INVAL_DATA };
    for (on, flags) in [
        (config.readdirplus, init::DO_READDIRPLUS | init::READDIRPLUS_AUTO),
        (config.posix_locks, init::POSIX_LOCKS),
        (config.flock_locks, init::FLOCK_LOCKS),
        (config.posix_acl, init::POSIX_ACL | init::DONT_MASK),
        (config.writeback_cache, init::WRITEBACK_CACHE),
    ] {
        if on {
            wanted |= flags;
        }
    }
    Agreed {
        minor: offer.minor.min(abi::MINOR),
        flags: wanted & offer.flags,
        max_readahead: config.read_ahead_kib.saturating_mul(1024).min(offer.max_readahead),
        max_io_bytes: config.max_io_bytes,
    }
}

/// Replies to INIT.
fn greet(device: &OwnedFd, config: &Config) -> Result<Agreed, MountError> {
    let mut buffer = vec![0u8; request_buffer_bytes(config.max_io_bytes)];
    loop {
        if !mount::wait_readable(device, INIT_TIMEOUT) {
            return Err(MountError::System { what: "waiting for INIT", errno: libc::ETIMEDOUT });
        }
        let length = match rustix::io::read(device, &mut buffer) {
            Ok(length) => length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::NOENT) => continue,
            Err(errno) => return Err(MountError::system("reading INIT")(errno)),
        };
        let parsed = Request::parse(&buffer[..length], false);
        let Ok(Request { header, op: Op::Init(offer) }) = parsed else {
            return Err(MountError::System { what: "reading INIT", errno: libc::EPROTO });
        };
        let answer = Answer::new(device, header.unique);
        if offer.major > abi::MAJOR {
            // Say which version we speak; the kernel then asks again.
            answer.value(&abi::InitOut { major: abi::MAJOR, ..Default::default() });
            continue;
        }
        if offer.major < abi::MAJOR || offer.minor < abi::MIN_MINOR {
            answer.error(Errno(libc::EPROTO));
            let version = format!("{}.{}", offer.major, offer.minor);
            return Err(MountError::OldKernel { version });
        }
        let agreed = agree(&offer, config);
        answer.bytes(agreed.reply(config.background()).as_bytes());
        return Ok(agreed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_offers_is_agreed_upon() {
        let offer = Init { major: 7, minor: 31, max_readahead: 1 << 17, flags: init::ASYNC_READ };
        let config = Config { posix_locks: true, ..Config::default() };
        let agreed = agree(&offer, &config);
        assert_eq!((agreed.minor, agreed.flags), (31, init::ASYNC_READ));
        assert_eq!(agreed.max_readahead, 1 << 17);
        assert!(!agreed.negotiated().posix_locks);

        let offer = Init { minor: 99, flags: u64::MAX, ..offer };
        let agreed = agree(&offer, &config);
        assert_eq!(agreed.minor, abi::MINOR);
        let negotiated = agreed.negotiated();
        assert!(negotiated.posix_locks && !negotiated.flock_locks && !negotiated.writeback_cache);
        assert!(!negotiated.explicit_inval_data && negotiated.kill_suidgid);
        let reply = agreed.reply(64);
        assert_eq!((reply.max_pages, reply.max_write), (256, 1 << 20));
        assert_eq!((reply.max_background, reply.congestion_threshold), (64, 48));
        assert_eq!(reply.flags2 & 1 << 4, 1 << 4, "DIRECT_IO_ALLOW_MMAP travels in flags2");
        assert_eq!(agreed.flags & init::NO_OPEN_SUPPORT, 0);
    }
}
