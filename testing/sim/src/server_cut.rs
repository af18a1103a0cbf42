//! The effect on clients when two servers with copies of a file cannot reach each other, while
//! everybody else reaches both. Several clients append to a file and sync continuously. Uses the
//! machines of all simulations, with the usual times, virtual.

use crate::cluster::Cluster;
use crate::failover::{now, plan};
use crate::history::CELL_BYTES;
use crate::plan::{NodeName, Plan, Protocol};
use crate::shared::Shared;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_simhost::Options;
use weir_types::{Error, ErrorKind, FileId, Result};
use weir_wire::Rights;

/// Number of clients that append.
const WRITERS: u8 = 3;
/// Pause between calls of a client.
const PAUSE: Duration = Duration::from_millis(10);
/// Time before the cut.
const BEFORE: Duration = Duration::from_secs(1);
/// Duration of the cut: longer than it delays calls.
const CUT: Duration = Duration::from_secs(14);
/// Time after the cut.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// One cut.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of copies of the file.
    pub copies: u8,
    /// The duplication protocol.
    pub protocol: Protocol,
    /// The two copies whose servers are cut off from each other.
    pub between: (usize, usize),
    /// Only messages of the first one are held back.
    pub one_way: bool,
    /// Time of the cut after a period of normal work.
    pub after: Duration,
}

/// An append and its sync.
#[derive(Clone, Copy, Debug)]
pub struct Did {
    /// When the call began after the cut; 0 if before it.
    pub asked: Duration,
    /// Duration of both.
    pub took: Duration,
}

/// The result of a cut.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// For each client, the calls that ended after the cut began. The last one may still be
    /// running.
    pub calls: Vec<Vec<Did>>,
}

#[derive(Default)]
struct Log {
    cut_at: Cell<Option<Duration>>,
    calls: RefCell<Vec<Vec<Did>>>,
    /// When the last call of each client began.
    begun: RefCell<Vec<Option<Duration>>>,
    trouble: RefCell<Option<String>>,
}

/// Tries one cut. Errors: what went wrong.
pub fn try_cut(point: Point) -> std::result::Result<Seen, String> {
    let shared = Rc::new(Shared::new(plan_of(point)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let file = FileId(shared.made.borrow().files[0]);
    let log = Rc::new(Log::default());
    log.calls.borrow_mut().resize(usize::from(WRITERS), Vec::new());
    log.begun.borrow_mut().resize(usize::from(WRITERS), None);
    // Alternately as for a mount, and without a cache.
    let config = cluster.client_config(point.seed.is_multiple_of(2));
    let copies = cluster.nodes_of_cells(0)[0].clone();
    for user in 0..WRITERS {
        let (log, config) = (log.clone(), config.clone());
        let node = cluster.nodes[&NodeName::Client(user)];
        cluster.sim.start(node, "user", move || {
            if let Err(error) = append(&config, file, user, &log) {
                log.trouble.borrow_mut().get_or_insert(format!("user {user}: {error}"));
            }
        });
    }
    cluster.sim.run_for(BEFORE + point.after);
    log.cut_at.set(Some(cluster.sim.now()));
    let server = |at: usize| cluster.nodes[&NodeName::Data(copies[at])];
    let (a, b) = (server(point.between.0), server(point.between.1));
    match point.one_way {
        true => cluster.sim.network().partition_one_way(a, b, true),
        false => cluster.sim.network().partition(a, b, true),
    }
    cluster.sim.run_for(CUT);
    cluster.sim.network().heal_all();
    cluster.sim.run_for(AFTERWARDS);
    let ended = cluster.sim.now();
    if let Some(trouble) = log.trouble.borrow_mut().take() {
        return Err(trouble);
    }
    for begun in log.begun.borrow().iter().flatten() {
        if ended - *begun > AFTERWARDS {
            return Err(format!("a call has not ended {:?} after it began", ended - *begun));
        }
    }
    Ok(Seen { calls: log.calls.take() })
}

/// Appends, syncs, and checks that the bytes are at the returned offset.
fn append(config: &ClientConfig, file: FileId, user: u8, log: &Log) -> Result<()> {
    let ctx = Context::root();
    let client = Client::connect(config.clone())?;
    let open = client.open(&ctx, file, Rights::READ_WRITE)?.0;
    let (record, mut read) = ([user + 1; CELL_BYTES], [0; CELL_BYTES]);
    loop {
        let asked = now();
        log.begun.borrow_mut()[usize::from(user)] = Some(asked);
        let at = open.append(&ctx, &record)?;
        open.sync(&ctx)?;
        if let Some(cut_at) = log.cut_at.get() {
            let did = Did { asked: asked.saturating_sub(cut_at), took: now() - asked };
            log.calls.borrow_mut()[usize::from(user)].push(did);
        }
        open.read_at(&ctx, at, &mut read)?;
        if read != record {
            let what = format!("{} is read at {at}, and was not appended there", read[0]);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        sleep(PAUSE);
    }
}

fn plan_of(point: Point) -> Plan {
    let mut plan = plan(point.seed, point.copies + 2);
    plan.shape.copies = vec![point.copies];
    plan.shape.protocols = vec![point.protocol];
    plan.shape.shared_files = 1;
    plan
}
