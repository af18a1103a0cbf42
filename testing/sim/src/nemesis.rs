//! Carries out the faults of the plan, and heals them.

use crate::administer::{self, Order};
use crate::cluster::Cluster;
use crate::history::{Node, What};
use crate::plan::{DiskErrorKind, DiskOperation, EngineKind, Fault, NodeName};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weir_simhost::disk::{Operation, SimDisk};
use weir_simhost::{ClockSkew, Simulation};
use weir_types::TargetId;

/// A server that ends by itself is started again after this time, as by an init system.
const RESTART: Duration = Duration::from_millis(500);

/// Size of a disk.
const PLENTY_BYTES: u64 = 1 << 40;
/// Time after a disturbance until everybody has servers again.
pub(crate) const RECOVERY: Duration = Duration::from_secs(3);
/// Maximum time until rot is found.
const ROT: Duration = Duration::from_secs(60);
/// Longer than any run.
const FOR_GOOD: Duration = Duration::from_secs(3600);
/// Time until everybody works without a lost server.
const LOST: Duration = Duration::from_secs(10);
/// Messages with a longer delay may come too late.
const MUCH_MS: u32 = 400;

/// An action to be done later.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Later {
    Begin(Fault),
    Start(NodeName),
    Restart(NodeName),
    /// Restarts the machine. After a failed sync nobody knows the contents of the disk until the
    /// machine has read it again.
    Reboot(NodeName),
    Continue(NodeName),
    Heal(NodeName, NodeName),
    Fast(NodeName, NodeName),
    /// A client gives up on what it has sent.
    GiveUp(NodeName, NodeName),
    FastDisk(NodeName),
    /// The disk has space again.
    Room(NodeName),
    /// A node is reachable again.
    Connect(NodeName),
    /// Time passes normally again.
    Pace(NodeName),
    /// A target is no longer drained.
    Keep(TargetId),
}

/// Present faults, and later actions.
pub(crate) struct Nemesis {
    todo: BTreeMap<(Duration, u32), Later>,
    count: u32,
    boots: u64,
    /// The last start of each machine.
    booted: BTreeMap<NodeName, u64>,
    /// Nodes whose process should not run at present.
    down: BTreeSet<NodeName>,
    stopped: BTreeSet<NodeName>,
    /// Nodes that do not come back.
    lost: BTreeSet<NodeName>,
    /// Disks on which a sync will fail, with the number of planned failures.
    failing: BTreeMap<NodeName, usize>,
    /// Number of server ends that were noticed.
    noticed: usize,
    /// Errors of servers that no fault of the plan explains.
    pub strange_ends: Vec<String>,
}

/// The nodes and connections affected by a fault, with the duration. Wrong clocks affect nothing.
fn ill(fault: &Fault) -> Vec<(NodeName, Option<NodeName>, Duration)> {
    match *fault {
        Fault::Kill { node, down_ms: time }
        | Fault::LoseGaps { node, down_ms: time, .. }
        | Fault::PowerCut { node, down_ms: time, .. }
        | Fault::Stop { node, ms: time }
        | Fault::SlowDisk { node, ms: time, .. }
        | Fault::Hang { node, ms: time }
        | Fault::DiskError { node, ms: time, .. }
        | Fault::DiskFails { node, ms: time }
        | Fault::DiskFull { node, ms: time }
        | Fault::Isolate { node, ms: time } => vec![(node, None, ms(time))],
        Fault::Lose { server } => vec![(NodeName::Data(server), None, FOR_GOOD)],
        Fault::ForgetLeases { client, down_ms, ms: time } => {
            let client = NodeName::Client(client);
            let meta = NodeName::Meta;
            vec![(meta, None, ms(down_ms)), (client, Some(meta), ms(down_ms + time))]
        }
        // Until it is read.
        Fault::Rot { server, .. } => vec![(NodeName::Data(server), None, ROT)],
        Fault::Partition { a, b, ms: time, .. } => vec![(a, Some(b), ms(time))],
        Fault::Slow { a, b, extra_ms, ms: time } => vec![(a, Some(b), ms(time + extra_ms))],
        Fault::Break { a, b } => vec![(a, Some(b), Duration::ZERO)],
        Fault::Late { client, server, extra_ms, ms: time } => {
            vec![(NodeName::Client(client), Some(server), ms(time + extra_ms))]
        }
        Fault::Pace { .. }
        | Fault::Clock { .. }
        | Fault::Drain { .. }
        | Fault::Copies { .. }
        | Fault::Join { .. }
        | Fault::Leave { .. }
        | Fault::Even => Vec::new(),
    }
}

