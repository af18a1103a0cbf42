//! The blocks and disks that each process of a job reads when any process may read any block. One
//! process on each server's machine takes blocks of files with copies on all disks. Clients and
//! servers are those of all simulations; times are virtual.

use crate::cluster::Cluster;
use crate::failover::{now, plan};
use crate::plan::{NodeName, Plan};
use crate::shared::Shared;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context, CreateOptions, ReadPolicy};
use weir_jobs::{Input, Record, Take, TakeOptions, TakeSummary};
use weir_simhost::Options;
use weir_types::{FileId, JobId, LayoutSpec, Result};

/// Bytes of a record. The first eight are its number.
pub const RECORD: u64 = 64 << 10;
const MIB: u64 = 1 << 20;
/// Maximum time of everything.
const END: Duration = Duration::from_secs(600);
/// Pause after which reads during the preparation have no influence.
const REST: Duration = Duration::from_secs(30);

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Course {
    /// Seed of all random choices.
    pub seed: u64,
    /// Rate of each disk, bytes per second.
    pub rates: Vec<u64>,
    /// Copies of each file.
    pub copies: u8,
    /// Number of records in each file. There is one file for each disk.
    pub records: u64,
    /// Whether each file is striped over all disks, or has its first copy on a disk of its own.
    pub striped: bool,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Numbers of the records that each process read, in order.
    pub records: Vec<Vec<u64>>,
    /// The summary of each process.
    pub summaries: Vec<TakeSummary>,
    /// When each process finished.
    pub ends: Vec<Duration>,
    /// Bytes read from each disk.
    pub disk_bytes: Vec<u64>,
}

/// Lets all processes take blocks until none are left. Errors: what went wrong.
pub fn take(course: &Course) -> std::result::Result<Seen, String> {
    let shared = Rc::new(Shared::new(plan_of(course)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let made: Rc<RefCell<Result<Vec<Input>>>> = Rc::new(RefCell::new(Ok(Vec::new())));
    let (makes, of) = (made.clone(), course.clone());
    let maker =
        cluster.start_auditor(move |_, config| *makes.borrow_mut() = write_files(&config, &of));
    cluster.wait_for(&[maker], "write the files")?;
    let inputs = made.replace(Ok(Vec::new())).map_err(|error| error.to_string())?;
    let disks = course.rates.len();
    for (n, rate) in (0..).zip(&course.rates) {
        let disk = cluster.disk(NodeName::Data(n));
        disk.set_rate(*rate);
        disk.set_not_cached(1.0);
    }
    cluster.sim.run_for(REST);
    let before: Vec<u64> = read_bytes(&cluster, disks);
    let (begun, seen) = (cluster.sim.now(), Rc::new(RefCell::new(Seen::default())));
    {
        let mut seen = seen.borrow_mut();
        seen.records = vec![Vec::new(); disks];
        seen.summaries = vec![TakeSummary::default(); disks];
        seen.ends = vec![Duration::ZERO; disks];
    }
    let mut processes = Vec::new();
    for rank in 0..disks {
        let (inputs, course, seen, shared) =
            (inputs.clone(), course.clone(), seen.clone(), shared.clone());
        let config = cluster.client_config(true);
        let node = cluster.nodes[&NodeName::Data(rank as u8)];
        processes.push(cluster.sim.start(node, "takes", move || {
            let taken = take_all(&config, rank, &course, &inputs, |records| {
                seen.borrow_mut().records[rank].extend(records);
            });
            match taken {
                Ok(summary) => {
                    let mut seen = seen.borrow_mut();
                    seen.summaries[rank] = summary;
                    seen.ends[rank] = now() - begun;
                }
                Err(error) => *shared.trouble.borrow_mut() = Some(format!("{rank}: {error}")),
            }
        }));
    }
    let ended = cluster
        .sim
        .run_until(begun + END, |sim| processes.iter().all(|process| !sim.is_running(*process)));
    if let Some(trouble) = shared.trouble.borrow_mut().take() {
        return Err(trouble);
    }
    if !ended {
        return Err(format!("not taken within {END:?}"));
    }
    let after = read_bytes(&cluster, disks);
    seen.borrow_mut().disk_bytes = after.iter().zip(before).map(|(a, b)| a - b).collect();
    Ok(seen.take())
}

fn read_bytes(cluster: &Cluster, disks: usize) -> Vec<u64> {
    (0..disks).map(|n| cluster.disk(NodeName::Data(n as u8)).read_bytes()).collect()
}

fn take_all(
    config: &ClientConfig,
    rank: usize,
    course: &Course,
    inputs: &[Input],
    mut had: impl FnMut(Vec<u64>),
) -> Result<TakeSummary> {
    let read_policy = ReadPolicy::Proportional;
    let config = ClientConfig { keep_metadata: false, read_policy, ..config.clone() };
    let (ctx, client) = (Context::root(), Client::connect(config)?);
    let options = TakeOptions {
        rank: rank as u32,
        ranks: course.rates.len() as u32,
        block_bytes: course.block_bytes,
        record: Record::Bytes(RECORD),
        ..TakeOptions::new(JobId(7), FileId::ROOT)
    };
    let mut take = Take::new(&client, &ctx, inputs, &options)?;
    while let Some(block) = take.next_block()? {
        let number =
            |record: &[u8]| record.iter().take(8).rev().fold(0, |n, b| n << 8 | u64::from(*b));
        had(block.bytes.chunks(RECORD as usize).map(number).collect());
    }
    let summary = take.summary();
    drop(take);
    client.shutdown();
    Ok(summary)
}

fn write_files(config: &ClientConfig, course: &Course) -> Result<Vec<Input>> {
    let ctx = Context::root();
    let client = Client::connect(config.clone())?;
    let mut inputs = Vec::new();
    for n in 0..course.rates.len() as u32 {
        let (base, count) = if course.striped { (0, 0) } else { (n, 1) };
        let layout =
            LayoutSpec { base: Some(base), count, copies: course.copies, ..LayoutSpec::default() };
        let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
        let name = format!("take{n}");
        let (file, attr) = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options)?;
        let mut bytes = vec![0; MIB as usize];
        let each = MIB / RECORD;
        for first in (0..course.records).step_by(each as usize) {
            let count = (course.records - first).min(each);
            for record in 0..count {
                let number = u64::from(n) * course.records + first + record;
                let at = (record * RECORD) as usize;
                bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            file.write_at(&ctx, first * RECORD, &bytes[..(count * RECORD) as usize])?;
        }
        file.sync(&ctx)?;
        file.close(&ctx)?;
        inputs.push(Input { name, file: attr.file });
    }
    client.shutdown();
    Ok(inputs)
}

fn plan_of(course: &Course) -> Plan {
    let mut plan = plan(course.seed, course.rates.len() as u8);
    plan.shape.shared_files = 1;
    plan.shape.copies = vec![1];
    plan
}
