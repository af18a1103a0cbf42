//! Data servers and targets: their records, what was heard of them, and the view of them by which
//! files are placed. Pure: a decision takes reports and the time, and gives a [`change::Change`].

pub mod change;
mod flapping;
mod judge;
mod registration;
mod reports;
pub mod standings;

use crate::machine::store::each;
use crate::mover::partners::Partners;
use crate::mover::progress::Shrinking;
use crate::ops::ClusterView;
use crate::schema::{self, ServerRecord, TargetRecord, key};
use flapping::Flapping;
use standings::{Around, Hearsay, may_have_noted, went};
use std::collections::{BTreeMap, BTreeSet};
use weir_layout::place::FULL_BELOW_BYTES;
use weir_layout::{Home, TargetInfo, Whereabouts, homes};
use weir_metastore::{Engine, Tx};
use weir_policy::SlowDisks;
use weir_types::{
    Column, DiskId, Disks, Epoch, Error, ErrorKind, FsUsage, Result, ServerId, TargetId,
};
use weir_wire::map::{ClusterMap, ServerEntry, Standing, TargetEntry, TargetState};
use weir_wire::meta::TargetLoad;
use weir_wire::peer::TargetReport;
use weir_wire::targets::{MachineLoad, TargetWork};

/// Limit of the count of recent first copies. At the limit all counts are halved.
const MAX_PRIMARIES: u64 = 4096;

/// State of the data servers.
#[derive(Debug, Default)]
pub struct Cluster {
    pub epoch: Epoch,
    pub servers: BTreeMap<ServerId, ServerRecord>,
    pub heard: BTreeMap<TargetId, Heard>,
    pub hearsay: Hearsay,
    /// Which targets may share a column.
    pub partners: Partners,
    mirrored: bool,
    /// Targets that were removed from the cluster. No server may serve them again.
    removed: BTreeSet<TargetId>,
    /// Removed data servers. Their keys are refused.
    removed_servers: BTreeSet<ServerId>,
    /// Time of the last search for silent targets.
    pub checked_ms: u64,
    /// A target that is being removed, and until when: nothing new is placed there.
    pub leaving: Option<(TargetId, u64)>,
    /// Load of the servers' machines.
    pub machines: BTreeMap<ServerId, MachineLoad>,
    /// Targets that their servers were told to give up and that still hang without being given up.
    pub told_to_go: BTreeSet<TargetId>,
    /// Detection of slow targets.
    pub slow: SlowDisks<TargetId>,
    /// Number of first copies that targets got lately, for files in two groups.
    primaries: BTreeMap<TargetId, u64>,
    /// The view for operations; kept up to date here.
    pub view: ClusterView,
}

/// Reports of a target to this process.
#[derive(Clone, Debug, Default)]
pub struct Heard {
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
    pub fn is_foreign(&self, server: ServerId, report: &TargetReport) -> bool {
        let mut others = self.servers.keys().filter(|other| **other != server);
        let ill = !report.trouble.is_empty() || report.given_up;
        let moved = ill && others.any(|other| self.serves(*other, report.target));
        moved || self.removed.contains(&report.target)
    }

    /// Every target with its server.
    pub fn all(&self) -> Vec<(ServerId, TargetRecord)> {
        let all = self.servers.iter();
        all.flat_map(|(&server, r)| r.targets.iter().map(move |t| (server, *t))).collect()
    }

    pub fn around(&self, others_serve: bool) -> Around {
        let (mirrored, next) = (self.mirrored, self.next_epoch());
        Around { mirrored, others_serve, another_kept_it: false, next }
    }

    pub fn next_epoch(&self) -> Epoch {
        Epoch(self.epoch.0 + 1)
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
    pub fn greatest(&self) -> (Option<ServerId>, Option<TargetId>) {
        let servers = self.servers.keys().chain(&self.removed_servers).copied().max();
        let targets = self.servers.values().flat_map(|record| &record.targets);
        let targets = targets.map(|record| record.target).chain(self.removed.iter().copied());
        (servers, targets.max())
    }

    /// The stored record of a target.
    pub fn record(&self, target: TargetId) -> Option<&TargetRecord> {
        let mut targets = self.servers.values().flat_map(|record| &record.targets);
        targets.find(|record| record.target == target)
    }

    /// Targets that are not up to date, and may lack bytes of which only this one knows.
    pub fn behind(&self, target: TargetId) -> BTreeSet<TargetId> {
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
    pub fn syncing(&self) -> impl Iterator<Item = TargetId> {
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

    pub fn refresh(&mut self) {
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
    pub fn given(&mut self, targets: &[TargetId], columns: &[Column]) {
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

/// Free space of one of several targets on a disk, for placement: its part of the disk's free
/// space. It is full when the disk is.
fn share_of_room(usage: &FsUsage, sharers: u64) -> u64 {
    match usage.total_bytes {
        // Before the first report after a start nothing is known.
        0 => u64::MAX,
        _ => (usage.free_bytes / sharers).max(usage.free_bytes.min(FULL_BELOW_BYTES)),
    }
}
