//! How far a file with a quota may grow, as was granted.

use super::OpenState;
use std::sync::atomic::Ordering;
use weir_types::Generation;
use weir_wire::lease::ROOM_LIMITED;

/// The value when no quota applies to the file.
pub(super) const UNLIMITED: u64 = u64::MAX;

impl OpenState {
    /// Handles the flags of a reply, which say whether a quota applies to the file. `size` is the
    /// size in that reply. A client that learns of a quota asks before it writes the next byte
    /// beyond.
    pub(crate) fn saw_limits(&self, keep: u8, size: u64) {
        if keep & ROOM_LIMITED == 0 {
            self.room.store(UNLIMITED, Ordering::Release);
            return;
        }
        let is_news = self
            .room
            .compare_exchange(UNLIMITED, size, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if is_news {
            self.room_generation.store(self.generation().0, Ordering::Release);
        }
    }

    /// Forgets granted space, because this client has set the size or the metadata server has
    /// restarted.
    pub(crate) fn forget_room(&self, size: u64) {
        let limited = |room: u64| (room != UNLIMITED).then_some(size);
        let _ = self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, limited);
    }

    /// Whether space up to `end` has to be asked for, and then the generation for which it will be
    /// granted.
    pub(crate) fn lacks_room(&self, end: u64) -> Option<Generation> {
        let room = self.room.load(Ordering::Acquire);
        if room == UNLIMITED {
            return None;
        }
        let generation = self.generation();
        let is_valid = generation.0 == self.room_generation.load(Ordering::Acquire);
        (end > room || !is_valid).then_some(generation)
    }

    /// Records that the file may grow up to `up_to` in a generation.
    pub(crate) fn has_room(&self, generation: Generation, up_to: u64) {
        self.room_generation.store(generation.0, Ordering::Release);
        self.room.store(up_to, Ordering::Release);
    }
}
