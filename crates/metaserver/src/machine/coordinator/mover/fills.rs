//! Orders to data servers to fill copies, and their reports.

use crate::machine::state::MetaMachine;
use crate::machine::state::mover::{Job, orders};
use std::collections::BTreeMap;
use weir_metastore::Engine;
use weir_types::{ObjectId, ServerId, TargetId};
use weir_wire::peer::{Fill, TargetReport};

impl<E: Engine> MetaMachine<E> {
    /// The copies that a server has to fill: those of columns whose first online copy it serves.
    pub(in crate::machine) fn fills_for(&self, server: ServerId) -> Vec<Fill> {
        let synced = self.engine.synced();
        let most = self.mover.settings.rebuild_concurrency as usize;
        let mut under_way = 0;
        if self.mover.jobs.is_empty() {
            return Vec::new();
        }
        let online = self.online();
        let mut order = |job: &Job| {
            let from = orders(&job.copy, &online)?;
            let is_its = self.cluster.serves(server, from);
            let (object, to, generation) = (job.copy.object, job.copy.to, job.generation);
            let can = job.ready || under_way < most && self.mover.can_be_filled(&job.copy);
            let is_its = is_its && job.since <= synced && can;
            under_way += usize::from(is_its && !job.ready);
            is_its.then_some(Fill { from, object, to, generation })
        };
        let mut all: Vec<Fill> = self.mover.jobs.values().filter_map(&mut order).collect();
        all.extend(self.fences_for(server, &online));
        all
    }

    /// Handles a server's report of copies that have everything at the time of the report. It
    /// repeats them in each report.
    pub(in crate::machine) fn take_filled(&mut self, server: ServerId, reports: &[TargetReport]) {
        if self.mover.jobs.is_empty() {
            return;
        }
        let all = reports.iter().filter(|report| self.cluster.serves(server, report.target));
        let all = all.flat_map(|report| &report.filled);
        let all: BTreeMap<(ObjectId, TargetId), &Fill> =
            all.map(|fill| ((fill.object, fill.to), fill)).collect();
        let online = self.online();
        let of = |job: &Job| {
            let from = orders(&job.copy, &online)?;
            self.cluster.serves(server, from).then_some(from)
        };
        let built = self.built(server, reports, &online);
        let its = self.mover.jobs.iter().filter_map(|(object, job)| Some((*object, of(job)?)));
        let its = its.map(|(object, from)| (object, Some(from), false));
        for (object, from, is_built) in its.chain(built).collect::<Vec<_>>() {
            let Some(job) = self.mover.jobs.get_mut(&object) else { continue };
            let (to, generation) = (job.copy.to, job.generation);
            let is_it = |fill: &&&Fill| (Some(fill.from), fill.generation) == (from, generation);
            let filled = is_built || all.get(&(object, to)).filter(is_it).is_some();
            if !filled {
                job.confirmed = job.confirmed.map(|_| 0);
                continue;
            }
            job.confirmed = job.confirmed.map(|times| times.saturating_add(1));
            let news = !std::mem::replace(&mut job.ready, true);
            let start = job.copy.segment_start;
            let waiting = self.mover.jobs_of(object.file).filter(|(_, job)| !job.ready).count();
            // At the next tick the others are not waited for any more.
            if news && waiting == 0 {
                self.mover.finish.insert(object.file, start);
            }
        }
    }
}
