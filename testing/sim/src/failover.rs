//! The effect on calls when the server of a copy fails during them. Several readers and a writer
//! use a file with two copies, and the server of one copy fails at one moment. Uses the machines of
//! all simulations, with the usual times, virtual.

use crate::cluster::Cluster;
use crate::plan::targets_of;
use crate::plan::{ClientPlan, EngineKind, FileShape, NodeName, Plan, Shape, first_copies};
use crate::shared::Shared;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::simulated;
use weir_host::thread::sleep;
use weir_simhost::Options;
use weir_types::{FileId, Result, TargetId};
use weir_wire::Rights;
use weir_wire::map::TargetState;

/// Bytes of one read or write.
const BYTES: usize = 16 << 10;
const BYTE: u8 = 0x5a;
/// Number of readers that read continuously.
const READERS: usize = 3;
/// Time of normal work before the failure.
const BEFORE: Duration = Duration::from_secs(1);
/// Time around the failure without pauses between calls.
const HURRY: Duration = Duration::from_millis(5);
/// Time after the failure.
const AFTERWARDS: Duration = Duration::from_secs(9);
/// Pause between calls otherwise.
const PAUSE: Duration = Duration::from_millis(10);
/// Interval of looks at the map.
const LOOK: Duration = Duration::from_millis(2);

/// The copy whose server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// The first copy, which is read, and orders changes.
    First,
    /// The second copy.
    Second,
    /// Both copies: no server is left to write to.
    Both,
}

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The process is killed; its connections break.
    Kill,
    /// The machine loses power and goes silent.
    PowerCut,
    /// The machine is unreachable.
    CutOff,
    /// The process stops; its machine still accepts bytes.
    Stop,
}

/// One moment of one failure.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Seed of all random choices.
    pub seed: u64,
    /// Data servers of the cluster.
    pub servers: u8,
    /// The copy whose server fails.
    pub copy: Copy,
    /// The kind of failure.
    pub failure: Failure,
    /// Time of the failure after a period of normal work.
    pub after: Duration,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct Did {
    /// When the call began after the failure; 0 if before it.
    pub asked: Duration,
    /// When the call ended after the failure.
    pub ended: Duration,
    /// Duration.
    pub took: Duration,
    /// Number of requests sent to data servers for it.
    pub requests: u64,
    /// Number of copies that failed it.
    pub failed: u64,
}

/// The result for a point, without calls that ended before the failure.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The reads of each reader.
    pub reads: Vec<Vec<Did>>,
    /// The writes.
    pub writes: Vec<Did>,
    /// When the map had the target offline, after the failure.
    pub missed: Duration,
}

