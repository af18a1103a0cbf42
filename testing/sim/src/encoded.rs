//! Files whose copies are replaced by parities while they are used. Each file is written by one
//! client and read by all. Servers, links, disks and clients fail while parities are made, dropped
//! and made again. At the end every file has its parities, and as many targets may be unreachable
//! as a set can bear.

mod slow;
mod user;

use crate::cluster::Cluster;
use crate::copies::wait_for_sound;
use crate::nemesis::{Nemesis, usual_latency};
use crate::plan::{
    ClientPlan, EngineKind, Fault, FileShape, NodeName, Plan, PlannedFault, Shape, first_copies,
};
use crate::run::shut_down;
use crate::shared::Shared;
use fastrand::Rng;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use user::World;
use weir_client::{Client, ClientConfig, Context, CreateOptions};
use weir_host::thread::sleep;
use weir_simhost::{Options, ProcessId};
use weir_types::{Duplication, ErrorKind, FileId, FileLayout, LayoutSpec, Result, TargetId};
use weir_wire::Rights;

pub use slow::{READS, Times, try_slow_member};

/// Duration of the faults.
const DURATION_MS: u32 = 30_000;
/// Maximum time after the last fault until everything has ended.
const FINISH: Duration = Duration::from_secs(240);
/// Interval of looks.
const PAUSE: Duration = Duration::from_millis(250);
/// Interval of looks at the layouts during the faults.
const SPY_PAUSE: Duration = Duration::from_millis(60);
/// Maximum time until reports of servers are known.
const HEARD: Duration = Duration::from_secs(5);
/// Free space of a disk.
const PLENTY_BYTES: u64 = 1 << 40;
/// The policy in [`weir_client::ReadPolicy::OF_ANY_READER`] with which clients go around slow disks.
const BY_SPEED: u8 = 0;
/// Number of clients, and of files of each.
const USERS: u8 = 2;
const FILES_EACH: usize = 2;

/// A code: columns and parities of a set, and the number of copies before.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// Number of columns.
    pub columns: u8,
    /// Number of parities.
    pub parities: u8,
    /// Number of copies.
    pub copies: u8,
}

/// Runs a seed. Returns how many columns clients have computed to go around slow disks. Errors: what
/// went wrong.
pub fn try_seed(seed: u64) -> std::result::Result<u64, String> {
    let mut rng = Rng::with_seed(seed ^ 0x656e_636f_6465);
    let set = Set { columns: rng.u8(2..=4), parities: rng.u8(1..=2), copies: rng.u8(2..=3) };
    let plan = plan_of(&mut rng, seed, set);
    let kills: Vec<(u32, u8)> =
        (0..rng.u8(0..=3)).map(|_| (rng.u32(0..DURATION_MS), rng.u8(0..USERS))).collect();
    let mut run = Run::begin(plan, set)?;
    run.attack(kills)?;
    run.finish()?;
    run.read_without(usize::from(set.parities))?;
    let world = run.world.clone();
    run.end()?;
    Ok(world.computed.get())
}

/// Encodes files, and reads them without each set of targets that may be lost. Returns the number
/// of reads. Errors: what went wrong.
pub fn try_every_loss(set: Set) -> std::result::Result<usize, String> {
    let mut rng = Rng::with_seed(7);
    let mut plan = plan_of(&mut rng, 7, set);
    plan.faults.clear();
    plan.shape.data_servers = set.columns + set.parities;
    plan.duration_ms = 3_000;
    let mut run = Run::begin(plan, set)?;
    run.attack(Vec::new())?;
    run.finish()?;
    let times = run.read_without(usize::from(set.parities))?;
    run.end()?;
    Ok(times)
}

