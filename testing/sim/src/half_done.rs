//! The effects of a call that failed half way. A client changes a file on two servers, of which one
//! does not answer or refuses. Then another client uses the file, while late requests of the first
//! client to the silent server may still arrive.

use crate::cluster::Cluster;
use crate::failover::plan;
use crate::history::CELL_BYTES;
use crate::pages::Pages;
use crate::plan::{FileShape, NodeName, Plan};
use crate::shared::Shared;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_simhost::Options;
use weir_simhost::disk::Operation;
use weir_types::limits::{BLOCK, BLOCK_BYTES};
use weir_types::{Error, ErrorKind, FileId, Result};
use weir_wire::Rights;

/// Size of the file: two blocks on each server.
const BYTES: usize = 4 * BLOCK_BYTES;
/// The initial contents.
pub const OLD: u8 = 0x11;
/// The contents that are copied into it.
const COPIED: u8 = 0x22;
/// The contents that are written afterwards.
pub const NEW: u8 = 0x33;
/// Timeout of calls, milliseconds.
const TIMEOUT_MS: u32 = 5_000;
/// Duration of leases where they expire.
const LEASE: Duration = Duration::from_secs(2);
/// Maximum time of background reports.
const TOLD: Duration = Duration::from_secs(2);
/// Maximum time of everything.
const END: Duration = Duration::from_secs(120);

/// The call that fails half way, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// A truncation; the client writes beyond the cut, and another client reads that.
    Truncate,
    /// A truncation; another client writes, and the first one reads that.
    TruncateAndLook,
    /// A punched hole; another client writes there, and it is read.
    Punch,
    /// A copy made by the servers; another client writes there, and it is read.
    Copy,
}

/// Progress of the client, and its permission to go on.
#[derive(Default)]
struct Progress {
    done: Cell<u8>,
    go: Cell<u8>,
    trouble: RefCell<Option<String>>,
    seen: RefCell<Vec<u8>>,
}

impl Progress {
    fn step(&self) {
        self.done.set(self.done.get() + 1);
        while self.go.get() < self.done.get() {
            sleep(Duration::from_millis(1));
        }
    }
}

/// Returns what is read at the end. Errors: what went wrong.
pub fn try_half(half: Half) -> std::result::Result<Vec<u8>, String> {
    let shared = Rc::new(Shared::new(plan_of()));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let files = {
        let made = shared.made.borrow();
        [FileId(made.files[0]), FileId(made.files[1])]
    };
    // One server for each block.
    let columns = cluster.nodes_of_cells(0);
    let [answers, silent] =
        [0, BLOCK_BYTES / CELL_BYTES].map(|cell| NodeName::Data(columns[cell][0]));
    let nodes = [NodeName::Client(0), silent].map(|node| cluster.nodes[&node]);
    let progress = Rc::new(Progress::default());
    let (mine, config) = (progress.clone(), cluster.client_config(false));
    cluster.sim.start(nodes[0], "first", move || {
        if let Err(error) = first(&config, files, half, &mine) {
            mine.trouble.borrow_mut().get_or_insert(format!("the first client: {error}"));
        }
    });
    let wait = |cluster: &mut Cluster, step: u8| -> std::result::Result<(), String> {
        let deadline = cluster.sim.now() + END;
        let ended = cluster.sim.run_until(deadline, |_| {
            progress.done.get() >= step || progress.trouble.borrow().is_some()
        });
        match progress.trouble.borrow_mut().take() {
            Some(trouble) => Err(trouble),
            None if !ended => Err(format!("step {step} does not end")),
            None => Ok(()),
        }
    };
    let go = || progress.go.set(progress.go.get() + 1);
    wait(&mut cluster, 1)?;
    let network = cluster.sim.network();
    match half {
        Half::Truncate | Half::TruncateAndLook => {
            // Requests to that server never arrive.
            network.partition(nodes[0], nodes[1], true);
            network.black_hole(nodes[0], nodes[1]);
        }
        Half::Punch | Half::Copy => network.partition_one_way(nodes[0], nodes[1], true),
    }
    if half == Half::Punch {
        cluster.disk(answers).fail_next(Operation::Write, Errno::NOSPC, 0);
    }
    go();
    wait(&mut cluster, 2)?;
    if matches!(half, Half::Truncate | Half::TruncateAndLook) {
        cluster.sim.network().heal_all();
    }
    go();
    wait(&mut cluster, 3)?;
    cluster.sim.run_for(TOLD);
    match half {
        Half::Truncate => {}
        Half::TruncateAndLook => other(&mut cluster, &progress, files[0], Some(BLOCK_BYTES))?,
        Half::Punch | Half::Copy => {
            other(&mut cluster, &progress, files[0], Some(BYTES))?;
            cluster.sim.network().heal_all();
            cluster.sim.run_for(TOLD);
        }
    }
    go();
    wait(&mut cluster, 4)?;
    if half != Half::TruncateAndLook {
        other(&mut cluster, &progress, files[0], None)?;
    }
    Ok(progress.seen.take())
}

