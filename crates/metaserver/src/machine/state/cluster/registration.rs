//! Registration of data servers with their targets.

use super::Cluster;
use super::change::Change;
use super::standings::{Around, Said, after_report, after_silence, has_kept};
use crate::schema::{Past, ServerRecord, TargetRecord};
use std::collections::BTreeSet;
use weir_types::{Epoch, Error, ErrorKind, Result, ServerId, TargetId, check_domain, check_host};
use weir_wire::map::TargetState;
use weir_wire::peer::{RegisterRequest, TargetReport};

/// The most data servers.
const MAX_SERVERS: usize = 4096;
/// The most targets of one data server.
const MAX_TARGETS_PER_SERVER: usize = 1024;

/// The run of a target's disk as its server says; 0: it does not.
fn run_of(request: &RegisterRequest, target: TargetId) -> u64 {
    request.runs.iter().find(|(of, _)| *of == target).map_or(0, |(_, run)| *run)
}

impl Cluster {
    /// The change by a registration; `None` if nothing changes.
    ///
    /// # Errors
    /// `Exists`: another live server serves one of the targets. `TooBig`: too many servers or
    /// targets. `InvalidArgument`: the name of its host or its domain.
    pub fn registration(
        &self,
        server: ServerId,
        request: &RegisterRequest,
    ) -> Result<Option<Change>> {
        check_host(&request.host)?;
        if !request.domain.is_empty() {
            check_domain(&request.domain)?;
        }
        let known = self.servers.get(&server);
        let full = self.servers.len() >= MAX_SERVERS && known.is_none();
        let listed = request.targets.len().max(request.runs.len());
        if full || listed > MAX_TARGETS_PER_SERVER {
            let message = format!(
                "a cluster has at most {MAX_SERVERS} data servers of {MAX_TARGETS_PER_SERVER} \
                 targets"
            );
            return Err(Error::new(ErrorKind::TooBig, message));
        }
        let reports: Vec<&TargetReport> =
            request.targets.iter().filter(|r| !self.is_foreign(server, r)).collect();
        let mut others = self.taken_over(server, &reports)?;
        let mut targets: Vec<TargetRecord> = known.map(|k| k.targets.clone()).unwrap_or_default();
        for report in &reports {
            if targets.iter().all(|record| record.target != report.target) {
                targets.push(self.elsewhere(server, report.target, run_of(request, report.target)));
            }
        }
        targets.sort_by_key(|record| record.target);
        self.registered(&reports, request, &mut targets);
        let record = ServerRecord {
            host: request.host.clone(),
            domain: request.domain.clone(),
            tcp: request.tcp.clone(),
            unix: request.unix.clone(),
            targets,
        };
        if known == Some(&record) && others.is_empty() {
            return Ok(None);
        }
        others.push((server, record));
        Ok(Some(self.change(others)))
    }

    /// Applies a server's reports to its target records.
    fn registered(
        &self,
        reports: &[&TargetReport],
        request: &RegisterRequest,
        targets: &mut [TargetRecord],
    ) {
        let all = || self.servers.values().flat_map(|record| &record.targets);
        let serving = all().filter(|record| record.serves());
        let mut serving: BTreeSet<TargetId> = serving.map(|record| record.target).collect();
        let said = |report: &TargetReport, told: Epoch| {
            let own = report.gaps.iter().any(|(t, count)| *t == report.target && *count > 0);
            let lost_its_place = (request.first && own).then_some(told);
            Said { in_trouble: !report.trouble.is_empty(), lost_its_place }
        };
        // Those that are well come last: so that it is known who else there is.
        for well in [false, true] {
            for record in &mut *targets {
                let report = reports.iter().find(|r| r.target == record.target);
                if well != report.is_some_and(|r| r.trouble.is_empty()) {
                    continue;
                }
                let told = self.hearsay.told(record.target);
                let others = serving.iter().any(|target| *target != record.target);
                let kept =
                    |other: &TargetRecord| other.target != record.target && has_kept(other, told);
                let run = run_of(request, record.target);
                let another_kept_it = record.run != run && all().any(kept);
                let around = Around { another_kept_it, ..self.around(others) };
                *record = match report {
                    Some(report) if !report.given_up => {
                        after_report(*record, said(report, told), around)
                    }
                    // One that is not there now still has data of files.
                    _ => after_silence(*record, told, self.next_epoch()),
                };
                if report.is_some() && record.run != run {
                    (record.run, record.anew) = (run, self.next_epoch());
                }
                match record.serves() {
                    true => serving.insert(record.target),
                    false => serving.remove(&record.target),
                };
            }
        }
    }

    /// Servers that lose targets to this one, because a disk was moved to another node.
    fn taken_over(
        &self,
        server: ServerId,
        reports: &[&TargetReport],
    ) -> Result<Vec<(ServerId, ServerRecord)>> {
        let mut losers = Vec::new();
        for (&other, record) in self.servers.iter().filter(|(id, _)| **id != server) {
            let claimed = |t: &TargetRecord| reports.iter().any(|r| r.target == t.target);
            let serving = |t: &&TargetRecord| {
                matches!(t.state, TargetState::Online | TargetState::Syncing) && claimed(t)
            };
            if let Some(target) = record.targets.iter().find(serving) {
                let message = format!(
                    "target {} is served by data server {other} on {}: stop that one first, or \
                     check the target's directory",
                    target.target, record.host
                );
                return Err(Error::new(ErrorKind::Exists, message));
            }
            if record.targets.iter().any(claimed) {
                let mut record = record.clone();
                record.targets.retain(|t| !claimed(t));
                losers.push((other, record));
            }
        }
        Ok(losers)
    }

    /// The record of a target that a server has not served before. Another server may have; if none
    /// has, it never had anything to lose.
    fn elsewhere(&self, server: ServerId, target: TargetId, run: u64) -> TargetRecord {
        let others = self.servers.iter().filter(|(id, _)| **id != server);
        let mut known = others.flat_map(|(_, r)| &r.targets);
        let (state, since) = (TargetState::Online, self.next_epoch());
        let (draining, joins, past) = (false, None, Past::default());
        let anew = Epoch(0);
        let fresh = TargetRecord { target, state, since, draining, joins, past, run, anew };
        known.find(|t| t.target == target).copied().unwrap_or(fresh)
    }
}
