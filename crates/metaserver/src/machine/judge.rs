//! What becomes of targets by all that was heard of them.

use super::cluster::{Change, Cluster};
use super::standings::{cut_off, joins, steps_back};
use crate::schema::TargetRecord;
use std::collections::BTreeSet;
use weir_types::TargetId;
use weir_wire::map::TargetState;

impl Cluster {
    /// What has to change by all that was heard: a target that others cannot reach
    /// is brought up to date later, if it is not needed now; those that have all that they
    /// missed are online.
    /// Those that `distrust` do not know yet what they may lack. `is_source`: copies may be
    /// being made that only this one has.
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
            tracing::info!(target = target.0, "a target missed something as it came back");
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
        let away = || all.iter().filter(|(_, r)| r.state != TargetState::Online);
        // What those have that are not there it may be the only one to have besides.
        let is_needed = |target| {
            let mut others = away().map(|(_, r)| r.target).filter(|other| *other != target);
            others.any(|other| partners.may_share(target, other)) || is_source(target)
        };
        let accused = self.hearsay.accused(&all);
        if let Some(target) = cut_off(&accused, &all, is_needed) {
            tracing::warn!(target = target.0, "it and other targets do not reach each other");
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
}
