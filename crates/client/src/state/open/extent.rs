//! The size of a file and its holes, as this client knows them.

use weir_types::{Attr, Generation, Timestamp};

/// The size of a file and its holes.
#[derive(Debug, Default)]
pub(super) struct Extent {
    /// The size as this client knows it, with its own writes.
    pub(super) size: u64,
    /// End and time of writes that the metadata server does not know of.
    pub(super) uncommitted: Option<(u64, Timestamp)>,
    /// The generation of the file under which all of that was there, as far as this client knows.
    pub(super) under: Option<Generation>,
    /// End and time of writes that were reported while this client holds leases. After a power cut
    /// the metadata server may not remember them.
    pub(super) reported: Option<(u64, Timestamp)>,
    /// The size as other clients know it: as the metadata server has said, or was told.
    pub(super) told: u64,
    /// The newest change of the file in any reply. Older replies are ignored.
    pub(super) change: u64,
    /// Modification and change time of that change.
    pub(super) times: (Timestamp, Timestamp),
    /// Whether the file may have holes, according to the metadata server.
    pub(super) sparse: bool,
    /// The first byte that may be in a hole, according to the metadata server.
    pub(super) full: u64,
    /// Whether an unreported write began behind the end.
    pub(super) gap: bool,
    /// Whether an unreported write has extended the file.
    pub(super) grown: bool,
    /// Whether an unreported write may concern more than the time of confirmed bytes.
    pub(super) unsure: bool,
}

impl Extent {
    pub(super) fn saw(&mut self, attr: &Attr) {
        if attr.change >= self.change {
            self.change = attr.change;
            self.sparse = attr.sparse;
            self.full = full(attr);
            self.times = (attr.mtime, attr.ctime);
            let written = self.uncommitted.map_or(0, |(end, _)| end);
            self.size = attr.size.max(written);
            self.told = attr.size;
        }
    }

    /// Corrects the times in a reply that is older than a known change.
    pub(super) fn correct_times(&self, attr: &mut Attr) {
        if attr.change < self.change {
            (attr.mtime, attr.ctime) = self.times;
        }
    }
}

/// Number of bytes at the beginning of which none is in a hole.
pub(super) fn full(attr: &Attr) -> u64 {
    if attr.sparse { 0 } else { attr.size }
}

/// End and time that cover both writes.
pub(super) fn later(
    a: Option<(u64, Timestamp)>,
    b: Option<(u64, Timestamp)>,
) -> Option<(u64, Timestamp)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.max(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

impl Extent {
    /// Marks the unreported writes as reported.
    pub(super) fn take_uncommitted(&mut self) {
        self.reported = later(self.reported, self.uncommitted.take());
        (self.gap, self.grown, self.unsure) = (false, false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::sample;
    use weir_types::FileId;

    fn attr(change: u64, size: u64) -> Attr {
        sample::attr(FileId(7), change, size)
    }

    /// As when a size is committed in the background while `stat` asks.
    #[test]
    fn a_late_answer_takes_back_neither_size_nor_times() {
        let mut extent = Extent::default();
        extent.saw(&attr(5, 100));
        extent.saw(&attr(8, 200));
        let mut late = attr(6, 150);
        extent.saw(&late);
        extent.correct_times(&mut late);
        assert_eq!((extent.size, late.mtime, late.ctime), (200, Timestamp(80), Timestamp(80)));
        // A newer one counts, also with an older time that somebody has set.
        let mut set = Attr { mtime: Timestamp(1), ..attr(9, 200) };
        extent.saw(&set);
        extent.correct_times(&mut set);
        assert_eq!(set.mtime, Timestamp(1));
    }
}
