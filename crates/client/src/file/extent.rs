//! How long a file is, as far as this client knows, and what the metadata server
//! has not been told of that.

use super::OpenState;
use std::sync::atomic::Ordering;
use weir_host::sync::MutexGuard;
use weir_types::{Attr, Generation, Timestamp};

/// How long the file is.
#[derive(Debug, Default)]
pub(super) struct Extent {
    /// As far as this client knows, its own writes included.
    pub(super) size: u64,
    /// End and time of writes that the metadata server does not know of.
    pub(super) uncommitted: Option<(u64, Timestamp)>,
    /// The same of writes that it was told of while this client holds leases:
    /// after a power cut it may not remember.
    pub(super) reported: Option<(u64, Timestamp)>,
    /// The same as others know it: what the metadata server has said, or was told.
    pub(super) told: u64,
    /// The newest change of the file that was heard of: older news are ignored.
    pub(super) change: u64,
    /// Its times, of the contents and of anything.
    pub(super) times: (Timestamp, Timestamp),
    /// The file may have holes, as that server knows it.
    pub(super) sparse: bool,
    /// No byte before this one is in a hole, as it knows.
    pub(super) full: u64,
    /// Of what the metadata server does not know of, something began behind the end,
    pub(super) gap: bool,
    /// something made the file longer,
    pub(super) grown: bool,
    /// and something may be of more than the time of bytes that servers have confirmed.
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

    /// An answer that was on its way while a newer one came must not show
    /// times from before.
    pub(super) fn correct_times(&self, attr: &mut Attr) {
        if attr.change < self.change {
            (attr.mtime, attr.ctime) = self.times;
        }
    }
}

/// Bytes from the beginning of which none is in a hole.
pub(super) fn full(attr: &Attr) -> u64 {
    if attr.sparse { 0 } else { attr.size }
}

