//! Data servers and targets: who they are, and whether they live.

use super::standings::{Hearsay, after_report, after_silence};
use crate::ops::{ClusterView, Outcome};
use crate::schema::{self, ServerRecord, TargetRecord, key};
use std::collections::BTreeMap;
use weir_layout::TargetInfo;
use weir_metastore::{Engine, Tx};
use weir_types::{Epoch, Error, ErrorKind, FsUsage, Result, ServerId, TargetId};
use weir_wire::map::{ClusterMap, ServerEntry, Standing, TargetEntry, TargetState};
use weir_wire::peer::{RegisterRequest, TargetReport};

/// The most data servers.
const MAX_SERVERS: usize = 4096;
/// The most targets of one data server.
const MAX_TARGETS_PER_SERVER: usize = 1024;
/// Servers read in one go at the start.
const LOAD_PAGE: usize = 256;

/// What is known of data servers.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub epoch: Epoch,
    servers: BTreeMap<ServerId, ServerRecord>,
    heard: BTreeMap<TargetId, Heard>,
    hearsay: Hearsay,
    mirrored: bool,
    /// What operations see of it; kept up to date here.
    pub view: ClusterView,
}

#[derive(Clone, Debug, Default)]
struct Heard {
    at_ms: u64,
    usage: FsUsage,
    /// Why it is out of service; empty: it is not.
    trouble: String,
}

/// A change of servers that is committed before it counts.
#[derive(Debug)]
pub(super) struct Change {
    epoch: Epoch,
    servers: Vec<(ServerId, ServerRecord)>,
}

impl Change {
    /// Writes it.
    pub fn put(&self, tx: &mut Tx<'_>) -> Outcome<()> {
        tx.put(key::MAP_EPOCH, &schema::encode(&self.epoch))?;
        for (server, record) in &self.servers {
            tx.put(&key::server(*server), &schema::encode(record))?;
        }
        Ok(())
    }
}

impl Cluster {
    /// As the store has it. Targets that were online have until the next
    /// timeout to be heard of.
    pub fn load(engine: &dyn Engine, now_ms: u64) -> Result<Self> {
        let mut cluster = Self::default();
        let mut tx = Tx::new(engine);
        if let Some(bytes) = tx.get(key::MAP_EPOCH)? {
            cluster.epoch = schema::decode(&bytes, "of the map's epoch")?;
        }
        cluster.hearsay = Hearsay::new(cluster.epoch);
        cluster.mirrored = tx.get(key::MIRRORED)?.is_some();
        let (mut start, end) = key::servers();
        loop {
            let page = tx.range(&start, &end, LOAD_PAGE)?;
            for (key, bytes) in &page {
                let record: ServerRecord = schema::decode(bytes, "of a server")?;
                for target in &record.targets {
                    let heard = Heard { at_ms: now_ms, ..Heard::default() };
                    cluster.heard.insert(target.target, heard);
                }
                cluster.servers.insert(key::server_id(key)?, record);
            }
            match page.last() {
                Some((last, _)) if page.len() == LOAD_PAGE => {
                    start = weir_metastore::key_after(last).into_vec();
                }
                _ => break,
            }
        }
        cluster.refresh();
        Ok(cluster)
    }

