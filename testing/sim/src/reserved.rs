//! Preallocation in a file with two copies while the disk of one copy, or of both, is full. The
//! call fails, and no copy is noted as lacking the bytes that it has. Where bytes were written,
//! preallocation and zeroing succeed.

use crate::cluster::Cluster;
use crate::failover::plan;
use crate::plan::{NodeName, Plan};
use crate::shared::Shared;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_simhost::Options;
use weir_types::{
    ColumnIndex, CopyIndex, ErrorKind, FileId, ObjectId, Result, SegmentIndex, TargetId,
};
use weir_wire::Rights;

/// Number of data servers.
const SERVERS: u8 = 2;
/// Size of the initial contents.
const WRITTEN_BYTES: usize = 8 << 20;
/// Free space of a full disk: enough for logs, but within the reserve.
const FREE_BYTES: u64 = 64 << 10;
/// Size of the preallocation.
const RESERVED_BYTES: u64 = 16 << 20;
/// Maximum time to write the file.
const WRITTEN: Duration = Duration::from_secs(3);
/// Interval of looks.
const PAUSE: Duration = Duration::from_millis(1);

/// The result of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The results of preallocation, and of zeroing the same range.
    pub told: [Option<ErrorKind>; 2],
    /// The first byte afterwards.
    pub byte: u8,
    /// The results of preallocation and of zeroing where bytes were written.
    pub told_of_written: [Option<ErrorKind>; 2],
    /// Whether the bytes are zeros at the end.
    pub zeros: bool,
    /// Number of objects with gaps on each target, right afterwards.
    pub lacking: Vec<usize>,
}

/// Tries it with the disks of these copies full; copy 0 orders changes. Errors: what went wrong.
pub fn try_reservation(seed: u64, full: &[usize]) -> std::result::Result<Seen, String> {
    let shared = Rc::new(Shared::new(plan_of(seed)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let file = FileId(shared.made.borrow().files[0]);
    let copies = cluster.nodes_of_cells(0)[0].clone();
    let (step, seen) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Seen::default())));
    let (mine, sees) = (step.clone(), seen.clone());
    let user = cluster.start_auditor(move |shared, config| match reserve(&config, file, &mine) {
        Ok(found) => drop(sees.replace(found)),
        Err(error) => *shared.trouble.borrow_mut() = Some(error.to_string()),
    });
    let deadline = cluster.sim.now() + WRITTEN;
    cluster.sim.run_until(deadline, |_| step.get() == 1);
    for &copy in full {
        let disk = cluster.disk(NodeName::Data(copies[copy]));
        disk.set_space(disk.used_bytes() + FREE_BYTES);
    }
    step.set(2);
    cluster.wait_for(&[user], "the reservation")?;
    Ok(seen.take())
}

fn reserve(config: &ClientConfig, file: FileId, step: &Cell<u8>) -> Result<Seen> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    let open = client.open(&ctx, file, Rights::READ_WRITE)?.0;
    open.write_at_confirmed(&ctx, 0, &vec![1; WRITTEN_BYTES])?;
    open.sync(&ctx)?;
    step.set(1);
    while step.get() == 1 {
        sleep(PAUSE);
    }
    let kind = |done: Result<()>| done.err().map(|error| error.kind);
    let reserve = |len| kind(open.allocate(&ctx, 0, len, true));
    let zero = |len| kind(open.zero(&ctx, 0, len, true));
    let told = [reserve(RESERVED_BYTES), zero(RESERVED_BYTES)];
    let administrator = client.administrator()?;
    let first = ObjectId {
        file: FileId(0),
        segment: SegmentIndex(0),
        column: ColumnIndex(0),
        copy: CopyIndex(0),
    };
    let lacks = |target| administrator.list_lacking(TargetId(target), first, 100);
    let count = |target| Ok(lacks(target)?.objects.len());
    let lacking = (1..=u32::from(SERVERS)).map(count).collect::<Result<_>>()?;
    let mut bytes = vec![0; WRITTEN_BYTES];
    open.read_at(&ctx, 0, &mut bytes)?;
    let (byte, written) = (bytes[0], WRITTEN_BYTES as u64);
    let told_of_written = [reserve(written), zero(written)];
    open.read_at(&ctx, 0, &mut bytes)?;
    let zeros = bytes.iter().all(|byte| *byte == 0);
    client.shutdown();
    Ok(Seen { told, byte, told_of_written, zeros, lacking })
}

fn plan_of(seed: u64) -> Plan {
    let mut plan = plan(seed, SERVERS);
    plan.shape.copies = vec![2];
    plan.shape.shared_files = 1;
    plan
}
