//! The size of a file as this client knows it, and which of it the metadata server was not told of.

use super::OpenState;
use super::extent::{Extent, later};
use std::sync::atomic::Ordering;
use weir_host::sync::MutexGuard;
use weir_types::{Attr, Generation, Timestamp};

impl OpenState {
    fn extent(&self) -> MutexGuard<'_, Extent> {
        self.extent.lock()
    }

    pub(crate) fn size(&self) -> u64 {
        self.extent().size
    }

    /// Records a write of this client from `start` to `end` at this time (the writer's lock is
    /// held).
    pub(crate) fn wrote(&self, start: u64, end: u64, time: Timestamp) {
        let generation = self.generation();
        let mut extent = self.extent();
        if extent.uncommitted.is_none() {
            extent.under = Some(generation);
        }
        extent.gap |= start > extent.size;
        extent.grown |= end > extent.size;
        extent.unsure = true;
        extent.size = extent.size.max(end);
        extent.uncommitted = later(extent.uncommitted, Some((end, time)));
    }

    /// The size as the metadata server has said, or was told.
    pub(crate) fn told_size(&self) -> u64 {
        self.extent().told
    }

    /// Ends the file at `end`, because this client's writes behind it were refused and no other
    /// client knows of them. Returns `false` if another client does know by now. (The writer's lock
    /// is held.)
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

    /// Of writes that the metadata server does not know of nothing is left behind `end`: somebody
    /// else has cut the file. It was of this generation before that was asked. (The writer's lock
    /// is held.)
    pub(crate) fn reaches(&self, end: u64, generation: Generation) {
        let mut extent = self.extent();
        let Some((written, time)) = extent.uncommitted else { return };
        // How long the file is says the answer to what is told.
        extent.uncommitted = Some((written.min(end), time));
        extent.under = Some(generation);
    }

    /// Whether the file is longer than the metadata server knows.
    pub(crate) fn has_grown(&self) -> bool {
        self.extent().grown
    }

    /// Records that servers have confirmed all unreported bytes, and that these are within the size
    /// that the metadata server knows. Only the time is left to report.
    pub(crate) fn is_sure(&self) {
        // What has grown is to be told again, if the server was started anew meanwhile.
        let mut extent = self.extent();
        extent.unsure = extent.grown;
    }

    /// Whether the file may have holes that the metadata server does not know of.
    pub(crate) fn has_gap(&self) -> bool {
        self.extent().gap
    }

    /// Whether the file may have holes, as far as this client knows.
    pub(crate) fn may_have_holes(&self) -> bool {
        let extent = self.extent();
        extent.sparse || extent.gap
    }

    /// The first byte that may be in a hole, according to the metadata server.
    pub(crate) fn full(&self) -> u64 {
        self.extent().full
    }

    /// End and time of writes that the metadata server does not know of.
    pub(crate) fn uncommitted(&self) -> Option<(u64, Timestamp)> {
        self.extent().uncommitted
    }

    /// Records that the metadata server knows of all writes (the writer's lock is held), unless it
    /// may have forgotten them since. `runs` is the value of [`OpenState::server_runs`] from before
    /// the report.
    pub(crate) fn committed(&self, runs: u64) {
        let mut extent = self.extent();
        if self.server_runs() == runs {
            extent.take_uncommitted();
        }
    }

    /// The generation under which unreported writes are to be reported. Without leases somebody
    /// else may have cut off earlier ones, though later ones have succeeded: it is the one under
    /// which all of them were there. `None`: that is not known. (The writer's lock is held.)
    pub(crate) fn reported_under(&self, leases: bool) -> Option<Generation> {
        let now = self.generation();
        let extent = self.extent();
        match extent.uncommitted {
            Some(_) if !leases => extent.under,
            _ => Some(now),
        }
    }

    /// Unreported writes, and the generation under which they were written, for callers without the
    /// writer's lock. (Meanwhile a lease may be given up, the file truncated, and the lease
    /// acquired again.)
    pub(crate) fn unreported(&self, leases: bool) -> Option<((u64, Timestamp), Generation)> {
        if !leases {
            let extent = self.extent();
            return extent.uncommitted.zip(extent.under);
        }
        loop {
            let generation = self.generation();
            let uncommitted = self.uncommitted()?;
            if self.generation() == generation {
                return Some((uncommitted, generation));
            }
        }
    }

    /// As [`OpenState::committed`], for the writes in `reported`.
    pub(crate) fn committed_if(&self, reported: (u64, Timestamp), runs: u64) {
        let mut extent = self.extent();
        if extent.uncommitted == Some(reported) && self.server_runs() == runs {
            extent.take_uncommitted();
        }
    }

    /// Forgets reported writes after a lease was given up: other clients may change them.
    pub(crate) fn forget_reported(&self) {
        self.extent().reported = None;
    }

    /// Handles a restart of the metadata server: its next reply counts as new. If it may have
    /// forgotten the last report, that is sent again.
    pub(crate) fn server_is_new(&self, forgets: bool) {
        let mut extent = self.extent();
        extent.change = 0;
        if forgets {
            self.server_runs.fetch_add(1, Ordering::AcqRel);
            (extent.grown, extent.unsure) = (true, true);
            if extent.reported.is_some() {
                extent.under = None;
            }
            extent.uncommitted = later(extent.uncommitted, extent.reported.take());
        }
        let size = extent.size;
        drop(extent);
        self.any_layout_counts();
        self.forget_room(size);
    }

    /// End and time of the reported writes that the metadata server may forget, once those are
    /// reported that are not yet.
    pub(crate) fn reported_then(&self) -> Option<(u64, Timestamp)> {
        let extent = self.extent();
        later(extent.reported, extent.uncommitted)
    }

    /// Records that these reported writes are durable at the metadata server.
    pub(crate) fn is_durable(&self, reported: Option<(u64, Timestamp)>) {
        let mut extent = self.extent();
        extent.reported = extent.reported.take_if(|now| Some(*now) != reported);
    }

    /// Number of times that the metadata server may have forgotten reports of the file.
    pub(crate) fn server_runs(&self) -> u64 {
        self.server_runs.load(Ordering::Acquire)
    }

    /// Drops unreported writes, which are lost. Returns whether more than a time may be lost.
    pub(crate) fn forget_uncommitted(&self) -> bool {
        let mut extent = self.extent();
        extent.reported = None;
        (extent.gap, extent.grown) = (false, false);
        let unsure = std::mem::take(&mut extent.unsure);
        extent.uncommitted.take().is_some() && unsure
    }

    /// Records that the metadata server has set the size (the writer has nothing left).
    pub(crate) fn resized(&self, attr: &Attr) {
        let mut extent = self.extent();
        extent.uncommitted = None;
        extent.reported = None;
        (extent.gap, extent.grown, extent.unsure) = (false, false, false);
        extent.saw(attr);
        // Another reply may have come first that knows of a later change.
        extent.size = extent.told;
    }

    /// Records attributes from the metadata server.
    pub(crate) fn saw_attr(&self, attr: &Attr) {
        self.extent().saw(attr);
    }

    /// The newest change of the file in any reply.
    pub(crate) fn newest_change(&self) -> u64 {
        self.extent().change
    }

    /// Puts newer times into attributes from the metadata server, if they are known.
    pub(crate) fn correct_times(&self, attr: &mut Attr) {
        self.extent().correct_times(attr);
    }
}
