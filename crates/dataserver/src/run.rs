//! Starts a data server, waits, stops it.

use crate::config::{DataServerConfig, TargetConfig, read_key};
use crate::counters::Counters;
use crate::disk::Disk;
use crate::machine::{Load, ServedTarget};
use crate::register::Registrar;
use crate::service::{DataService, Shared};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use weir_net::{
    AbortOnPanic, Address, BufferPool, Listener, Server, ServerConfig, host_name, random_bytes,
};
use weir_store::Target;
use weir_types::{Error, ErrorKind, Result, ServerId, TargetId};

/// The longest body that a data request can have: regions and a capability.
const MAX_BODY_BYTES: usize = 64 << 10;

/// A data server that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyInfo {
    /// Its number.
    pub server: ServerId,
    /// `host:port` under which clients reach it.
    pub tcp: String,
    /// The path of its Unix socket; may be empty.
    pub unix: String,
    /// What it serves.
    pub targets: Vec<TargetId>,
}

/// Serves until `shutdown` becomes readable. `on_ready` is called once, when
/// connections are accepted.
///
/// Errors, before `on_ready`: what is wrong with the configuration, a key
/// file, a target directory or an address, and what to do about it.
pub fn run(
    config: DataServerConfig,
    shutdown: BorrowedFd<'_>,
    on_ready: impl FnOnce(ReadyInfo),
) -> Result<()> {
    config.check()?;
    let server = ServerId(config.server);
    let whose = format!("data server {server}");
    let server_key = read_key(&config.server_key_file, &whose)?;
    let metadata = config.metadata.iter().map(|a| Address::parse(a)).collect::<Result<_>>()?;
    let (disks, cluster) = open_targets(&config)?;
    let (listeners, tcp, unix) = listen(&config)?;
    let shared = Arc::new(Shared {
        server,
        server_key,
        cluster,
        instance: u64::from_le_bytes(random_bytes()?),
        started: Instant::now(),
        disks,
        counters: Arc::new(Counters::default()),
    });
    let mut threads = Vec::new();
    let serve = Serve { config: &config, shared: &shared, shutdown, threads: &mut threads };
    let result = serve.until_shutdown(listeners, metadata, (tcp, unix), on_ready);
    for disk in &shared.disks {
        disk.stop();
    }
    for thread in threads {
        if thread.join().is_err() {
            let what = "a thread of the data server has panicked";
            return Err(Error::new(ErrorKind::Internal, what));
        }
    }
    result
}

/// What serving needs, once all is open. Whatever ends it, the caller stops
/// the disks and waits for the threads.
struct Serve<'a> {
    config: &'a DataServerConfig,
    shared: &'a Arc<Shared>,
    shutdown: BorrowedFd<'a>,
    threads: &'a mut Vec<JoinHandle<()>>,
}

impl Serve<'_> {
    fn until_shutdown(
        self,
        listeners: Vec<Listener>,
        metadata: Vec<Address>,
        (tcp, unix): (String, String),
        on_ready: impl FnOnce(ReadyInfo),
    ) -> Result<()> {
        let Self { config, shared, shutdown, threads } = self;
        start_disk_threads(config, shared, threads)?;
        let running = Server::start(net_config(config), listeners, |handle, net_counters| {
            Ok(DataService::new(shared.clone(), handle, net_counters.clone()))
        })?;
        let (tcp_told, unix_told) = (tcp.clone(), unix.clone());
        let registrar =
            Registrar::new(shared.clone(), metadata, tcp_told, unix_told, shutdown.as_raw_fd());
        threads.push(spawn("weir-register".into(), move || registrar.run())?);
        let server = shared.server;
        let targets = shared.disks.iter().map(|d| d.served.id).collect();
        tracing::info!("data server {server} serves {} targets on {tcp}", shared.disks.len());
        on_ready(ReadyInfo { server, tcp, unix, targets });
        wait_for(shutdown)?;
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

/// Opens every target, sorted, and returns the cluster that they belong to.
fn open_targets(config: &DataServerConfig) -> Result<(Vec<Arc<Disk>>, [u8; 16])> {
    let mut disks = Vec::new();
    let mut cluster = None;
    for target in &config.targets {
        let (disk, of) = open_target(config, target)?;
        if *cluster.get_or_insert(of) != of {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "{} belongs to another cluster than the targets before it",
                    disk.store.name()
                ),
            ));
        }
        disks.push(Arc::new(disk));
    }
    disks.sort_by_key(|d| d.served.id);
    Ok((disks, cluster.unwrap_or_default()))
}

fn open_target(config: &DataServerConfig, target: &TargetConfig) -> Result<(Disk, [u8; 16])> {
    let id = TargetId(target.target);
    let key = read_key(&target.key_file, &format!("target {id}"))?;
    let store = Target::open(&target.dir).map_err(|e| match e.kind {
        ErrorKind::NotFound => Error::new(
            ErrorKind::NotFound,
            format!("target {id}: {}; if it is new, make it with `weir target create`", e.message),
        ),
        _ => e.context(format!("target {id}")),
    })?;
    let identity = store.identity();
    if (identity.target, identity.server) != (id, ServerId(config.server)) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "{} holds target {} of server {}, but is configured as target {id} of server {}",
                target.dir.display(),
                identity.target,
                identity.server,
                config.server
            ),
        ));
    }
    let served = Arc::new(ServedTarget { id, key, load: Load::default() });
    Ok((Disk::new(store, served, config.queue_limit), identity.cluster))
}

/// The listeners, and the addresses that clients are told.
fn listen(config: &DataServerConfig) -> Result<(Vec<Listener>, String, String)> {
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
        None => bound,
    };
    let mut unix = String::new();
    if let Some(path) = &config.unix {
        listeners.push(Listener::bind(&Address::Unix(path.clone()))?);
        unix = path.display().to_string();
    }
    Ok((listeners, tcp, unix))
}

fn start_disk_threads(
    config: &DataServerConfig,
    shared: &Shared,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<()> {
    for disk in &shared.disks {
        for n in 0..config.disk_threads_per_target {
            let disk = disk.clone();
            let name = format!("weir-disk-{}.{n}", disk.served.id);
            threads.push(spawn(name, move || {
                let _guard = AbortOnPanic("a disk thread");
                disk.work_off();
            })?);
        }
    }
    Ok(())
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name)
        .spawn(body)
        .map_err(|e| Error::from(e).context("start a thread"))
}

fn wait_for(shutdown: BorrowedFd<'_>) -> Result<()> {
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(shutdown, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::from(std::io::Error::from(e)).context("wait for the end")),
        }
    }
}
