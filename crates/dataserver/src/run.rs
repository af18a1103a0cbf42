//! Starts a data server, waits, stops it.

use crate::checkpoint;
use crate::config::{DataServerConfig, TargetConfig, read_key};
use crate::copier::{self, Copier};
use crate::copies::{Copies, Lines, Resync, scout};
use crate::counters::Counters;
use crate::descriptors::Descriptors;
use crate::forward::Forwarder;
use crate::metrics::{Observer, RequestTimes};
use crate::opening::{Opened, Opener};
use crate::peers::Peers;
use crate::register::Registrar;
use crate::revoked::Revoked;
use crate::service::{DataService, Shared};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Duration;
use weir_host::net::Signal;
use weir_host::thread::{self, JoinHandle};
use weir_host::{clock, fs};
use weir_net::{
    AbortOnPanic, Address, BufferPool, Listener, Server, ServerConfig, host_name, random_bytes,
};
use weir_store::TargetOptions;
use weir_types::{Error, ErrorKind, Result, ServerId, TargetId};

/// The longest body of a data request, bytes: regions and a capability.
const MAX_BODY_BYTES: usize = 64 << 10;

/// The share until the metadata server sets one, percent.
const BUSY_PERCENT: u8 = 25;

/// A server that restarts itself again within this time does so often. Its disk then has to work
/// for a while before the restart.
const OFTEN: Duration = Duration::from_secs(3600);
/// The shortest and the longest such time, since its other targets are away during a restart.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// A data server that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyInfo {
    /// Id of the server.
    pub server: ServerId,
    /// `host:port` under which clients reach it.
    pub tcp: String,
    /// Path of its Unix socket; may be empty.
    pub unix: String,
    /// Its targets.
    pub targets: Vec<TargetId>,
}

/// Serves until `shutdown` is raised. `on_ready` is called once, when connections are accepted.
///
/// A target whose disk hung is served again only after all its operations have ended and the server
/// has restarted itself, as after a crash.
///
/// Errors, before `on_ready`: an invalid configuration, key file, target directory or address, and
/// what to do about it.
pub fn run(
    config: DataServerConfig,
    shutdown: &Signal,
    on_ready: impl FnOnce(ReadyInfo),
) -> Result<()> {
    run_observed(config, shutdown, &Observer::default(), on_ready)
}

/// As [`run`], with an `observer` for the metrics.
///
/// Errors: those of [`run`].
pub fn run_observed(
    mut config: DataServerConfig,
    shutdown: &Signal,
    observer: &Observer,
    on_ready: impl FnOnce(ReadyInfo),
) -> Result<()> {
    config.check()?;
    let (mut on_ready, mut pause) = (Some(on_ready), Duration::ZERO);
    loop {
        let tell = |ready: &ReadyInfo| on_ready.take().into_iter().for_each(|f| f(ready.clone()));
        let begun = clock::now();
        match serve(&mut config, (shutdown, pause), observer, tell)? {
            Ended::Stopped => return Ok(()),
            Ended::Anew => tracing::warn!(
                "all operations of hung disks have ended: the server restarts itself"
            ),
        }
        pause = match clock::elapsed(begun) < OFTEN {
            true => (pause * 2).clamp(PAUSES.0, PAUSES.1),
            false => Duration::ZERO,
        };
    }
}

/// Why a server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It was asked to stop.
    Stopped,
    /// It has to restart.
    Anew,
}

fn serve(
    config: &mut DataServerConfig,
    (shutdown, pause): (&Signal, Duration),
    observer: &Observer,
    on_ready: impl FnOnce(&ReadyInfo),
) -> Result<Ended> {
    let server = ServerId(config.server);
    let whose = format!("data server {server}");
    let server_key = read_key(&config.server_key_file, &whose)?;
    let metadata: Vec<Address> =
        config.metadata.iter().map(|a| Address::parse(a)).collect::<Result<_>>()?;
    let descriptors = Descriptors::of(config);
    config.max_connections = descriptors.connections;
    let options = TargetOptions {
        max_open_objects: descriptors.objects_per_target,
        ..TargetOptions::default()
    };
    let opening = Opener { config, options, server_key: &server_key, shutdown, observer };
    let Some(Opened { disks, unopened, cluster }) = opening.open()? else {
        return Ok(Ended::Stopped);
    };
    let runs = runs(config)?;
    let Listening { listeners, bound, tcp, unix } = listen(config)?;
    // The same if it begins anew.
    config.listen = bound;
    let ending = Signal::new().map_err(|e| Error::from(std::io::Error::from(e)))?;
    let peers = Peers::new(server, server_key.clone(), cluster, &metadata, ending.clone());
    let peers = Arc::new(peers);
    let lines = Lines::new(peers.clone(), u64::from_le_bytes(random_bytes()?));
    let targets = disks.iter().map(|disk| disk.served.id);
    let copies = Copies::new(lines, targets, config.queue_limit, config.buffer_bytes);
    let shared = Arc::new(Shared {
        server,
        server_key,
        cluster,
        runs,
        started: clock::now(),
        disks,
        unopened,
        counters: Arc::new(Counters::default()),
        times: RequestTimes::default(),
        attempts: Arc::default(),
        revoked: Arc::new(Revoked::new(config.metadata.is_empty())),
        copies,
        resync_bytes_per_s: config.resync_bytes_per_s,
        busy_percent: AtomicU8::new(BUSY_PERCENT),
        copier: Copier::new(config, peers.clone()),
        forwarder: Forwarder::new(config.queue_limit, peers)?,
        anew: AtomicBool::new(false),
    });
    let mut threads = Vec::new();
    let signals = (shutdown, &ending);
    let serve = Serve { config, shared: &shared, observer, signals, pause, threads: &mut threads };
    let result = serve.until_the_end(listeners, metadata, (tcp, unix), on_ready);
    observer.end();
    ending.raise();
    for disk in &shared.disks {
        disk.stop();
    }
    shared.copier.stop();
    shared.copies.repairs.stop();
    shared.copies.staged.stop();
    threads.extend(shared.copies.pools.stop());
    threads.extend(shared.forwarder.stop());
    for thread in threads {
        if thread.join().is_err() {
            let what = "a thread of the data server has panicked";
            return Err(Error::new(ErrorKind::Internal, what));
        }
    }
    let anew = shared.anew.load(Relaxed) && !is_raised(shutdown)?;
    result.and(close_targets(shared))?;
    Ok(if anew { Ended::Anew } else { Ended::Stopped })
}

