//! Data servers and targets: identity and liveness.

use super::background::each;
use super::flapping::Flapping;
use super::standings::{Around, Hearsay, Said, after_report, after_silence, may_have_noted, went};
use crate::mover::partners::Partners;
use crate::mover::progress::Shrinking;
use crate::ops::{ClusterView, Outcome};
use crate::schema::{self, ServerRecord, TargetRecord, key};
use std::collections::{BTreeMap, BTreeSet};
use weir_layout::place::FULL_BELOW_BYTES;
use weir_layout::{Home, TargetInfo, Whereabouts, homes};
use weir_metastore::{Engine, Tx};
use weir_policy::{SlowDisks, Verdict};
use weir_types::{
    Column, DiskId, Disks, Epoch, Error, ErrorKind, FsUsage, Result, ServerId, TargetId,
};
use weir_wire::map::{ClusterMap, ServerEntry, Standing, TargetEntry, TargetState};
use weir_wire::meta::TargetLoad;
use weir_wire::peer::TargetReport;
use weir_wire::targets::{MachineLoad, TargetWork};

/// The most servers in one change, because a transaction is limited.
const MAX_SERVERS: usize = 64;
const MAX_TARGETS: usize = 4096;
/// Limit of the count of recent first copies. At the limit all counts are halved.
const MAX_PRIMARIES: u64 = 4096;

/// A reported speed is shown for this long, milliseconds.
const SHOWN_MS: u64 = 5_000;

/// State of the data servers.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub epoch: Epoch,
    pub(super) servers: BTreeMap<ServerId, ServerRecord>,
    pub(super) heard: BTreeMap<TargetId, Heard>,
    pub(super) hearsay: Hearsay,
    /// Which targets may share a column.
    pub(super) partners: Partners,
    mirrored: bool,
    /// Targets that were removed from the cluster. No server may serve them again.
    removed: BTreeSet<TargetId>,
    /// Removed data servers. Their keys are refused.
    removed_servers: BTreeSet<ServerId>,
    /// Time of the last search for silent targets.
    pub(super) checked_ms: u64,
    /// A target that is being removed, and until when: nothing new is placed there.
    pub(super) leaving: Option<(TargetId, u64)>,
    /// Load of the servers' machines.
    pub(super) machines: BTreeMap<ServerId, MachineLoad>,
    /// Targets that their servers were told to give up and that still hang without being given up.
    pub(super) told_to_go: BTreeSet<TargetId>,
    /// Detection of slow targets.
    pub(super) slow: SlowDisks<TargetId>,
    /// Number of first copies that targets got lately, for files in two groups.
    primaries: BTreeMap<TargetId, u64>,
    /// The view for operations; kept up to date here.
    pub view: ClusterView,
}

/// Reports of a target to this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    pub at_ms: u64,
    pub usage: FsUsage,
    /// The disk with this space.
    pub disk: DiskId,
    /// Why it is out of service; empty if it is not.
    pub trouble: String,
    /// Duration of its disk's present operation; 0 if the disk does not hang.
    pub hangs_ms: u64,
    /// Whether its server has given it up.
    pub given_up: bool,
    /// Its work.
    pub work: TargetWork,
    /// Time of the last report of its speed.
    read_ms: u64,
    /// Time of its last change of state; `None` if that was before this process began.
    pub changed_ms: Option<u64>,
    flapping: Flapping,
    /// It is kept offline until this time.
    pub held_until_ms: u64,
    /// Its gaps.
    pub behind: Shrinking,
}

/// A change of server records. It takes effect when it is committed.
#[derive(Debug)]
pub(super) struct Change {
    epoch: Epoch,
    servers: Vec<(ServerId, ServerRecord)>,
    /// A target to be removed from all records.
    removed: Option<TargetId>,
    /// A server whose record is to be removed.
    removed_server: Option<ServerId>,
}

impl Change {
    /// The same change without a new epoch: no server has to be told.
    pub(super) fn untold(self, cluster: &Cluster) -> Self {
        Self { epoch: cluster.epoch, ..self }
    }

