//! Files whose attributes the kernel may use without asking, because it was told how long they are valid.
//!
//! Whatever ends the attributes earlier is passed on to the kernel ([`crate::kernel::attributes`]). For an
//! inode that the kernel has, that also ends replies under way: the kernel ignores attributes that
//! were asked for before. But of a file that is new to it the kernel makes the inode only when the
//! thread that asked handles the reply, which may be later than the notification: that then finds
//! nothing, and is in vain. So a file is *unsettled* until some time after the last such reply, or
//! until the kernel has dropped it, and a notification that finds nothing is repeated meanwhile.
//!
//! Invariant: an entry stays from before the attributes are compared with the client's cache, which
//! is before the reply, until it has been ended or the lifetime is over.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_fuse::NodeId;
use weir_types::FileId;

/// The most files: as many as the client caches attributes.
const MAX_FILES: usize = 65_536;
/// A thread of the kernel handles a reply within this time.
pub(super) const ACTS: Duration = Duration::from_secs(2);
/// The shortest time between two searches for entries that are over.
const SWEEP: Duration = Duration::from_secs(1);

/// What the kernel may be using of a file.
#[derive(Debug)]
struct Told {
    /// Usually one.
    nodes: Vec<NodeId>,
    /// Grows with each reply.
    number: u64,
    /// Replies that are not sent yet.
    under_way: u32,
    /// Until when the kernel may use the last reply, if it was handled in time.
    until: Instant,
    /// When the last reply was sent.
    sent: Option<Instant>,
    /// The only thread that was sent one while the file was unsettled; 0 if unknown, or several.
    by: u32,
}

impl Told {
    fn is_unsettled(&self, now: Instant) -> bool {
        self.under_way > 0 || self.sent.is_some_and(|sent| now < sent + ACTS)
    }

    fn is_over(&self, now: Instant) -> bool {
        !self.is_unsettled(now) && now > self.until + ACTS
    }
}

/// What has to be ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ToEnd {
    pub(crate) nodes: Vec<NodeId>,
    /// For [`Lifetimes::ended`].
    pub(crate) number: u64,
}

#[derive(Debug, Default)]
struct State {
    told: HashMap<FileId, Told>,
    next: u64,
    swept: Option<Instant>,
}

/// All lifetimes.
#[derive(Debug, Default)]
pub(crate) struct Lifetimes {
    state: Mutex<State>,
}

impl Lifetimes {
    /// Records that the kernel is about to be told attributes of a file under this number, with a
    /// lifetime. To be followed by [`Lifetimes::sent`]. Returns `false` if there are too many: then
    /// they may have none.
    pub(crate) fn begins(
        &self,
        file: FileId,
        (node, by): (NodeId, u32),
        lifetime: Duration,
        now: Instant,
    ) -> bool {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        if !state.told.contains_key(&file) && !state.has_room(now) {
            return false;
        }
        let new = || Told { nodes: Vec::new(), number, under_way: 0, until: now, sent: None, by };
        let told = state.told.entry(file).or_insert_with(new);
        if !told.nodes.contains(&node) {
            told.nodes.push(node);
        }
        if told.by != by {
            told.by = if told.is_unsettled(now) { 0 } else { by };
        }
        told.number = number;
        told.under_way += 1;
        told.until = told.until.max(now + lifetime);
        true
    }

    /// Records that a reply with attributes of a file was sent, or will not be.
    pub(crate) fn sent(&self, file: FileId, now: Instant) {
        if let Some(told) = self.lock().told.get_mut(&file) {
            told.under_way = told.under_way.saturating_sub(1);
            told.sent = Some(now);
        }
    }

    /// Number of the last reply; 0 if there is none.
    pub(crate) fn number(&self, file: FileId) -> u64 {
        self.lock().told.get(&file).map_or(0, |told| told.number)
    }

    /// Records that the kernel has dropped a node for good, unless it is being told of the file again
    /// since this number.
    pub(crate) fn dropped(&self, file: FileId, node: NodeId, number: u64) {
        let mut state = self.lock();
        if let Some(told) = state.told.get_mut(&file).filter(|told| told.number == number) {
            told.nodes.retain(|known| *known != node);
            if told.nodes.is_empty() {
                state.told.remove(&file);
            }
        }
    }

    /// What has to be ended of a file; `None` if there is nothing.
    pub(crate) fn of(&self, file: FileId) -> Option<ToEnd> {
        let state = self.lock();
        let Told { nodes, number, .. } = state.told.get(&file)?;
        Some(ToEnd { nodes: nodes.clone(), number: *number })
    }

    /// Whether the kernel may get attributes from a reply that it was sent lately.
    pub(crate) fn is_unsettled(&self, file: FileId, now: Instant) -> bool {
        self.lock().told.get(&file).is_some_and(|told| told.is_unsettled(now))
    }

    /// Whether the kernel has handled all replies, at the time of a request of this thread.
    pub(crate) fn has_handled_all(&self, file: FileId, by: u32, now: Instant) -> bool {
        let state = self.lock();
        let Some(told) = state.told.get(&file) else { return true };
        !told.is_unsettled(now) || by != 0 && told.by == by && told.under_way == 0
    }

    /// Records that everything up to this number has been ended. (A reply that is still under way
    /// is ended with the others.)
    pub(crate) fn ended(&self, file: FileId, number: u64) {
        let mut state = self.lock();
        if state.told.get(&file).is_some_and(|told| told.number == number) {
            state.told.remove(&file);
        }
    }

    /// All files with lifetimes.
    pub(crate) fn all(&self) -> Vec<FileId> {
        self.lock().told.keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_room(&mut self, now: Instant) -> bool {
        if self.told.len() < MAX_FILES {
            return true;
        }
        if self.swept.is_none_or(|swept| now > swept + SWEEP) {
            self.swept = Some(now);
            self.told.retain(|_, told| !told.is_over(now));
        }
        self.told.len() < MAX_FILES
    }
}

#[cfg(test)]
#[path = "lifetimes_tests.rs"]
mod tests;
