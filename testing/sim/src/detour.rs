//! The effect on a client that cannot reach the server of the ordering copy, while all others can.
//! It writes and syncs continuously, is cut off from that server alone, and gets it back. Others
//! read what it has written. Uses the machines of all simulations, with the usual times, virtual.

use crate::cluster::Cluster;
use crate::failover::{now, plan};
use crate::plan::targets_of;
use crate::plan::{NodeName, Placement, Plan, Protocol};
use crate::shared::Shared;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context, File};
use weir_host::thread::{sleep, spawn};
use weir_simhost::Options;
use weir_types::{Error, ErrorKind, FileId, Result, TargetId};
use weir_wire::Rights;

/// Bytes of one write.
const BYTES: usize = 16 << 10;
/// Pause between calls.
const PAUSE: Duration = Duration::from_millis(10);
/// Time before the cut.
const BEFORE: Duration = Duration::from_secs(1);
/// Duration of the cut: longer than a call waits.
const CUT: Duration = Duration::from_secs(35);
/// Time after the cut.
const AFTERWARDS: Duration = Duration::from_secs(8);

/// One cut.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Seed of all random choices.
    pub seed: u64,
    /// Copies of each file.
    pub copies: u8,
    /// The duplication protocol.
    pub protocol: Protocol,
    /// Only the replies are lost: requests of the client arrive.
    pub deaf: bool,
    /// Time of the cut after a period of normal work.
    pub after: Duration,
    /// When the machine of the second copy, which forwards requests, loses power after the cut has
    /// healed.
    pub helper_goes: Option<Duration>,
}

/// A write and a sync.
#[derive(Clone, Copy, Debug)]
pub struct Did {
    /// When the call began, relative to the cut.
    pub asked: Duration,
    /// Duration of both.
    pub took: Duration,
    /// Number of its requests that another server has forwarded.
    pub detours: u64,
}

/// The result of a cut.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Calls from the cut on. The last one may still be running at the end.
    pub calls: Vec<Did>,
    /// When the cut ended, relative to its begin.
    pub healed: Duration,
    /// The longest write to another file through the same client; the maximum value if one failed.
    pub longest_beside: Duration,
    /// Number of times that another client has seen the written bytes.
    pub looks: u64,
}

#[derive(Default)]
struct Log {
    cut_at: Cell<Option<Duration>>,
    calls: RefCell<Vec<Did>>,
    /// When the running call began.
    asked: Cell<Option<Duration>>,
    looks: Cell<u64>,
    beside: Arc<Beside>,
    /// Number of acknowledged writes.
    written: Cell<u8>,
    trouble: RefCell<Option<String>>,
}

/// Calls on the other file.
#[derive(Default)]
struct Beside {
    asked_us: AtomicU64,
    longest_us: AtomicU64,
}

impl Beside {
    fn under_way(&self) -> Duration {
        now().saturating_sub(Duration::from_micros(self.asked_us.load(Relaxed)))
    }
}