    /// What a registration changes; `None` if nothing.
    ///
    /// # Errors
    /// `Exists`: another server that lives serves one of the targets.
    /// `TooBig`: too many servers or targets.
    pub fn registration(
        &self,
        server: ServerId,
        request: &RegisterRequest,
    ) -> Result<Option<Change>> {
        let known = self.servers.get(&server);
        let full = self.servers.len() >= MAX_SERVERS && known.is_none();
        if full || request.targets.len() > MAX_TARGETS_PER_SERVER {
            let message = format!(
                "a cluster has at most {MAX_SERVERS} data servers of {MAX_TARGETS_PER_SERVER} \
                 targets"
            );
            return Err(Error::new(ErrorKind::TooBig, message));
        }
        let reports: Vec<&TargetReport> =
            request.targets.iter().filter(|r| !self.is_elsewhere(server, r)).collect();
        let mut others = self.taken_over(server, &reports)?;
        let mut targets: Vec<TargetRecord> = known.map(|k| k.targets.clone()).unwrap_or_default();
        for record in &mut targets {
            // One that is not there now still has data of files.
            let report = reports.iter().find(|r| r.target == record.target);
            *record = match report {
                Some(report) => self.reported(*record, report),
                None => after_silence(*record, self.next_epoch()),
            };
        }
        for report in &reports {
            if targets.iter().all(|record| record.target != report.target) {
                let since = self.next_epoch();
                let fresh =
                    TargetRecord { target: report.target, state: TargetState::Online, since };
                targets.push(self.reported(self.elsewhere(server, fresh), report));
            }
        }
        targets.sort_by_key(|record| record.target);
        let record = ServerRecord {
            host: request.host.clone(),
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

    /// Servers that lose targets to this one: a disk was moved to another node.
    fn taken_over(
        &self,
        server: ServerId,
        reports: &[&TargetReport],
    ) -> Result<Vec<(ServerId, ServerRecord)>> {
        let mut losers = Vec::new();
        for (&other, record) in self.servers.iter().filter(|(id, _)| **id != server) {
            let claimed = |t: &TargetRecord| reports.iter().any(|r| r.target == t.target);
            let online = |t: &&TargetRecord| t.state == TargetState::Online && claimed(t);
            if let Some(target) = record.targets.iter().find(online) {
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

    /// Whether a server reports trouble with a target that is another one's:
    /// its disk was moved there, and is missing here.
    fn is_elsewhere(&self, server: ServerId, report: &TargetReport) -> bool {
        let mut others = self.servers.keys().filter(|other| **other != server);
        !report.trouble.is_empty() && others.any(|other| self.serves(*other, report.target))
    }

    /// What a heartbeat changes: targets that were offline are back, or one
    /// has got into trouble.
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
        for report in reports.iter().filter(|r| !self.is_elsewhere(server, r)) {
            let target = record.targets.iter_mut().find(|t| t.target == report.target);
            let target = target.ok_or_else(unknown)?;
            let reported = self.reported(*target, report);
            if reported.state != target.state {
                note_change(server, report, reported.state);
            }
            changed |= reported != *target;
            *target = reported;
        }
        Ok(changed.then(|| self.change(vec![(server, record)])))
    }

    /// What has to change because targets were not heard of since
    /// `deadline_ms`; with their number.
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
                    *target = after_silence(*target, self.next_epoch());
                }
                servers.push((server, record));
            }
            // More at the next tick: a transaction has its limit.
            if servers.len() == 64 {
                break;
            }
        }
        (count > 0).then(|| (self.change(servers), count))
    }

    /// What has to change because targets have all that they missed.
    pub fn complete(&self) -> Option<Change> {
        let others = || {
            let all = self.servers.iter();
            all.flat_map(|(&server, r)| r.targets.iter().map(move |t| (server, t)))
        };
        let done = |t: &TargetRecord| {
            t.state == TargetState::Syncing && self.hearsay.is_complete(t, others())
        };
        let mut servers = Vec::new();
        for (&server, record) in self.servers.iter().filter(|(_, r)| r.targets.iter().any(done)) {
            let mut record = record.clone();
            for target in record.targets.iter_mut().filter(|t| done(t)) {
                tracing::info!(server = server.0, target = target.target.0, "up to date again");
                *target = TargetRecord {
                    state: TargetState::Online,
                    since: self.next_epoch(),
                    ..*target
                };
            }
            servers.push((server, record));
        }
        (!servers.is_empty()).then(|| self.change(servers))
    }

    fn reported(&self, record: TargetRecord, report: &TargetReport) -> TargetRecord {
        after_report(record, !report.trouble.is_empty(), self.mirrored, self.next_epoch())
    }

    /// What is known of a target that a server has not served before: another
    /// may have.
    fn elsewhere(&self, server: ServerId, fresh: TargetRecord) -> TargetRecord {
        let others = self.servers.iter().filter(|(id, _)| **id != server);
        let mut known = others.flat_map(|(_, r)| &r.targets);
        known.find(|t| t.target == fresh.target).copied().unwrap_or(fresh)
    }

    fn next_epoch(&self) -> Epoch {
        Epoch(self.epoch.0 + 1)
    }

    fn change(&self, servers: Vec<(ServerId, ServerRecord)>) -> Change {
        Change { epoch: self.next_epoch(), servers }
    }

    /// A change has been committed.
    pub fn apply(&mut self, change: Change) {
        self.epoch = change.epoch;
        self.servers.extend(change.servers);
        let targets = self.servers.values().flat_map(|record| &record.targets);
        self.hearsay.changed(targets, self.epoch);
        self.refresh();
    }

    /// A file has several copies.
    pub fn is_mirrored(&mut self) {
        self.mirrored = true;
        self.view.mirrored = true;
    }

    /// A server says under which epoch it acts.
    pub fn acts(&mut self, server: ServerId, epoch: Epoch) {
        self.hearsay.acts(server, epoch);
    }

