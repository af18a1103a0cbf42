//! The distribution of blocks over disks of different speeds when each block goes to any disk that
//! accepts it. The writers of a job spread blocks over all disks. Clients and servers are those of
//! all simulations; times are virtual.

use crate::cluster::Cluster;
use crate::failover::{now, plan};
use crate::plan::{NodeName, Plan};
use crate::shared::Shared;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_jobs::{Fragment, Spread, SpreadOptions};
use weir_simhost::Options;
use weir_simhost::disk::Operation;
use weir_types::{ErrorKind, FileId, Result, TargetId};
use weir_wire::Rights;

/// Number of writers of the job.
const WRITERS: u8 = 2;
/// The name of the directory.
const NAME: &[u8] = b"out";
const BATCH: usize = 1 << 20;
/// Bytes of a record. The first eight are its number.
const RECORD: usize = 64 << 10;
/// Maximum time of everything.
const END: Duration = Duration::from_secs(600);

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Bytes for each disk, in order.
    pub bytes: Vec<u64>,
    /// Time of the last writer.
    pub took: Duration,
    /// For each writer and fragment, the numbers of its records in order.
    pub records: BTreeMap<String, Vec<u64>>,
}

/// Each writer writes this many records over disks of these speeds (bytes per second). Errors: what
/// went wrong.
pub fn spread(seed: u64, rates: &[u64], records: u64) -> std::result::Result<Seen, String> {
    let shared = Rc::new(Shared::new(plan_of(seed, rates.len() as u8)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let maker = cluster.start_auditor(|shared, config| {
        if let Err(error) = make_directory(&config) {
            *shared.trouble.borrow_mut() = Some(error.to_string());
        }
    });
    cluster.wait_for(&[maker], "make the directory")?;
    for (server, rate) in (0..).zip(rates) {
        cluster.disk(NodeName::Data(server)).set_rate(*rate);
    }
    let (begun, log) = (cluster.sim.now(), Rc::new(RefCell::new(Vec::new())));
    let mut writers = Vec::new();
    for rank in 0..WRITERS {
        let (log, config) = (log.clone(), cluster.client_config(true));
        let node = cluster.nodes[&NodeName::Client(rank)];
        let shared = shared.clone();
        writers.push(cluster.sim.start(node, "writer", move || {
            match write(&config, rank, records) {
                Ok(fragments) => log.borrow_mut().push((fragments, now())),
                Err(error) => *shared.trouble.borrow_mut() = Some(error.to_string()),
            }
        }));
    }
    let ended = cluster
        .sim
        .run_until(begun + END, |sim| writers.iter().all(|writer| !sim.is_running(*writer)));
    if let Some(trouble) = shared.trouble.borrow_mut().take() {
        return Err(trouble);
    }
    if !ended {
        return Err(format!("not written within {END:?}"));
    }
    for server in 0..rates.len() as u8 {
        cluster.disk(NodeName::Data(server)).set_rate(0);
    }
    let seen = Rc::new(RefCell::new(Seen { bytes: vec![0; rates.len()], ..Seen::default() }));
    for (fragments, at) in log.take() {
        let mut seen = seen.borrow_mut();
        seen.took = seen.took.max(at - begun);
        for Fragment { target: TargetId(target), bytes, .. } in fragments {
            seen.bytes[target as usize - 1] += bytes;
        }
    }
    let found = seen.clone();
    let reader = cluster.start_auditor(move |shared, config| match read(&config) {
        Ok(records) => found.borrow_mut().records = records,
        Err(error) => *shared.trouble.borrow_mut() = Some(error.to_string()),
    });
    cluster.wait_for(&[reader], "read")?;
    Ok(seen.take())
}

/// The error that `finish` returns if a writer's only disk has no space for its first block.
/// Errors: what went wrong.
pub fn spread_in_vain(seed: u64) -> std::result::Result<Option<ErrorKind>, String> {
    let shared = Rc::new(Shared::new(plan_of(seed, 1)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let maker = cluster.start_auditor(|shared, config| {
        if let Err(error) = make_directory(&config) {
            *shared.trouble.borrow_mut() = Some(error.to_string());
        }
    });
    cluster.wait_for(&[maker], "make the directory")?;
    cluster.disk(NodeName::Data(0)).fail_next(Operation::Write, Errno::NOSPC, 0);
    let told = Rc::new(RefCell::new(None));
    let (tells, config) = (told.clone(), cluster.client_config(true));
    let node = cluster.nodes[&NodeName::Client(0)];
    let writer = cluster.sim.start(node, "writer", move || {
        *tells.borrow_mut() = write(&config, 0, 1).err().map(|error| error.kind);
    });
    cluster.wait_for(&[writer], "write")?;
    Ok(told.take())
}

fn plan_of(seed: u64, servers: u8) -> Plan {
    let mut plan = plan(seed, servers);
    plan.shape.copies = vec![1];
    plan
}

fn make_directory(config: &ClientConfig) -> Result<()> {
    let client = Client::connect(config.clone())?;
    client.mkdir(&Context::root(), FileId::ROOT, NAME, 0o755)?;
    client.shutdown();
    Ok(())
}

fn write(config: &ClientConfig, rank: u8, records: u64) -> Result<Vec<Fragment>> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    let dir = client.lookup(&ctx, FileId::ROOT, NAME)?.file;
    let options =
        SpreadOptions { name: rank.to_string(), batch_bytes: BATCH, ..SpreadOptions::default() };
    let mut writer = Spread::new(&client, &ctx, dir, &options)?;
    let mut record = vec![rank; RECORD];
    for number in 0..records {
        record[..8].copy_from_slice(&number.to_le_bytes());
        writer.write(&record)?;
    }
    let fragments = writer.finish()?;
    client.shutdown();
    Ok(fragments)
}

fn read(config: &ClientConfig) -> Result<BTreeMap<String, Vec<u64>>> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    let dir = client.lookup(&ctx, FileId::ROOT, NAME)?.file;
    let mut records = BTreeMap::new();
    for entry in client.readdir(&ctx, dir, (0, 0), 1024, true)?.entries {
        if entry.name.starts_with(b".") {
            continue;
        }
        let (file, attr) = client.open(&ctx, entry.file, Rights::READ)?;
        let mut bytes = vec![0; attr.size as usize];
        file.read_at(&ctx, 0, &mut bytes)?;
        let number =
            |record: &[u8]| record.iter().take(8).rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let numbers = bytes.chunks(RECORD).map(number).collect();
        records.insert(String::from_utf8_lossy(&entry.name).into_owned(), numbers);
    }
    client.shutdown();
    Ok(records)
}
