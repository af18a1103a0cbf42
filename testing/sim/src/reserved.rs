//! Room is reserved in a file with two copies while the disk of one of them, or of both, has none:
//! the call fails, and neither copy is thought to lack the bytes that it had. Where bytes were
//! written room can be reserved, and they can be made zeros.

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

/// So many data servers.
const SERVERS: u8 = 2;
/// What the file holds before.
const WRITTEN_BYTES: usize = 8 << 20;
/// What is free where there is no room: enough for logs, and less than is kept for them.
const FREE_BYTES: u64 = 64 << 10;
/// What is reserved.
const RESERVED_BYTES: u64 = 16 << 20;
/// The file is written within this time.
const WRITTEN: Duration = Duration::from_secs(3);
/// Between looks.
const PAUSE: Duration = Duration::from_millis(1);

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What the reservation was told, and zeroing as much.
    pub told: [Option<ErrorKind>; 2],
    /// The first byte, after that.
    pub byte: u8,
    /// What was told who reserved room where bytes were written, and who made these zeros.
    pub told_of_written: [Option<ErrorKind>; 2],
    /// The bytes are zeros in the end.
    pub zeros: bool,
    /// How many objects are lacking on either target, right afterwards.
    pub lacking: Vec<usize>,
}

/// Tries it with these copies' disks full: 0 is the one that orders. Errors: in words, what went
/// wrong.
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