    /// The epoch that everybody who may serve acts under, at the least.
    pub fn in_effect(&self) -> Epoch {
        let away = |t: &TargetRecord| t.state == TargetState::Offline;
        let serving = self.servers.iter().filter(|(_, r)| !r.targets.iter().all(away));
        self.hearsay.in_effect(serving.map(|(server, _)| *server), self.epoch)
    }

    /// What data servers have to know of all targets.
    pub fn standings(&self) -> Vec<Standing> {
        let targets = self.servers.values().flat_map(|record| &record.targets);
        let standing = |t: &TargetRecord| {
            let TargetRecord { target, state, since } = *t;
            Standing { target, state, since }
        };
        targets.map(standing).collect()
    }

    /// Targets of a server have been heard of.
    pub fn heard(&mut self, server: ServerId, reports: &[TargetReport], now_ms: u64) {
        for report in reports {
            if !self.is_elsewhere(server, report) {
                let (usage, trouble) = (report.usage, report.trouble.clone());
                self.heard.insert(report.target, Heard { at_ms: now_ms, usage, trouble });
                self.hearsay.noted(report.target, &report.gaps);
            }
        }
        self.refresh();
    }

    /// The process itself was away: that was nobody else's silence.
    pub fn forgive(&mut self, now_ms: u64) {
        self.heard.values_mut().for_each(|heard| heard.at_ms = now_ms);
    }

    fn usage(&self, target: TargetId) -> FsUsage {
        self.heard.get(&target).map(|heard| heard.usage).unwrap_or_default()
    }

    fn refresh(&mut self) {
        let mut view = ClusterView { mirrored: self.mirrored, ..ClusterView::default() };
        let troubles = self.heard.iter().find(|(_, heard)| !heard.trouble.is_empty());
        view.trouble =
            troubles.map(|(target, heard)| format!("target {target}: {}", heard.trouble));
        for (&server, record) in &self.servers {
            for t in &record.targets {
                let usage = self.usage(t.target);
                let online = t.state == TargetState::Online;
                // Before the first report after a start nothing is known.
                let free_bytes = if usage.total_bytes == 0 { u64::MAX } else { usage.free_bytes };
                let local = false;
                view.targets.push(TargetInfo {
                    target: t.target,
                    server,
                    free_bytes,
                    online,
                    local,
                });
                if online {
                    add(&mut view.usage, &usage);
                }
            }
        }
        self.view = view;
    }

    /// Targets that their servers report trouble with.
    pub fn out_of_service(&self) -> u64 {
        let targets = self.servers.values().flat_map(|record| &record.targets);
        targets.filter(|t| t.state == TargetState::OutOfService).count() as u64
    }

    /// Whether the server serves the target.
    pub fn serves(&self, server: ServerId, target: TargetId) -> bool {
        self.servers
            .get(&server)
            .is_some_and(|record| record.targets.iter().any(|t| t.target == target))
    }

    /// Whether there is such a server.
    pub fn knows(&self, server: ServerId) -> bool {
        self.servers.contains_key(&server)
    }

    /// The map for clients.
    pub fn map(&self) -> ClusterMap {
        let entry = |(&server, record): (&ServerId, &ServerRecord)| ServerEntry {
            server,
            host: record.host.clone(),
            tcp: record.tcp.clone(),
            unix: record.unix.clone(),
            targets: record
                .targets
                .iter()
                .map(|t| TargetEntry {
                    target: t.target,
                    state: t.state,
                    since: t.since,
                    draining: false,
                    usage: self.usage(t.target),
                })
                .collect(),
        };
        ClusterMap { epoch: self.epoch, servers: self.servers.iter().map(entry).collect() }
    }
}

fn note_change(server: ServerId, report: &TargetReport, state: TargetState) {
    let (server, target) = (server.0, report.target.0);
    match (report.trouble.as_str(), state) {
        ("", TargetState::Syncing) => {
            tracing::info!(server, target, "a target is back, and gets what it missed");
        }
        ("", _) => tracing::info!(server, target, "a target is back"),
        (trouble, _) => tracing::warn!(server, target, "a target fails: {trouble}"),
    }
}

fn add(sum: &mut FsUsage, usage: &FsUsage) {
    sum.total_bytes = sum.total_bytes.saturating_add(usage.total_bytes);
    sum.free_bytes = sum.free_bytes.saturating_add(usage.free_bytes);
    sum.total_files = sum.total_files.saturating_add(usage.total_files);
    sum.free_files = sum.free_files.saturating_add(usage.free_files);
}
