//! What all handles of an open file share.

use super::extent::{Extent, full};
use super::grants::{Capabilities, Granted};
use super::room::UNLIMITED;
use crate::client::Inner;
use crate::config::Consistency;
use crate::core::lease::FileLease;
use crate::reader::Reader;
use crate::servers::Choosing;
use crate::writer::Writer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use weir_host::sync::{Condvar, Mutex, MutexGuard, RwLock};
use weir_types::{Error, ErrorKind, FileId, Generation};
use weir_wire::meta::OpenFile;

/// What all handles of a file share.
pub(crate) struct OpenState {
    pub(crate) id: FileId,
    pub(super) granted: RwLock<Arc<Granted>>,
    /// Apart from the writer, whose lock may be held while servers are waited for.
    pub(super) extent: Mutex<Extent>,
    pub(crate) writer: Mutex<Writer>,
    /// Whether the writer holds anything: spares readers its lock.
    pub(crate) dirty: AtomicBool,
    pub(crate) reader: Mutex<Reader>,
    /// Held while the metadata server is told of size and time by who does not hold the writer.
    pub(crate) reporting: Mutex<()>,
    /// From which copies it is read.
    pub(crate) choosing: Arc<Choosing>,
    pub(crate) lease: Mutex<FileLease>,
    /// Something changed that calls or a recall may wait for.
    pub(crate) lease_changed: Condvar,
    /// How often leases were lost.
    pub(crate) losses: AtomicU64,
    /// With writes that nobody was told of.
    pub(crate) lost_writes: AtomicBool,
    /// The generation after the last truncation by this client.
    own_generation: AtomicU64,
    /// Truncations by this client under way.
    resizing: AtomicU32,
    /// Truncations by this client whose objects are being cut.
    cutting: AtomicU32,
    /// Somebody has written without leases.
    pub(crate) unleased: AtomicBool,
    /// How often the metadata server may have forgotten what it was told.
    pub(super) server_runs: AtomicU64,
    /// What the file said when it was opened first: what is kept of it is kept
    /// one way by all handles.
    pub(super) hint: Option<Consistency>,
    /// A write has failed, and may still reach a data server.
    unconfirmed: AtomicBool,
    /// Bytes that the writer holds, or that are on their way.
    pub(crate) buffered: AtomicU64,
    /// How often something was done to its objects: what they take may be another then.
    pub(crate) changes: AtomicU64,
    /// The generation under which the metadata server was told that holes may be anywhere.
    pub(crate) sparse: AtomicU64,
    /// Up to which size the file may grow without asking for room.
    pub(super) room: AtomicU64,
    /// While its size is of this generation: who has cut it since has given room back.
    pub(super) room_generation: AtomicU64,
}

impl OpenState {
    /// From the reply to an open or create.
    pub(crate) fn new(open: &OpenFile) -> Self {
        let granted = Granted {
            layout: open.layout.clone(),
            generation: open.attr.generation,
            read: Capabilities::default(),
            write: Capabilities::default(),
        };
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
            dirty: AtomicBool::new(false),
            reader: Mutex::default(),
            reporting: Mutex::default(),
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
            room: AtomicU64::new(UNLIMITED),
            room_generation: AtomicU64::new(0),
        };
        state.take_capability(&open.capability, &open.layout.segments);
        if made_empty {
            state.writer().forget_objects();
        }
        state
    }

    /// This client truncates the file.
    pub(crate) fn begin_resize(&self) {
        self.resizing.fetch_add(1, Ordering::AcqRel);
    }

    /// Objects are being cut until this is dropped.
    pub(crate) fn cutting(&self) -> Cutting<'_> {
        self.cutting.fetch_add(1, Ordering::AcqRel);
        Cutting(self)
    }

    /// Whether a change by this client may have come to one copy and not yet to another.
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

    /// It has, if there is a generation.
    pub(crate) fn end_resize(&self, generation: Option<Generation>) {
        if let Some(generation) = generation {
            self.own_generation.fetch_max(generation.0, Ordering::AcqRel);
        }
        self.resizing.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether somebody else has fenced off what was written under a generation.
    /// Under leases that means that they were lost: who truncates a file asks
    /// everybody to give them up first, and so does the server before it cuts a
    /// dead writer off.
    pub(crate) fn is_fenced_off(&self, inner: &Inner, written_under: Generation) -> bool {
        inner.config.consistency == Consistency::Strict
            && self.generation() > written_under
            && self.generation().0 > self.own_generation.load(Ordering::Acquire)
            && !self.is_resizing()
            && !self.unleased.load(Ordering::Acquire)
    }

    /// A change of the objects has failed like this: if no server has refused it, it
    /// may be done yet.
    pub(crate) fn change_failed(&self, error: &Error) {
        if !was_refused(error) {
            self.leave_unconfirmed();
        }
    }

    /// A truncation was not carried to all objects, and not to all copies, perhaps. What is
    /// written behind the cut before it is would be cut off then: the next call asks for its
    /// lease again, is told, and finishes it first.
    pub(crate) fn leave_half_cut(&self) {
        self.leave_unconfirmed();
        self.lease().lose();
        self.lease_changed.notify_all();
    }

    /// Something may still reach a data server.
    pub(crate) fn leave_unconfirmed(&self) {
        self.unconfirmed.store(true, Ordering::Release);
    }

    /// Whether something may; then the file has to be fenced when its leases go.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed.load(Ordering::Acquire)
    }

    /// The metadata server is told, and sees to it.
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

/// Whether a server has refused a change, so that it is not done later either.
pub(crate) fn was_refused(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::ReadOnly)
}

/// See [`OpenState::cutting`].
pub(crate) struct Cutting<'a>(&'a OpenState);

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.0.cutting.fetch_sub(1, Ordering::AcqRel);
    }
}
