//! A block of the ordering copy rots and is truncated, so that no checksum is left to verify
//! another copy's bytes. Then other bytes of the same part are written and postponed for the other
//! copy, which so counts as lacking the whole part for a moment. Just then a part of the block is
//! written.

use crate::cluster::{Cluster, SLOTS_BYTES};
use crate::failover::plan;
use crate::plan::{NodeName, Plan, Protocol};
use crate::shared::Shared;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_simhost::Options;
use weir_types::limits::BLOCK_BYTES;
use weir_types::{ErrorKind, FileId, Result};
use weir_wire::Rights;

/// The initial contents.
pub const OLD: u8 = 0x11;
/// The contents that the write gives a part of the block.
pub const NEW: u8 = 0x22;
/// The block is truncated to this size, and the same number of bytes is written after it.
pub const KEPT: usize = 512;
const SERVERS: u8 = 2;
/// Maximum time until postponed bytes arrive.
const BROUGHT: Duration = Duration::from_secs(3);
/// Interval of looks.
const PAUSE: Duration = Duration::from_millis(1);

/// The result of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The result of the write.
    pub told: Option<ErrorKind>,
    /// The block as read afterwards, with the ordering copy reachable and with it cut off.
    pub reads: Vec<Vec<u8>>,
}

/// Tries it. Errors: what went wrong.
pub fn try_write(seed: u64) -> std::result::Result<Seen, String> {
    let shared = Rc::new(Shared::new(plan_of(seed)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let file = FileId(shared.made.borrow().files[0]);
    let [orders, _] = cluster.nodes_of_cells(0)[0][..] else {
        return Err("it has not two copies".into());
    };
    let (step, seen) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Seen::default())));
    let (mine, sees) = (step.clone(), seen.clone());
    let user = cluster.start_auditor(move |shared, config| match written(&config, file, &mine) {
        Ok(found) => drop(sees.replace(found)),
        Err(error) => *shared.trouble.borrow_mut() = Some(error.to_string()),
    });
    let deadline = cluster.sim.now() + BROUGHT;
    cluster.sim.run_until(deadline, |_| step.get() == 1);
    let disk = cluster.disk(NodeName::Data(orders));
    let is_it = |path: &String| path.contains(&format!("/f{}.", file.0));
    let path = disk.files().into_iter().map(|(path, _)| path).find(is_it);
    let path = path.ok_or("it has no object")?;
    let byte = (SLOTS_BYTES + 2 * KEPT) as u64;
    if !disk.flip_bit(&path, byte, 0).is_ok_and(|flipped| flipped) {
        return Err("there is nothing to rot".into());
    }
    step.set(2);
    let deadline = cluster.sim.now() + 4 * BROUGHT;
    cluster.sim.run_until(deadline, |_| step.get() == 3);
    cluster.cut_off_auditor(NodeName::Data(orders), true);
    step.set(4);
    cluster.wait_for(&[user], "the writes and the reads")?;
    Ok(seen.take())
}

fn written(config: &ClientConfig, file: FileId, step: &Cell<u8>) -> Result<Seen> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    let open = client.open(&ctx, file, Rights::READ_WRITE)?.0;
    open.write_at_confirmed(&ctx, 0, &[OLD; BLOCK_BYTES])?;
    open.sync(&ctx)?;
    step.set(1);
    while step.get() == 1 {
        sleep(PAUSE);
    }
    open.truncate(&ctx, KEPT as u64)?;
    open.write_at_confirmed(&ctx, BLOCK_BYTES as u64, &[OLD; BLOCK_BYTES])?;
    let told = open.write_at_confirmed(&ctx, KEPT as u64, &[NEW; KEPT]).err();
    let told = told.map(|error| error.kind);
    sleep(BROUGHT);
    let mut reads = vec![look(config, file)?];
    client.shutdown();
    step.set(3);
    while step.get() == 3 {
        sleep(PAUSE);
    }
    reads.push(look(config, file)?);
    Ok(Seen { told, reads })
}

/// Reads the block with another client.
fn look(config: &ClientConfig, file: FileId) -> Result<Vec<u8>> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    let mut block = vec![0; BLOCK_BYTES];
    let open = client.open(&ctx, file, Rights::READ)?.0;
    open.read_at(&ctx, 0, &mut block)?;
    open.close(&ctx)?;
    client.shutdown();
    Ok(block)
}

fn plan_of(seed: u64) -> Plan {
    let mut plan = plan(seed, SERVERS);
    plan.shape.copies = vec![2];
    plan.shape.protocols = vec![Protocol::ServerAsync];
    plan.shape.shared_files = 1;
    plan
}
