//! Makes a metadata directory; starts a metadata server, waits, stops it.

use crate::config::{MetaServerConfig, read_master_key};
use crate::init::{NewFileSystem, check_format, initialize};
use crate::machine::MetaMachine;
use crate::service::{self, EngineNews, Failure, MetaService};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use weir_metastore::{Embedded, EmbeddedConfig};
use weir_net::{Address, BufferPool, Listener, LoopHandle, Server, ServerConfig, random_bytes};
use weir_types::{Error, ErrorKind, Result};
use weir_wire::key::MasterKey;

/// Memory for large requests on their way.
const BUFFER_BYTES: usize = 64 << 20;

/// A metadata server that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyInfo {
    /// Where it listens, in the order of [`MetaServerConfig::listen`], with
    /// the ports that it really has.
    pub addresses: Vec<String>,
}

/// Makes the metadata of a new file system in a directory, and waits until it
/// is durable. Nothing may run on the directory.
///
/// # Errors
/// `Exists` if there is a file system already; `Busy` if a server runs on it;
/// those of the disk, with the path.
pub fn init(dir: &Path, master: &MasterKey, new: &NewFileSystem) -> Result<()> {
    let in_dir = |e: Error| e.context(dir.display());
    let mut engine = Embedded::open(dir, EmbeddedConfig::default(), || {}).map_err(in_dir)?;
    let now = service::now(Instant::now()).unix;
    initialize(&mut engine, master, new, now).map_err(in_dir)?;
    service::close(engine).map_err(in_dir)
}

/// Serves until `shutdown` becomes readable. `on_ready` is called once, when
/// connections are accepted.
///
/// # Errors
/// Before `on_ready`: what is wrong with the configuration, the key file, the
/// directory (`NotFound`: not initialised, `Busy`: in use, `AuthFailed`: wrong
/// master key) or an address, and what to do about it. After it: what broke
/// the engine.
pub fn run(
    config: MetaServerConfig,
    shutdown: BorrowedFd<'_>,
    on_ready: impl FnOnce(ReadyInfo),
) -> Result<()> {
    config.check()?;
    let master = read_master_key(&config.master_key_file)?;
    let listeners = listen(&config)?;
    let addresses = listeners.iter().map(|l| l.address().to_string()).collect();
    let handle: Arc<OnceLock<LoopHandle<EngineNews>>> = Arc::default();
    let start = Instant::now();
    let machine = open(&config, master, start, handle.clone())?;
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| Error::from(std::io::Error::from(e)).context("make an eventfd"))?;
    let failure = Arc::new(Failure::new(wake));
    let mut service = Some(MetaService::new(machine, start, failure.clone()));
    let net = ServerConfig {
        // One thread owns the namespace: no operation waits for a lock.
        loops: 1,
        max_connections: config.max_connections,
        ..ServerConfig::new(BufferPool::new(BUFFER_BYTES))
    };
    let running = Server::start(net, listeners, |loop_handle, _| {
        handle.get_or_init(|| loop_handle);
        service.take().ok_or_else(|| Error::from(ErrorKind::Internal))
    })?;
    tracing::info!("metadata server serves {} on {addresses:?}", config.dir.display());
    on_ready(ReadyInfo { addresses });

    wait_for(&[shutdown, failure.wake().as_fd()])?;
    let stopped = running.stop();
    match failure.take() {
        Some(error) => Err(error),
        None => stopped,
    }
}

fn listen(config: &MetaServerConfig) -> Result<Vec<Listener>> {
    config.listen.iter().map(|text| Listener::bind(&Address::parse(text)?)).collect()
}

fn open(
    config: &MetaServerConfig,
    master: MasterKey,
    start: Instant,
    handle: Arc<OnceLock<LoopHandle<EngineNews>>>,
) -> Result<MetaMachine<Embedded>> {
    let shown = config.dir.display();
    // The engine would make itself at home in any directory; its own begin
    // with a file of this name.
    if !config.dir.join("format").exists() {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "{shown} is no metadata directory: make one with `weir up`, or correct the path"
            ),
        ));
    }
    let embedded = EmbeddedConfig {
        sync_delay_ms: config.sync_delay_ms,
        cache_bytes: config.cache_bytes,
        ..EmbeddedConfig::default()
    };
    let notify = move || {
        if let Some(handle) = handle.get() {
            handle.post(EngineNews);
        }
    };
    let engine = Embedded::open(&config.dir, embedded, notify)
        .map_err(|e| e.context(format!("metadata directory {shown}")))?;
    let format = check_format(&engine, &master).map_err(|e| e.context(shown.to_string()))?;
    if config.cluster.is_some_and(|cluster| cluster != format.cluster) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("metadata directory {shown} belongs to another cluster: correct the path"),
        ));
    }
    MetaMachine::open(engine, config.times(), master, random_bytes()?, service::now(start))
        .map_err(|e| e.context(shown.to_string()))
}

fn wait_for(fds: &[BorrowedFd<'_>]) -> Result<()> {
    loop {
        let mut polled: Vec<PollFd<'_>> =
            fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        match poll(&mut polled, None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::from(std::io::Error::from(e)).context("wait for the end")),
        }
    }
}