/// The client whose call fails.
fn first(config: &ClientConfig, files: [FileId; 2], half: Half, progress: &Progress) -> Result<()> {
    let ctx = Context::root();
    let pages = Arc::new(Pages::default());
    let client = Client::connect_with(config.clone(), pages.clone())?;
    let open = |file| client.open(&ctx, file, Rights::READ_WRITE).map(|(file, _)| file);
    let [file, other] = [open(files[0])?, open(files[1])?];
    file.write_at(&ctx, 0, &[OLD; BYTES])?;
    file.sync(&ctx)?;
    other.write_at(&ctx, 0, &[COPIED; BYTES])?;
    other.sync(&ctx)?;
    let mut page = [0; BLOCK_BYTES];
    pages.read(&file, &ctx, 0, &mut page)?;
    progress.step();
    let failed = match half {
        Half::Truncate | Half::TruncateAndLook => file.truncate(&ctx, BLOCK).map(drop),
        Half::Punch => file.punch(&ctx, 0, BYTES as u64),
        Half::Copy => other.copy_range(&ctx, 0, &file, 0, BYTES as u64).map(drop),
    };
    if failed.is_ok() {
        return Err(Error::new(ErrorKind::Internal, "the call did not fail"));
    }
    progress.step();
    let file = match half {
        Half::Truncate => {
            file.write_at(&ctx, BLOCK, &[NEW; BYTES - BLOCK_BYTES])?;
            Some(file)
        }
        Half::TruncateAndLook => Some(file),
        Half::Punch | Half::Copy => {
            file.close(&ctx)?;
            None
        }
    };
    progress.step();
    if let Some(file) = file {
        pages.read(&file, &ctx, 0, &mut page)?;
        progress.seen.replace(page.to_vec());
    }
    progress.step();
    Ok(())
}

/// Another client writes the beginning of the file, or reads it.
fn other(
    cluster: &mut Cluster,
    progress: &Rc<Progress>,
    file: FileId,
    writes: Option<usize>,
) -> std::result::Result<(), String> {
    let progress = progress.clone();
    let process = cluster.start_auditor(move |shared, config| {
        let work = || -> Result<()> {
            let (ctx, client) = (Context::root(), Client::connect(config)?);
            let open = client.open(&ctx, file, Rights::READ_WRITE)?.0;
            match writes {
                Some(bytes) => open.write_at(&ctx, 0, &vec![NEW; bytes])?,
                None => {
                    let mut bytes = vec![0; BYTES];
                    let len = open.read_at(&ctx, 0, &mut bytes)?;
                    bytes.truncate(len);
                    progress.seen.replace(bytes);
                }
            }
            open.sync(&ctx)?;
            open.close(&ctx)?;
            client.shutdown();
            Ok(())
        };
        if let Err(error) = work() {
            *shared.trouble.borrow_mut() = Some(error.to_string());
        }
    });
    cluster.wait_for(&[process], "the other client")
}

