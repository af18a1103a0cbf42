//! The progress of targets that are being opened.

use super::register::nothing;
use std::sync::Arc;
use std::time::Duration;
use weir_host::device::Counts;
use weir_host::sync::{Condvar, Mutex};
use weir_store::{RecoveryProgress, Target};
use weir_types::{Result, TargetId};
use weir_wire::peer::{TargetReport, recovering};

/// Targets that are being opened.
pub(crate) struct Under {
    targets: Vec<(TargetId, Arc<RecoveryProgress>)>,
    /// What the device of each has ended.
    counts: Vec<Counts>,
    /// What became of each.
    ended: Mutex<Vec<Option<Result<Target>>>>,
    changed: Condvar,
}

impl Under {
    /// Targets of which none has ended yet, and their devices.
    pub(super) fn new(targets: Vec<TargetId>, counts: Vec<Counts>) -> Self {
        let ended = Mutex::new(targets.iter().map(|_| None).collect());
        let targets = targets.into_iter().map(|id| (id, Arc::default())).collect();
        Self { targets, counts, ended, changed: Condvar::new() }
    }

    /// Progress of one of them.
    pub(super) fn progress(&self, at: usize) -> Arc<RecoveryProgress> {
        self.targets[at].1.clone()
    }

    /// Stops all recoveries.
    pub(super) fn stop(&self) {
        self.targets.iter().for_each(|(_, progress)| progress.stop());
    }

    /// What became of them.
    pub(super) fn take(&self) -> Vec<Result<Target>> {
        std::mem::take(&mut *self.ended.lock()).into_iter().flatten().collect()
    }

    /// Records what became of one of them.
    pub(super) fn has_ended(&self, at: usize, result: Result<Target>) {
        self.ended.lock()[at] = Some(result);
        self.changed.notify_all();
    }

    /// Waits at most for `time`. Returns whether all have ended.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let is_open = |ended: &[Option<Result<Target>>]| ended.iter().all(Option::is_some);
        let ended = self.ended.lock();
        if is_open(&ended) {
            return true;
        }
        is_open(&self.changed.wait_timeout(ended, time))
    }

    /// Another number when one of them has got on.
    pub(super) fn steps(&self) -> u64 {
        let steps = self.targets.iter().zip(&self.counts).map(|((_, progress), counts)| {
            let ended = progress.is_syncing().then(|| counts.ended()).flatten();
            let ended = ended.map_or(0, |ended| ended.reads.wrapping_add(ended.writes));
            progress.steps().wrapping_add(ended)
        });
        steps.fold(0, u64::wrapping_add)
    }

    /// Progress of the target with the most work left, percent.
    pub(super) fn percent(&self) -> u8 {
        let ended = self.ended.lock();
        let left = self.targets.iter().zip(&*ended).filter(|(_, ended)| ended.is_none());
        left.map(|((_, progress), _)| progress.percent()).min().unwrap_or(99)
    }

    /// Reports for the metadata server. None of these targets is served, or was since this process
    /// began.
    pub(crate) fn reports(&self) -> Vec<TargetReport> {
        let ended = self.ended.lock();
        let report = |((id, progress), ended): (&(TargetId, Arc<RecoveryProgress>), &Option<_>)| {
            // Who is open waits for the others.
            let percent = if ended.is_some() { 100 } else { progress.percent() };
            TargetReport { given_up: true, ..nothing(*id, recovering(percent)) }
        };
        self.targets.iter().zip(&*ended).map(report).collect()
    }
}
