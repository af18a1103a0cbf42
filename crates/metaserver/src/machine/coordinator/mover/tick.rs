//! What the mover does once a second, and its settings.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::mover::{MoverSettings, RETRY_MS};
use crate::machine::store::fault;
use crate::mover::sites::Differs;
use crate::ops::move_copies;
use weir_metastore::{Engine, Tx};
use weir_types::{ObjectId, Result};

/// Copies checked at each tick, whether they still have to be filled.
const CHECKS_PER_TICK: usize = 64;

impl<E: Engine> MetaMachine<E> {
    /// Sets how the mover works from now on.
    pub fn set_mover(&mut self, settings: MoverSettings) {
        self.mover.settings = settings;
    }

    /// Updates the state of targets, and checks copies that are being filled. To be called about
    /// once a second.
    pub(in crate::machine) fn tick_mover(&mut self, now: Moment) -> Result<()> {
        let map = self.cluster.map();
        let after_ms = self.mover.settings.rebuild_after_ms;
        let sites = self.mover.away.sites(&map, after_ms, now.monotonic_ms);
        match self.mover.sites.update(sites) {
            Differs::Needs => self.mover.look_at_all(),
            // Less may be to be done, too: a target is kept after all, or is back.
            Differs::Helps if self.mover.left || self.mover.may_have_work() => {
                self.mover.left = false;
                self.mover.look_at_all();
            }
            Differs::Helps | Differs::Not => {}
        }
        if self.mover.is_idle() && self.cluster.partners.wants_look(&self.mover.sites) {
            self.mover.look_at_all();
        }
        self.mover.begun |= self.leases.grace.is_none();
        if self.mover.retry_at_ms.is_some_and(|at_ms| now.monotonic_ms >= at_ms) {
            self.mover.retry_at_ms = None;
            self.mover.look_at_all();
        }
        self.mover.progress.sample(now.monotonic_ms);
        let is_there = |target| self.cluster.record(target).is_some();
        self.mover.arrivals.sample(now.monotonic_ms, is_there);
        for job in self.mover.jobs.values_mut().filter(|job| job.copy.is_whole) {
            job.ready |= now.monotonic_ms.saturating_sub(job.waits_since_ms) > RETRY_MS;
        }
        let idle = self.mover.jobs.values().filter(|job| !self.mover.can_be_filled(&job.copy));
        self.mover.idle_jobs = idle.count();
        let ready = self.mover.jobs.values().filter(|job| job.ready && job.confirmed.is_none());
        let ready: Vec<_> =
            ready.map(|job| (job.copy.object.file, job.copy.segment_start)).collect();
        for (file, start) in ready {
            self.mover.finish.entry(file).or_insert(start);
        }
        self.mover.find_short(&map);
        self.tick_encode(now);
        // No file has several copies, and all can stay where they are.
        self.tick_rebalance(now);
        let evens = self.mover.rebalance.is_some();
        if !self.cluster.view.mirrored && !self.mover.sites.any_goes() && !evens {
            self.mover.look_at_nothing();
        }
        self.check_jobs(now)
    }

    /// Drops copies of files that are gone, or got new layouts.
    fn check_jobs(&mut self, now: Moment) -> Result<()> {
        let after = |object: &ObjectId| self.mover.checked.is_none_or(|last| *object > last);
        let mut next: Vec<ObjectId> =
            self.mover.jobs.keys().copied().filter(after).take(CHECKS_PER_TICK).collect();
        self.mover.checked = next.last().copied();
        let synced = self.engine.synced();
        next.retain(|object| self.mover.jobs.get(object).is_some_and(|job| job.since <= synced));
        for object in next {
            let Some(job) = self.mover.jobs.get(&object) else { continue };
            let mut tx = Tx::new(&self.engine);
            let found = move_copies::still_filling(&mut tx, &job.copy).map_err(fault)?;
            match found.filter(|found| found.to == job.copy.to) {
                Some(found) => {
                    if let Some(job) = self.mover.jobs.get_mut(&object) {
                        job.copy = found;
                    }
                }
                None => {
                    self.mover.jobs.remove(&object);
                    // Somebody may be bringing something to it just now.
                    if !self.mover.dropped.knows(object) {
                        self.mover.dropped.went(&[object], now.monotonic_ms);
                    }
                    // There may be nothing left to be relieved of.
                    self.mover.enqueue(object.file, 0);
                }
            }
        }
        Ok(())
    }
}
