//! Files that the kernel knows, and files without names that are held for it.
//!
//! A file that is mounted over another path, held by `O_PATH` or executed is in use without the
//! file system being told. On a local disk such a file stays when its last name goes. So a file
//! that the kernel has not dropped is held when it loses its last name, on any mount, and released
//! when the kernel has dropped it: mostly at once. If another mount has removed it the kernel is
//! asked to drop it, unless it is in use.
//!
//! Held files are bounded by [`MAX_HELD_FILES`]; known files by the kernel.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use weir_fuse::{NodeId, Notifier};
use weir_types::FileId;

/// The most files without names that one mount holds for its kernel.
const MAX_HELD_FILES: usize = 16_384;
/// The most nodes in one notification.
const PRUNED_AT_ONCE: usize = 256;

/// What the kernel was told of a file.
#[derive(Debug, Default)]
struct Known {
    /// How often.
    times: u64,
    /// The directory in which it was found last.
    dir: Option<NodeId>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<FileId, Known>,
    held: HashMap<FileId, u64>,
    by_age: BTreeMap<u64, FileId>,
    next: u64,
    /// Nodes that the kernel has to drop; bounded by the held files.
    to_prune: Vec<NodeId>,
    prunes: bool,
}

/// All files that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct KernelFiles {
    state: Mutex<State>,
    /// Set when the mount is complete, if the kernel supports drops.
    pruner: OnceLock<Notifier>,
}

impl KernelFiles {
    /// Attaches the mount's notifier.
    pub(crate) fn attach(&self, notifier: &Notifier) {
        if notifier.prune(&[]).is_ok() {
            // A mount stands once.
            let _ = self.pruner.set(notifier.clone());
        }
    }

    /// Records that the kernel is told of a file.
    pub(crate) fn told(&self, file: FileId) {
        self.lock().known.entry(file).or_default().times += 1;
    }

    /// Records that the kernel is told of a file in this directory.
    pub(crate) fn told_in(&self, file: FileId, dir: NodeId) {
        let mut state = self.lock();
        let known = state.known.entry(file).or_default();
        known.times += 1;
        known.dir = Some(dir);
    }

    /// The directory in which the kernel was told last that the file is.
    pub(crate) fn dir(&self, file: FileId) -> Option<NodeId> {
        self.lock().known.get(&file)?.dir
    }

    /// Records that the kernel has dropped this many lookups. Returns `true` if the file was held,
    /// and has to be released.
    pub(crate) fn forget(&self, file: FileId, lookups: u64) -> bool {
        let mut state = self.lock();
        let Some(known) = state.known.get_mut(&file) else { return false };
        known.times = known.times.saturating_sub(lookups);
        if known.times > 0 {
            return false;
        }
        state.known.remove(&file);
        state.let_go(file)
    }

    /// Whether the kernel knows a file.
    pub(crate) fn is_known(&self, file: FileId) -> bool {
        self.lock().known.contains_key(&file)
    }

    /// Records a file that has lost its last name on this mount, and is held so far. Returns a file
    /// to release: that file, if it is unused, or the one held for longest.
    pub(crate) fn holds_own(&self, file: FileId) -> Option<FileId> {
        let mut state = self.lock();
        if !state.known.contains_key(&file) || !state.hold(file) {
            return Some(file);
        }
        if state.held.len() <= MAX_HELD_FILES {
            return None;
        }
        let (_, oldest) = state.by_age.pop_first()?;
        state.held.remove(&oldest);
        Some(oldest)
    }

    /// Whether a file would be held if it lost a name on another mount.
    pub(crate) fn may_hold(&self, file: FileId) -> bool {
        self.pruner.get().is_some() && self.lock().known.contains_key(&file)
    }

    /// Handles the loss of a name on another mount. Returns whether the file is held from now on.
    pub(crate) fn holds(self: &Arc<Self>, file: FileId) -> bool {
        if self.pruner.get().is_none() {
            // It might be held for as long as the kernel has memory to spare.
            return false;
        }
        let mut state = self.lock();
        let full = state.held.len() >= MAX_HELD_FILES;
        if full || !state.known.contains_key(&file) || !state.hold(file) {
            return false;
        }
        state.to_prune.push(file.0);
        if !std::mem::replace(&mut state.prunes, true) {
            let files = Arc::clone(self);
            let thread = std::thread::Builder::new().name("weir-prune".into());
            if let Err(error) = thread.spawn(move || files.prune()) {
                tracing::warn!("the kernel is not asked to forget a file: no thread: {error}");
                state.prunes = false;
            }
        }
        true
    }

    /// Removes and returns all held files, which the kernel will not drop any more.
    pub(crate) fn take_held(&self) -> impl Iterator<Item = FileId> {
        let mut state = self.lock();
        state.by_age.clear();
        std::mem::take(&mut state.held).into_keys()
    }

    /// Asks the kernel to drop nodes, until none are left.
    fn prune(&self) {
        loop {
            let mut state = self.lock();
            let count = state.to_prune.len().min(PRUNED_AT_ONCE);
            let nodes: Vec<NodeId> = state.to_prune.drain(..count).collect();
            if nodes.is_empty() {
                state.prunes = false;
                return;
            }
            drop(state);
            if let Some(pruner) = self.pruner.get()
                && let Err(error) = pruner.prune(&nodes)
            {
                tracing::debug!("the kernel was asked to forget files: {error}");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Holds a file. Returns `false` if it is held already.
    fn hold(&mut self, file: FileId) -> bool {
        if self.held.contains_key(&file) {
            return false;
        }
        self.next += 1;
        self.held.insert(file, self.next);
        self.by_age.insert(self.next, file);
        true
    }

    fn let_go(&mut self, file: FileId) -> bool {
        let Some(since) = self.held.remove(&file) else { return false };
        self.by_age.remove(&since);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: FileId = FileId(7);

    #[test]
    fn a_file_is_held_until_the_kernel_has_forgotten_it() {
        let files = KernelFiles::default();
        files.told(F);
        files.told(F);
        assert_eq!(files.holds_own(F), None);
        assert_eq!(files.holds_own(F), Some(F), "once is enough");
        assert!(!files.forget(F, 1));
        assert!(files.forget(F, 1));
        assert!(!files.forget(F, 1));
    }

    #[test]
    fn what_the_kernel_does_not_know_is_not_held() {
        let files = KernelFiles::default();
        assert_eq!(files.holds_own(F), Some(F));
        files.told(F);
        assert!(!files.forget(F, 1), "it has its name");
        assert!(!Arc::new(files).holds(F));
    }

    #[test]
    fn beyond_the_bound_the_oldest_are_let_go() {
        let files = KernelFiles::default();
        let all: Vec<FileId> = (0..MAX_HELD_FILES as u64 + 3).map(|n| FileId(100 + n)).collect();
        let let_go: Vec<FileId> = all
            .iter()
            .filter_map(|file| {
                files.told(*file);
                files.holds_own(*file)
            })
            .collect();
        assert_eq!(let_go, all[..3]);
        assert!(!files.forget(all[0], 1) && files.forget(all[3], 1));
    }
}
