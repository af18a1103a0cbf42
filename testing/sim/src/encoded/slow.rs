//! Reads of files with parities while a disk is slow.

use super::{Run, Set, plan_of};
use crate::cluster::Cluster;
use crate::nemesis::usual_latency;
use crate::plan::NodeName;
use fastrand::Rng;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context, ReadPolicy};
use weir_host::simulated;
use weir_types::{FileId, Result, TargetId};
use weir_wire::Rights;

/// An operation of the slow disk takes this long.
const SLOW: Duration = Duration::from_secs(3);
const UNIT: usize = 4096;
/// Reads of whole stripes, once the disk is known to be slow.
pub const READS: u64 = 5;

/// How long reads take while the disk of their first column is slow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Of whole stripes, when nobody knows yet.
    pub first: Duration,
    /// The longest of some more reads of these.
    pub again: Duration,
    /// Columns that were computed in these.
    pub computed: u64,
    /// Of a piece that only the slow disk has.
    pub piece: Duration,
}

fn now() -> Duration {
    simulated::current().map(|machine| machine.now()).unwrap_or_default()
}

/// Encodes files, and reads one while the disk of its first column is slow. Errors: in words, what
/// went wrong.
pub fn try_slow_member(parities: u8) -> std::result::Result<Times, String> {
    let set = Set { columns: 4, parities, copies: 2 };
    let stripe = UNIT * usize::from(set.columns);
    let (mut run, (file, mut bytes)) = begin(set, stripe)?;
    bytes.truncate(bytes.len() - bytes.len() % stripe);
    let first = target_of(&mut run.cluster, file)?;
    // Every server has one target.
    let slow = NodeName::Data((first.0 - 1) as u8);
    run.cluster.disk(slow).set_not_cached(1.0);
    run.cluster.disk(slow).set_latency(SLOW..SLOW * 2, SLOW..SLOW * 2);
    let told = Rc::new(Cell::new(None));
    let tells = told.clone();
    let reader = run.cluster.start_auditor(move |_, config| {
        let config = ClientConfig { read_policy: ReadPolicy::Proportional, ..config };
        let read = || {
            let client = Client::connect(config)?;
            let times = times(&client, file, &bytes)?;
            client.shutdown();
            Ok::<_, weir_types::Error>(times)
        };
        tells.set(Some(read().map_err(|error| error.to_string())));
    });
    run.wait(&[reader], "read")?;
    let times = told.take().ok_or("nobody has read")??;
    run.cluster.disk(slow).set_not_cached(0.0);
    usual_latency(run.cluster.disk(slow));
    run.end()?;
    Ok(times)
}

/// Encodes files, one of which has a whole stripe, and no hole in its first unit: no disk is asked for
/// holes. Returns it and its bytes.
fn begin(set: Set, stripe: usize) -> std::result::Result<(Run, (FileId, Vec<u8>)), String> {
    for seed in 5..25 {
        let mut plan = plan_of(&mut Rng::with_seed(seed), seed, set);
        // Columns are computed under a lease only.
        if !plan.shape.leases {
            continue;
        }
        plan.faults.clear();
        plan.duration_ms = 3_000;
        let mut run = Run::begin(plan, set)?;
        run.attack(Vec::new())?;
        run.finish()?;
        let suits = |(_, bytes): &(FileId, Vec<u8>)| {
            bytes.len() >= stripe && bytes[..UNIT].iter().all(|byte| *byte != 0)
        };
        if let Some(file) = run.world.contents().into_iter().find(suits) {
            return Ok((run, file));
        }
        run.end()?;
    }
    Err("no file has a whole stripe".into())
}

fn target_of(cluster: &mut Cluster, file: FileId) -> std::result::Result<TargetId, String> {
    let told = Rc::new(Cell::new(None));
    let tells = told.clone();
    let asks = cluster.start_auditor(move |_, config| {
        let Ok(client) = Client::connect(config) else { return };
        let layout = super::layout_of(&client, file);
        tells.set(layout.ok().and_then(|layout| {
            layout.segments.first()?.columns.first()?.copies().next().map(|(_, target)| target)
        }));
        client.shutdown();
    });
    cluster.wait_for(&[asks], "look at a layout")?;
    told.get().ok_or_else(|| "there is no layout".into())
}

fn times(client: &Client, file: FileId, bytes: &[u8]) -> Result<Times> {
    let ctx = Context::root();
    let (open, _) = client.open(&ctx, file, Rights::READ)?;
    let read = |at: usize, len: usize| {
        let (begun, mut buffer) = (now(), vec![0; len]);
        let read = open.read_at(&ctx, at as u64, &mut buffer)?;
        assert_eq!(
            (read, &buffer[..]),
            (len, &bytes[at..at + len]),
            "other bytes than were written"
        );
        Ok::<_, weir_types::Error>(now() - begun)
    };
    let computed = || {
        let mut all = client.counters().into_iter();
        all.find(|(name, _)| name == "columns_computed").map_or(0, |(_, count)| count)
    };
    let first = read(0, bytes.len())?;
    let (before, mut again) = (computed(), Duration::ZERO);
    for _ in 0..READS {
        again = again.max(read(0, bytes.len())?);
    }
    let computed = computed() - before;
    let times = Times { first, again, computed, piece: read(0, UNIT)? };
    open.close(&ctx)?;
    Ok(times)
}