/// Whether a fault delays messages to data servers, or their replies.
fn is_late(fault: &Fault) -> bool {
    let data = |node: NodeName| matches!(node, NodeName::Data(_));
    match *fault {
        Fault::Kill { node, .. }
        | Fault::LoseGaps { node, .. }
        | Fault::PowerCut { node, .. }
        | Fault::Stop { node, .. }
        | Fault::SlowDisk { node, .. }
        | Fault::Hang { node, .. }
        | Fault::DiskError { node, .. }
        | Fault::DiskFails { node, .. }
        | Fault::DiskFull { node, .. }
        | Fault::Isolate { node, .. } => data(node),
        Fault::Partition { a, b, .. } | Fault::Slow { a, b, .. } => data(a) || data(b),
        Fault::Lose { .. } => true,
        _ => false,
    }
}

/// The client that a fault may keep from servers until it loses leases or gives up, and the
/// duration. When the metadata server is only killed, it is told about all leases again, and no
/// client loses any.
fn trouble(fault: &Fault) -> Option<(Option<u8>, Duration)> {
    let of = |node: NodeName| match node {
        NodeName::Client(client) => Some(client),
        _ => None,
    };
    match *fault {
        Fault::Kill { node: NodeName::Meta | NodeName::Client(_), .. }
        | Fault::PowerCut { node: NodeName::Client(_), .. }
        | Fault::ForgetLeases { .. }
        | Fault::Break { .. }
        | Fault::Rot { .. }
        | Fault::Pace { .. }
        | Fault::Clock { .. }
        | Fault::Drain { .. }
        | Fault::Copies { .. }
        | Fault::Join { .. }
        | Fault::Leave { .. }
        | Fault::Even => None,
        Fault::Lose { .. } => Some((None, LOST)),
        Fault::Kill { node, down_ms: time }
        | Fault::LoseGaps { node, down_ms: time, .. }
        | Fault::PowerCut { node, down_ms: time, .. }
        | Fault::Stop { node, ms: time }
        | Fault::SlowDisk { node, ms: time, .. }
        | Fault::Hang { node, ms: time }
        | Fault::DiskError { node, ms: time, .. }
        | Fault::DiskFails { node, ms: time }
        | Fault::DiskFull { node, ms: time }
        | Fault::Isolate { node, ms: time } => Some((of(node), ms(time))),
        // No client is at either end.
        Fault::Partition { a: NodeName::Data(_), b: NodeName::Data(_), ms: time, .. }
        | Fault::Slow { a: NodeName::Data(_), b: NodeName::Data(_), ms: time, .. } => {
            Some((None, ms(time)))
        }
        Fault::Partition { a, b, ms: time, .. } => {
            let client = of(a).or(of(b));
            client.map(|client| (Some(client), ms(time)))
        }
        Fault::Slow { a, b, extra_ms, ms: time } => {
            let client = of(a).or(of(b)).filter(|_| extra_ms >= MUCH_MS);
            client.map(|client| (Some(client), ms(time + extra_ms)))
        }
        Fault::Late { client, extra_ms, ms: time, .. } => Some((Some(client), ms(time + extra_ms))),
    }
}

/// A data server that cannot report to the metadata server serves no copies.
fn unheard(fault: &Fault) -> Option<(Option<u8>, Duration)> {
    let ends = |a: NodeName, b: NodeName| {
        matches!((a, b), (NodeName::Meta, NodeName::Data(_)) | (NodeName::Data(_), NodeName::Meta))
    };
    match *fault {
        Fault::Partition { a, b, ms: time, .. } if ends(a, b) => Some((None, ms(time))),
        Fault::Slow { a, b, extra_ms, ms: time } if ends(a, b) => Some((None, ms(time + extra_ms))),
        _ => None,
    }
}

