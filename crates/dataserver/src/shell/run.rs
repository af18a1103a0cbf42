//! Starts a data server, waits, stops it.

use super::copier::{self, Copier};
use super::descriptors::Descriptors;
use super::forward::Forwarder;
use super::listening::{Listening, listen, runs};
use super::metrics::Observer;
use super::opening::{Opened, Opener};
use super::register::Registrar;
use super::service::{Crews, DataService};
use super::threads::{is_raised, spawn};
use super::{checkpoint, chores, disk_thread};
use crate::config::{DataServerConfig, read_key};
use crate::copies::mend::repair;
use crate::copies::pools::Pools;
use crate::copies::resync::Resync;
use crate::copies::scout;
use crate::counters::Counters;
use crate::machine::Revoked;
use crate::peers::Peers;
use crate::peers::lines::Lines;
use crate::peers::protection::Protection;
use crate::state::copies::Copies;
use crate::state::{RequestTimes, Shared};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Duration;
use weir_host::clock;
use weir_host::net::Signal;
use weir_host::thread::JoinHandle;
use weir_net::{AbortOnPanic, Address, BufferPool, Listener, Server, ServerConfig, random_bytes};
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
    let protection = Arc::new(Protection::new(config.metadata.is_empty()));
    let own = (server, server_key.clone(), protection.clone());
    let peers = Peers::new(own, cluster, &metadata, ending.clone());
    let peers = Arc::new(peers);
    let lines = Lines::new(peers.clone(), u64::from_le_bytes(random_bytes()?));
    let targets = disks.iter().map(|disk| disk.served.id);
    let counters = Arc::new(Counters::default());
    let crews = Crews {
        pools: Arc::new(Pools::new(targets, config.queue_limit)),
        copier: Arc::new(Copier::new(config, peers.clone())),
        forwarder: Arc::new(Forwarder::new(config.queue_limit, peers, counters.clone())?),
    };
    let shared = Arc::new(Shared {
        server,
        server_key,
        cluster,
        runs,
        key_files: config
            .targets
            .iter()
            .map(|t| (TargetId(t.target), t.key_file.clone()))
            .collect(),
        started: clock::now(),
        disks,
        unopened,
        counters,
        times: RequestTimes::default(),
        attempts: Arc::default(),
        revoked: Arc::new(Revoked::new(config.metadata.is_empty())),
        copies: Copies::new(lines, config.buffer_bytes),
        resync_bytes_per_s: config.resync_bytes_per_s,
        busy_percent: AtomicU8::new(BUSY_PERCENT),
        protection,
        anew: AtomicBool::new(false),
    });
    let mut threads = Vec::new();
    let signals = (shutdown, &ending);
    let serve = Serve {
        config,
        shared: &shared,
        crews: &crews,
        observer,
        signals,
        pause,
        threads: &mut threads,
    };
    let result = serve.until_the_end(listeners, metadata, (tcp, unix), on_ready);
    observer.end();
    ending.raise();
    for disk in &shared.disks {
        disk.stop();
    }
    crews.copier.stop();
    shared.copies.repairs.stop();
    shared.copies.staged.stop();
    threads.extend(crews.pools.stop());
    threads.extend(crews.forwarder.stop());
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
        Some(disk) => {
            disk.served.audit.finish(disk.store.dir());
            disk.store.close()
        }
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
    crews: &'a Crews,
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
        let Self { config, shared, crews, observer, signals: (shutdown, ending), pause, threads } =
            self;
        start_disk_threads(config, shared, threads)?;
        start_chore_threads(shared, threads)?;
        start_copy_threads(shared, &crews.copier, threads)?;
        start_resync_threads(shared, ending, threads)?;
        start_checkpoint_threads(config, shared, ending, threads)?;
        let of = shared.clone();
        threads.push(spawn("weir-repair", move || repair::work_off(&of))?);
        let running = Server::start(net_config(config), listeners, |handle, net_counters| {
            Ok(DataService::new(shared.clone(), crews.clone(), handle, net_counters.clone()))
        })?;
        observer.begin(shared.clone(), running.counters().clone());
        let (tcp_told, unix_told) = (tcp.clone(), unix.clone());
        let (domain, until) = (config.domain.clone().unwrap_or_default(), (ending.clone(), pause));
        let of = (shared.clone(), crews.pools.clone());
        let registrar = Registrar::new(of, metadata, tcp_told, unix_told, domain, until);
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
                disk_thread::work_off(&shared, &disk);
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
            chores::work_off(&shared, &disk);
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

fn start_copy_threads(
    shared: &Arc<Shared>,
    copier: &Arc<Copier>,
    threads: &mut Vec<JoinHandle>,
) -> Result<()> {
    for n in 0..copier::THREADS {
        let (shared, copier) = (shared.clone(), copier.clone());
        threads.push(spawn(&format!("weir-copy-{n}"), move || {
            let _guard = AbortOnPanic("a copying thread");
            copier.work_off(&shared);
        })?);
    }
    Ok(())
}
