//! What a client feels that does not reach the server of the copy that orders, while all others
//! do: it writes and syncs all the time, is cut from that server alone, and gets it back. Others
//! read what it has written. The machines are those of all simulations, all times are the usual
//! ones, and virtual.

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

/// What is written at once, bytes.
const BYTES: usize = 16 << 10;
/// Between calls.
const PAUSE: Duration = Duration::from_millis(10);
/// Before the cut.
const BEFORE: Duration = Duration::from_secs(1);
/// Longer than a call waits.
const CUT: Duration = Duration::from_secs(35);
/// After it.
const AFTERWARDS: Duration = Duration::from_secs(8);

/// One cut.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// All chance.
    pub seed: u64,
    /// Copies of each file.
    pub copies: u8,
    /// How they are written.
    pub protocol: Protocol,
    /// What the client sends gets there, and no answer comes.
    pub deaf: bool,
    /// So long after it has been at work for a while.
    pub after: Duration,
    /// The machine of the second copy, which passes on what is sent, loses its power so long after
    /// the cut has healed.
    pub helper_goes: Option<Duration>,
}

/// A write and a sync.
#[derive(Clone, Copy, Debug)]
pub struct Did {
    /// When it was asked for, from the cut on.
    pub asked: Duration,
    /// How long the two took.
    pub took: Duration,
    /// Requests of it that another server has passed on.
    pub detours: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// From the cut on; the last one may be under way at the end.
    pub calls: Vec<Did>,
    /// When it ended, from its beginning on.
    pub healed: Duration,
    /// The longest write to another file through the same client; the longest there is if one failed.
    pub longest_beside: Duration,
    /// So often another client has seen what was written.
    pub looks: u64,
}

#[derive(Default)]
struct Log {
    cut_at: Cell<Option<Duration>>,
    calls: RefCell<Vec<Did>>,
    /// When the call that is under way was asked for.
    asked: Cell<Option<Duration>>,
    looks: Cell<u64>,
    beside: Arc<Beside>,
    /// How many writes have been acknowledged.
    written: Cell<u8>,
    trouble: RefCell<Option<String>>,
}

/// Calls for the file beside.
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

/// Tries one. Errors: in words, what went wrong.
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

/// Writes something else each time, makes it durable, and sees that it reads just that.
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

/// Writes to a file with a copy on the same server, and none on the one that helps: so that server is
/// heard of, by another way, whatever becomes of the first file.
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

/// Reads now and then: what was acknowledged before, or is newer.
fn look(config: &ClientConfig, file: FileId, log: &Log) -> Result<()> {
    let ctx = Context::root();
    let client = Client::connect(config.clone())?;
    let open = client.open(&ctx, file, Rights::READ)?.0;
    let mut read = vec![0; BYTES];
    sleep(BEFORE / 2);
    loop {
        let before = log.written.get();
        open.read_at(&ctx, 0, &mut read)?;
        // One that is under way may be there, or not.
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
