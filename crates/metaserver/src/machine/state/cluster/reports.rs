//! What data servers report of their targets, and what follows from silence.

use super::change::{Change, is_enough};
use super::standings::{Said, after_report, after_silence};
use super::{Cluster, Heard};
use crate::schema::TargetRecord;
use std::collections::BTreeMap;
use weir_policy::Verdict;
use weir_types::{DiskId, Error, ErrorKind, Result, ServerId, TargetId};
use weir_wire::map::TargetState;
use weir_wire::peer::TargetReport;
use weir_wire::targets::TargetWork;

/// A reported speed is shown for this long, milliseconds.
const SHOWN_MS: u64 = 5_000;

impl Cluster {
    /// The change by a heartbeat: targets that were offline are back, or one has got into trouble.
    ///
    /// # Errors
    /// `Stale`: the server has to register first.
    pub fn heartbeat(&self, server: ServerId, reports: &[TargetReport]) -> Result<Option<Change>> {
        let unknown = || {
            let message = format!("data server {server} is not registered with these targets");
            Error::new(ErrorKind::Stale, message)
        };
        let mut record = self.servers.get(&server).ok_or_else(unknown)?.clone();
        let mut changed = false;
        for report in reports.iter().filter(|r| !self.is_foreign(server, r)) {
            let target = record.targets.iter_mut().find(|t| t.target == report.target);
            let target = target.ok_or_else(unknown)?;
            if report.given_up {
                if target.state != TargetState::Offline {
                    let told = self.hearsay.told(target.target);
                    *target = after_silence(*target, told, self.next_epoch());
                    changed = true;
                }
                continue;
            }
            let said = Said { in_trouble: !report.trouble.is_empty(), lost_its_place: None };
            let reported = after_report(*target, said, self.around(true));
            if reported.state != target.state {
                note_change(server, report, reported.state);
            }
            changed |= reported != *target;
            *target = reported;
        }
        Ok(changed.then(|| self.change(vec![(server, record)])))
    }

    /// The change for targets that were silent since `deadline_ms`, and their number.
    pub fn lost(&self, deadline_ms: u64) -> Option<(Change, u64)> {
        let mut servers = Vec::new();
        let mut count = 0;
        for (&server, record) in &self.servers {
            let silent = |t: &TargetRecord| {
                t.state != TargetState::Offline
                    && self.heard.get(&t.target).is_none_or(|heard| heard.at_ms < deadline_ms)
            };
            let lost = record.targets.iter().filter(|t| silent(t)).count() as u64;
            if lost > 0 {
                count += lost;
                let mut record = record.clone();
                for target in record.targets.iter_mut().filter(|t| silent(t)) {
                    let told = self.hearsay.told(target.target);
                    *target = after_silence(*target, told, self.next_epoch());
                }
                servers.push((server, record));
            }
            // More at the next tick.
            if is_enough(&servers) {
                break;
            }
        }
        (count > 0).then(|| (self.change(servers), count))
    }

    /// Updates gaps and slow targets. To be called about once a second.
    pub fn sample(&mut self, now_ms: u64) {
        for (target, heard) in &mut self.heard {
            heard.behind.sample(now_ms, self.hearsay.gaps_for(*target));
        }
        // One waits for what others on its disk read, and says nothing of how fast that is.
        let mut disks: BTreeMap<DiskId, u32> = BTreeMap::new();
        for heard in self.heard.values().filter(|heard| heard.disk != DiskId::UNKNOWN) {
            *disks.entry(heard.disk).or_default() += 1;
        }
        let shares = |heard: &Heard| disks.get(&heard.disk).is_some_and(|targets| *targets > 1);
        self.slow.retain(|target| self.heard.get(&target).is_some_and(|heard| !shares(heard)));
        let verdicts = self.slow.judge(now_ms * 1_000);
        verdicts.iter().for_each(note_pace);
        if !verdicts.is_empty() {
            self.refresh();
        }
    }

    /// Records reports of a server's targets. `started` says that it has just started.
    pub fn heard(
        &mut self,
        server: ServerId,
        reports: &[TargetReport],
        started: bool,
        now_ms: u64,
    ) {
        for report in reports {
            if self.is_foreign(server, report) {
                continue;
            }
            let heard = self.heard.entry(report.target).or_default();
            (heard.at_ms, heard.usage, heard.disk) = (now_ms, report.usage, report.disk);
            heard.trouble.clone_from(&report.trouble);
            (heard.hangs_ms, heard.given_up) = (report.hangs_ms, report.given_up);
            if report.given_up {
                continue;
            }
            let before = std::mem::replace(&mut heard.work, report.work);
            if report.work.us_per_mib > 0 {
                heard.read_ms = now_ms;
                let TargetWork { us_per_mib, piece_kib, .. } = report.work;
                self.slow.measured(report.target, us_per_mib, piece_kib, now_ms * 1_000);
            } else if now_ms.saturating_sub(heard.read_ms) < SHOWN_MS {
                heard.work.us_per_mib = before.us_per_mib;
                heard.work.piece_kib = before.piece_kib;
            }
            if let Some(record) = self.record(report.target).copied() {
                self.hearsay.said(&record, report, started);
            }
        }
        self.refresh();
    }
}

fn note_pace(verdict: &Verdict<TargetId>) {
    let Verdict { disk: TargetId(target), is_slow, us_per_mib, others_us_per_mib } = *verdict;
    let ms = |us: f64| us as u64 / 1_000;
    let (ms_per_mib, others) = (ms(us_per_mib), ms(others_us_per_mib));
    match is_slow {
        true => tracing::warn!(
            target,
            "its disk has become slow: {ms_per_mib} ms for a MiB, others {others} ms"
        ),
        false if others_us_per_mib == 0.0 => tracing::info!(
            target,
            "its disk is not known to be slow any more: there was nothing to compare it with"
        ),
        false => tracing::info!(target, "its disk is not slow any more: {ms_per_mib} ms for a MiB"),
    }
}

fn note_change(server: ServerId, report: &TargetReport, state: TargetState) {
    let (server, target) = (server.0, report.target.0);
    match (report.trouble.as_str(), state) {
        ("", TargetState::Syncing) => {
            tracing::info!(
                server,
                target,
                "a target is back, and receives the changes that it missed"
            );
        }
        ("", _) => tracing::info!(server, target, "a target is back"),
        (trouble, _) => tracing::warn!(server, target, "a target fails: {trouble}"),
    }
}
