//! A returning server that is online by the map, while the server that ordered without it does not
//! hear of that and cannot reach it. The other server goes on alone until its lease ends, and a
//! returning server must wait for that. The writer is cut off too, and so keeps asking the other
//! server; the reader asks the returning server first, as the map says. Uses the machines of all
//! simulations.

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

/// Number of servers. Each has a copy of everything.
const SERVERS: u8 = 2;
/// A lease must outlast, by more than a moment, the wait for a copy that does not answer.
const TARGET_TIMEOUT_MS: u32 = 8_000;
/// Time until it is known to be away.
const AWAY: Duration = Duration::from_secs(12);
/// Maximum time until it is back after the other server was cut off; otherwise the attempt does not
/// count.
const BACK: Duration = Duration::from_secs(1);
/// Duration of the cut: longer than a lease.
const CUT: Duration = Duration::from_secs(12);
/// Interval of looks.
const LOOK: Duration = Duration::from_millis(2);
/// The old and the new contents.
const OLD: u8 = 1;
const NEW: u8 = 2;

/// The result of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whether the write was acknowledged during the cut.
    pub acknowledged: bool,
    /// Whether overwritten bytes were read afterwards.
    pub stale: bool,
    /// Whether the read succeeded.
    pub read: bool,
}

/// Signals between the processes.
#[derive(Default)]
struct Signs {
    /// The returning server is online by the map.
    joined: Cell<bool>,
    /// The writer should write.
    go: Cell<bool>,
    seen: Cell<Seen>,
    trouble: RefCell<Option<String>>,
}

/// Tries it once. The other server is cut off `deaf_after` the first one has started again. Errors:
/// what went wrong.
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
    // The reader also uses that old map, until a server refuses it.
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
    // The write may fail, possibly long after the check.
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

/// Without a lease, and with cached knowledge of the file, so that it asks data servers only.
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
