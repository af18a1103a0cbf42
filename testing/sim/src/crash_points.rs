//! The losses of each duplication protocol under each failure. A client writes a file and syncs it,
//! then overwrites it, and something fails at one moment; then another client reads. Uses the
//! machines of all simulations: whole daemons, on virtual time.

use crate::cluster::Cluster;
use crate::copies;
use crate::plan::{
    ClientPlan, EngineKind, FileShape, NodeName, Plan, Protocol, Shape, first_copies,
};
use crate::run::shut_down;
use crate::shared::Shared;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context, File};
use weir_host::thread::sleep;
use weir_simhost::{Options, Simulation};
use weir_types::{ErrorKind, FileId, Result};
use weir_wire::Rights;

/// Bytes that are written: some blocks.
const BYTES: usize = 16 << 10;
const OLD: u8 = 0x11;
const NEW: u8 = 0x22;
/// Time after which a server counts as away, milliseconds.
const TIMEOUT_MS: u32 = 2_500;
/// Time until failed servers come back, when the others have gone on without them.
const AWAY: Duration = Duration::from_secs(6);
/// Maximum time after all are online until no copy lacks anything.
const SETTLED: Duration = Duration::from_secs(5);
/// Maximum time of everything.
const END: Duration = Duration::from_secs(120);

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The server of the first copy.
    Primary,
    /// The server of the second copy.
    Follower,
    /// The server of the last copy.
    Last,
    /// The servers of all copies, at the same moment.
    All,
    /// The client that writes.
    Client,
}

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The process is killed, and started again some seconds later.
    Kill,
    /// The machine loses power, and has it again some seconds later.
    PowerCut,
    /// The machine does not come back.
    Loss,
}

/// The layout of the file.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The duplication protocol.
    pub protocol: Protocol,
    /// Number of copies.
    pub copies: u8,
    /// Number of columns, each on a server of its own.
    pub columns: u8,
}

/// One moment of one failure.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The layout of the file.
    pub layout: Layout,
    /// Whether the write is synced.
    pub sync: bool,
    /// What fails; `None`: nothing.
    pub victim: Option<Victim>,
    /// The kind of failure.
    pub failure: Failure,
    /// Time of the failure after the begin of the write.
    pub after: Duration,
}

/// What the reader finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The bytes of the last write.
    New,
    /// Some or all of the earlier bytes.
    Old,
    /// An error.
    Error(ErrorKind),
}

/// The result for a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Duration of the write (and the sync), if they were acknowledged.
    pub acknowledged: Option<Duration>,
    /// What is read while the failed parts are away; `None`: no server is left to ask.
    pub meanwhile: Option<Found>,
    /// What is read after all that come back are back.
    pub after: Found,
    /// Differences between the copies at the end.
    pub differences: Vec<String>,
}

/// Tries one point. Errors: what did not come to an end.
pub fn try_point(point: Point) -> std::result::Result<Seen, String> {
    let shared = Rc::new(Shared::new(plan(point.layout)));
    let mut cluster = Cluster::new(shared, Options::default());
    cluster.set_up()?;
    let nodes: Vec<NodeName> =
        cluster.nodes_of_cells(0)[0].iter().map(|node| NodeName::Data(*node)).collect();
    let progress = Rc::new(Progress::default());
    let config = cluster.client_config(false);
    let (writer, file) = (progress.clone(), FileId(cluster.shared.made.borrow().files[0]));
    let client = cluster.nodes[&NodeName::Client(0)];
    let process = cluster.sim.start(client, "writer", move || {
        if let Err(error) = write(&config, file, point.sync, &writer) {
            *writer.error.borrow_mut() = Some(error.to_string());
        }
    });
    let until = |sim: &Simulation, time| sim.now() + time;
    let deadline = until(&cluster.sim, END);
    if !cluster.sim.run_until(deadline, |_| progress.ready.get()) {
        return Err(format!("the file is not made: {:?}", progress.error.borrow()));
    }
    progress.go.set(true);
    // The writer checks each millisecond.
    let deadline = until(&cluster.sim, END);
    cluster.sim.run_until(deadline, |_| progress.began.get());
    cluster.sim.run_for(point.after);
    let victims: Vec<NodeName> = match point.victim {
        Some(Victim::Primary) => vec![nodes[0]],
        Some(Victim::Follower) => vec![nodes[1]],
        Some(Victim::Last) => nodes.last().copied().into_iter().collect(),
        Some(Victim::All) => nodes.clone(),
        Some(Victim::Client) => vec![NodeName::Client(0)],
        None => Vec::new(),
    };
    for node in &victims {
        match (node, point.failure) {
            (NodeName::Client(_), _) => cluster.sim.kill(process),
            (_, Failure::Kill) => cluster.sim.kill(cluster.processes[node]),
            (_, Failure::PowerCut | Failure::Loss) => cluster.sim.power_cut(cluster.nodes[node]),
        }
    }
    // Whoever waits for an answer gets it, or gives up.
    let deadline = until(&cluster.sim, AWAY);
    cluster.sim.run_until(deadline, |_| false);
    let acknowledged = progress.acknowledged.get();
    let all_away = victims == nodes;
    let meanwhile = match all_away || victims.is_empty() {
        true => None,
        false => Some(read(&mut cluster, file)?),
    };
    if point.failure != Failure::Loss {
        for (boot, node) in victims.iter().enumerate() {
            if !matches!(node, NodeName::Client(_)) {
                if point.failure == Failure::PowerCut {
                    cluster.write_boot_id(*node, boot as u64 + 1);
                }
                cluster.start(*node);
            }
        }
        all_online(&mut cluster)?;
    }
    let after = read(&mut cluster, file)?;
    let mut differences = Vec::new();
    if point.failure != Failure::Loss {
        cluster.sim.run_for(SETTLED);
        if cluster.sim.is_running(process) {
            cluster.sim.kill(process);
        }
        differences.extend(shut_down(&mut cluster));
        differences.extend(copies::compare(&mut cluster)?);
    }
    let differences = differences.into_iter().map(|violation| violation.what).collect();
    Ok(Seen { acknowledged, meanwhile, after, differences })
}