/// The error of a write to a file with parities while all disks are full. Afterwards there is space
/// again, and the write succeeds. Errors: what went wrong.
pub fn try_full() -> std::result::Result<ErrorKind, String> {
    let set = Set { columns: 2, parities: 2, copies: 2 };
    let mut plan = plan_of(&mut Rng::with_seed(3), 3, set);
    plan.faults.clear();
    plan.duration_ms = 3_000;
    let mut run = Run::begin(plan, set)?;
    run.attack(Vec::new())?;
    run.finish()?;
    let nodes: Vec<NodeName> =
        run.cluster.servers().into_iter().filter(|node| *node != NodeName::Meta).collect();
    nodes.iter().for_each(|node| run.cluster.disk(*node).leave_free(0));
    run.cluster.sim.run_for(HEARD);
    let file = run.world.ids()[0];
    let told = Rc::new(Cell::new(None));
    let write = |run: &mut Run| {
        let tells = told.clone();
        let writer = run.cluster.start_auditor(move |_, config| {
            tells.set(match Client::connect(config) {
                Ok(client) => {
                    let open = client.open(&Context::root(), file, Rights::READ_WRITE);
                    let error = open.and_then(|(file, _)| file.close(&Context::root())).err();
                    client.shutdown();
                    error.map(|error| error.kind)
                }
                Err(error) => Some(error.kind),
            });
        });
        run.wait(&[writer], "open a file")?;
        Ok::<_, String>(told.get())
    };
    let full = write(&mut run)?.ok_or("a file is written without room for its copies")?;
    nodes.iter().for_each(|node| run.cluster.disk(*node).leave_free(PLENTY_BYTES));
    run.cluster.sim.run_for(HEARD);
    if let Some(kind) = write(&mut run)? {
        return Err(format!("with room again: {kind:?}"));
    }
    run.finish()?;
    run.read_without(1)?;
    run.end()?;
    Ok(full)
}

/// Rot on as many servers as a set can bear is found by a scrub and repaired from the rest. Errors:
/// what went wrong.
pub fn try_rot(seed: u64) -> std::result::Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let set = Set { columns: 3, parities: 2, copies: 2 };
    let mut plan = plan_of(&mut rng, seed, set);
    plan.faults.clear();
    plan.duration_ms = 3_000;
    let mut run = Run::begin(plan, set)?;
    run.attack(Vec::new())?;
    run.finish()?;
    let servers = run.cluster.shared.plan.shape.data_servers;
    let (mut rotten, first) = (0, rng.u8(0..servers));
    for server in (0..servers).map(|n| (first + n) % servers) {
        let blocks = (0..4).filter(|_| run.cluster.rot(server, rng.u32(..)).is_some()).count();
        rotten += usize::from(blocks > 0);
        if rotten == usize::from(set.parities) {
            break;
        }
    }
    if rotten == 0 {
        return Err("nothing could rot".into());
    }
    // Rotten parts are computed during reads.
    run.read_without(0)?;
    let unsound = wait_for_sound(&mut run.cluster, &mut run.nemesis);
    if let Some(wrong) = unsound.first() {
        return Err(wrong.what.clone());
    }
    run.read_without(usize::from(set.parities))?;
    run.end()
}

fn plan_of(rng: &mut Rng, seed: u64, set: Set) -> Plan {
    let leases = rng.u8(0..4) > 0;
    let lease_ms = [1_500, 3_000][rng.usize(0..2)];
    let shape = Shape {
        data_servers: set.columns + set.parities + rng.u8(0..=2),
        targets_each: 1,
        event_loops: 1,
        engine: if rng.u8(0..4) == 0 { EngineKind::Model } else { EngineKind::Embedded },
        leases,
        lease_ms,
        session_ms: 30_000,
        grace_ms: if leases { lease_ms } else { 7_000 },
        shared_files: 1,
        logs: 0,
        cells: 1,
        layout: FileShape::OneTarget,
        request_timeout_ms: 12_000,
        reset_ppm: [0, 0, 500][rng.usize(0..3)],
        conflict_ppm: 0,
        copies: vec![set.copies],
        protocols: Vec::new(),
        target_timeout_ms: [2_500, 4_000][rng.usize(0..2)],
        rebuild_after_ms: if rng.u8(0..4) == 0 { rng.u32(1_000..6_000) } else { 0 },
        placements: Vec::new(),
        spares: 0,
    };
    let faults = faults(rng, &shape);
    let client = ClientPlan { write_behind: false, keeps_pages: false, ops: Vec::new() };
    let clients = vec![client; usize::from(USERS)];
    // A separate generator, so that the rest of the plan does not depend on it.
    let mut of_slow = Rng::with_seed(seed ^ 0x736c_6f77);
    let mut faults = faults;
    let read_policy = match of_slow.u8(0..4) {
        0 => first_copies(),
        _ => {
            faults.extend(slow_disks(&mut of_slow, &shape));
            faults.sort_by_key(|planned| planned.at_ms);
            BY_SPEED
        }
    };
    Plan { seed, duration_ms: DURATION_MS, shape, clients, faults, read_policy }
}