pub(crate) fn is_raised(signal: &Signal) -> Result<bool> {
    signal.wait(Some(Duration::ZERO)).map_err(|e| std::io::Error::from(e).into())
}

/// Marks each disk as needing no recovery, after the last use. Given-up disks are excluded, because
/// the outcome of their changes is unknown. Tries all; the first error is returned.
fn close_targets(shared: Arc<Shared>) -> Result<()> {
    let Some(shared) = Arc::into_inner(shared) else {
        return Err(Error::new(ErrorKind::Internal, "the targets are still in use"));
    };
    let map = shared.copies.standings.map();
    let closed = shared.disks.into_iter().map(|disk| match Arc::into_inner(disk) {
        Some(disk) if map.given_up.contains(&disk.served.id) => {
            disk.store.drop_unclosed();
            Ok(())
        }
        Some(disk) => disk.store.close(),
        None => Err(Error::new(ErrorKind::Internal, "a target is still in use")),
    });
    // All of them, whatever becomes of the first.
    closed.collect::<Vec<_>>().into_iter().collect()
}

/// The parts of a serving server, after all targets are open. However it ends, the caller stops the
/// disks and joins the threads.
struct Serve<'a> {
    config: &'a DataServerConfig,
    shared: &'a Arc<Shared>,
    observer: &'a Observer,
    /// The outer signal, and the one for all threads.
    signals: (&'a Signal, &'a Signal),
    /// Time for which a disk that hung has to work before the server restarts.
    pause: Duration,
    threads: &'a mut Vec<JoinHandle>,
}

impl Serve<'_> {
    fn until_the_end(
        self,
        listeners: Vec<Listener>,
        metadata: Vec<Address>,
        (tcp, unix): (String, String),
        on_ready: impl FnOnce(&ReadyInfo),
    ) -> Result<()> {
        let Self { config, shared, observer, signals: (shutdown, ending), pause, threads } = self;
        start_disk_threads(config, shared, threads)?;
        start_chore_threads(shared, threads)?;
        start_copy_threads(shared, threads)?;
        start_resync_threads(shared, ending, threads)?;
        start_checkpoint_threads(config, shared, ending, threads)?;
        let of = shared.clone();
        threads.push(spawn("weir-repair", move || of.copies.repairs.work_off(&of))?);
        let running = Server::start(net_config(config), listeners, |handle, net_counters| {
            Ok(DataService::new(shared.clone(), handle, net_counters.clone()))
        })?;
        observer.begin(shared.clone(), running.counters().clone());
        let (tcp_told, unix_told) = (tcp.clone(), unix.clone());
        let (domain, until) = (config.domain.clone().unwrap_or_default(), (ending.clone(), pause));
        let registrar =
            Registrar::new(shared.clone(), metadata, tcp_told, unix_told, domain, until);
        threads.push(spawn("weir-register", move || registrar.run())?);
        let server = shared.server;
        let targets = shared.disks.iter().map(|d| d.served.id).collect();
        tracing::info!("data server {server} serves {} targets on {tcp}", shared.disks.len());
        shared.disks.iter().for_each(|disk| disk.log_opening());
        on_ready(&ReadyInfo { server, tcp, unix, targets });
        let waited = Signal::wait_for_any(&[shutdown, ending]);
        ending.raise();
        waited.map_err(|e| Error::from(std::io::Error::from(e)).context("wait for the end"))?;
        running.stop()
    }
}

