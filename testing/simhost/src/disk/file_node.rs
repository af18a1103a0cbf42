//! A file: what processes see, what is durable, and the changes in between.

use super::content::{Content, PAGE, Page, SECTOR, SECTORS};
use std::sync::Arc;

/// So many changes of a file may be waiting; then the older half of them is
/// written back, as a kernel does that has too many dirty pages.
const MAX_PENDING: usize = 4096;

/// A change that is not durable yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// Counts the operations of the disk; changes of one operation share it.
    pub(super) seq: u64,
    pub(super) change: Change,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Sectors `first..end` of the file, in these pages as they were after
    /// the write. So a sector on the disk has only ever states that it had in
    /// memory.
    Data { first: u64, end: u64, pages: Arc<[Arc<Page>]> },
    /// Sectors `first..end` become a hole.
    Hole { first: u64, end: u64 },
    /// The length changed.
    Length { from: u64, to: u64 },
    /// Pages `first..end` take room now.
    Reserve { first: u64, end: u64 },
}

impl Change {
    /// Does it to `content`; of data and holes only what is in sectors
    /// `from..to`.
    pub(super) fn apply(&self, content: &mut Content, from: u64, to: u64) {
        match self {
            Change::Data { first, end, pages } => {
                let base = first / SECTORS;
                let (from, to) = (from.max(*first), to.min(*end));
                let mut sector = from;
                while sector < to {
                    let page = sector / SECTORS;
                    let stop = to.min((page + 1) * SECTORS);
                    let start = page * SECTORS;
                    let bytes = &pages[(page - base) as usize];
                    content.put_sectors(page, sector - start, stop - start, bytes);
                    sector = stop;
                }
            }
            Change::Hole { first, end } => {
                let (from, to) = (from.max(*first), to.min(*end));
                if from < to {
                    content.zero(from * SECTOR, to * SECTOR);
                    content.unreserve(from.div_ceil(SECTORS), to / SECTORS);
                }
            }
            Change::Length { to, .. } => content.set_len(*to),
            Change::Reserve { first, end } => content.reserve(*first, *end),
        }
    }

    /// As [`Change::apply`], if `content` is what this change was made to: then
    /// whole pages can be shared with it.
    fn apply_next(&self, content: &mut Content) {
        match self {
            Change::Data { first, pages, .. } => {
                for (page, bytes) in (first / SECTORS..).zip(&**pages) {
                    content.put_sectors(page, 0, SECTORS, bytes);
                }
            }
            _ => self.apply_all(content),
        }
    }

    fn pages(&self) -> usize {
        match self {
            Change::Data { pages, .. } => pages.len(),
            _ => 0,
        }
    }