/// Disks that are slow for a while. Clients that go around them may lose their leases meanwhile.
fn slow_disks(rng: &mut Rng, shape: &Shape) -> Vec<PlannedFault> {
    let mut faults = Vec::new();
    for _ in 0..rng.u8(2..=4) {
        let at_ms = rng.u32(500..DURATION_MS);
        let (client, meta) = (NodeName::Client(rng.u8(0..USERS)), NodeName::Meta);
        for _ in 0..rng.u8(1..=2) {
            let node = NodeName::Data(rng.u8(0..shape.data_servers));
            let ms = rng.u32(2_000..8_000);
            let fault = Fault::SlowDisk { node, operation_ms: rng.u32(50..1_500), ms };
            faults.push(PlannedFault { at_ms, fault });
        }
        if shape.leases && rng.bool() {
            let ms = rng.u32(500..shape.lease_ms * 2);
            let fault = Fault::Partition { a: client, b: meta, both: true, ms };
            faults.push(PlannedFault { at_ms: at_ms + rng.u32(0..2_000), fault });
        }
    }
    faults
}

fn faults(rng: &mut Rng, shape: &Shape) -> Vec<PlannedFault> {
    let kind = rng.u8(0..8);
    let count = [2, 5, 9][rng.usize(0..3)];
    // A rotting disk is the only fault of its plan besides those of the metadata server.
    let rotten = (kind == 0).then(|| rng.u8(0..shape.data_servers));
    let mut faults: Vec<PlannedFault> = (0..count)
        .map(|_| {
            let fault = match rotten {
                Some(server) if rng.u8(0..4) > 0 => Fault::Rot { server, pick: rng.u32(..) },
                Some(_) => Fault::Kill { node: NodeName::Meta, down_ms: rng.u32(1..2_000) },
                None => fault(rng, shape, kind),
            };
            PlannedFault { at_ms: rng.u32(500..DURATION_MS), fault }
        })
        .collect();
    if kind == 1 {
        // The power fails everywhere.
        let at_ms = rng.u32(2_000..DURATION_MS);
        faults.extend((0..shape.data_servers).map(|server| PlannedFault {
            at_ms: at_ms + rng.u32(0..50),
            fault: Fault::PowerCut {
                node: NodeName::Data(server),
                down_ms: rng.u32(1..3_000),
                disk_only: false,
            },
        }));
    }
    faults.sort_by_key(|planned| planned.at_ms);
    faults
}

fn fault(rng: &mut Rng, shape: &Shape, kind: u8) -> Fault {
    let server = rng.u8(0..shape.data_servers);
    let (node, meta) = (NodeName::Data(server), NodeName::Meta);
    let peer = NodeName::Data((server + rng.u8(1..shape.data_servers)) % shape.data_servers);
    let ms = rng.u32(1..shape.target_timeout_ms * 2);
    match rng.u8(0..16) {
        0..3 => Fault::Kill { node, down_ms: ms },
        3..6 => Fault::PowerCut { node, down_ms: ms, disk_only: rng.bool() },
        6 => Fault::Stop { node, ms },
        7 | 8 => Fault::Kill { node: meta, down_ms: rng.u32(1..2_000) },
        9 => Fault::PowerCut { node: meta, down_ms: rng.u32(1..2_000), disk_only: false },
        10 => Fault::Partition { a: node, b: meta, both: rng.bool(), ms },
        11 => Fault::Partition { a: node, b: peer, both: rng.bool(), ms },
        12 => Fault::Partition { a: node, b: NodeName::Client(rng.u8(0..USERS)), both: true, ms },
        13 if kind > 4 => Fault::DiskFull { node, ms },
        14 if kind > 4 => Fault::Drain { target: u32::from(server) + 1, ms: ms * 2 },
        _ => Fault::SlowDisk { node, operation_ms: rng.u32(1..200), ms },
    }
}

/// A cluster, and the expected contents of its files.
struct Run {
    cluster: Cluster,
    nemesis: Nemesis,
    world: Rc<World>,
    users: Vec<ProcessId>,
}