/// Progress of the writer.
#[derive(Default)]
struct Progress {
    ready: Cell<bool>,
    go: Cell<bool>,
    began: Cell<bool>,
    acknowledged: Cell<Option<Duration>>,
    error: RefCell<Option<String>>,
}

fn write(config: &ClientConfig, file: FileId, sync: bool, progress: &Progress) -> Result<()> {
    let ctx = Context::root();
    let client = Client::connect(config.clone())?;
    let open: File = client.open(&ctx, file, Rights::READ_WRITE)?.0;
    open.write_at(&ctx, 0, &[OLD; BYTES])?;
    open.sync(&ctx)?;
    // Including postponed bytes.
    sleep(Duration::from_secs(2));
    progress.ready.set(true);
    while !progress.go.get() {
        sleep(Duration::from_millis(1));
    }
    let began = weir_host::clock::now();
    progress.began.set(true);
    open.write_at(&ctx, 0, &[NEW; BYTES])?;
    if sync {
        open.sync(&ctx)?;
    }
    progress.acknowledged.set(Some(weir_host::clock::elapsed(began)));
    // A closed file would not matter to others, so this one stays open.
    sleep(END * 4);
    Ok(())
}

/// Reads the file with another client.
fn read(cluster: &mut Cluster, file: FileId) -> std::result::Result<Found, String> {
    let found: Rc<RefCell<Option<Result<Vec<u8>>>>> = Rc::default();
    let result = found.clone();
    let reader = cluster.start_auditor(move |_, config| {
        let read = || -> Result<Vec<u8>> {
            let ctx = Context::root();
            let client = Client::connect(config)?;
            let open = client.open(&ctx, file, Rights::READ)?.0;
            let mut bytes = vec![0; BYTES];
            open.read_at(&ctx, 0, &mut bytes)?;
            client.shutdown();
            Ok(bytes)
        };
        *result.borrow_mut() = Some(read());
    });
    cluster.wait_for(&[reader], "read")?;
    let found = found.borrow_mut().take();
    match found {
        Some(Ok(bytes)) if bytes.iter().all(|byte| *byte == NEW) => Ok(Found::New),
        Some(Ok(bytes)) if bytes.iter().all(|byte| [OLD, NEW].contains(byte)) => Ok(Found::Old),
        Some(Ok(_)) => Err("what was read was never written".into()),
        Some(Err(error)) => Ok(Found::Error(error.kind)),
        None => Err("the reader has said nothing".into()),
    }
}

fn all_online(cluster: &mut Cluster) -> std::result::Result<(), String> {
    let watcher = cluster.start_auditor(copies::watch);
    cluster
        .wait_for(&[watcher], "all targets come back")
        .map_err(|error| format!("{error}: {}", cluster.shared.states.borrow()))
}

fn plan(layout: Layout) -> Plan {
    let shape = Shape {
        data_servers: layout.copies * layout.columns,
        targets_each: 1,
        event_loops: 1,
        engine: EngineKind::Embedded,
        leases: false,
        lease_ms: 1_500,
        session_ms: 30_000,
        grace_ms: 4_000,
        shared_files: 1,
        logs: 0,
        cells: (BYTES / crate::history::CELL_BYTES) as u32,
        layout: match layout.columns {
            1 => FileShape::OneTarget,
            _ => FileShape::Striped,
        },
        request_timeout_ms: 12_000,
        reset_ppm: 0,
        conflict_ppm: 0,
        copies: vec![layout.copies],
        protocols: vec![layout.protocol],
        target_timeout_ms: TIMEOUT_MS,
        rebuild_after_ms: 0,
        placements: Vec::new(),
        spares: 0,
    };
    let client = ClientPlan { write_behind: false, keeps_pages: false, ops: Vec::new() };
    let (faults, read_policy) = (Vec::new(), first_copies());
    Plan { seed: 1, duration_ms: 0, shape, clients: vec![client], faults, read_policy }
}