    /// Writes the change.
    pub fn put(&self, tx: &mut Tx<'_>) -> Outcome<()> {
        tx.put(key::MAP_EPOCH, &schema::encode(&self.epoch))?;
        for (server, record) in &self.servers {
            tx.put(&key::server(*server), &schema::encode(record))?;
        }
        if let Some(target) = self.removed {
            tx.put(&key::removed_target(target), &schema::encode(&self.epoch))?;
        }
        if let Some(server) = self.removed_server {
            tx.delete(&key::server(server))?;
            tx.put(&key::removed_server(server), &schema::encode(&self.epoch))?;
        }
        Ok(())
    }
}

impl Cluster {
    /// Loads the state from the store. Targets that were online have until the next timeout to
    /// report.
    pub fn load(engine: &dyn Engine, now_ms: u64) -> Result<Self> {
        let mut cluster = Self::default();
        let mut tx = Tx::new(engine);
        if let Some(bytes) = tx.get(key::MAP_EPOCH)? {
            cluster.epoch = schema::decode(&bytes, "of the map's epoch")?;
        }
        cluster.hearsay = Hearsay::new(cluster.epoch);
        cluster.mirrored = tx.get(key::MIRRORED)?.is_some();
        let (start, end) = key::servers();
        each(engine, start, &end, |at, bytes| {
            let record: ServerRecord = schema::decode(bytes, "of a server")?;
            for target in &record.targets {
                let heard = Heard { at_ms: now_ms, ..Heard::default() };
                cluster.heard.insert(target.target, heard);
            }
            cluster.servers.insert(key::server_id(at)?, record);
            Ok(())
        })?;
        let (start, end) = key::removed_targets();
        each(engine, start, &end, |at, _| {
            cluster.removed.insert(key::removed_target_id(at)?);
            Ok(())
        })?;
        let (start, end) = key::removed_servers();
        each(engine, start, &end, |at, _| {
            cluster.removed_servers.insert(key::server_id(at)?);
            Ok(())
        })?;
        let all = cluster.all();
        all.iter().for_each(|(server, t)| cluster.partners.is_of(t.target, *server));
        cluster.hearsay.changed(&all, cluster.epoch);
        cluster.refresh();
        Ok(cluster)
    }

    /// Whether a report is about a target that does not belong to the server: the target was
    /// removed from the cluster, or its disk was moved to another server.
    pub(super) fn is_foreign(&self, server: ServerId, report: &TargetReport) -> bool {
        let mut others = self.servers.keys().filter(|other| **other != server);
        let ill = !report.trouble.is_empty() || report.given_up;
        let moved = ill && others.any(|other| self.serves(*other, report.target));
        moved || self.removed.contains(&report.target)
    }

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

    /// Every target with its server.
    pub(super) fn all(&self) -> Vec<(ServerId, TargetRecord)> {
        let all = self.servers.iter();
        all.flat_map(|(&server, r)| r.targets.iter().map(move |t| (server, *t))).collect()
    }

    /// A change of some targets; `None` for no targets. With very many it covers some of them, and
    /// the next judgement finds the others.
    pub(super) fn changed(
        &self,
        targets: &[TargetId],
        to: impl Fn(TargetRecord) -> TargetRecord,
    ) -> Option<Change> {
        let meant = |t: &TargetRecord| targets.contains(&t.target);
        let mut servers = Vec::new();
        for (&server, record) in self.servers.iter().filter(|(_, r)| r.targets.iter().any(meant)) {
            let mut record = record.clone();
            record.targets.iter_mut().filter(|t| meant(t)).for_each(|t| *t = to(*t));
            servers.push((server, record));
            if is_enough(&servers) {
                break;
            }
        }
        (!servers.is_empty()).then(|| self.change(servers))
    }

    /// The change that removes a target for good.
    pub(super) fn without(&self, target: TargetId) -> Change {
        let serves =
            |(_, r): &(&ServerId, &ServerRecord)| r.targets.iter().any(|t| t.target == target);
        let mut servers = Vec::new();
        for (&server, record) in self.servers.iter().filter(serves) {
            let mut record = record.clone();
            record.targets.retain(|t| t.target != target);
            servers.push((server, record));
        }
        Change { removed: Some(target), ..self.change(servers) }
    }