fn net_config(config: &DataServerConfig) -> ServerConfig {
    ServerConfig {
        loops: config.event_loops,
        max_connections: config.max_connections,
        max_body_bytes: MAX_BODY_BYTES,
        ..ServerConfig::new(BufferPool::new(config.buffer_bytes))
    }
}

/// The listeners and their addresses.
pub(crate) struct Listening {
    pub(crate) listeners: Vec<Listener>,
    /// Bound address of the first listener.
    pub(crate) bound: String,
    /// Addresses that clients are told.
    pub(crate) tcp: String,
    pub(crate) unix: String,
}

pub(crate) fn listen(config: &DataServerConfig) -> Result<Listening> {
    let wanted = Address::parse(&config.listen)?;
    let Address::Tcp(_) = wanted else {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "`listen` must be `address:port`; a Unix socket goes into `unix`",
        ));
    };
    let mut listeners = vec![Listener::bind(&wanted)?];
    let bound = listeners[0].address().to_string();
    let port = bound.rsplit_once(':').map_or("0", |(_, port)| port);
    let everywhere = ["0.0.0.0:", "[::]:"].iter().any(|any| bound.starts_with(any));
    let tcp = match &config.advertise {
        Some(advertise) => advertise.clone(),
        None if everywhere => format!("{}:{port}", host_name()),
        None => bound.clone(),
    };
    let mut unix = String::new();
    if let Some(path) = &config.unix {
        listeners.push(Listener::bind(&Address::Unix(path.clone()))?);
        unix = path.display().to_string();
    }
    Ok(Listening { listeners, bound, tcp, unix })
}

fn start_disk_threads(
    config: &DataServerConfig,
    shared: &Arc<Shared>,
    threads: &mut Vec<JoinHandle>,
) -> Result<()> {
    for disk in &shared.disks {
        for n in 0..config.disk_threads_per_target {
            let (shared, disk) = (shared.clone(), disk.clone());
            let name = format!("weir-disk-{}.{n}", disk.served.id);
            threads.push(spawn(&name, move || {
                let _guard = AbortOnPanic("a disk thread");
                disk.work_off(&shared);
            })?);
        }
    }
    Ok(())
}

fn start_chore_threads(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle>) -> Result<()> {
    for disk in &shared.disks {
        let (shared, disk) = (shared.clone(), disk.clone());
        threads.push(spawn(&format!("weir-chores-{}", disk.served.id), move || {
            let _guard = AbortOnPanic("a thread for removals");
            disk.chores.work_off(&shared, &disk);
        })?);
    }
    Ok(())
}

fn start_resync_threads(
    shared: &Arc<Shared>,
    shutdown: &Signal,
    threads: &mut Vec<JoinHandle>,
) -> Result<()> {
    for disk in &shared.disks {
        let resync = Resync::new(shared.clone(), disk.clone(), shutdown.clone());
        threads.push(spawn(&format!("weir-resync-{}", disk.served.id), move || resync.run())?);
    }
    let (of, until) = (shared.clone(), shutdown.clone());
    threads.push(spawn("weir-scout", move || scout::run(&of, &until))?);
    Ok(())
}

fn start_checkpoint_threads(
    config: &DataServerConfig,
    shared: &Arc<Shared>,
    shutdown: &Signal,
    threads: &mut Vec<JoinHandle>,
) -> Result<()> {
    for disk in &shared.disks {
        let (disk, interval_ms, until) = (disk.clone(), config.checkpoint_ms, shutdown.clone());
        threads.push(spawn(&format!("weir-checkpoint-{}", disk.served.id), move || {
            checkpoint::run(&disk, interval_ms, &until);
        })?);
    }
    Ok(())
}

fn start_copy_threads(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle>) -> Result<()> {
    for n in 0..copier::THREADS {
        let shared = shared.clone();
        threads.push(spawn(&format!("weir-copy-{n}"), move || {
            let _guard = AbortOnPanic("a copying thread");
            shared.copier.work_off(&shared);
        })?);
    }
    Ok(())
}

/// Of each target the run of its disk's memory: the same as long as nothing that was confirmed can
/// have been lost, until the machine starts anew or the file system that the target is on is mounted
/// anew. (Then it may have lost what was not synced, without anybody's knowing: a disk that was
/// reset, say.)
pub(crate) fn runs(config: &DataServerConfig) -> Result<Vec<(TargetId, u64)>> {
    let run = |target: &TargetConfig| {
        // One of which nothing is known may have lost something.
        let run = fs::Directory::open(&target.dir).ok().and_then(|dir| dir.memory_run());
        let run = match run {
            Some(run) => mixed(mixed(run as u64) ^ (run >> 64) as u64),
            None => u64::from_le_bytes(random_bytes()?),
        };
        Ok((TargetId(target.target), run))
    };
    config.targets.iter().map(run).collect()
}

/// Mixes a number, so that near numbers give distant results.
fn mixed(mut n: u64) -> u64 {
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle> {
    thread::spawn(name, body).map_err(|e| Error::from(e).context("start a thread"))
}
