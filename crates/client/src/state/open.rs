//! State that all handles of an open file share.

mod extent;
mod granted;
mod layout;
mod leases;
mod room;
mod sizes;

pub(crate) use self::layout::CUT_BYTES;

use self::extent::{Extent, full};
use self::granted::{Capabilities, Granted};
use super::reader::Reader;
use super::sizing::Sizing;
use super::together::Together;
use super::writer::Writer;
use crate::config::{ClientConfig, Consistency};
use crate::core::lease::FileLease;
use crate::rpc::servers::Choosing;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use weir_host::sync::{Condvar, Mutex, MutexGuard, RwLock};
use weir_types::{Error, ErrorKind, FileId, Generation};
use weir_wire::meta::OpenFile;

/// State that all handles of a file share.
pub(crate) struct OpenState {
    pub(crate) id: FileId,
    granted: RwLock<Arc<Granted>>,
    /// Separate from the writer, whose lock may be held while servers are waited for.
    extent: Mutex<Extent>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) together: Together,
    /// Whether the writer has buffered data. Readers need not take its lock otherwise.
    pub(crate) dirty: AtomicBool,
    pub(crate) reader: Mutex<Reader>,
    /// Held during a report of size and time by a caller without the writer's lock.
    pub(crate) reporting: Mutex<()>,
    /// Taken by `leases::cut`.
    pub(crate) sizing: Sizing,
    /// The choice of the copies to read.
    pub(crate) choosing: Arc<Choosing>,
    pub(crate) lease: Mutex<FileLease>,
    /// Notified when something changes that calls or a recall may wait for.
    pub(crate) lease_changed: Condvar,
    /// Number of times that leases were lost.
    pub(crate) losses: AtomicU64,
    /// Whether unreported writes were lost with them.
    pub(crate) lost_writes: AtomicBool,
    /// Generation of the last truncation by this client.
    own_generation: AtomicU64,
    /// Number of truncations by this client under way.
    resizing: AtomicU32,
    /// Number of truncations by this client whose objects are being truncated.
    cutting: AtomicU32,
    /// Whether anything was written without leases.
    pub(crate) unleased: AtomicBool,
    /// Number of times that the metadata server may have forgotten reports.
    server_runs: AtomicU64,
    /// The setting of the file when it was first opened. All handles use the cache in one way.
    pub(crate) hint: Option<Consistency>,
    /// Whether a write has failed that may still reach a data server.
    unconfirmed: AtomicBool,
    /// Bytes that are buffered by the writer or on their way.
    pub(crate) buffered: AtomicU64,
    /// Number of changes of its objects. The allocated space may change with each.
    pub(crate) changes: AtomicU64,
    /// The generation under which the metadata server was told that holes may be anywhere.
    pub(crate) sparse: AtomicU64,
    /// Size up to which the file may grow without asking for space.
    room: AtomicU64,
    /// The generation for which `room` is valid. A later truncation has returned the granted space.
    room_generation: AtomicU64,
}

impl OpenState {
    /// Makes the state from the reply to an open or create.
    pub(crate) fn new(open: &OpenFile) -> Self {
        let mut granted = Granted {
            layout: open.layout.clone(),
            newest: open.layout.epoch,
            generation: open.attr.generation,
            begins_anew: false,
            read: Capabilities::default(),
            write: Capabilities::default(),
        };
        granted.take(&open.capability, &open.layout.segments);
        let made_empty = open.attr.size == 0;
        let state = Self {
            id: open.attr.file,
            granted: RwLock::new(Arc::new(granted)),
            extent: Mutex::new(Extent {
                size: open.attr.size,
                told: open.attr.size,
                change: open.attr.change,
                times: (open.attr.mtime, open.attr.ctime),
                sparse: open.attr.sparse,
                full: full(&open.attr),
                ..Extent::default()
            }),
            writer: Mutex::default(),
            together: Together::default(),
            dirty: AtomicBool::new(false),
            reader: Mutex::default(),
            reporting: Mutex::default(),
            sizing: Sizing::default(),
            choosing: Arc::default(),
            lease: Mutex::default(),
            lease_changed: Condvar::new(),
            losses: AtomicU64::new(0),
            lost_writes: AtomicBool::new(false),
            own_generation: AtomicU64::new(0),
            resizing: AtomicU32::new(0),
            cutting: AtomicU32::new(0),
            unleased: AtomicBool::new(false),
            server_runs: AtomicU64::new(0),
            hint: open.consistency,
            unconfirmed: AtomicBool::new(false),
            buffered: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            sparse: AtomicU64::new(0),
            room: AtomicU64::new(room::UNLIMITED),
            room_generation: AtomicU64::new(0),
        };
        if made_empty {
            state.writer().forget_objects();
        }
        state
    }

