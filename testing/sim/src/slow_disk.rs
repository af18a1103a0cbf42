//! A server with a slow or hanging disk, and what others are told about it. Uses the machines of
//! all simulations; times are virtual and usual, except those of that disk.

use crate::cluster::Cluster;
use crate::failover::{now, plan};
use crate::plan::NodeName;
use crate::plan::targets_of;
use crate::shared::Shared;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_simhost::Options;
use weir_types::{FileId, Result, TargetId};
use weir_wire::Rights;
use weir_wire::map::TargetState;

/// The server with the slow disk.
const SLOW: u8 = 0;
/// Number of data servers. Each has a copy of everything.
const SERVERS: u8 = 2;
/// Time of a disk operation other than a sync.
const OPERATION: Duration = Duration::from_micros(100);
/// Number of rounds in which removals are ordered.
const ROUNDS: u32 = 4;
/// Interval of looks at the map.
const LOOK: Duration = Duration::from_millis(20);
/// Pause between rounds of writes.
const PAUSE: Duration = Duration::from_millis(50);

/// Observations of a target, and of objects to be removed from it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When the map did not have the target online, and its state.
    pub away: Vec<(Duration, TargetState)>,
    /// Number of objects to be removed.
    pub removed: usize,
    /// Those that are left at the end.
    pub left: Vec<String>,
}

