//! A server comes back while replacements of its copies are made from another server's copies. It
//! orders changes from then on, and the other server forwards to it the changes that it has only
//! begun. Those must not count as done. Uses the machines of all simulations; times are virtual and
//! usual, except those of one disk.

use crate::administer::{self, Order};
use crate::cluster::Cluster;
use crate::failover::plan;
use crate::plan::targets_of;
use crate::plan::{NodeName, Plan};
use crate::shared::Shared;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_simhost::{Options, ProcessId};
use weir_types::{Error, ErrorKind, FileId, Result, TargetId};
use weir_wire::Rights;
use weir_wire::map::TargetState;

/// Data servers of the cluster. The data of two of them is moved to the third.
const SERVERS: u8 = 3;
/// The server whose copies are moved away.
const DRAINED: u8 = 0;
/// The server that gets them. Its disk is slow to sync.
const FILLED: u8 = 2;
const FILES: u8 = 40;
/// Size of each file: more than the number of copies that are made at the same time.
const BYTES: usize = 5 << 18;
const OPERATION: Duration = Duration::from_micros(100);
/// The disk stays slow for this long after the server has come back.
const SETTLES: Duration = Duration::from_secs(2);
/// Interval of looks at the map.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum time of everything.
const END: Duration = Duration::from_secs(600);

/// Returns the files that read differently from what was written, after their other copy is gone
/// too. `sync`: duration of a sync on the slow disk. `dies`: when the server dies after the order;
/// it comes back at once. Errors: what went wrong.
pub fn try_return(
    seed: u64,
    sync: Duration,
    dies: Duration,
) -> std::result::Result<Vec<u64>, String> {
    let shared = Rc::new(Shared::new(plan_of(seed)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    run(&mut cluster, "write", |shared, config| each(shared, config, &write).map(drop))?;
    let slow = cluster.disk(NodeName::Data(FILLED));
    slow.set_latency(Duration::ZERO..OPERATION, sync..sync + OPERATION);
    let drained = TargetId(targets_of(&shared.plan.shape, DRAINED)[0]);
    let order = Order::Drain { target: drained, on: true };
    run(&mut cluster, "drain", move |shared, config| {
        administer::carry_out(order, shared, config);
        Ok(())
    })?;
    cluster.sim.run_for(dies);
    kill(&mut cluster, DRAINED);
    cluster.start(NodeName::Data(DRAINED));
    run(&mut cluster, "come back", move |_, config| {
        wait_until(config, drained, |state| state != TargetState::Online)?;
        wait_until(config, drained, |state| state == TargetState::Online)
    })?;
    cluster.sim.run_for(SETTLES);
    let slow = cluster.disk(NodeName::Data(FILLED));
    slow.set_latency(Duration::ZERO..OPERATION, OPERATION..OPERATION * 2);
    let moves = cluster.start_auditor(administer::wait_for_moves);
    ended(&mut cluster, moves, "copies are moved")?;
    // Leaves only the copies that were made.
    [DRAINED, 1].into_iter().for_each(|server| kill(&mut cluster, server));
    let other = TargetId(targets_of(&shared.plan.shape, 1)[0]);
    run(&mut cluster, "miss the others", move |_, config| {
        wait_until(config, other, |state| state == TargetState::Offline)
    })?;
    let found = Rc::new(RefCell::new(Vec::new()));
    let finds = found.clone();
    run(&mut cluster, "read", move |shared, config| {
        *finds.borrow_mut() = each(shared, config, &read)?;
        Ok(())
    })?;
    Ok(found.take())
}

fn plan_of(seed: u64) -> Plan {
    let mut plan = plan(seed, SERVERS);
    plan.shape.shared_files = FILES;
    plan
}

fn kill(cluster: &mut Cluster, server: u8) {
    let process = cluster.processes[&NodeName::Data(server)];
    cluster.sim.kill(process);
}

/// Runs a process to its end.
fn run(
    cluster: &mut Cluster,
    what: &'static str,
    work: impl FnOnce(&Shared, &ClientConfig) -> Result<()> + 'static,
) -> std::result::Result<(), String> {
    let process = cluster.start_auditor(move |shared, config| {
        if let Err(error) = work(&shared, &config) {
            *shared.trouble.borrow_mut() = Some(error.to_string());
        }
    });
    ended(cluster, process, what)
}

fn ended(cluster: &mut Cluster, process: ProcessId, what: &str) -> std::result::Result<(), String> {
    let deadline = cluster.sim.now() + END;
    let ended = cluster.sim.run_until(deadline, |sim| !sim.is_running(process));
    match cluster.shared.trouble.borrow_mut().take() {
        Some(trouble) => Err(format!("{what}: {trouble}")),
        None if !ended => Err(format!("{what}: it does not end")),
        None => Ok(()),
    }
}

fn wait_until(
    config: &ClientConfig,
    target: TargetId,
    is_so: impl Fn(TargetState) -> bool,
) -> Result<()> {
    let client = Client::connect(config.clone())?;
    while !client.cluster_map()?.target(target).is_some_and(|entry| is_so(entry.state)) {
        sleep(LOOK);
    }
    client.shutdown();
    Ok(())
}

/// Applies a function to each file; returns the files for which it returns true.
fn each(
    shared: &Shared,
    config: &ClientConfig,
    work: &dyn Fn(&weir_client::File, &[u8]) -> Result<bool>,
) -> Result<Vec<u64>> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    let mut said = Vec::new();
    for id in shared.made.borrow().files.clone() {
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at as u64 / 509 + id) as u8 | 1).collect();
        let file = client.open(&ctx, FileId(id), Rights::READ_WRITE)?.0;
        if work(&file, &bytes)? {
            said.push(id);
        }
        file.close(&ctx)?;
    }
    client.shutdown();
    Ok(said)
}

fn write(file: &weir_client::File, bytes: &[u8]) -> Result<bool> {
    let ctx = Context::root();
    file.write_at(&ctx, 0, bytes)?;
    file.sync(&ctx)?;
    Ok(false)
}

/// Whether the contents of the file differ.
fn read(file: &weir_client::File, bytes: &[u8]) -> Result<bool> {
    let mut found = vec![0; bytes.len()];
    match file.read_at(&Context::root(), 0, &mut found) {
        Ok(len) => Ok(found[..len] != *bytes),
        Err(error) => Err(Error::new(ErrorKind::Internal, format!("a read: {error}"))),
    }
}
