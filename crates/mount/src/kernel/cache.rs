//! The kernel's caches of all files: what of them is kept, and what the kernel may be told.

use crate::kernel::acls::KernelAcls;
use crate::kernel::dropper::Dropper;
use crate::kernel::files::KernelFiles;
use crate::kernel::lifetimes::Lifetimes;
use crate::kernel::names::Names;
use crate::kernel::pages::{Drop as PageDrop, FilePages};
use crate::kernel::seen::Seen;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use weir_fuse::{NodeId, Notifier};
use weir_types::{Attr, FileId};

/// A drop gives up after this time. Every request of the kernel is served sooner.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(60);
/// A write arrives within this time after the kernel has put its bytes into pages.
const WRITE_ARRIVES: Duration = Duration::from_secs(1);

/// An open file, shared by its handles.
pub(crate) struct OpenPages {
    pages: Mutex<FilePages>,
    /// Notified when the kernel has raised its size.
    pub(super) raised: Condvar,
    last_drop: Mutex<Option<Instant>>,
}

/// The kernel's caches of all files of a mount.
#[derive(Clone, Default)]
pub struct KernelCache {
    pub(crate) dropper: Dropper,
    /// The kernel asks again before it judges by an access control list, but not always before it
    /// shows one to a program.
    acls: Arc<Mutex<KernelAcls>>,
    /// Attributes that the kernel uses without asking.
    pub(crate) lifetimes: Arc<Lifetimes>,
    /// Names that the kernel uses without asking.
    pub(crate) names: Arc<Names>,
    pub(super) seen: Arc<Seen>,
    pub(crate) files: Arc<KernelFiles>,
    pub(super) open: Arc<RwLock<HashMap<FileId, OpenFile>>>,
}

/// An open file, and how many handles it has.
pub(super) struct OpenFile {
    pub(super) handles: usize,
    /// Handles through which a program may change mapped pages.
    pub(super) mappers: usize,
    pub(super) pages: Arc<OpenPages>,
}

impl OpenFile {
    pub(super) fn new(leased: bool, size: u64) -> Self {
        let pages = OpenPages {
            pages: Mutex::new(FilePages::new(leased, size)),
            raised: Condvar::new(),
            last_drop: Mutex::new(None),
        };
        Self { handles: 0, mappers: 0, pages: Arc::new(pages) }
    }
}

impl KernelCache {
    /// Attaches the mount's notifier.
    pub fn attach(&self, notifier: Notifier) {
        self.files.attach(&notifier);
        self.dropper.attach(notifier);
    }

    /// Records that the kernel is about to be told of an access control list.
    pub(crate) fn tells_acl(&self, file: FileId, node: NodeId) {
        let forgotten = self.acls().told(file, node);
        for node in forgotten {
            self.dropper.forget(node);
        }
    }

    pub(super) fn acls(&self) -> MutexGuard<'_, KernelAcls> {
        self.acls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a file has the state of its last open.
    pub(crate) fn same(&self, attr: &Attr) -> bool {
        self.seen.same(attr)
    }

    pub(crate) fn get(&self, file: FileId) -> Option<Arc<OpenPages>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&file).map(|file| file.pages.clone())
    }

    /// Whether a program may have changed a file through a mapping without the kernel having
    /// written it back.
    pub(crate) fn may_be_changed(&self, file: FileId) -> bool {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&file).is_some_and(|open| open.mappers > 0)
    }
}

impl OpenPages {
    pub(crate) fn lock(&self) -> MutexGuard<'_, FilePages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn was_dropped(&self, drop: &PageDrop) {
        self.lock().dropped(drop);
        *self.last_drop.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(super) fn dropped_recently(&self) -> bool {
        let last = *self.last_drop.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() < WRITE_ARRIVES)
    }
}