    pub(super) fn around(&self, others_serve: bool) -> Around {
        let (mirrored, next) = (self.mirrored, self.next_epoch());
        Around { mirrored, others_serve, another_kept_it: false, next }
    }

    pub(super) fn next_epoch(&self) -> Epoch {
        Epoch(self.epoch.0 + 1)
    }

    pub(super) fn change(&self, servers: Vec<(ServerId, ServerRecord)>) -> Change {
        Change { epoch: self.next_epoch(), servers, removed: None, removed_server: None }
    }

    /// The change that removes a server without targets for good.
    pub(super) fn without_server(&self, server: ServerId) -> Change {
        Change { removed_server: Some(server), ..self.change(Vec::new()) }
    }

    /// # Errors
    /// `AuthFailed`: the server was removed from the cluster, or its id is invalid.
    pub fn may_be_there(&self, server: ServerId) -> Result<()> {
        if server == ServerId(0) {
            let message = "no data server has number 0";
            return Err(Error::new(ErrorKind::AuthFailed, message));
        }
        if !self.removed_servers.contains(&server) {
            return Ok(());
        }
        let message = format!(
            "data server {server} was removed from the cluster: its number does not come back \
             (`weir key server` makes another)"
        );
        Err(Error::new(ErrorKind::AuthFailed, message))
    }

    /// The greatest ids that servers and targets have or had.
    pub(super) fn greatest(&self) -> (Option<ServerId>, Option<TargetId>) {
        let servers = self.servers.keys().chain(&self.removed_servers).copied().max();
        let targets = self.servers.values().flat_map(|record| &record.targets);
        let targets = targets.map(|record| record.target).chain(self.removed.iter().copied());
        (servers, targets.max())
    }

    /// Applies a committed change.
    pub fn apply(&mut self, change: Change, now_ms: u64) {
        self.epoch = change.epoch;
        for (server, record) in &change.servers {
            for target in &record.targets {
                self.partners.is_of(target.target, *server);
                self.note_state(target, now_ms);
            }
        }
        self.servers.extend(change.servers);
        if let Some(target) = change.removed {
            self.removed.insert(target);
            self.heard.remove(&target);
            self.partners.is_removed(target);
            self.leaving = None;
        }
        if let Some(server) = change.removed_server {
            self.servers.remove(&server);
            self.machines.remove(&server);
            self.removed_servers.insert(server);
        }
        let all = self.all();
        self.hearsay.changed(&all, self.epoch);
        self.refresh();
    }

    /// Records the time of a target's change of state. To be called before the change.
    fn note_state(&mut self, target: &TargetRecord, now_ms: u64) {
        let before = self.record(target.target).map(|record| (record.state, record.joins));
        if before.is_some_and(|(state, _)| state == target.state) {
            return;
        }
        self.partners.may_be_used(target.target);
        let heard = self.heard.entry(target.target).or_default();
        heard.changed_ms = Some(now_ms);
        match before {
            // It was not back yet, so it has not gone again.
            Some((TargetState::Online, Some(_))) if target.state == TargetState::Syncing => return,
            Some((TargetState::Online, _)) => heard.flapping.went(now_ms),
            _ => {}
        }
        match target.state {
            TargetState::Online | TargetState::Suspect => heard.flapping.online(now_ms),
            TargetState::Syncing => {
                let hold_ms = heard.flapping.hold_ms();
                heard.held_until_ms = now_ms + hold_ms;
                if hold_ms > 0 {
                    self.partners.ask();
                }
            }
            TargetState::Offline | TargetState::OutOfService => {}
        }
    }

    /// The stored record of a target.
    pub(super) fn record(&self, target: TargetId) -> Option<&TargetRecord> {
        let mut targets = self.servers.values().flat_map(|record| &record.targets);
        targets.find(|record| record.target == target)
    }