/// The results of three calls of a client with write-behind when the disk has no space for a block:
/// a write of that block (which returns when it is `confirmed`, or before), a sync, and another
/// sync. Errors: what went wrong.
pub fn no_room(confirmed: bool) -> std::result::Result<[Option<ErrorKind>; 3], String> {
    let shared = Rc::new(Shared::new(plan_of()));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let file = FileId(shared.made.borrow().files[0]);
    let progress = Rc::new(Progress::default());
    let told = Rc::new(Cell::new([None; 3]));
    let (mine, config, tells) = (progress.clone(), cluster.client_config(true), told.clone());
    let node = cluster.nodes[&NodeName::Client(0)];
    let process = cluster.sim.start(node, "writer", move || {
        let work = || -> Result<[Option<ErrorKind>; 3]> {
            let (ctx, client) = (Context::root(), Client::connect(config)?);
            let open = client.open(&ctx, file, Rights::READ_WRITE)?.0;
            open.write_at_confirmed(&ctx, 0, &[OLD; BLOCK_BYTES])?;
            open.sync(&ctx)?;
            mine.step();
            let written = match confirmed {
                true => open.write_at_confirmed(&ctx, 0, &[NEW; BLOCK_BYTES]),
                false => open.write_at(&ctx, 0, &[NEW; BLOCK_BYTES]),
            };
            let results = [written, open.sync(&ctx), open.sync(&ctx)];
            Ok(results.map(|result| result.err().map(|error| error.kind)))
        };
        match work() {
            Ok(kinds) => tells.set(kinds),
            Err(error) => drop(mine.trouble.replace(Some(error.to_string()))),
        }
    });
    let deadline = cluster.sim.now() + END;
    cluster.sim.run_until(deadline, |_| progress.done.get() > 0);
    let server = NodeName::Data(cluster.nodes_of_cells(0)[0][0]);
    cluster.disk(server).fail_next(Operation::Write, Errno::NOSPC, 0);
    progress.go.set(1);
    cluster.wait_for(&[process], "write")?;
    match progress.trouble.borrow_mut().take() {
        Some(trouble) => Err(trouble),
        None => Ok(told.get()),
    }
}

/// The results of a confirmed write beyond the end of a file, and of a sync after it, if the
/// metadata server is unreachable while another client reads the file, and the data server answers
/// late. Errors: what went wrong.
pub fn lost_size() -> std::result::Result<[Option<ErrorKind>; 2], String> {
    let mut plan = plan_of();
    plan.shape.request_timeout_ms = 6 * TIMEOUT_MS;
    plan.shape.lease_ms = LEASE.as_millis() as u32;
    let shared = Rc::new(Shared::new(plan));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let file = FileId(shared.made.borrow().files[0]);
    let progress = Rc::new(Progress::default());
    let told = Rc::new(Cell::new([None; 2]));
    let (mine, config, tells) = (progress.clone(), cluster.client_config(true), told.clone());
    let server = NodeName::Data(cluster.nodes_of_cells(0)[0][0]);
    let [client, meta, server] =
        [NodeName::Client(0), NodeName::Meta, server].map(|node| cluster.nodes[&node]);
    let process = cluster.sim.start(client, "writer", move || {
        let work = || -> Result<[Option<ErrorKind>; 2]> {
            let (ctx, client) = (Context::root(), Client::connect(config)?);
            let open = client.open(&ctx, file, Rights::READ_WRITE)?.0;
            open.truncate(&ctx, 0)?;
            open.write_at_confirmed(&ctx, 0, &[OLD; BLOCK_BYTES])?;
            open.sync(&ctx)?;
            mine.step();
            // On the same server.
            let written = open.write_at_confirmed(&ctx, 2 * BLOCK, &[NEW; BLOCK_BYTES]);
            let results = [written, open.sync(&ctx)];
            open.close(&ctx)?;
            Ok(results.map(|result| result.err().map(|error| error.kind)))
        };
        match work() {
            Ok(kinds) => tells.set(kinds),
            Err(error) => drop(mine.trouble.replace(Some(error.to_string()))),
        }
    });
    let deadline = cluster.sim.now() + END;
    cluster.sim.run_until(deadline, |_| progress.done.get() > 0);
    // It carries out requests, and its replies are lost.
    cluster.sim.network().partition_one_way(server, client, true);
    cluster.sim.network().partition(meta, client, true);
    progress.go.set(1);
    cluster.sim.run_for(LEASE);
    // The client keeps leases until another client wants them.
    other(&mut cluster, &progress, file, None)?;
    cluster.sim.network().partition(meta, client, false);
    cluster.sim.run_for(TOLD);
    cluster.sim.network().heal_all();
    cluster.wait_for(&[process], "write")?;
    match progress.trouble.borrow_mut().take() {
        Some(trouble) => Err(trouble),
        None => Ok(told.get()),
    }
}

fn plan_of() -> Plan {
    let mut plan = plan(1, 2);
    plan.shape.copies = vec![1];
    plan.shape.layout = FileShape::Striped;
    plan.shape.cells = (BYTES / CELL_BYTES) as u32;
    plan.shape.shared_files = 2;
    plan.shape.request_timeout_ms = TIMEOUT_MS;
    plan
}
