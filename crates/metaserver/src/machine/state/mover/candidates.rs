//! Which files may get parities, and which of them somebody waits to write.

use super::{MAX_QUEUED, Mover};
use crate::machine::moment::Moment;
use crate::ops::move_copies::Look;
use std::collections::BTreeSet;
use weir_types::{Error, ErrorKind, FileId, FsUsage, TargetId};
use weir_wire::map::{ClusterMap, TargetEntry};

/// A file that was just made writable is looked at again after this time.
const SOON_MS: u64 = 1_000;
/// A file keeps its copies for this long after somebody has waited to write it.
const AWAITED_MS: u64 = 600_000;
/// The least time between two scans for files that may get parities.
const SCAN_MS: u64 = 60_000;
/// What is said of all segments that get parities is counted again after this time.
const COUNT_MS: u64 = 600_000;
/// A target that was short of room is so until it has this much more, percent of its space.
const SLACK_PERCENT: u64 = 2;

impl Mover {
    /// Records that a file may get parities.
    pub fn may_encode(&mut self, file: FileId) {
        self.candidate(file, 0);
    }

    /// Records that a file was not changed, and may be soon.
    pub fn look_again(&mut self, file: FileId, now: Moment) {
        self.candidate(file, now.monotonic_ms + SOON_MS);
    }

    fn candidate(&mut self, file: FileId, at_ms: u64) {
        if self.candidates.len() < MAX_QUEUED {
            self.candidates.insert(file, at_ms);
        } else {
            // A scan of all files finds it.
            self.scan_at_ms = Some(self.scan_at_ms.map_or(at_ms, |before| before.min(at_ms)));
        }
    }

    /// Records when a file may get parities.
    pub fn encode_later(&mut self, file: FileId, look: &Look, now: Moment) {
        if look.sealed {
            self.candidates.remove(&file);
        }
        if let Some(due_in_ms) = look.due_in_ms {
            self.candidate(file, now.monotonic_ms.saturating_add(due_in_ms));
        }
        if !look.sealed && self.awaited.remove(&file).is_some() {
            self.candidate(file, now.monotonic_ms + SOON_MS);
        }
        match look.no_room && self.awaited.contains_key(&file) {
            true => self.without_room.insert(file),
            false => self.without_room.remove(&file),
        };
    }

    /// Scans all files if that is due, for those that may get parities and are not known.
    pub fn scan_for_candidates(&mut self, now: Moment) {
        let is_due = |at_ms: u64| now.monotonic_ms >= at_ms.max(self.scanned_at_ms + SCAN_MS);
        if self.scan_at_ms.is_some_and(is_due) {
            self.scan_at_ms = None;
            self.scanned_at_ms = now.monotonic_ms;
            self.look_at_all();
        }
    }

    /// Counts segments that get parities anew from time to time: files are removed and made, too.
    pub fn recount(&mut self, now: Moment) {
        let is_old = |at_ms: u64| now.monotonic_ms.saturating_sub(at_ms) >= COUNT_MS;
        if self.survey.is_some() || self.search.is_some() {
            return;
        }
        if self.known_coding().segments() > 0 && self.coding_at_ms.is_none_or(is_old) {
            self.coding_at_ms = Some(now.monotonic_ms);
            self.look_at_all();
        }
    }

    /// Finds the targets that are short of room. Files there may get parities now.
    pub fn find_short(&mut self, map: &ClusterMap) {
        let below = u64::from(self.settings.encode_below_percent);
        let is_short = |entry: &TargetEntry| {
            let FsUsage { total_bytes, free_bytes, .. } = entry.usage;
            let slack = if self.short.contains(&entry.target) { SLACK_PERCENT } else { 0 };
            let least = u128::from(total_bytes) * u128::from(below + slack);
            below > 0 && u128::from(free_bytes) * 100 < least
        };
        let short = map.targets().filter(|(_, entry)| is_short(entry));
        let short: BTreeSet<TargetId> = short.map(|(_, entry)| entry.target).collect();
        if !short.is_subset(&self.short) {
            self.scan_at_ms = Some(0);
        }
        self.short = short;
    }

    /// Why nobody need wait to write a file with parities: there is no room for its copies. It keeps
    /// its parities then, unless others wait too.
    pub fn gives_up_thaw(&mut self, file: FileId) -> Option<Error> {
        if !self.without_room.remove(&file) {
            return None;
        }
        if self.awaited.remove(&file).is_some() {
            self.enqueue(file, 0);
        }
        let message = "the file has parities in place of copies, and the disks are too full to make \
                       copies of it, which writing takes: make room, add targets, or write another \
                       file";
        Some(Error::new(ErrorKind::NoSpace, message))
    }

    /// Records that somebody waits to write a file with parities.
    pub fn await_thaw(&mut self, file: FileId, now: Moment) {
        let until_ms = now.monotonic_ms + AWAITED_MS;
        if self.awaited.insert(file, until_ms).is_none() {
            self.enqueue(file, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::Timestamp;

    #[test]
    fn files_that_are_too_many_are_found_by_a_scan_once_a_minute() {
        let at = |monotonic_ms| Moment { monotonic_ms, unix: Timestamp(0) };
        let mut mover = Mover::new(at(0));
        for file in 0..MAX_QUEUED as u64 {
            mover.may_encode(FileId(file));
        }
        assert_eq!(mover.scan_at_ms, None);
        mover.candidate(FileId(1 << 40), 5_000_000);
        mover.may_encode(FileId(1 << 41));
        assert_eq!((mover.scan_at_ms, mover.retry_at_ms), (Some(0), None), "the first of them");
        mover.scan_for_candidates(at(SCAN_MS - 1));
        assert!(mover.search.is_none());
        mover.scan_for_candidates(at(SCAN_MS));
        assert!(mover.search.is_some() && mover.scan_at_ms.is_none());
        mover.look_at_nothing();
        mover.may_encode(FileId(1 << 41));
        mover.scan_for_candidates(at(2 * SCAN_MS - 1));
        assert!(mover.search.is_none());
        mover.skipped(at(7));
        assert_eq!(mover.retry_at_ms, Some(7 + super::super::RETRY_MS), "as ever");
    }
}