    /// Targets that are not up to date, and may lack bytes of which only this one knows.
    pub(super) fn behind(&self, target: TargetId) -> BTreeSet<TargetId> {
        let Some(record) = self.record(target).filter(|_| self.mirrored) else {
            return BTreeSet::new();
        };
        let others = self.servers.values().flat_map(|server| &server.targets);
        let lacks = |other: &&TargetRecord| {
            !other.serves() && may_have_noted(record, other.target, went(other))
        };
        others.filter(lacks).map(|other| other.target).collect()
    }

    /// Targets that are being brought up to date.
    pub(super) fn syncing(&self) -> impl Iterator<Item = TargetId> {
        let targets = self.servers.values().flat_map(|server| &server.targets);
        targets.filter(|t| t.state == TargetState::Syncing).map(|t| t.target)
    }

    /// Records that a file has several copies.
    pub fn is_mirrored(&mut self) {
        self.mirrored = true;
        self.view.mirrored = true;
    }

    /// Records the epoch under which a server acts with these targets.
    pub fn acts(&mut self, server: ServerId, reports: &[TargetReport], epoch: Epoch) {
        for target in self.kept(server, reports) {
            self.hearsay.acts(target, epoch);
        }
    }

    /// Records that the server of these targets is told of the present epoch.
    pub fn tell(&mut self, server: ServerId, reports: &[TargetReport]) {
        for target in self.kept(server, reports) {
            self.hearsay.tell(target, self.epoch);
        }
    }

    /// Those targets that belong to the server and that it has not given up.
    fn kept(&self, server: ServerId, reports: &[TargetReport]) -> Vec<TargetId> {
        let kept = reports.iter().filter(|r| !r.given_up && !self.is_foreign(server, r));
        kept.map(|report| report.target).collect()
    }

    /// The epoch under which, or a later one, every server with a lease acts.
    pub fn in_effect(&self) -> Epoch {
        let targets = self.servers.values().flat_map(|record| &record.targets);
        let serving = targets.filter(|t| t.state != TargetState::Offline);
        self.hearsay.in_effect(serving.map(|t| t.target), self.epoch)
    }

