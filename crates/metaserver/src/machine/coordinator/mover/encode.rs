//! Parities: which files may get some, and the orders to data servers for computing parts of a
//! segment from others.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::mover::{Job, orders};
use crate::ops::move_copies::Computed;
use std::collections::BTreeSet;
use weir_metastore::Engine;
use weir_types::{FileId, ObjectId, ServerId, TargetId};
use weir_wire::peer::{Build, Fill, TargetReport};

/// The most objects that one server computes at a time.
const MAX_BUILDS: usize = 16;
/// The most files that are looked at in one tick.
const MAX_LOOKS: usize = 256;

impl<E: Engine> MetaMachine<E> {
    /// Looks at the files that may get parities by now, and at those that nobody waits for any
    /// more.
    pub(super) fn tick_encode(&mut self, now: Moment) {
        let is_due = |(file, at_ms): (&FileId, &u64)| (*at_ms <= now.monotonic_ms).then_some(*file);
        let due: Vec<FileId> =
            self.mover.candidates.iter().filter_map(is_due).take(MAX_LOOKS).collect();
        for file in due {
            self.mover.candidates.remove(&file);
            self.mover.enqueue(file, 0);
        }
        self.mover.scan_for_candidates(now);
        self.mover.recount(now);
        // Disks may have become full since.
        let awaited: Vec<FileId> = self.mover.awaited.keys().copied().take(MAX_LOOKS).collect();
        awaited.into_iter().for_each(|file| self.mover.enqueue(file, 0));
        // Those who wait say so again, as long as they do.
        self.mover.awaited.keys().for_each(|file| self.leases.waiting.file_changed(*file));
        let over: Vec<FileId> = self.mover.awaited.iter().filter_map(is_due).collect();
        for file in over {
            self.mover.awaited.remove(&file);
            self.mover.enqueue(file, 0);
        }
    }

    /// The objects that a server has to compute: those on its targets without a source.
    pub(in crate::machine) fn builds_for(&self, server: ServerId) -> Vec<Build> {
        let (synced, online) = (self.engine.synced(), self.online());
        let mut under_way = 0;
        let mut all = Vec::new();
        for job in self.mover.jobs.values() {
            let Some(computed) = &job.copy.computed else { continue };
            let is_its = self.cluster.serves(server, job.copy.to)
                && orders(&job.copy, &online).is_none()
                && job.since <= synced
                && (job.ready || under_way < MAX_BUILDS && self.mover.can_be_filled(&job.copy));
            if is_its {
                under_way += usize::from(!job.ready);
                let (object, to, generation) = (job.copy.object, job.copy.to, job.generation);
                let (columns, parities) = (computed.columns, computed.parities);
                let (coded, len) = (computed.coded, computed.len);
                all.push(Build { object, to, generation, columns, parities, coded, len });
            }
        }
        all
    }

    /// The columns that a server has to fence before parities are computed.
    pub(super) fn fences_for(&self, server: ServerId, online: &BTreeSet<TargetId>) -> Vec<Fill> {
        let synced = self.engine.synced();
        let jobs = self.mover.jobs.values().filter(|job| job.since <= synced && !job.ready);
        let mut all = BTreeSet::new();
        for job in jobs {
            for (object, sources) in job.copy.computed.iter().flat_map(Computed::fences) {
                let from = sources.iter().find(|target| online.contains(target));
                let from = from.filter(|from| self.cluster.serves(server, **from));
                all.extend(from.map(|from| (*from, *object, job.generation)));
            }
        }
        let fence = |(from, object, generation)| Fill { from, object, to: from, generation };
        all.into_iter().map(fence).collect()
    }

    /// The objects that a server has to compute, and whether it says that they are durable.
    pub(super) fn built(
        &self,
        server: ServerId,
        reports: &[TargetReport],
        online: &BTreeSet<TargetId>,
    ) -> Vec<(ObjectId, Option<TargetId>, bool)> {
        let said: BTreeSet<_> = reports
            .iter()
            .flat_map(|report| report.built.iter().filter(|built| built.to == report.target))
            .map(|built| (built.object, built.to, built.generation))
            .collect();
        let jobs = self.mover.jobs.iter().filter(|(_, job)| {
            job.copy.computed.is_some()
                && self.cluster.serves(server, job.copy.to)
                && orders(&job.copy, online).is_none()
        });
        let is_said = |object, job: &Job| said.contains(&(object, job.copy.to, job.generation));
        jobs.map(|(object, job)| (*object, None, is_said(*object, job))).collect()
    }
}