    /// Records that this client begins to truncate the file.
    pub(crate) fn begin_resize(&self) {
        self.resizing.fetch_add(1, Ordering::AcqRel);
    }

    /// Marks objects as being truncated until the result is dropped.
    pub(crate) fn cutting(&self) -> Cutting<'_> {
        self.cutting.fetch_add(1, Ordering::AcqRel);
        Cutting(self)
    }

    /// Whether a change by this client may have reached one copy and not yet another.
    pub(crate) fn has_changes_under_way(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
            || self.is_unconfirmed()
            || self.is_resizing()
            || self.cutting.load(Ordering::Acquire) > 0
    }

    /// Whether a truncation by this client is under way.
    pub(crate) fn is_resizing(&self) -> bool {
        self.resizing.load(Ordering::Acquire) > 0
    }

    /// Ends a truncation by this client. It was carried out if there is a generation.
    pub(crate) fn end_resize(&self, generation: Option<Generation>) {
        if let Some(generation) = generation {
            self.is_own(generation);
        }
        self.resizing.fetch_sub(1, Ordering::AcqRel);
    }

    /// Records that a truncation by this client has given the file this generation.
    pub(crate) fn is_own(&self, generation: Generation) {
        self.own_generation.fetch_max(generation.0, Ordering::AcqRel);
    }

    /// Whether another client has fenced off writes of a generation. Under leases that means that
    /// the leases were lost: a truncation first recalls all leases, and so does the server before
    /// it cuts off a dead writer.
    pub(crate) fn is_fenced_off(&self, config: &ClientConfig, written_under: Generation) -> bool {
        self.has_leases(config)
            && self.generation() > written_under
            && self.generation().0 > self.own_generation.load(Ordering::Acquire)
            && !self.is_resizing()
    }

    /// Whether nobody else changes what this client has written without its knowing.
    pub(crate) fn has_leases(&self, config: &ClientConfig) -> bool {
        config.consistency == Consistency::Strict && !self.unleased.load(Ordering::Acquire)
    }

    /// Records the failure of a change of the objects. If no server has refused it, it may still be
    /// carried out.
    pub(crate) fn change_failed(&self, error: &Error) {
        if !was_refused(error) {
            self.leave_unconfirmed();
        }
    }

    /// Records that a truncation may not have reached all objects or all copies. Later writes
    /// behind the new end would then be cut off. So the next call acquires its lease again, learns
    /// of the truncation, and finishes it first.
    pub(crate) fn leave_half_cut(&self) {
        self.leave_unconfirmed();
        self.lease().lose();
        self.lease_changed.notify_all();
    }

    /// Records that a change may still reach a data server.
    pub(crate) fn leave_unconfirmed(&self) {
        self.unconfirmed.store(true, Ordering::Release);
    }

    /// Whether a change may still reach a data server, so that the file has to be fenced when its
    /// leases end.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed.load(Ordering::Acquire)
    }

    /// Returns and clears that flag, because the metadata server is being told and takes care of
    /// the fence.
    pub(crate) fn take_unconfirmed(&self) -> bool {
        self.unconfirmed.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    pub(crate) fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock()
    }
}

/// Whether a server has refused a change, so that it is not carried out later either.
pub(crate) fn was_refused(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::ReadOnly)
}

/// The guard of [`OpenState::cutting`].
pub(crate) struct Cutting<'a>(&'a OpenState);

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.0.cutting.fetch_sub(1, Ordering::AcqRel);
    }
}
