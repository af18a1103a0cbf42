//! Attributes that the kernel uses without asking, and their end ([`crate::kernel::lifetimes`]).

use crate::kernel::cache::{GIVE_UP, KernelCache};
use crate::kernel::lifetimes::ToEnd;
use std::time::{Duration, Instant};
use weir_fuse::NodeId;
use weir_types::{Attr, FileId};

/// Time between two attempts to end attributes of a file that the kernel does not have yet.
const NEXT_ATTEMPT: Duration = Duration::from_micros(100);

impl KernelCache {
    /// Records that the kernel is about to be told attributes that it may use for this time.
    /// Returns `false` if it must not. To be followed by [`Self::was_told`].
    pub(crate) fn begins_to_use(
        &self,
        (attr, node): (&Attr, NodeId),
        by: u32,
        lifetime: Duration,
    ) -> bool {
        self.dropper.is_attached()
            && self.lifetimes.begins(attr.file, (node, by), lifetime, Instant::now())
    }

    /// Handles a read of a file by this thread, for which the kernel asks for the access time again
    /// by itself. But it believes replies under way. A read that the mount makes on its own, as
    /// to copy, it does not know (`by` is 0).
    pub(crate) fn is_read(&self, file: FileId, by: u32) {
        if by == 0 || !self.lifetimes.has_handled_all(file, by, Instant::now()) {
            self.end_lifetime(file);
        }
    }

    /// Records that a reply with attributes was sent.
    pub(crate) fn was_told(&self, file: FileId) {
        self.lifetimes.sent(file, Instant::now());
    }

    /// Records that the kernel has dropped a node for good.
    pub(crate) fn was_dropped(&self, file: FileId, node: NodeId, number: u64) {
        self.lifetimes.dropped(file, node, number);
    }

    /// Number of the last reply with attributes of a file.
    pub(crate) fn last_told(&self, file: FileId) -> u64 {
        self.lifetimes.number(file)
    }

    /// Makes the kernel ask for attributes of a file again. Returns when it does. Waits for
    /// processors alone.
    pub(crate) fn end_lifetime(&self, file: FileId) {
        let Some(ToEnd { mut nodes, number }) = self.lifetimes.of(file) else { return };
        let begin = Instant::now();
        loop {
            // Which the kernel does not have: perhaps not yet.
            nodes.retain(|node| !self.dropper.forget_now(*node));
            if nodes.is_empty() || !self.lifetimes.is_unsettled(file, Instant::now()) {
                break;
            }
            if begin.elapsed() > GIVE_UP {
                tracing::error!(
                    "file {file}: the kernel did not take its attributes within {GIVE_UP:?}; \
                     programs may see old ones"
                );
                break;
            }
            std::thread::sleep(NEXT_ATTEMPT);
        }
        self.lifetimes.ended(file, number);
        if let Some(pages) = self.get(file) {
            pages.lock().size.drops();
        }
    }

    /// As [`Self::end_lifetime`], for all files.
    pub(crate) fn end_all_lifetimes(&self) {
        self.lifetimes.all().into_iter().for_each(|file| self.end_lifetime(file));
    }
}