impl Run {
    fn begin(plan: Plan, set: Set) -> std::result::Result<Self, String> {
        let shared = Rc::new(Shared::new(plan));
        let mut cluster = Cluster::new(shared.clone(), Options::default());
        cluster.set_up()?;
        let world = Rc::new(World::new(shared.plan.seed, shared.plan.shape.leases));
        let of = world.clone();
        let maker = cluster.start_auditor(move |shared, config| match make(&config, set) {
            Ok(files) => {
                // The files in which bits may flip.
                shared.made.borrow_mut().files = files.iter().map(|file| file.0).collect();
                of.add(&files);
            }
            Err(error) => *shared.trouble.borrow_mut() = Some(error.to_string()),
        });
        cluster.wait_for(&[maker], "make files")?;
        for node in cluster.nodes.keys().copied().collect::<Vec<_>>() {
            usual_latency(cluster.disk(node));
            if shared.plan.read_policy == BY_SPEED {
                // What is in memory is not slow.
                cluster.disk(node).set_not_cached(0.9);
            }
        }
        cluster.sim.network().set_reset_rate(shared.plan.shape.reset_ppm);
        let nemesis = Nemesis::new(&cluster);
        let mut run = Self { cluster, nemesis, world, users: Vec::new() };
        run.users = (0..USERS).map(|user| run.start(user)).collect();
        Ok(run)
    }

    fn start(&mut self, user: u8) -> ProcessId {
        let (world, config) = (self.world.clone(), self.cluster.client_config(false));
        let node = self.cluster.nodes[&NodeName::Client(user)];
        self.cluster.sim.start(node, "user", move || {
            let own = usize::from(user) * FILES_EACH;
            user::live(&world, own..own + FILES_EACH, &config);
        })
    }

    /// Runs the faults. `kills`: when clients are killed; they start again at once.
    fn attack(&mut self, mut kills: Vec<(u32, u8)>) -> std::result::Result<(), String> {
        let plan = self.cluster.shared.plan.clone();
        let (world, over) = (self.world.clone(), Rc::new(Cell::new(false)));
        // A block of a set may be moving to another target.
        let moves = plan.moves();
        let ends = over.clone();
        let spy = self.cluster.start_auditor(move |_, config| {
            while !ends.get() {
                if let Ok(client) = Client::connect(config.clone()) {
                    spy(&client, &world, moves, &ends);
                    client.shutdown();
                }
                sleep(PAUSE);
            }
        });
        let begun = self.cluster.sim.now();
        let end = begun + Duration::from_millis(plan.duration_ms.into());
        kills.sort_unstable();
        for (at_ms, user) in kills {
            let at = begun + Duration::from_millis(at_ms.into());
            self.pass(at.min(end))?;
            let at = usize::from(user);
            self.cluster.sim.kill(self.users[at]);
            self.users[at] = self.start(user);
        }
        self.pass(end)?;
        over.set(true);
        self.nemesis.heal(&mut self.cluster);
        self.wait(&[spy], "look at layouts")
    }

    fn pass(&mut self, end: Duration) -> std::result::Result<(), String> {
        while self.cluster.sim.now() < end {
            let next = end.min(self.cluster.sim.now() + PAUSE);
            self.nemesis.run_until(&mut self.cluster, next);
            self.trouble()?;
        }
        Ok(())
    }

    fn trouble(&self) -> std::result::Result<(), String> {
        if let Some(trouble) = self.world.trouble.borrow_mut().take() {
            return Err(trouble);
        }
        let panics = self.cluster.sim.panics();
        if let Some(panic) = panics.first() {
            return Err(format!("{} panicked: {}", panic.thread, panic.message));
        }
        let strange = self.nemesis.strange_ends.first();
        strange.map_or(Ok(()), |what| Err(what.clone()))
    }

    fn wait(&mut self, who: &[ProcessId], what: &str) -> std::result::Result<(), String> {
        let deadline = self.cluster.sim.now() + FINISH;
        while who.iter().any(|process| self.cluster.sim.is_running(*process)) {
            self.trouble()?;
            if self.cluster.sim.now() >= deadline {
                let last = self.world.last.borrow();
                return Err(format!("{what} does not end within {FINISH:?}: {last}"));
            }
            let next = self.cluster.sim.now() + PAUSE;
            self.nemesis.run_until(&mut self.cluster, next);
        }
        self.trouble()
    }

    /// Clients end, and every file gets its parities.
    fn finish(&mut self) -> std::result::Result<(), String> {
        self.world.over.set(true);
        let users = self.users.clone();
        self.wait(&users, "the work of clients")?;
        let world = self.world.clone();
        let watcher = self.cluster.start_auditor(move |_, config| {
            while !are_encoded(&config, &world) {
                sleep(PAUSE);
            }
        });
        self.wait(&[watcher], "encode")
    }

