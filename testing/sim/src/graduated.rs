//! Graduated placement, where each chunk goes to one of two disks: whether writers keep pace on
//! disks of different speeds, and whether the files can be read afterwards, with one copy and after
//! the second copy was made. Clients and servers are those of all simulations; times are virtual.

use crate::cluster::Cluster;
use crate::failover::{now, plan};
use crate::plan::{ClientPlan, NodeName};
use crate::shared::Shared;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context, CreateOptions};
use weir_host::thread;
use weir_simhost::Options;
use weir_types::{
    Error, ErrorKind, FileId, FileLayout, LayoutKind, LayoutSpec, Placement, Result, TargetId,
};
use weir_wire::Rights;

const MIB: u64 = 1 << 20;
/// Maximum time of everything.
const END: Duration = Duration::from_secs(600);

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When each writer finished, with its bytes durable.
    pub ends: Vec<Duration>,
    /// Bytes on each disk, from the layouts of the files.
    pub bytes: Vec<u64>,
    /// Disks of each writer's file, from 0.
    pub disks: Vec<Vec<u32>>,
}

/// Runs as many writers as disks. Each writes `mib` MiB to a file of its own, with `placement` on
/// its own disk and the next one. Errors: what went wrong, for example wrong file contents.
pub fn write(
    seed: u64,
    rates: &[u64],
    mib: u64,
    placement: Placement,
) -> std::result::Result<Seen, String> {
    let writers = rates.len();
    let mut plan = plan(seed, writers as u8);
    plan.shape.shared_files = 1;
    let idle = ClientPlan { write_behind: true, keeps_pages: false, ops: Vec::new() };
    plan.clients = vec![idle; writers];
    let shared = Rc::new(Shared::new(plan));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    for (server, rate) in (0..).zip(rates) {
        cluster.disk(NodeName::Data(server)).set_rate(*rate);
    }
    let begun = cluster.sim.now();
    let ends = Rc::new(RefCell::new(vec![Duration::ZERO; writers]));
    let mut processes = Vec::new();
    for n in 0..writers {
        let (ends, config) = (ends.clone(), cluster.client_config(true));
        let (node, shared) = (cluster.nodes[&NodeName::Client(n as u8)], shared.clone());
        processes.push(cluster.sim.start(node, "writer", move || {
            match write_one(&config, n, mib, placement) {
                Ok(()) => ends.borrow_mut()[n] = now(),
                Err(error) => *shared.trouble.borrow_mut() = Some(error.to_string()),
            }
        }));
    }
    let ended = cluster
        .sim
        .run_until(begun + END, |sim| processes.iter().all(|writer| !sim.is_running(*writer)));
    if let Some(trouble) = shared.trouble.borrow_mut().take() {
        return Err(trouble);
    }
    if !ended {
        return Err(format!("not written within {END:?}"));
    }
    (0..writers).for_each(|n| cluster.disk(NodeName::Data(n as u8)).set_rate(0));
    let seen = Rc::new(RefCell::new(Seen::default()));
    seen.borrow_mut().ends = ends.borrow().iter().map(|end| *end - begun).collect();
    let found = seen.clone();
    let reader = cluster.start_auditor(move |shared, config| {
        if let Err(error) = look(&config, writers, mib, &found) {
            *shared.trouble.borrow_mut() = Some(error.to_string());
        }
    });
    cluster.wait_for(&[reader], "read, and fill in the copies")?;
    // Killed processes never release their disks.
    (0..writers).for_each(|n| cluster.disk(NodeName::Data(n as u8)).wipe());
    Ok(seen.take())
}

fn name(n: usize) -> Vec<u8> {
    format!("out{n}").into_bytes()
}

/// The contents of a MiB of a writer's file.
fn block(n: usize, at: u64) -> Vec<u8> {
    let mut block = vec![n as u8; MIB as usize];
    block[..8].copy_from_slice(&at.to_le_bytes());
    block
}

fn write_one(config: &ClientConfig, n: usize, mib: u64, placement: Placement) -> Result<()> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    let kind = match placement {
        Placement::Graduated => LayoutKind::Chunked,
        _ => LayoutKind::Striped,
    };
    let count = if placement == Placement::Graduated { 2 } else { 1 };
    let layout =
        LayoutSpec { kind, base: Some(n as u32), count, placement, ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let (file, _) = client.create(&ctx, FileId::ROOT, &name(n), &options)?;
    for at in 0..mib {
        file.write_at(&ctx, at * MIB, &block(n, at))?;
    }
    file.sync(&ctx)?;
    file.close(&ctx)?;
    client.shutdown();
    Ok(())
}

/// Checks all files, also after each has a second copy.
fn look(config: &ClientConfig, writers: usize, mib: u64, seen: &RefCell<Seen>) -> Result<()> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    let mut bytes = vec![0; writers];
    for n in 0..writers {
        let layout = check(&client, n, mib)?;
        let mut disks = Vec::new();
        for segment in &layout.segments {
            let TargetId(target) = segment.columns[0].targets[0];
            bytes[target as usize - 1] += segment.len.unwrap_or(mib * MIB).min(mib * MIB);
            disks.push(target - 1);
        }
        disks.sort_unstable();
        disks.dedup();
        seen.borrow_mut().disks.push(disks);
    }
    seen.borrow_mut().bytes = bytes;
    for n in 0..writers {
        let file = client.lookup(&ctx, FileId::ROOT, &name(n))?.file;
        client.set_layout(&ctx, file, Some(LayoutSpec { copies: 2, ..LayoutSpec::default() }))?;
    }
    let give_up = now() + END;
    for n in 0..writers {
        while !check(&client, n, 0)?.segments.iter().all(has_two_copies) {
            if now() > give_up {
                return Err(Error::new(ErrorKind::TimedOut, "the second copies are not there"));
            }
            thread::sleep(Duration::from_secs(1));
        }
        check(&client, n, mib)?;
    }
    client.shutdown();
    Ok(())
}

fn has_two_copies(segment: &weir_types::Segment) -> bool {
    segment.filling.is_empty() && segment.columns.iter().all(|c| c.copies().count() == 2)
}

/// Reads a file and checks it; returns its layout.
fn check(client: &Client, n: usize, mib: u64) -> Result<FileLayout> {
    let ctx = Context::root();
    let file = client.lookup(&ctx, FileId::ROOT, &name(n))?.file;
    let (file, _) = client.open(&ctx, file, Rights::READ)?;
    let mut found = vec![0; MIB as usize];
    for at in 0..mib {
        let len = file.read_at(&ctx, at * MIB, &mut found)?;
        if len != found.len() || found != block(n, at) {
            let what = format!("MiB {at} of writer {n} is not as it was written");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
    }
    let layout = file.layout();
    file.close(&ctx)?;
    Ok(layout)
}