    fn apply_all(&self, content: &mut Content) {
        self.apply(content, 0, u64::MAX);
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileNode {
    pub(super) seen: Content,
    pub(super) durable: Content,
    pub(super) pending: Vec<Pending>,
    /// After a failed sync: `seen` is not `durable` and the pending changes.
    pub(super) diverged: bool,
    /// Whether `seen` and `durable` are not simply the same.
    pub(super) apart: bool,
}

impl FileNode {
    /// Writes these slices one after the other, at most `max_bytes`.
    pub(super) fn write<'a>(
        &mut self,
        seq: u64,
        position: u64,
        slices: impl Iterator<Item = &'a [u8]>,
        max_bytes: u64,
    ) {
        let mut end = position;
        for slice in slices {
            let room = (position + max_bytes - end).min(slice.len() as u64);
            self.seen.put(end, &slice[..room as usize]);
            end += room;
        }
        if end == position {
            return;
        }
        self.record_data(seq, position, end);
        if end > self.seen.len() {
            self.record_length(seq, end);
            self.seen.set_len(end);
        }
    }

    pub(super) fn set_len(&mut self, seq: u64, len: u64) {
        if len != self.seen.len() {
            self.record_length(seq, len);
            self.seen.set_len(len);
        }
    }

    /// Reserves room for `position..end`.
    pub(super) fn allocate(&mut self, seq: u64, position: u64, end: u64, keep_size: bool) {
        let (first, last) = (position / PAGE, end.div_ceil(PAGE));
        self.seen.reserve(first, last);
        self.record(seq, Change::Reserve { first, end: last });
        if !keep_size && end > self.seen.len() {
            self.set_len(seq, end);
        }
    }

    /// Makes `position..end` a hole.
    pub(super) fn punch(&mut self, seq: u64, position: u64, end: u64) {
        self.seen.zero(position, end);
        self.seen.unreserve(position.div_ceil(PAGE), end / PAGE);
        // What is not whole sectors is written as zeros.
        let (first, last) = (position.div_ceil(SECTOR), end / SECTOR);
        if first < last {
            self.record(seq, Change::Hole { first, end: last });
        }
        if !position.is_multiple_of(SECTOR) && self.seen.page(position / PAGE).is_some() {
            self.record_data(seq, position, position + 1);
        }
        if !end.is_multiple_of(SECTOR) && self.seen.page(end / PAGE).is_some() {
            self.record_data(seq, end, end + 1);
        }
    }

    fn record_data(&mut self, seq: u64, position: u64, end: u64) {
        let pages: Arc<[Arc<Page>]> = (position / PAGE..end.div_ceil(PAGE))
            .filter_map(|p| self.seen.page(p).cloned())
            .collect();
        let (first, end) = (position / SECTOR, end.div_ceil(SECTOR));
        self.record(seq, Change::Data { first, end, pages });
    }

    fn record_length(&mut self, seq: u64, to: u64) {
        self.record(seq, Change::Length { from: self.seen.len(), to });
    }

    fn record(&mut self, seq: u64, change: Change) {
        if self.pending.len() >= MAX_PENDING {
            self.commit(self.pending[MAX_PENDING / 2].seq);
        }
        self.apart = true;
        self.pending.push(Pending { seq, change });
    }

    /// Makes durable what was changed up to `mark`.
    pub(super) fn commit(&mut self, mark: u64) {
        let count = self.pending.partition_point(|p| p.seq <= mark);
        let touched: usize = self.pending[..count].iter().map(|p| p.change.pages()).sum();
        if count == self.pending.len() && !self.diverged && touched > self.seen.stored_pages() / 8 {
            self.durable = self.seen.clone();
            self.pending.clear();
            self.apart = false;
            return;
        }
        for pending in self.pending.drain(..count) {
            if self.diverged {
                pending.change.apply_all(&mut self.durable);
            } else {
                pending.change.apply_next(&mut self.durable);
            }
        }
        if self.diverged {
            // The length is no data: it reaches the disk even so.
            let later = self.pending.iter().find_map(|p| match p.change {
                Change::Length { from, .. } => Some(from),
                _ => None,
            });
            self.durable.set_len(later.unwrap_or(self.seen.len()));
        }
    }

    /// A sync failed after these changes became durable: the others are
    /// forgotten. Each page in memory shows the new or the old bytes.
    pub(super) fn fail_sync(&mut self, durable: Content, rng: &mut fastrand::Rng) {
        let keep_of_8 = [0, 4, 8][rng.usize(0..3)];
        let touched: std::collections::BTreeSet<u64> = self
            .pending
            .iter()
            .flat_map(|p| match p.change {
                Change::Data { first, end, .. } => first / SECTORS..end.div_ceil(SECTORS),
                _ => 0..0,
            })
            .collect();
        for page in touched {
            if rng.u8(0..8) >= keep_of_8 {
                match durable.page(page) {
                    Some(bytes) => self.seen.put_sectors(page, 0, SECTORS, bytes),
                    None => self.seen.zero(page * PAGE, (page + 1) * PAGE),
                }
            }
        }
        self.seen.trim();
        self.durable = durable;
        self.pending.clear();
        self.diverged = true;
    }

    /// What a power cut left takes the place of everything.
    pub(super) fn settle(&mut self, content: Content) {
        self.seen = content.clone();
        self.durable = content;
        self.pending.clear();
        self.diverged = false;
        self.apart = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_what_was_before_it() {
        let mut file = FileNode::default();
        file.write(1, 0, [&[1; 600][..]].into_iter(), 600);
        file.write(3, 500, [&[3; 4000][..]].into_iter(), 4000);
        file.set_len(4, 1000);
        file.commit(2);
        assert_eq!(file.durable.bytes(), [1; 600]);
        file.commit(3);
        assert_eq!(file.durable.bytes(), [&[1; 500][..], &[3; 4000]].concat());
        file.commit(4);
        assert_eq!(file.durable.bytes(), file.seen.bytes());
        assert!(file.pending.is_empty());
    }

    #[test]
    fn what_waits_too_long_is_written_back() {
        let mut file = FileNode::default();
        for seq in 1..10_000 {
            file.write(seq, seq % 8192, [&[seq as u8][..]].into_iter(), 1);
            assert!(file.pending.len() <= MAX_PENDING);
        }
        assert!(file.durable.len() > 0);
        file.commit(10_000);
        assert_eq!(file.durable.bytes(), file.seen.bytes());
    }
}