    /// Reads all files without each set of `count` data servers; returns the number of sets.
    fn read_without(&mut self, count: usize) -> std::result::Result<usize, String> {
        let servers = self.cluster.shared.plan.shape.data_servers;
        let subsets = (0_u32..1 << servers).filter(|of| of.count_ones() as usize <= count);
        let mut times = 0;
        for subset in subsets {
            let without: Vec<u8> = (0..servers).filter(|n| subset & 1 << n != 0).collect();
            let cut = |run: &Self, on| {
                let of = without.iter().map(|server| NodeName::Data(*server));
                of.for_each(|node| run.cluster.cut_off_auditor(node, on));
            };
            cut(self, true);
            let world = self.world.clone();
            let reader = self.cluster.start_auditor(move |_, config| world.verify(&config));
            let what = format!("read without {without:?}");
            self.wait(&[reader], &what).map_err(|error| format!("{what}: {error}"))?;
            cut(self, false);
            times += 1;
        }
        Ok(times)
    }

    /// Ends the servers, and checks that nothing on the disks is rotten.
    fn end(mut self) -> std::result::Result<(), String> {
        let rots = |planned: &PlannedFault| matches!(planned.fault, Fault::Rot { .. });
        if let Some(wrong) = shut_down(&mut self.cluster).first() {
            return Err(wrong.what.clone());
        }
        // Rot that nobody has read since is found by a scrub.
        match self.cluster.shared.plan.faults.iter().any(rots) {
            true => Ok(()),
            false => self.cluster.scrub(),
        }
    }
}

fn make(config: &ClientConfig, set: Set) -> Result<Vec<FileId>> {
    let ctx = Context::root();
    let client = Client::connect(config.clone())?;
    let layout = LayoutSpec {
        stripe_unit_bytes: 4096,
        count: set.columns.into(),
        copies: set.copies,
        duplication: Some(Duplication::ServerSync),
        parities: set.parities,
        encode_after_s: 1,
        ..LayoutSpec::default()
    };
    let files = (0..usize::from(USERS) * FILES_EACH).map(|number| {
        let name = format!("encoded{number}");
        let options = CreateOptions { layout: Some(layout.clone()), ..CreateOptions::default() };
        let (file, attr) = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options)?;
        file.close(&ctx)?;
        Ok(attr.file)
    });
    let files: Result<Vec<FileId>> = files.collect();
    client.sync_metadata(&ctx)?;
    client.shutdown();
    files
}

fn layout_of(client: &Client, file: FileId) -> Result<FileLayout> {
    let ctx = Context::root();
    let (open, _) = client.open(&ctx, file, Rights::READ)?;
    let layout = open.layout();
    open.close(&ctx)?;
    Ok(layout)
}

/// Checks the layouts until the run is over, or a call fails.
fn spy(client: &Client, world: &World, moves: bool, over: &Cell<bool>) {
    while !over.get() {
        for file in world.ids() {
            let Ok(layout) = layout_of(client, file) else { return };
            if let Some(what) = wrong_with(&layout, moves) {
                world.complain(format!("file {file}: {what}"));
            }
        }
        sleep(SPY_PAUSE);
    }
}

/// What is wrong with a layout, if anything.
fn wrong_with(layout: &FileLayout, moves: bool) -> Option<String> {
    for segment in layout.segments.iter().filter(|segment| segment.is_coded()) {
        let columns = segment.columns.len();
        let unmade = segment.filling.iter().find(|f| usize::from(f.column.0) >= columns);
        if let Some(unmade) = unmade.filter(|_| !moves) {
            return Some(format!("parity {} counts and is not made yet", unmade.column.0));
        }
    }
    None
}

fn are_encoded(config: &ClientConfig, world: &World) -> bool {
    let Ok(client) = Client::connect(config.clone()) else { return false };
    let are = world.ids().into_iter().all(|file| {
        let layout = layout_of(&client, file);
        *world.last.borrow_mut() = format!("file {file}: {layout:?}");
        layout.is_ok_and(|layout| is_encoded(&layout))
    });
    client.shutdown();
    are
}

fn is_encoded(layout: &FileLayout) -> bool {
    layout.segments.iter().all(|segment| {
        let members: Vec<Vec<TargetId>> = segment
            .members()
            .map(|(_, member)| member.copies().map(|(_, target)| target).collect())
            .collect();
        let targets: BTreeSet<TargetId> = members.iter().flatten().copied().collect();
        segment.is_coded()
            && segment.filling.is_empty()
            && members.iter().all(|targets| targets.len() == 1)
            && targets.len() == members.len()
    })
}