fn ms(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

/// Sets the latency of a working disk.
pub(crate) fn usual_latency(disk: &SimDisk) {
    let us = Duration::from_micros;
    disk.set_latency(us(5)..us(60), us(200)..us(3_000));
}

impl Nemesis {
    /// The faults of the plan, from the present time on.
    pub fn new(cluster: &Cluster) -> Self {
        let mut nemesis = Self {
            todo: BTreeMap::new(),
            count: 0,
            boots: 0,
            booted: BTreeMap::new(),
            down: BTreeSet::new(),
            stopped: BTreeSet::new(),
            lost: BTreeSet::new(),
            failing: BTreeMap::new(),
            noticed: cluster.shared.ended.borrow().len(),
            strange_ends: Vec::new(),
        };
        let now = cluster.sim.now();
        for planned in &cluster.shared.plan.faults {
            nemesis.later(now + ms(planned.at_ms), Later::Begin(planned.fault.clone()));
        }
        nemesis
    }

    fn later(&mut self, at: Duration, what: Later) {
        self.count += 1;
        self.todo.insert((at, self.count), what);
    }

    /// Runs the simulation until a time, and carries out due actions.
    pub fn run_until(&mut self, cluster: &mut Cluster, end: Duration) {
        loop {
            let next = self.todo.first_key_value().map_or(end, |((at, _), _)| (*at).min(end));
            let failed = self.let_pass(cluster, next);
            if let Some(node) = failed {
                // Unsynced data may be gone from this moment on.
                self.failing.remove(&node);
                cluster.shared.record_at(cluster.sim.now(), What::DiskForgets(node.into()));
                continue;
            }
            let now = cluster.sim.now();
            if now < next {
                cluster.sim.run_for(next - now);
            }
            self.notice_ends(cluster);
            while let Some(entry) = self.todo.first_entry() {
                if entry.key().0 > next {
                    break;
                }
                let what = entry.remove();
                self.perform(cluster, what);
            }
            if next >= end {
                return;
            }
        }
    }

    /// Runs the simulation until `end`, or until a sync fails. Returns the disk of the failure.
    fn let_pass(&self, cluster: &mut Cluster, end: Duration) -> Option<NodeName> {
        let Cluster { sim, nodes, .. } = cluster;
        let failed = |sim: &Simulation| {
            let has_failed = |(node, planned): &(&NodeName, &usize)| {
                sim.disk(nodes[*node]).planned_failures() < **planned
            };
            self.failing.iter().find(has_failed).map(|(node, _)| *node)
        };
        if self.failing.is_empty() {
            sim.run_until(end, |_| false);
            return None;
        }
        sim.run_until(end, |sim| failed(sim).is_some());
        failed(sim)
    }

    /// Restarts servers that have ended, as an init system does.
    fn notice_ends(&mut self, cluster: &Cluster) {
        let ended = cluster.shared.ended.borrow().clone();
        let now = cluster.sim.now();
        for (node, result) in ended.into_iter().skip(self.noticed) {
            self.noticed += 1;
            let text = match &result {
                Ok(()) => format!("server on {} ended", Node::from(node)),
                Err(e) => format!("server on {} ended: {:?}: {e}", Node::from(node), e.kind),
            };
            cluster.shared.record_at(now, What::Note(text.clone()));
            cluster.shared.record_at(now, What::Down(node.into()));
            let until = now + RESTART;
            cluster.shared.record_at(now, What::Ill { node: node.into(), peer: None, until });
            let disk_fails = cluster.shared.plan.faults.iter().any(|planned| {
                matches!(planned.fault, Fault::DiskError { node: n, .. }
                    | Fault::DiskFails { node: n, .. }
                    // The metadata server keeps running with a full disk.
                    | Fault::DiskFull { node: n @ NodeName::Data(_), .. } if n == node)
            });
            if !disk_fails {
                self.strange_ends.push(text);
            }
            if !self.down.contains(&node) {
                self.down.insert(node);
                self.later(now + RESTART, Later::Start(node));
            }
        }
    }

    fn note(&self, cluster: &Cluster, text: String) {
        cluster.shared.record_at(cluster.sim.now(), What::Note(text));
    }

    fn perform(&mut self, cluster: &mut Cluster, what: Later) {
        let net = |cluster: &Cluster, n: NodeName| cluster.nodes[&n];
        match what {
            Later::Begin(fault) => self.begin(cluster, fault),
            Later::Start(node) => self.start(cluster, node),
            Later::Restart(node) => {
                self.failing.remove(&node);
                cluster.disk(node).heal();
                if !self.down.contains(&node) {
                    self.kill(cluster, node);
                    self.start(cluster, node);
                }
            }
            Later::Reboot(node) => {
                self.failing.remove(&node);
                cluster.disk(node).heal();
                self.power_cut(cluster, node, false);
                self.start(cluster, node);
            }
            Later::Continue(node) => {
                if self.stopped.remove(&node) {
                    cluster.sim.cont(cluster.processes[&node]);
                    self.note(cluster, format!("{} goes on", Node::from(node)));
                }
            }
            Later::Heal(a, b) => {
                let (a, b) = (net(cluster, a), net(cluster, b));
                cluster.sim.network().partition(a, b, false);
                self.note(cluster, "partition heals".to_owned());
            }
            Later::Fast(a, b) => {
                let (a, b) = (net(cluster, a), net(cluster, b));
                cluster.sim.network().set_extra_delay(a, b, Duration::ZERO);
            }
            Later::GiveUp(a, b) => {
                let (from, to) = (net(cluster, a), net(cluster, b));
                cluster.sim.network().set_extra_delay(from, to, Duration::ZERO);
                cluster.sim.network().give_up_connections(from, to);
            }
            Later::FastDisk(node) => usual_latency(cluster.disk(node)),
            Later::Room(node) => {
                cluster.disk(node).leave_free(PLENTY_BYTES);
                self.note(cluster, format!("the disk of {} has room", Node::from(node)));
            }
            Later::Connect(node) => {
                cluster.sim.network().isolate(cluster.nodes[&node], false);
                self.note(cluster, format!("{} is connected again", Node::from(node)));
            }
            Later::Pace(node) => cluster.sim.set_pace(cluster.nodes[&node], 0),
            Later::Keep(target) => order(cluster, Order::Drain { target, on: false }),
        }
    }

    fn begin(&mut self, cluster: &mut Cluster, fault: Fault) {
        let now = cluster.sim.now();
        self.note(cluster, format!("{fault:?}"));
        for (node, peer, time) in ill(&fault) {
            let (node, peer, until) = (node.into(), peer.map(Node::from), now + time);
            cluster.shared.record_at(now, What::Ill { node, peer, until });
        }
        let without_lease = cluster.shared.plan.shape.is_mirrored().then(|| unheard(&fault));
        if let Some((client, time)) = trouble(&fault).or(without_lease.flatten()) {
            let shape = &cluster.shared.plan.shape;
            let after = ms(2 * shape.lease_ms + shape.request_timeout_ms) + RECOVERY;
            let until = now + time + after;
            let late = is_late(&fault);
            // Clients are told that a disk is full, even if others have space.
            let is_full = matches!(fault, Fault::DiskFull { .. });
            let one_data_server = client.is_none() && late && !is_full;
            let trouble = What::Trouble { client, until, late, one_data_server };
            cluster.shared.record_at(now, trouble);
        }
        match fault {
            Fault::Kill { node, down_ms } => {
                if self.down.insert(node) {
                    self.kill(cluster, node);
                    self.later(now + ms(down_ms), Later::Start(node));
                }
            }
            Fault::ForgetLeases { client, down_ms, ms: time } => {
                let (a, b) = (NodeName::Client(client), NodeName::Meta);
                if self.down.insert(b) {
                    self.kill(cluster, b);
                    self.later(now + ms(down_ms), Later::Start(b));
                }
                let (from, to) = (cluster.nodes[&a], cluster.nodes[&b]);
                cluster.sim.network().partition(from, to, true);
                self.later(now + ms(down_ms + time), Later::Heal(a, b));
            }
            Fault::PowerCut { node, down_ms, disk_only } => {
                self.power_cut(cluster, node, disk_only);
                if self.down.insert(node) {
                    self.later(now + ms(down_ms), Later::Start(node));
                }
            }
            Fault::Stop { node, ms: time } => {
                if !self.down.contains(&node) && self.stopped.insert(node) {
                    cluster.sim.stop(cluster.processes[&node]);
                    self.later(now + ms(time), Later::Continue(node));
                }
            }
            Fault::Partition { a, b, both, ms: time } => {
                let (from, to) = (cluster.nodes[&a], cluster.nodes[&b]);
                let network = cluster.sim.network();
                match both {
                    true => network.partition(from, to, true),
                    false => network.partition_one_way(from, to, true),
                }
                self.later(now + ms(time), Later::Heal(a, b));
            }
            Fault::Break { a, b } => {
                let (a, b) = (cluster.nodes[&a], cluster.nodes[&b]);
                cluster.sim.network().break_connections(a, b);
            }
            Fault::Late { client, server, extra_ms, ms: time } => {
                let client = NodeName::Client(client);
                let (from, to) = (cluster.nodes[&client], cluster.nodes[&server]);
                cluster.sim.network().set_extra_delay(from, to, ms(extra_ms));
                self.later(now + ms(time), Later::GiveUp(client, server));
            }
            Fault::Slow { a, b, extra_ms, ms: time } => {
                let (from, to) = (cluster.nodes[&a], cluster.nodes[&b]);
                cluster.sim.network().set_extra_delay(from, to, ms(extra_ms));
                self.later(now + ms(time), Later::Fast(a, b));
            }
            Fault::Isolate { node, ms: time } => {
                cluster.sim.network().isolate(cluster.nodes[&node], true);
                self.later(now + ms(time), Later::Connect(node));
            }
            Fault::Pace { node, ppm, ms: time } => {
                cluster.sim.set_pace(cluster.nodes[&node], ppm.into());
                self.later(now + ms(time), Later::Pace(node));
            }
            Fault::Clock { node, offset_ms, drift_ppm } => {
                let skew = ClockSkew { offset_ms: offset_ms.into(), drift_ppm: drift_ppm.into() };
                cluster.sim.set_clock(cluster.nodes[&node], skew);
            }
            Fault::Drain { target, ms: time } => {
                let target = TargetId(target);
                order(cluster, Order::Drain { target, on: true });
                self.later(now + ms(time), Later::Keep(target));
            }
            Fault::Copies { file, copies } => order(cluster, Order::Copies { file, copies }),
            Fault::Even => order(cluster, Order::Even),
            Fault::Join { server } => {
                let node = NodeName::Data(server);
                if !cluster.processes.contains_key(&node) {
                    cluster.shared.record_at(now, What::Up(node.into()));
                    cluster.start(node);
                }
            }
            Fault::Leave { server } => order(cluster, Order::Remove { server, force: false }),
            Fault::Lose { server } => {
                let node = NodeName::Data(server);
                self.down.insert(node);
                self.lost.insert(node);
                self.kill(cluster, node);
                order(cluster, Order::Remove { server, force: true });
            }
            fault => self.begin_on_disk(cluster, fault),
        }
    }

    fn begin_on_disk(&mut self, cluster: &mut Cluster, fault: Fault) {
        let now = cluster.sim.now();
        match fault {
            Fault::SlowDisk { node, operation_ms, ms: time } => {
                let most = ms(operation_ms);
                cluster.disk(node).set_latency(Duration::ZERO..most, Duration::ZERO..most * 3);
                self.later(now + ms(time), Later::FastDisk(node));
            }
            Fault::Hang { node, ms: time } => cluster.disk(node).hang_until(now + ms(time)),
            Fault::DiskError { node, operation, error, after, ms: time } => {
                let errno = match error {
                    DiskErrorKind::Io => Errno::IO,
                    DiskErrorKind::NoSpace => Errno::NOSPC,
                };
                let operation = match operation {
                    DiskOperation::Read => Operation::Read,
                    DiskOperation::Write => Operation::Write,
                    DiskOperation::Sync => Operation::Sync,
                };
                cluster.disk(node).fail_next(operation, errno, after.into());
                if operation == Operation::Sync {
                    self.failing.insert(node, cluster.disk(node).planned_failures());
                }
                let end = if operation == Operation::Sync { Later::Reboot } else { Later::Restart };
                self.later(now + ms(time), end(node));
            }
            Fault::LoseGaps { node, damaged, down_ms } => {
                if self.down.insert(node) {
                    self.kill(cluster, node);
                    self.later(now + ms(down_ms), Later::Start(node));
                }
                cluster.lose_gaps(node, damaged);
                cluster.shared.record_at(now, What::GapsLost(node.into()));
            }
            Fault::DiskFails { node, ms: time } => {
                cluster.disk(node).set_gone(Some(Errno::IO));
                // A sync after this cannot tell what is on the disk.
                cluster.shared.record_at(now, What::DiskForgets(node.into()));
                self.later(now + ms(time), Later::Reboot(node));
            }
            Fault::Rot { server, pick } => {
                let what = cluster.rot(server, pick).unwrap_or_else(|| "nothing to rot".into());
                self.note(cluster, what);
            }
            Fault::DiskFull { node, ms: time } => {
                cluster.disk(node).leave_free(0);
                self.later(now + ms(time), Later::Room(node));
            }
            _ => {}
        }
    }

    fn start(&mut self, cluster: &mut Cluster, node: NodeName) {
        if self.lost.contains(&node) {
            return;
        }
        let finished = match node {
            NodeName::Client(n) => is_done(cluster, n),
            _ => false,
        };
        if self.down.remove(&node) | !cluster.sim.is_running(cluster.processes[&node]) && !finished
        {
            cluster.shared.record_at(cluster.sim.now(), What::Up(node.into()));
            cluster.start(node);
        }
    }

    fn kill(&mut self, cluster: &mut Cluster, node: NodeName) {
        self.stopped.remove(&node);
        cluster.sim.kill(cluster.processes[&node]);
        cluster.shared.record_at(cluster.sim.now(), What::Down(node.into()));
        if let NodeName::Client(client) = node {
            cluster.shared.record_at(cluster.sim.now(), What::ClientKilled { client });
        }
    }

    /// `disk_only`: the machine keeps running.
    fn power_cut(&mut self, cluster: &mut Cluster, node: NodeName, disk_only: bool) {
        // The model of the engine has no disk.
        let is_model = cluster.shared.plan.shape.engine == EngineKind::Model;
        let disk_only = disk_only && !(is_model && node == NodeName::Meta);
        self.stopped.remove(&node);
        cluster.sim.power_cut(cluster.nodes[&node]);
        if !disk_only {
            self.boots += 1;
            self.booted.insert(node, self.boots);
        }
        cluster.write_boot_id(node, self.booted.get(&node).copied().unwrap_or(0));
        if node == NodeName::Meta && cluster.shared.plan.shape.engine == EngineKind::Model {
            cluster.model.power_cut();
        }
        let now = cluster.sim.now();
        match node {
            NodeName::Client(client) => {
                cluster.shared.record_at(now, What::ClientKilled { client });
            }
            server => cluster.shared.record_at(now, What::PowerCut(server.into())),
        }
    }

    /// Ends all faults.
    pub fn heal(&mut self, cluster: &mut Cluster) {
        cluster.shared.record_at(cluster.sim.now(), What::Healed);
        let todo = std::mem::take(&mut self.todo);
        self.failing.clear();
        cluster.sim.network().heal_all();
        cluster.sim.network().set_reset_rate(0);
        let names: Vec<NodeName> = cluster.nodes.keys().copied().collect();
        for a in &names {
            for b in names.iter().filter(|b| *b != a) {
                let (a, b) = (cluster.nodes[a], cluster.nodes[b]);
                cluster.sim.network().set_extra_delay(a, b, Duration::ZERO);
            }
            cluster.disk(*a).heal();
            cluster.disk(*a).hang_until(Duration::ZERO);
            cluster.disk(*a).leave_free(PLENTY_BYTES);
            usual_latency(cluster.disk(*a));
            cluster.sim.set_pace(cluster.nodes[a], 0);
        }
        for node in std::mem::take(&mut self.stopped) {
            cluster.sim.cont(cluster.processes[&node]);
        }
        for what in todo.into_values() {
            match what {
                Later::Start(node) => self.start(cluster, node),
                // A server whose disk failed may be out of service until then.
                Later::Restart(_) | Later::Reboot(_) | Later::Keep(_) => {
                    self.perform(cluster, what);
                }
                _ => {}
            }
        }
    }
}

fn order(cluster: &mut Cluster, order: Order) {
    if matches!(order, Order::Remove { .. }) {
        let ordered = &cluster.shared.ordered;
        ordered.set(ordered.get() + 1);
    }
    cluster.start_auditor(move |shared, config| administer::carry_out(order, &shared, &config));
}

/// Whether a client has finished its calls and ended.
pub(crate) fn is_done(cluster: &Cluster, client: u8) -> bool {
    let at = usize::from(client);
    cluster.shared.next.borrow()[at] > cluster.shared.plan.clients[at].ops.len()
}