/// Tries one point. Errors: what went wrong.
pub fn try_point(point: Point) -> std::result::Result<Seen, String> {
    let shared = Rc::new(Shared::new(plan(point.seed, point.servers)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let (copies, [read, written]) = two_files(&cluster)?;
    let victims = match point.copy {
        Copy::First => &copies[..1],
        Copy::Second => &copies[1..],
        Copy::Both => &copies[..],
    };
    let log: Rc<Log> = Rc::new(Log::new(READERS + 1));
    let config = cluster.client_config(false);
    for user in 0..=READERS {
        let (log, config) = (log.clone(), config.clone());
        let file = if user == READERS { written } else { read };
        let node = cluster.nodes[&NodeName::Client(user as u8)];
        cluster.sim.start(node, "user", move || {
            if let Err(error) = work(&config, file, user, &log) {
                log.trouble.borrow_mut().get_or_insert(format!("user {user}: {error}"));
            }
        });
    }
    let target = TargetId(targets_of(&shared.plan.shape, victims[0])[0]);
    let looks = log.clone();
    cluster.start_auditor(move |_, config| {
        if let Err(error) = watch(&config, target, &looks) {
            looks.trouble.borrow_mut().get_or_insert(format!("the watcher: {error}"));
        }
    });
    cluster.sim.run_for(BEFORE + point.after);
    log.hurries.set(true);
    cluster.sim.run_for(PAUSE + HURRY);
    let begun = cluster.sim.now();
    log.failed_at.set(Some(begun));
    for node in victims.iter().map(|server| NodeName::Data(*server)) {
        match point.failure {
            Failure::Kill => cluster.sim.kill(cluster.processes[&node]),
            Failure::PowerCut => cluster.sim.power_cut(cluster.nodes[&node]),
            Failure::CutOff => cluster.sim.network().isolate(cluster.nodes[&node], true),
            Failure::Stop => cluster.sim.stop(cluster.processes[&node]),
        }
    }
    log.hurries.set(false);
    cluster.sim.run_for(AFTERWARDS);
    if let Some(trouble) = log.trouble.borrow_mut().take() {
        return Err(trouble);
    }
    let mut reads = log.done.take();
    let writes = reads.pop().unwrap_or_default();
    let missed = log.missed_at.get().ok_or("the map never says that the target is offline")?;
    Ok(Seen { reads, writes, missed: missed - begun })
}

/// Two files whose copies are on the same servers, and these servers.
fn two_files(cluster: &Cluster) -> std::result::Result<(Vec<u8>, [FileId; 2]), String> {
    let made = cluster.shared.made.borrow().files.clone();
    let mut seen: BTreeMap<Vec<u8>, FileId> = BTreeMap::new();
    for (file, id) in made.iter().enumerate() {
        let copies = cluster.nodes_of_cells(file)[0].clone();
        if let Some(first) = seen.insert(copies.clone(), FileId(*id)) {
            return Ok((copies, [first, FileId(*id)]));
        }
    }
    Err("no two files are on the same servers".to_owned())
}

/// The shared record of all users.
struct Log {
    hurries: Cell<bool>,
    failed_at: Cell<Option<Duration>>,
    missed_at: Cell<Option<Duration>>,
    /// For each user, its calls that ended after the failure.
    done: RefCell<Vec<Vec<Did>>>,
    trouble: RefCell<Option<String>>,
}

impl Log {
    fn new(users: usize) -> Self {
        let done = RefCell::new(vec![Vec::new(); users]);
        let (failed_at, missed_at) = (Cell::default(), Cell::default());
        Self { hurries: Cell::default(), failed_at, missed_at, done, trouble: RefCell::default() }
    }
}

pub(crate) fn now() -> Duration {
    simulated::current().map_or(Duration::ZERO, |machine| machine.now())
}

/// Reads or writes continuously. The last user writes.
fn work(config: &ClientConfig, file: FileId, user: usize, log: &Log) -> Result<()> {
    let ctx = Context::root();
    let client = Client::connect(config.clone())?;
    let rights = if user == READERS { Rights::READ_WRITE } else { Rights::READ };
    let open = client.open(&ctx, file, rights)?.0;
    let counted = |name: &str| {
        let list = client.counters();
        list.iter().find(|(counter, _)| counter == name).map_or(0, |(_, value)| *value)
    };
    let mut bytes = vec![BYTE; BYTES];
    loop {
        let (requests, failed) = (counted("data_requests"), counted("copies_failed"));
        let asked = now();
        match user {
            READERS => open.write_at(&ctx, 0, &bytes)?,
            _ => drop(open.read_at(&ctx, 0, &mut bytes)?),
        }
        if let Some(at) = log.failed_at.get() {
            let ended = now();
            let did = Did {
                asked: asked.saturating_sub(at),
                ended: ended - at,
                took: ended - asked,
                requests: counted("data_requests") - requests,
                failed: counted("copies_failed") - failed,
            };
            log.done.borrow_mut()[user].push(did);
        }
        if !log.hurries.get() {
            sleep(PAUSE);
        }
    }
}

/// Waits until a target is given up. Before that, servers that cannot reach it may report it as
/// syncing, while it still serves.
fn watch(config: &ClientConfig, target: TargetId, log: &Log) -> Result<()> {
    let client = Client::connect(config.clone())?;
    loop {
        let map = client.cluster_map()?;
        if map.target(target).is_some_and(|entry| entry.state == TargetState::Offline) {
            log.missed_at.set(Some(now()));
            return Ok(());
        }
        sleep(LOOK);
    }
}

/// A plan with some files of two copies, and no other faults.
pub(crate) fn plan(seed: u64, servers: u8) -> Plan {
    let shape = Shape {
        data_servers: servers,
        targets_each: 1,
        event_loops: 1,
        engine: EngineKind::Embedded,
        leases: true,
        lease_ms: 10_000,
        session_ms: 30_000,
        grace_ms: 10_000,
        // With the clients' files, so many that two are on the same servers.
        shared_files: 6,
        logs: 0,
        cells: (BYTES / crate::history::CELL_BYTES) as u32,
        layout: FileShape::OneTarget,
        request_timeout_ms: 30_000,
        reset_ppm: 0,
        conflict_ppm: 0,
        copies: vec![2],
        protocols: Vec::new(),
        target_timeout_ms: 0,
        rebuild_after_ms: 0,
        placements: Vec::new(),
        spares: 0,
    };
    let idle = ClientPlan { write_behind: false, keeps_pages: false, ops: Vec::new() };
    let clients = vec![idle; READERS + 1];
    let (faults, read_policy) = (Vec::new(), first_copies());
    Plan { seed, duration_ms: 0, shape, clients, faults, read_policy }
}