/// Tries one cut. Errors: what went wrong.
pub fn try_cut(point: Point) -> std::result::Result<Seen, String> {
    let shared = Rc::new(Shared::new(plan_of(point)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let file = FileId(shared.made.borrow().files[0]);
    let log = Rc::new(Log::default());
    let config = cluster.client_config(false);
    let copies = cluster.nodes_of_cells(0)[0].clone();
    let files = shared.made.borrow().files.clone();
    let is_beside = |n: &usize| {
        let nodes = &cluster.nodes_of_cells(*n)[0];
        nodes[0] == copies[0] && !nodes.contains(&copies[1])
    };
    let beside = (1..files.len()).find(is_beside).map(|n| FileId(files[n]));
    let beside = beside.ok_or("no file shares just the one server")?;
    let first = TargetId(targets_of(&shared.plan.shape, copies[0])[0]);
    for user in 0..2 {
        let (log, config) = (log.clone(), config.clone());
        let node = cluster.nodes[&NodeName::Client(user)];
        cluster.sim.start(node, "user", move || {
            let done = if user == 0 {
                write(&config, (file, beside), &log)
            } else {
                look(&config, file, &log)
            };
            if let Err(error) = done {
                log.trouble.borrow_mut().get_or_insert(format!("user {user}: {error}"));
            }
        });
    }
    cluster.sim.run_for(BEFORE + point.after);
    let begun = cluster.sim.now();
    log.cut_at.set(Some(begun));
    let (client, server) =
        (cluster.nodes[&NodeName::Client(0)], cluster.nodes[&NodeName::Data(copies[0])]);
    match point.deaf {
        true => cluster.sim.network().partition_one_way(server, client, true),
        false => cluster.sim.network().partition(client, server, true),
    }
    cluster.sim.run_for(CUT);
    cluster.sim.network().heal_all();
    let healed = cluster.sim.now() - begun;
    if let Some(after) = point.helper_goes {
        cluster.sim.run_for(after);
        cluster.sim.power_cut(cluster.nodes[&NodeName::Data(copies[1])]);
    }
    cluster.sim.run_for(AFTERWARDS);
    let end = cluster.sim.now();
    if let Some(asked) = log.asked.get() {
        let (asked, took) = (asked.saturating_sub(begun), end - asked);
        log.calls.borrow_mut().push(Did { asked, took, detours: 0 });
    }
    let [asked, longest] = [&log.beside.asked_us, &log.beside.longest_us]
        .map(|us| Duration::from_micros(us.load(Relaxed)));
    match log.trouble.borrow_mut().take() {
        Some(trouble) => Err(format!("{trouble} (target {first} orders)")),
        None => Ok(Seen {
            calls: log.calls.take(),
            healed,
            longest_beside: longest.max(end.saturating_sub(asked)),
            looks: log.looks.get(),
        }),
    }
}

/// Writes different bytes each time, syncs, and checks that it reads them.
fn write(config: &ClientConfig, (file, beside): (FileId, FileId), log: &Log) -> Result<()> {
    let ctx = Context::root();
    let client = Client::connect(config.clone())?;
    let open = client.open(&ctx, file, Rights::READ_WRITE)?.0;
    let detours = || {
        let list = client.counters();
        list.iter().find(|(name, _)| name == "data_detours").map_or(0, |(_, value)| *value)
    };
    let mut read = vec![0; BYTES];
    let (beside, calls) = (client.open(&ctx, beside, Rights::READ_WRITE)?.0, log.beside.clone());
    spawn("beside", move || write_beside(&beside, &calls))?;
    loop {
        let next = log.written.get().wrapping_add(1);
        let (asked, before) = (now(), detours());
        log.asked.set(Some(asked));
        open.write_at(&ctx, 0, &[next; BYTES])?;
        log.written.set(next);
        open.sync(&ctx)?;
        if let Some(at) = log.cut_at.get() {
            let (took, detours) = (now() - asked, detours() - before);
            let asked = asked.saturating_sub(at);
            log.calls.borrow_mut().push(Did { asked, took, detours });
        }
        log.asked.set(None);
        open.read_at(&ctx, 0, &mut read)?;
        if read.iter().any(|byte| *byte != next) {
            return Err(Error::new(ErrorKind::Corrupt, format!("not what was written: {next}")));
        }
        sleep(PAUSE);
    }
}

/// Writes to a file with a copy on the same server, and none on the forwarding one. So the client
/// hears from that server independently of the first file.
fn write_beside(file: &File, calls: &Beside) {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    loop {
        calls.asked_us.store(micros(now()), Relaxed);
        let done = file.write_at(&Context::root(), 0, &[1]);
        let longest = done.map_or(Duration::MAX, |()| calls.under_way());
        calls.longest_us.fetch_max(micros(longest), Relaxed);
        sleep(PAUSE);
    }
}

/// Reads from time to time: the bytes must be those acknowledged before, or newer.
fn look(config: &ClientConfig, file: FileId, log: &Log) -> Result<()> {
    let ctx = Context::root();
    let client = Client::connect(config.clone())?;
    let open = client.open(&ctx, file, Rights::READ)?.0;
    let mut read = vec![0; BYTES];
    sleep(BEFORE / 2);
    loop {
        let before = log.written.get();
        open.read_at(&ctx, 0, &mut read)?;
        // The write in progress may be visible or not.
        let most = log.written.get().wrapping_sub(before).wrapping_add(1);
        if read.iter().any(|byte| byte.wrapping_sub(before) > most) {
            let what = format!("{} was read after {before} had been written", read[0]);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        log.looks.set(log.looks.get() + 1);
        sleep(PAUSE * 29);
    }
}

fn plan_of(point: Point) -> Plan {
    let mut plan = plan(point.seed, point.copies + 1);
    plan.shape.copies = vec![point.copies];
    plan.shape.protocols = vec![point.protocol];
    plan.shape.placements = vec![Placement::Random];
    plan.shape.shared_files = 32;
    plan
}
