//! Makes a metadata directory; starts a metadata server, waits, stops it.

use crate::config::{MetaServerConfig, read_master_key};
use crate::history;
use crate::init::{NewFileSystem, check_format, initialize};
use crate::machine::MetaMachine;
use crate::metrics::Observer;
use crate::news::News;
use crate::service::{self, Failure, MetaService};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use weir_audit::Log;
use weir_host::net::{Events, Poller, Signal};
use weir_host::{clock, fs, thread};
use weir_metastore::{Embedded, EmbeddedConfig, Engine};
use weir_net::{Address, BufferPool, Listener, LoopHandle, Server, ServerConfig, random_bytes};
use weir_types::{Error, ErrorKind, FsUsage, Result};
use weir_wire::key::MasterKey;

/// Called by an engine when [`Engine::poll`] has something to do.
pub type Notify = Box<dyn Fn() + Send + Sync>;

/// Interval of checks of the free space of the metadata's disk. (A separate thread checks, because
/// the loop waits for no disk.)
pub(crate) const ROOM_EVERY: Duration = Duration::from_secs(5);
/// Memory for large requests, bytes.
const BUFFER_BYTES: usize = 64 << 20;

/// A metadata server that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyInfo {
    /// Its addresses, in the order of [`MetaServerConfig::listen`], with the actual ports.
    pub addresses: Vec<String>,
}

/// Makes the metadata of a new file system in a directory, and waits until it is durable. No server
/// may run on the directory.
///
/// # Errors
/// `Exists` if there is a file system already; `Busy` if a server runs on it; those of the disk,
/// with the path.
pub fn init(dir: &Path, master: &MasterKey, new: &NewFileSystem) -> Result<()> {
    let in_dir = |e: Error| e.context(dir.display());
    let mut engine = Embedded::open(dir, EmbeddedConfig::default(), || {}).map_err(in_dir)?;
    let now = service::now(clock::now()).unix;
    initialize(&mut engine, master, new, now).map_err(in_dir)?;
    service::close(engine).map_err(in_dir)
}

/// Serves until `shutdown` is raised. `on_ready` is called once, when connections are accepted.
///
/// # Errors
/// Before `on_ready`: an invalid configuration, key file, directory (`NotFound`: not initialised,
/// `Busy`: in use, `AuthFailed`: wrong master key) or address, and what to do about it. After it:
/// the failure of the engine.
pub fn run(
    config: MetaServerConfig,
    shutdown: &Signal,
    on_ready: impl FnOnce(ReadyInfo),
) -> Result<()> {
    serve(config, open_embedded, shutdown, on_ready)
}

/// As [`run`], with an `observer` for the metrics.
///
/// # Errors
/// Those of [`run`].
pub fn run_observed(
    config: MetaServerConfig,
    shutdown: &Signal,
    observer: Arc<Observer>,
    on_ready: impl FnOnce(ReadyInfo),
) -> Result<()> {
    serve_observed(config, open_embedded, shutdown, observer, on_ready)
}

/// As [`run`], on the engine that `open` gives.
///
/// # Errors
/// Those of [`run`].
pub fn serve<E: Engine + Send + 'static>(
    config: MetaServerConfig,
    open: impl FnOnce(&MetaServerConfig, Notify) -> Result<E>,
    shutdown: &Signal,
    on_ready: impl FnOnce(ReadyInfo),
) -> Result<()> {
    serve_observed(config, open, shutdown, Arc::default(), on_ready)
}

fn serve_observed<E: Engine + Send + 'static>(
    config: MetaServerConfig,
    open: impl FnOnce(&MetaServerConfig, Notify) -> Result<E>,
    shutdown: &Signal,
    observer: Arc<Observer>,
    on_ready: impl FnOnce(ReadyInfo),
) -> Result<()> {
    config.check()?;
    if config.journal.is_some() {
        let what = "`[journal]` is for `weir meta`, which was not what started this server";
        return Err(Error::new(ErrorKind::InvalidArgument, what));
    }
    let master = read_master_key(&config.master_key_file)?;
    let listeners = listen(&config)?;
    let addresses = listeners.iter().map(|l| l.address().to_string()).collect();
    let handle: Arc<OnceLock<LoopHandle<News>>> = Arc::default();
    let posted = handle.clone();
    let notify = move || {
        if let Some(handle) = posted.get() {
            handle.post(News::Engine);
        }
    };
    let start = clock::now();
    let mut engine = open(&config, Box::new(notify))?;
    history::leave(&mut engine).map_err(|e| in_directory(&config, e))?;
    let mut machine = start_machine(&config, engine, master, start)?;
    let audit = Arc::new(Log::open(&config.dir, config.audit_records));
    machine.set_audit(audit.clone());
    let wake = Signal::new().map_err(|e| broken(e).context("make an eventfd"))?;
    let failure = Arc::new(Failure::new(wake));
    let mut service = Some(MetaService::new(machine, start, observer.clone(), failure.clone()));
    let running = Server::start(net(&config), listeners, |loop_handle, _| {
        handle.get_or_init(|| loop_handle);
        service.take().ok_or_else(|| Error::from(ErrorKind::Internal))
    })?;
    if let Some(handle) = handle.get() {
        observer.begin(handle.clone(), running.counters().clone());
    }
    let dir = config.dir.clone();
    let written = audit.clone();
    let look = move || {
        written.write(&dir, unix_ms());
        if let Some((handle, room)) = handle.get().zip(room(&dir)) {
            handle.post(News::Room(room));
        }
    };
    look();
    tracing::info!("metadata server serves {} on {addresses:?}", config.dir.display());
    on_ready(ReadyInfo { addresses });

    wait_for([shutdown, failure.wake()], ROOM_EVERY, look)
        .map_err(|e| broken(e).context("wait for the end"))?;
    observer.end();
    let stopped = running.stop();
    audit.finish(&config.dir);
    match failure.take() {
        Some(error) => Err(error),
        None => stopped,
    }
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    u64::try_from(clock::unix_now().as_millis()).unwrap_or(u64::MAX)
}

