//! A write is refused because the disk of the ordering copy is full. The other copy has applied the
//! write, has another map, and cannot be told to undo it. Later reads must all return the old
//! bytes, or all the new ones.

use crate::administer::{self, Order};
use crate::cluster::Cluster;
use crate::failover::plan;
use crate::plan::targets_of;
use crate::plan::{NodeName, Plan};
use crate::shared::Shared;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_simhost::Options;
use weir_simhost::disk::Operation;
use weir_types::limits::BLOCK_BYTES;
use weir_types::{ErrorKind, FileId, Result, TargetId};
use weir_wire::Rights;

/// The initial contents.
pub const OLD: u8 = 0x11;
/// The contents of the refused write.
pub const NEW: u8 = 0x22;
/// Number of data servers: two have the file, and one is drained to make a new map.
const SERVERS: u8 = 3;
/// Time until the ordering copy knows the new map, while the other one still serves without it.
const LEARNS: Duration = Duration::from_millis(700);
/// Time during which the other copy does not hear of it.
const UNHEARD: Duration = Duration::from_millis(1_500);
/// Maximum time until bytes arrive at the other copy.
const BROUGHT: Duration = Duration::from_secs(3);
/// Interval of looks.
const PAUSE: Duration = Duration::from_millis(1);

/// The result of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The result of the write.
    pub told: Option<ErrorKind>,
    /// The first byte as read at once, and after a while.
    pub reads: Vec<u8>,
}

/// Tries it. Errors: what went wrong.
pub fn try_refusal(seed: u64) -> std::result::Result<Seen, String> {
    let shared = Rc::new(Shared::new(plan_of(seed)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let file = FileId(shared.made.borrow().files[0]);
    let [orders, follows] = cluster.nodes_of_cells(0)[0][..] else {
        return Err("it has not two copies".into());
    };
    let other = (0..SERVERS).find(|server| ![orders, follows].contains(server));
    let target = TargetId(targets_of(&shared.plan.shape, other.unwrap_or_default())[0]);
    let (step, seen) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Seen::default())));
    let (mine, sees) = (step.clone(), seen.clone());
    let user = cluster.start_auditor(move |shared, config| match refused(&config, file, &mine) {
        Ok(found) => drop(sees.replace(found)),
        Err(error) => *shared.trouble.borrow_mut() = Some(error.to_string()),
    });
    let deadline = cluster.sim.now() + BROUGHT;
    cluster.sim.run_until(deadline, |_| step.get() == 1);
    let nodes = [NodeName::Meta, NodeName::Data(follows)].map(|node| cluster.nodes[&node]);
    cluster.sim.network().partition(nodes[0], nodes[1], true);
    let drain = cluster.start_auditor(move |shared, config| {
        administer::carry_out(Order::Drain { target, on: true }, &shared, &config);
    });
    cluster.sim.run_for(LEARNS);
    cluster.disk(NodeName::Data(orders)).fail_next(Operation::Write, Errno::NOSPC, 0);
    step.set(2);
    cluster.sim.run_for(UNHEARD);
    cluster.sim.network().heal_all();
    cluster.wait_for(&[user, drain], "the write and the reads")?;
    Ok(seen.take())
}

fn refused(config: &ClientConfig, file: FileId, step: &Cell<u8>) -> Result<Seen> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    let open = client.open(&ctx, file, Rights::READ_WRITE)?.0;
    open.write_at_confirmed(&ctx, 0, &[OLD; BLOCK_BYTES])?;
    open.sync(&ctx)?;
    step.set(1);
    while step.get() == 1 {
        sleep(PAUSE);
    }
    let told = open.write_at_confirmed(&ctx, 0, &[NEW; BLOCK_BYTES]).err().map(|error| error.kind);
    let mut reads = vec![look(config, file)?];
    sleep(BROUGHT);
    reads.push(look(config, file)?);
    client.shutdown();
    Ok(Seen { told, reads })
}

/// Reads the first byte with another client.
fn look(config: &ClientConfig, file: FileId) -> Result<u8> {
    let (ctx, client, mut byte) = (Context::root(), Client::connect(config.clone())?, [0]);
    let open = client.open(&ctx, file, Rights::READ)?.0;
    open.read_at(&ctx, 0, &mut byte)?;
    open.close(&ctx)?;
    client.shutdown();
    Ok(byte[0])
}

fn plan_of(seed: u64) -> Plan {
    let mut plan = plan(seed, SERVERS);
    plan.shape.copies = vec![2];
    plan.shape.shared_files = 1;
    plan
}
