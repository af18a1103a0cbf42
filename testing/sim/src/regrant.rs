//! A server that is back, and online by the map, while the one that ordered without it does not hear of
//! that, and does not reach it any more either: until its lease ends it goes on without it, and that is
//! what a server must wait for that is back. Who writes is deaf as well, and so goes on asking the other one;
//! who reads asks the one that is back first, as the map says. The machines are those of all simulations.

use crate::cluster::Cluster;
use crate::failover::plan;
use crate::plan::NodeName;
use crate::plan::targets_of;
use crate::shared::Shared;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Consistency, Context};
use weir_host::thread::sleep;
use weir_simhost::Options;
use weir_types::{FileId, Result, TargetId};
use weir_wire::Rights;
use weir_wire::map::TargetState;

/// Each has a copy of everything.
const SERVERS: u8 = 2;
/// A lease has to outlast the wait for a copy that does not answer, by more than a moment.
const TARGET_TIMEOUT_MS: u32 = 8_000;
/// It is missed by then.
const AWAY: Duration = Duration::from_secs(12);
/// If it is not back so soon after the other one has heard nothing any more it is not.
const BACK: Duration = Duration::from_secs(1);
/// Longer than a lease.
const CUT: Duration = Duration::from_secs(12);
/// Between looks.
const LOOK: Duration = Duration::from_millis(2);
/// What the file holds before, and then.
const OLD: u8 = 1;
const NEW: u8 = 2;

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The write was acknowledged while the two were cut from each other.
    pub acknowledged: bool,
    /// What it has overwritten was read afterwards.
    pub stale: bool,
    /// It was read afterwards.
    pub read: bool,
}

/// What everybody tells the others.
#[derive(Default)]
struct Signs {
    /// The one that was away is online by the map.
    joined: Cell<bool>,
    /// Write.
    go: Cell<bool>,
    seen: Cell<Seen>,
    trouble: RefCell<Option<String>>,
}

/// Tries it: the other one hears nothing any more so long after the first one has started again.
/// Errors: in words, what went wrong.
pub fn try_once(seed: u64, deaf_after: Duration) -> std::result::Result<Seen, String> {
    let mut plan = plan(seed, SERVERS);
    plan.shape.target_timeout_ms = TARGET_TIMEOUT_MS;
    let shared = Rc::new(Shared::new(plan));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let file = FileId(shared.made.borrow().files[0]);
    let copies = cluster.nodes_of_cells(0)[0].clone();
    let [first, second] = [copies[0], copies[1]].map(NodeName::Data);
    let target = TargetId(targets_of(&shared.plan.shape, copies[0])[0]);
    let signs = Rc::new(Signs::default());
    cluster.sim.kill(cluster.processes[&first]);
    cluster.sim.run_for(AWAY);
    // Who reads goes by the map of then, too, until that is refused.
    start(&mut cluster, &signs, 0, move |config, signs| write(config, file, signs));
    start(&mut cluster, &signs, 1, move |config, signs| watch(config, target, signs));
    start(&mut cluster, &signs, 2, move |config, signs| read(config, file, signs));
    cluster.sim.run_for(Duration::from_secs(1));
    cluster.start(first);
    cluster.sim.run_for(deaf_after);
    let of = |name| cluster.nodes[&name];
    let (a, b, meta, writer) = (of(first), of(second), of(NodeName::Meta), of(NodeName::Client(0)));
    cluster.sim.network().partition_one_way(meta, b, true);
    cluster.sim.network().partition_one_way(meta, writer, true);
    let (joined, end) = (signs.clone(), cluster.sim.now() + BACK);
    cluster.sim.run_until(end, move |_| joined.joined.get());
    if !signs.joined.get() {
        return Ok(Seen::default());
    }
    cluster.sim.network().partition(a, b, true);
    signs.go.set(true);
    cluster.sim.run_for(CUT);
    let trouble = signs.trouble.borrow_mut().take();
    trouble.map_or(Ok(signs.seen.get()), Err)
}

fn start(
    cluster: &mut Cluster,
    signs: &Rc<Signs>,
    client: u8,
    work: impl FnOnce(ClientConfig, &Signs) -> Result<()> + 'static,
) {
    let (config, signs) = (cluster.client_config(false), signs.clone());
    cluster.sim.start(cluster.nodes[&NodeName::Client(client)], "user", move || {
        if let Err(error) = work(config, &signs) {
            signs.trouble.borrow_mut().get_or_insert(format!("user {client}: {error}"));
        }
    });
}

fn write(config: ClientConfig, file: FileId, signs: &Signs) -> Result<()> {
    let (ctx, client) = (Context::root(), Client::connect(config)?);
    let file = client.open(&ctx, file, Rights::READ_WRITE)?.0;
    file.write_at(&ctx, 0, &[OLD])?;
    file.sync(&ctx)?;
    while !signs.go.get() {
        sleep(LOOK);
    }
    // It may not be, and fail long after this has been looked at.
    if file.write_at(&ctx, 0, &[NEW]).is_ok() {
        signs.seen.set(Seen { acknowledged: true, ..signs.seen.get() });
    }
    Ok(())
}

fn watch(config: ClientConfig, target: TargetId, signs: &Signs) -> Result<()> {
    let client = Client::connect(config)?;
    loop {
        let map = client.cluster_map()?;
        let state = map.target(target).map(|entry| entry.state);
        signs.joined.set(state == Some(TargetState::Online));
        sleep(LOOK);
    }
}

/// Without a lease, and with what it knows of the file: it asks the data servers alone.
fn read(config: ClientConfig, file: FileId, signs: &Signs) -> Result<()> {
    let config = ClientConfig { consistency: Consistency::Relaxed, keep_metadata: true, ..config };
    let (ctx, client) = (Context::root(), Client::connect(config)?);
    let file = client.open(&ctx, file, Rights::READ)?.0;
    while !signs.seen.get().acknowledged {
        sleep(LOOK);
    }
    loop {
        let mut byte = [0];
        if file.read_at(&ctx, 0, &mut byte).is_ok() {
            let seen = signs.seen.get();
            signs.seen.set(Seen { read: true, stale: seen.stale || byte == [OLD], ..seen });
        }
        sleep(LOOK);
    }
}