/// Limits of the event loop.
pub(crate) fn net(config: &MetaServerConfig) -> ServerConfig {
    ServerConfig {
        // One thread owns the namespace: no operation waits for a lock.
        loops: 1,
        max_connections: config.max_connections,
        ..ServerConfig::new(BufferPool::new(BUFFER_BYTES))
    }
}

pub(crate) fn broken(e: impl Into<io::Error>) -> Error {
    e.into().into()
}

pub(crate) fn listen(config: &MetaServerConfig) -> Result<Vec<Listener>> {
    config.listen.iter().map(|text| Listener::bind(&Address::parse(text)?)).collect()
}

fn open_embedded(config: &MetaServerConfig, notify: Notify) -> Result<Embedded> {
    require_format(config)?;
    Embedded::open(&config.dir, config.engine(), notify).map_err(|e| in_directory(config, e))
}

pub(crate) fn in_directory(config: &MetaServerConfig, error: Error) -> Error {
    error.context(format!("metadata directory {}", config.dir.display()))
}

pub(crate) fn require_format(config: &MetaServerConfig) -> Result<()> {
    let shown = config.dir.display();
    // The engine would make itself at home in any directory; its own begin
    // with a file of this name.
    if !has_format(&config.dir)? {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "{shown} is no metadata directory: make one with `weir up`, or correct the path"
            ),
        ));
    }
    Ok(())
}

/// Whether a directory has the metadata of a file system.
pub(crate) fn has_format(dir: &Path) -> Result<bool> {
    let found = fs::Directory::open(dir).and_then(|dir| dir.stat("format"));
    match found {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(broken(error).context(dir.display().to_string())),
    }
}

/// The cluster that an open engine belongs to.
pub(crate) fn check_cluster(
    config: &MetaServerConfig,
    engine: &dyn Engine,
    master: &MasterKey,
) -> Result<[u8; 16]> {
    let shown = config.dir.display();
    let (format, _) = check_format(engine, master).map_err(|e| e.context(shown.to_string()))?;
    if config.cluster.is_some_and(|cluster| cluster != format.cluster) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("metadata directory {shown} belongs to another cluster: correct the path"),
        ));
    }
    Ok(format.cluster)
}

/// Starts the machine on an open engine.
pub(crate) fn start_machine<E: Engine>(
    config: &MetaServerConfig,
    engine: E,
    master: MasterKey,
    start: Instant,
) -> Result<MetaMachine<E>> {
    let shown = config.dir.display();
    check_cluster(config, &engine, &master)?;
    let now = service::now(start);
    let mut machine = MetaMachine::open(engine, config.times(), master, random_bytes()?, now)
        .map_err(|e| e.context(shown.to_string()))?;
    machine.limit_leases(config.leases_per_client);
    machine.set_mover(config.mover());
    machine.set_protection(config.protection);
    // Another one also if the disk was mounted anew, and what was not synced is gone. A kernel that
    // does not say is taken for another one each time.
    let dir = fs::Directory::open(&config.dir).ok();
    let run = dir.map_or_else(weir_host::boot_id, |dir| dir.memory_run());
    let boot = match run {
        Some(id) => (id ^ id >> 64) as u64,
        None => u64::from_le_bytes(random_bytes()?),
    };
    machine.set_boot((boot ^ boot >> 32) as u32);
    Ok(machine)
}

/// Free space on the disk of a directory; `None` if it cannot be read.
pub(crate) fn room(dir: &Path) -> Option<FsUsage> {
    let space = fs::Directory::open(dir).and_then(|dir| dir.space()).ok()?;
    Some(FsUsage {
        total_bytes: space.total_bytes,
        free_bytes: space.free_bytes,
        total_files: space.total_files,
        free_files: space.free_files,
    })
}

/// Waits until one of the signals is raised, and calls `look` at this interval. That happens in
/// another thread, and not again before it has ended: a hung disk blocks no signal.
pub(crate) fn wait_for(
    signals: [&Signal; 2],
    every: Duration,
    look: impl Fn() + Send + Sync + 'static,
) -> io::Result<()> {
    let look = Arc::new(look);
    let mut looking: Option<thread::JoinHandle> = None;
    let poller = Poller::new()?;
    for (token, signal) in (0..).zip(signals) {
        poller.add_signal(signal, token)?;
    }
    let mut events = Events::with_capacity(signals.len());
    loop {
        match poller.wait(&mut events, every) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e.into()),
            _ if !events.list().is_empty() => return Ok(()),
            _ => {}
        }
        if looking.as_ref().is_none_or(thread::JoinHandle::is_finished) {
            let look = look.clone();
            looking = thread::spawn("weir-room", move || look())
                .inspect_err(|error| tracing::warn!(%error, "cannot ask the disk for its room"))
                .ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use weir_host::sync::Mutex;

    #[test]
    fn a_disk_that_hangs_hides_no_signal() {
        let [shutdown, failure] = [(); 2].map(|()| Signal::new().unwrap());
        let (hangs, until) = mpsc::channel::<()>();
        let (raises, until) = (shutdown.clone(), Mutex::new(until));
        let look = move || {
            raises.raise();
            let _ = until.lock().recv();
        };
        wait_for([&shutdown, &failure], Duration::from_millis(1), look).unwrap();
        drop(hangs);
    }
}