/// End and time of all of these writes.
fn later(a: Option<(u64, Timestamp)>, b: Option<(u64, Timestamp)>) -> Option<(u64, Timestamp)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.max(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

impl Extent {
    /// The metadata server was told.
    pub(super) fn take_uncommitted(&mut self) {
        self.reported = later(self.reported, self.uncommitted.take());
        (self.gap, self.grown, self.unsure) = (false, false, false);
    }
}

impl OpenState {
    fn extent(&self) -> MutexGuard<'_, Extent> {
        self.extent.lock()
    }

    pub(crate) fn size(&self) -> u64 {
        self.extent().size
    }

    /// A write of this client begins and ends there, at this time (the writer's lock
    /// is held).
    pub(crate) fn wrote(&self, start: u64, end: u64, time: Timestamp) {
        let mut extent = self.extent();
        extent.gap |= start > extent.size;
        extent.grown |= end > extent.size;
        extent.unsure = true;
        extent.size = extent.size.max(end);
        extent.uncommitted = later(extent.uncommitted, Some((end, time)));
    }

    /// How long the file is, as the metadata server has said, or was told.
    pub(crate) fn told_size(&self) -> u64 {
        self.extent().told
    }

    /// What this client has written from `end` on was refused, and nobody else knows of it: the
    /// file ends there. `false`: somebody does, by now. (The writer's lock is held.)
    pub(crate) fn ends_at(&self, end: u64) -> bool {
        let mut extent = self.extent();
        let Some((written, time)) = extent.uncommitted else { return false };
        if extent.told > end || written != extent.size {
            return false;
        }
        extent.size = end;
        extent.uncommitted = Some((end, time));
        true
    }

    /// Whether the file is longer than the metadata server knows.
    pub(crate) fn has_grown(&self) -> bool {
        self.extent().grown
    }

    /// Of what it does not know of, servers have confirmed all bytes, and all of them are within
    /// the size that it knows: only the time is to be told.
    pub(crate) fn is_sure(&self) {
        // What has grown is to be told again, if the server was started anew meanwhile.
        let mut extent = self.extent();
        extent.unsure = extent.grown;
    }

    /// Whether the file may have holes that the metadata server has not heard of.
    pub(crate) fn has_gap(&self) -> bool {
        self.extent().gap
    }

    /// Whether the file may have holes, as far as this client knows.
    pub(crate) fn may_have_holes(&self) -> bool {
        let extent = self.extent();
        extent.sparse || extent.gap
    }

    /// The metadata server knows that no byte before this one is in a hole.
    pub(crate) fn full(&self) -> u64 {
        self.extent().full
    }

    /// End and time of writes that the metadata server does not know of.
    pub(crate) fn uncommitted(&self) -> Option<(u64, Timestamp)> {
        self.extent().uncommitted
    }

    /// The metadata server knows of all writes (the writer's lock is held), unless it may have
    /// forgotten them: `runs`, from before it was told, is [`OpenState::server_runs`].
    pub(crate) fn committed(&self, runs: u64) {
        let mut extent = self.extent();
        if self.server_runs() == runs {
            extent.take_uncommitted();
        }
    }

    /// What the metadata server does not know of, and the generation that it was
    /// written under: for whoever does not hold the writer's lock. (A lease may be given
    /// up, the file cut, and the lease come back meanwhile.)
    pub(crate) fn unreported(&self) -> Option<((u64, Timestamp), Generation)> {
        loop {
            let generation = self.generation();
            let uncommitted = self.uncommitted()?;
            if self.generation() == generation {
                return Some((uncommitted, generation));
            }
        }
    }

    /// The same of the writes up to here.
    pub(crate) fn committed_if(&self, reported: (u64, Timestamp), runs: u64) {
        let mut extent = self.extent();
        if extent.uncommitted == Some(reported) && self.server_runs() == runs {
            extent.take_uncommitted();
        }
    }

    /// A lease was given up: others may change what was reported.
    pub(crate) fn forget_reported(&self) {
        self.extent().reported = None;
    }

    /// The metadata server has started anew: what it says counts as new. If it may not remember
    /// the last that it was told, it is told again.
    pub(crate) fn server_is_new(&self, forgets: bool) {
        let mut extent = self.extent();
        extent.change = 0;
        if forgets {
            self.server_runs.fetch_add(1, Ordering::AcqRel);
            (extent.grown, extent.unsure) = (true, true);
            extent.uncommitted = later(extent.uncommitted, extent.reported.take());
        }
        let size = extent.size;
        drop(extent);
        self.forget_room(size);
    }

    /// End and time of writes that the metadata server was told of, and may forget.
    pub(crate) fn reported(&self) -> Option<(u64, Timestamp)> {
        self.extent().reported
    }

    /// These are durable there.
    pub(crate) fn is_durable(&self, reported: Option<(u64, Timestamp)>) {
        let mut extent = self.extent();
        extent.reported = extent.reported.take_if(|now| Some(*now) != reported);
    }

    /// How often the metadata server may have forgotten what it was told of the file.
    pub(crate) fn server_runs(&self) -> u64 {
        self.server_runs.load(Ordering::Acquire)
    }

    /// Writes that the metadata server does not know of are lost; whether
    /// there were any of which more than the time may be lost.
    pub(crate) fn forget_uncommitted(&self) -> bool {
        let mut extent = self.extent();
        extent.reported = None;
        (extent.gap, extent.grown) = (false, false);
        let unsure = std::mem::take(&mut extent.unsure);
        extent.uncommitted.take().is_some() && unsure
    }

    /// The metadata server has set the size (the writer has nothing left).
    pub(crate) fn resized(&self, attr: &Attr) {
        let mut extent = self.extent();
        extent.uncommitted = None;
        extent.reported = None;
        (extent.gap, extent.grown, extent.unsure) = (false, false, false);
        extent.saw(attr);
        extent.size = attr.size;
    }

    /// The metadata server said this of the file.
    pub(crate) fn saw_attr(&self, attr: &Attr) {
        self.extent().saw(attr);
    }

    /// The newest change of the file that was heard of.
    pub(crate) fn newest_change(&self) -> u64 {
        self.extent().change
    }

    /// Puts newer times into what the metadata server has said, if they are known.
    pub(crate) fn correct_times(&self, attr: &mut Attr) {
        self.extent().correct_times(attr);
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