    /// The state of all targets, for data servers.
    pub fn standings(&self) -> Vec<Standing> {
        let targets = self.servers.values().flat_map(|record| &record.targets);
        let standing = |t: &TargetRecord| {
            let TargetRecord { target, state, since, .. } = *t;
            Standing { target, state, since, forgot: t.forgot() }
        };
        targets.map(standing).collect()
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

    /// Gives up a removal that no administrator continues.
    pub fn give_up_removal(&mut self, now_ms: u64) {
        if self.leaving.is_some_and(|(_, until_ms)| until_ms <= now_ms) {
            self.leaving = None;
            self.refresh();
        }
    }

    /// Cancels the removal of a target.
    pub fn stays(&mut self, target: TargetId) {
        if self.leaving.is_some_and(|(leaving, _)| leaving == target) {
            self.leaving = None;
            self.refresh();
        }
    }

    /// Excludes the time in which this process was stopped from the silence of servers.
    pub fn forgive(&mut self, now_ms: u64) {
        self.heard.values_mut().for_each(|heard| heard.at_ms = now_ms);
    }

    /// Speed of a target, if its server knows it.
    fn load_of(&self, target: TargetId) -> Option<TargetLoad> {
        let TargetWork { serves_us_per_mib: us_per_mib, in_flight, .. } =
            self.heard.get(&target)?.work;
        (us_per_mib > 0).then_some(TargetLoad { target, us_per_mib, in_flight })
    }

    /// Last reported space of a target's disk, and the disk.
    fn space(&self, target: TargetId) -> (DiskId, FsUsage) {
        self.heard.get(&target).map(|heard| (heard.disk, heard.usage)).unwrap_or_default()
    }

    pub(super) fn refresh(&mut self) {
        let pairs = std::mem::take(&mut self.view.pairs);
        let mut view = ClusterView { mirrored: self.mirrored, pairs, ..ClusterView::default() };
        let troubles = self.heard.iter().find(|(_, heard)| !heard.trouble.is_empty());
        view.trouble =
            troubles.map(|(target, heard)| format!("target {target}: {}", heard.trouble));
        let all = || self.servers.iter().flat_map(|(s, r)| r.targets.iter().map(move |t| (*s, t)));
        let homes = homes(self.servers.iter().map(|(&server, record)| {
            let ServerRecord { host, domain, .. } = record;
            Whereabouts { server, host, domain }
        }));
        let nobody = all().all(|(_, t)| t.state != TargetState::Online);
        let is_online = |t: &TargetRecord| t.state == TargetState::Online;
        let online = all().filter(|(_, t)| is_online(t));
        let disks: Disks = online.map(|(_, t)| self.space(t.target)).collect();
        view.usage = disks.usage();
        for (server, t) in all() {
            let online = is_online(t);
            let leaves = self.leaving.is_some_and(|(target, _)| target == t.target);
            let free_bytes = match self.space(t.target) {
                // It gets something only where there is nothing else left.
                _ if t.draining => 0,
                (disk, usage) => share_of_room(&usage, disks.sharers(disk)),
            };
            let away = matches!(t.state, TargetState::Offline | TargetState::Syncing);
            view.targets.push(TargetInfo {
                target: t.target,
                home: homes.get(&server).copied().unwrap_or(Home::alone(server)),
                free_bytes,
                online: (online || (nobody && t.state == TargetState::Syncing)) && !leaves,
                returns: away && !leaves && !t.draining,
                slow: self.slow.is_slow(t.target),
                local: false,
                primaries: self.primaries.get(&t.target).copied().unwrap_or(0),
                wait_us: 0,
            });
            if online {
                view.loads.extend(self.load_of(t.target).map(|load| (t.target, load)));
            }
        }
        view.targets.sort_by_key(|info| info.target);
        self.view = view;
    }

    /// Counts first copies, and columns, given to targets. Older ones count less and less.
    pub(super) fn given(&mut self, targets: &[TargetId], columns: &[Column]) {
        columns.iter().for_each(|column| self.view.pairs.given(column));
        for target in targets {
            *self.primaries.entry(*target).or_default() += 1;
        }
        if self.primaries.values().sum::<u64>() > MAX_PRIMARIES {
            self.primaries.values_mut().for_each(|count| *count /= 2);
            self.primaries.retain(|_, count| *count > 0);
        }
        for info in self.view.targets.iter_mut().filter(|_| !targets.is_empty()) {
            info.primaries = self.primaries.get(&info.target).copied().unwrap_or(0);
        }
    }

    /// Number of targets with reported trouble.
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

    /// Whether the server exists.
    pub fn knows(&self, server: ServerId) -> bool {
        self.servers.contains_key(&server)
    }

    /// The map for clients.
    pub fn map(&self) -> ClusterMap {
        let entry = |(&server, record): (&ServerId, &ServerRecord)| ServerEntry {
            server,
            host: record.host.clone(),
            domain: record.domain.clone(),
            tcp: record.tcp.clone(),
            unix: record.unix.clone(),
            targets: record
                .targets
                .iter()
                .map(|t| TargetEntry {
                    target: t.target,
                    state: t.state,
                    since: t.since,
                    past: t.past.times().collect(),
                    anew: t.anew,
                    draining: t.draining,
                    usage: self.space(t.target).1,
                    disk: self.space(t.target).0,
                })
                .collect(),
        };
        ClusterMap { epoch: self.epoch, servers: self.servers.iter().map(entry).collect() }
    }
}

fn is_enough(servers: &[(ServerId, ServerRecord)]) -> bool {
    let targets: usize = servers.iter().map(|(_, record)| record.targets.len()).sum();
    servers.len() >= MAX_SERVERS || targets >= MAX_TARGETS
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

/// Free space of one of several targets on a disk, for placement: its part of the disk's free
/// space. It is full when the disk is.
fn share_of_room(usage: &FsUsage, sharers: u64) -> u64 {
    match usage.total_bytes {
        // Before the first report after a start nothing is known.
        0 => u64::MAX,
        _ => (usage.free_bytes / sharers).max(usage.free_bytes.min(FULL_BELOW_BYTES)),
    }
}