/// Removes all files while each sync of one server's disk takes this long. Errors: what went wrong.
pub fn remove_all(seed: u64, sync: Duration) -> std::result::Result<Seen, String> {
    let shared = Rc::new(Shared::new(plan(seed, SERVERS)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let writer = cluster.start_auditor(|shared, config| {
        if let Err(error) = write(&shared, &config) {
            *shared.trouble.borrow_mut() = Some(error.to_string());
        }
    });
    cluster.wait_for(&[writer], "write")?;
    let node = NodeName::Data(SLOW);
    let before = objects_on(&cluster, node);
    cluster.disk(node).set_latency(Duration::ZERO..OPERATION, sync..sync + OPERATION);
    let target = TargetId(targets_of(&shared.plan.shape, SLOW)[0]);
    let log = Rc::new(Log::default());
    let looks = log.clone();
    cluster.start_auditor(move |shared, config| {
        if let Err(error) = remove_and_watch(&shared, &config, target, &looks) {
            looks.trouble.borrow_mut().get_or_insert(error.to_string());
        }
    });
    cluster.sim.run_for(sync * ROUNDS);
    if let Some(trouble) = log.trouble.borrow_mut().take() {
        return Err(trouble);
    }
    if !log.is_removed.get() {
        return Err("the files are not removed".to_owned());
    }
    let left = objects_on(&cluster, node);
    Ok(Seen { away: log.away.take(), removed: before.len(), left })
}

/// Reports about a target with a hanging disk, from the beginning of the hang.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// When the disk was reported to hang, and the reported duration.
    pub hangs: Vec<(Duration, Duration)>,
    /// States other than online.
    pub away: Vec<(Duration, TargetState)>,
}

/// Makes the operations of one server's disk hang for `hang` while files are written. Returns the
/// reports until the disk has been well for as long again.
pub fn hang(seed: u64, hang: Duration) -> std::result::Result<Told, String> {
    let shared = Rc::new(Shared::new(plan(seed, SERVERS)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let disk = cluster.disk(NodeName::Data(SLOW));
    disk.set_latency(hang..hang + OPERATION, hang..hang + OPERATION);
    let begun = cluster.sim.now();
    // The writes may fail meanwhile.
    cluster.start_auditor(|shared, config| drop(write(&shared, &config)));
    let told = Rc::new(RefCell::new(Told::default()));
    let target = TargetId(targets_of(&shared.plan.shape, SLOW)[0]);
    let (looks, trouble) = (told.clone(), Rc::new(RefCell::new(None)));
    let failed = trouble.clone();
    cluster.start_auditor(move |_, config| {
        if let Err(error) = watch(&config, target, begun, &looks) {
            *failed.borrow_mut() = Some(error.to_string());
        }
    });
    cluster.sim.run_for(hang);
    cluster
        .disk(NodeName::Data(SLOW))
        .set_latency(Duration::ZERO..OPERATION, OPERATION..OPERATION * 2);
    cluster.sim.run_for(hang * 2);
    if let Some(trouble) = trouble.borrow_mut().take() {
        return Err(trouble);
    }
    Ok(told.take())
}

/// The results of writes while one of two disks hung.
#[derive(Clone, Debug, Default)]
pub struct Went {
    /// Duration of the longest write with its sync.
    pub longest: Duration,
    /// Number of writes.
    pub writes: usize,
    /// When the target was first and last reported to be away, after the disk began to hang.
    pub away: Option<(Duration, Duration)>,
    /// For each file, the last written byte, and the byte read at the end from the copy on the disk
    /// that had hung.
    pub files: Vec<(u8, u8)>,
}

/// Makes the operations of one server's disk hang for `hang` while files are written. Then the
/// other server is killed.
pub fn hang_and_go_on(seed: u64, hang: Duration) -> std::result::Result<Went, String> {
    let shared = Rc::new(Shared::new(plan(seed, SERVERS)));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let node = NodeName::Data(SLOW);
    let begun = cluster.sim.now();
    let told = Rc::new(RefCell::new(Told::default()));
    let went = Rc::new(RefCell::new(Went::default()));
    let (trouble, until) = (Rc::new(RefCell::new(None)), begun + hang * 3);
    let target = TargetId(targets_of(&shared.plan.shape, SLOW)[0]);
    let (looks, failed) = (told.clone(), trouble.clone());
    cluster.start_auditor(move |_, config| {
        if let Err(error) = watch(&config, target, begun, &looks) {
            failed.borrow_mut().get_or_insert(format!("the watcher: {error}"));
        }
    });
    let (writes, failed) = (went.clone(), trouble.clone());
    let writer = cluster.start_auditor(move |shared, config| {
        if let Err(error) = write_on(&shared, &config, until, &writes) {
            failed.borrow_mut().get_or_insert(format!("the writer: {error}"));
        }
    });
    cluster.sim.run_for(Duration::from_secs(1));
    cluster.disk(node).set_latency(hang..hang + OPERATION, hang..hang + OPERATION);
    cluster.sim.run_for(hang);
    cluster.disk(node).set_latency(Duration::ZERO..OPERATION, OPERATION..OPERATION * 2);
    cluster.sim.run_for(hang * 2);
    cluster.wait_for(&[writer], "write")?;
    cluster.sim.kill(cluster.processes[&NodeName::Data(1 - SLOW)]);
    let (reads, failed) = (went.clone(), trouble.clone());
    let reader = cluster.start_auditor(move |shared, config| {
        if let Err(error) = read_all(&shared, &config, &reads) {
            failed.borrow_mut().get_or_insert(format!("the reader: {error}"));
        }
    });
    cluster.wait_for(&[reader], "read")?;
    if let Some(trouble) = trouble.borrow_mut().take() {
        return Err(trouble);
    }
    let away = told.borrow().away.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    let mut went = went.take();
    went.away = away.first().copied().zip(away.last().copied());
    Ok(went)
}

/// Writes to all files in turn, a different byte each time.
fn write_on(
    shared: &Shared,
    config: &ClientConfig,
    until: Duration,
    went: &RefCell<Went>,
) -> Result<()> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    let files = shared.made.borrow().files.clone();
    went.borrow_mut().files = vec![(0, 0); files.len()];
    for byte in (1..=u8::MAX).cycle() {
        for (at, file) in files.iter().enumerate() {
            let begun = now();
            if begun >= until {
                client.shutdown();
                return Ok(());
            }
            let file = client.open(&ctx, FileId(*file), Rights::READ_WRITE)?.0;
            file.write_at(&ctx, 0, &[byte])?;
            file.sync(&ctx)?;
            file.close(&ctx)?;
            let mut went = went.borrow_mut();
            went.files[at].0 = byte;
            went.longest = went.longest.max(now() - begun);
            went.writes += 1;
        }
        sleep(PAUSE);
    }
    Ok(())
}

fn read_all(shared: &Shared, config: &ClientConfig, went: &RefCell<Went>) -> Result<()> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    for (at, file) in shared.made.borrow().files.clone().iter().enumerate() {
        let file = client.open(&ctx, FileId(*file), Rights::READ)?.0;
        let mut byte = [0];
        file.read_at(&ctx, 0, &mut byte)?;
        went.borrow_mut().files[at].1 = byte[0];
        file.close(&ctx)?;
    }
    client.shutdown();
    Ok(())
}

fn watch(
    config: &ClientConfig,
    target: TargetId,
    begun: Duration,
    told: &RefCell<Told>,
) -> Result<()> {
    let client = Client::connect(config.clone())?;
    loop {
        let views = client.targets()?;
        let view = views.iter().find(|view| view.target == target);
        let (at, mut told) = (now() - begun, told.borrow_mut());
        if let Some(view) = view.filter(|view| view.state != TargetState::Online) {
            told.away.push((at, view.state));
        }
        if let Some(view) = view.filter(|view| view.hangs_ms > 0) {
            told.hangs.push((at, Duration::from_millis(view.hangs_ms)));
        }
        drop(told);
        sleep(LOOK);
    }
}

/// Paths of the objects on a server's disk.
fn objects_on(cluster: &Cluster, node: NodeName) -> Vec<String> {
    let paths = cluster.disk(node).files().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.contains("/objects/")).collect()
}

/// Writes to each file.
fn write(shared: &Shared, config: &ClientConfig) -> Result<()> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    for file in shared.made.borrow().files.clone() {
        let file = client.open(&ctx, FileId(file), Rights::READ_WRITE)?.0;
        file.write_at(&ctx, 0, b"something")?;
        file.sync(&ctx)?;
        file.close(&ctx)?;
    }
    client.shutdown();
    Ok(())
}

/// The observations of the watcher.
#[derive(Default)]
struct Log {
    is_removed: Cell<bool>,
    away: RefCell<Vec<(Duration, TargetState)>>,
    trouble: RefCell<Option<String>>,
}

fn remove_and_watch(
    shared: &Shared,
    config: &ClientConfig,
    target: TargetId,
    log: &Log,
) -> Result<()> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    for file in 0..shared.plan.files() {
        client.unlink(&ctx, FileId::ROOT, format!("file{file}").as_bytes())?;
    }
    log.is_removed.set(true);
    loop {
        let map = client.cluster_map()?;
        let state = map.target(target).map(|entry| entry.state);
        if let Some(state) = state.filter(|state| *state != TargetState::Online) {
            log.away.borrow_mut().push((now(), state));
        }
        sleep(LOOK);
    }
}
