//! The judgement of targets from all reports.

use super::Cluster;
use super::change::Change;
use super::standings::{cut_off, joins, steps_back};
use crate::mover::partners::Partners;
use crate::schema::TargetRecord;
use std::collections::BTreeSet;
use weir_types::{ServerId, TargetId};
use weir_wire::map::TargetState;
use weir_wire::peer::TargetReport;

/// Duration of a disk's operation after which the target is done without, if others have its data.
/// It is longer than a sync of a busy disk, and short enough that waiting clients go on before
/// their timeout of 30 s.
const GIVE_UP_AFTER_MS: u64 = 15_000;

impl Cluster {
    /// The change that follows from all reports: a target that others cannot reach is brought up to
    /// date later, if it is not needed now; targets that have received everything come online.
    /// Targets in `distrust` do not know yet what they may lack. `is_source` says that copies may
    /// be in the making that only this target has.
    pub fn judge(
        &mut self,
        now_ms: u64,
        distrust: &BTreeSet<TargetId>,
        is_source: impl Fn(TargetId) -> bool,
    ) -> Option<Change> {
        if self.hearsay.is_settled() {
            return None;
        }
        let next = self.next_epoch();
        if let Some(target) = self.hearsay.too_early() {
            tracing::info!(target = target.0, "a target missed changes while it came back");
            return self.changed(&[target], |record| steps_back(record, next));
        }
        let all = self.all();
        let in_effect = self.in_effect();
        let known = |r: &&TargetRecord| r.joins.is_some() && r.since <= in_effect;
        let known = all.iter().map(|(_, record)| record).filter(known);
        let known: Vec<TargetId> = known.map(|record| record.target).collect();
        if !known.is_empty() {
            let change = self.changed(&known, |record| TargetRecord { joins: None, ..record });
            return change.map(|change| change.untold(self));
        }
        let (heard, partners) = (&self.heard, &self.partners);
        let is_needed = |target| is_needed(partners, target, &all) || is_source(target);
        let accused = self.hearsay.accused(&all);
        if let Some(target) = cut_off(&accused, &all, is_needed) {
            tracing::warn!(target = target.0, "it and other targets cannot reach each other");
            return self.changed(&[target], |record| steps_back(record, next));
        }
        let is_late = |target| heard.get(&target).is_some_and(|h| h.held_until_ms > now_ms);
        let is_held = |target| is_late(target) && !is_needed(target);
        let mut done = self.hearsay.complete(&all, is_held);
        if !accused.is_empty() {
            // A look at all files may show that it is not needed.
            self.partners.ask();
        }
        done.retain(|target| !distrust.contains(target));
        done.iter().for_each(|t| tracing::info!(target = t.0, "a target is up to date again"));
        self.changed(&done, |record| joins(record, next))
    }

    /// The reported targets that their server should give up, because their disks hang and others
    /// have their data. A target that is not online delays others as well, but is not needed for
    /// now. `is_source`: as for [`Cluster::judge`].
    pub fn who_hangs(
        &mut self,
        reports: &[TargetReport],
        is_source: impl Fn(TargetId) -> bool,
    ) -> Vec<TargetId> {
        let hangs = |r: &&TargetReport| r.hangs_ms >= GIVE_UP_AFTER_MS && !r.given_up;
        let hanging: Vec<TargetId> = reports.iter().filter(hangs).map(|r| r.target).collect();
        let well = |r: &&TargetReport| r.hangs_ms == 0 || r.given_up;
        for report in reports.iter().filter(well) {
            self.told_to_go.remove(&report.target);
        }
        if hanging.is_empty() || !self.view.mirrored {
            return Vec::new();
        }
        // A look at all files may show that it is not needed.
        self.partners.ask();
        let mut all = self.all();
        // Those that are about to go are as good as gone.
        for (_, record) in all.iter_mut().filter(|(_, r)| self.told_to_go.contains(&r.target)) {
            record.state = TargetState::Offline;
        }
        let mut go = Vec::new();
        for target in hanging {
            let serves = |r: &TargetRecord| r.target != target && r.state == TargetState::Online;
            let others_serve = all.iter().any(|(_, r)| serves(r));
            let needed = is_needed(&self.partners, target, &all) || is_source(target);
            let can_go = match self.record(target).map(|record| record.state) {
                Some(TargetState::Online) => !needed,
                Some(state) => state != TargetState::Offline,
                None => false,
            };
            if !(others_serve && can_go) {
                continue;
            }
            self.told_to_go.insert(target);
            go.push(target);
            for (_, record) in all.iter_mut().filter(|(_, r)| r.target == target) {
                record.state = TargetState::Offline;
            }
        }
        go
    }
}

/// Whether a target may have the only other copy of data on targets that are not online.
fn is_needed(partners: &Partners, target: TargetId, all: &[(ServerId, TargetRecord)]) -> bool {
    let away = all.iter().map(|(_, r)| r).filter(|r| r.state != TargetState::Online);
    let mut others = away.map(|r| r.target).filter(|other| *other != target);
    others.any(|other| partners.may_share(target, other))
}
