//! The nodes and processes of a run. It starts the real servers on simulated machines.

use crate::engine::SharedModel;
use crate::generate::DIRECTORIES;
use crate::history::CELL_BYTES;
use crate::plan::{EngineKind, FileShape, NodeName, Placement, Protocol, Shape, targets_of};
use crate::shared::{Made, Shared};
use crate::worker::Worker;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{
    Client, ClientConfig, Consistency, Context, CreateOptions, ReadPolicy, Transport,
};
use weir_dataserver::{DataServerConfig, TargetConfig};
use weir_host::net::Signal;
use weir_metaserver::{MetaServerConfig, NewFileSystem};
use weir_simhost::disk::SimDisk;
use weir_simhost::{NodeId, Options, ProcessId, Simulation};
use weir_store::{ScrubCursor, Target, TargetIdentity};
use weir_types::limits::BLOCK_BYTES;
use weir_types::{
    ClientId, Column, Duplication, Error, ErrorKind, FileId, KeyGeneration, LayoutKind, LayoutSpec,
    Result, ServerId, TargetId, Timestamp,
};
use weir_wire::Key;
use weir_wire::key::MasterKey;

const CLUSTER: [u8; 16] = *b"simulated weir!!";
const CLIENT: ClientId = ClientId(1);
const META_ADDRESS: &str = "meta:7000";
/// Where the metadata server's files are on its node.
const META_DIR: &str = "/meta";
/// The gap log of a target, and the position of a byte in it.
const GAP_LOG: &str = "gaps";
const GAP_LOG_BYTE: u64 = 9;
/// Layout of the file of a small object: the header, the slots of checksums after it, and the total
/// before the data (`format-store.md`).
const HEADER_BYTES: usize = 512;
const SLOT_BYTES: usize = 4;
pub(crate) const SLOTS_BYTES: usize = 32 * BLOCK_BYTES;
/// Bytes verified in one step.
const SCRUB_BYTES: u64 = 16 << 20;
/// Number of heartbeats within the timeout of a server.
const HEARTBEATS: u32 = 8;
/// Maximum time to make the cluster.
const SETUP_TIME: Duration = Duration::from_secs(60);

/// A running cluster on simulated machines.
pub(crate) struct Cluster {
    pub sim: Simulation,
    pub shared: Rc<Shared>,
    pub nodes: BTreeMap<NodeName, NodeId>,
    /// The process of each node.
    pub processes: BTreeMap<NodeName, ProcessId>,
    pub model: SharedModel,
    auditor: NodeId,
}

fn master() -> MasterKey {
    MasterKey(Key::from_bytes([0x5a; 32]))
}

fn address(server: u8) -> String {
    format!("data{server}:7001")
}

impl Cluster {
    /// Makes nodes with empty disks.
    pub fn new(shared: Rc<Shared>, mut options: Options) -> Self {
        let plan = &shared.plan;
        options.reset_ppm = 0;
        let mut sim = Simulation::new(plan.seed, options);
        let mut names = vec![NodeName::Meta];
        names.extend((0..plan.shape.all_servers()).map(NodeName::Data));
        names.extend((0..plan.clients.len() as u8).map(NodeName::Client));
        let mut nodes = BTreeMap::new();
        for (index, name) in names.into_iter().enumerate() {
            let disk = SimDisk::new(plan.seed ^ (index as u64) << 32);
            let text = crate::history::Node::from(name).to_string();
            nodes.insert(name, sim.node(&text, disk));
        }
        let auditor = sim.node("auditor", SimDisk::new(plan.seed));
        let model = SharedModel::new(plan.seed, plan.shape.conflict_ppm);
        Self { sim, shared, nodes, processes: BTreeMap::new(), model, auditor }
    }

    pub fn disk(&self, node: NodeName) -> &SimDisk {
        self.sim.disk(self.nodes[&node])
    }

    /// Makes the file system and the targets, starts the servers, and makes the files.
    pub fn set_up(&mut self) -> Result<(), String> {
        self.write_keys();
        let shape = self.shared.plan.shape.clone();
        let mut makers = Vec::new();
        for node in self.servers() {
            self.write_boot_id(node, 0);
            let (shared, model, shape) = (self.shared.clone(), self.model.clone(), shape.clone());
            let make = move || {
                let made = match node {
                    NodeName::Data(server) => make_targets(&shape, server),
                    _ => make_file_system(&shape, &model),
                };
                if let Err(error) = made {
                    *shared.trouble.borrow_mut() = Some(format!("{node:?}: {error}"));
                }
            };
            makers.push(self.sim.start(self.nodes[&node], "make", make));
        }
        self.wait_for(&makers, "make targets and file system")?;
        let joins_later =
            |node: &NodeName| matches!(node, NodeName::Data(n) if *n >= shape.data_servers);
        for node in self.servers().into_iter().filter(|node| !joins_later(node)) {
            self.start(node);
        }
        let shared = self.shared.clone();
        let config = self.client_config(false);
        let maker = self.sim.start(self.auditor, "make files", move || {
            match make_files(&shared, &config) {
                Ok(made) => *shared.made.borrow_mut() = made,
                Err(error) => *shared.trouble.borrow_mut() = Some(error.to_string()),
            }
        });
        self.wait_for(&[maker], "make files")
    }

    pub fn wait_for(&mut self, processes: &[ProcessId], what: &str) -> Result<(), String> {
        let deadline = self.sim.now() + SETUP_TIME;
        let done =
            self.sim.run_until(deadline, |sim| processes.iter().all(|p| !sim.is_running(*p)));
        if let Some(trouble) = self.shared.trouble.borrow_mut().take() {
            return Err(format!("{what}: {trouble}"));
        }
        let panics = self.sim.panics();
        match panics.first() {
            Some(panic) => Err(format!("{what}: {} panicked: {}", panic.thread, panic.message)),
            None if !done => {
                Err(format!("{what} does not end:\n  {}", self.sim.threads().join("\n  ")))
            }
            None => Ok(()),
        }
    }

    pub fn servers(&self) -> Vec<NodeName> {
        self.nodes.keys().copied().filter(|n| !matches!(n, NodeName::Client(_))).collect()
    }

    /// Writes the boot id of a machine.
    pub fn write_boot_id(&self, node: NodeName, boot: u64) {
        // The boot ids of all machines differ.
        let machine = self.nodes.keys().position(|name| *name == node).unwrap_or_default();
        let id = format!("00000000-0000-4000-{:04x}-{:012x}\n", 0x8000 + machine, boot + 1);
        // The disk is new, or was healed by the power cut, so the write succeeds.
        let _ = self.disk(node).write_file("proc/sys/kernel/random/boot_id", id.as_bytes());
    }

    fn write_keys(&self) {
        let shape = &self.shared.plan.shape;
        let first = KeyGeneration(1);
        let write = |node, path: String, key: Key| {
            // A disk without faults accepts the write.
            let _ = self.disk(node).write_file(&path, key.to_hex().as_bytes());
        };
        write(NodeName::Meta, "master.key".into(), master().0);
        for server in 0..shape.all_servers() {
            let node = NodeName::Data(server);
            write(node, "server.key".into(), master().server(server_id(server), first));
            for target in targets_of(shape, server) {
                let key = master().target(TargetId(target), first);
                write(node, format!("target-{target}.key"), key);
            }
        }
    }

    /// Starts the process of a node, for the first time or again.
    pub fn start(&mut self, node: NodeName) {
        let (shared, model) = (self.shared.clone(), self.model.clone());
        let shape = shared.plan.shape.clone();
        let process = match node {
            NodeName::Client(client) => {
                let plan = shared.plan.clients[usize::from(client)].clone();
                let config = self.client_config(plan.write_behind);
                self.sim.start(self.nodes[&node], "client", move || {
                    Worker::connect(shared, client, &config, plan.keeps_pages).run();
                })
            }
            _ => self.sim.start(self.nodes[&node], "server", move || {
                let result = serve(node, &shape, &shared, &model);
                shared.ended.borrow_mut().push((node, result));
            }),
        };
        self.processes.insert(node, process);
    }

    /// Starts a process on a node that never fails.
    pub fn start_auditor(
        &mut self,
        audit: impl FnOnce(Rc<Shared>, ClientConfig) + 'static,
    ) -> ProcessId {
        let (shared, config) = (self.shared.clone(), self.client_config(false));
        self.sim.start(self.auditor, "auditor", move || audit(shared, config))
    }

    /// Removes or damages the gap logs of a data server's targets.
    pub fn lose_gaps(&self, node: NodeName, damaged: bool) {
        let NodeName::Data(server) = node else { return };
        for target in targets_of(&self.shared.plan.shape, server) {
            let path = format!("target-{target}/{GAP_LOG}");
            // A target may have no gap log.
            let _ = match damaged {
                true => self.disk(node).flip_bit(&path, GAP_LOG_BYTE, 3).map(drop),
                false => self.disk(node).remove_file(&path),
            };
        }
    }

    /// Flips a bit on the disk of a data server, in an object that has other copies: in data that
    /// is not a hole, in the header or in the checksums. Returns its place.
    pub fn rot(&self, server: u8, pick: u32) -> Option<String> {
        let mut rng = fastrand::Rng::with_seed(pick.into());
        let shape = &self.shared.plan.shape;
        let made = self.shared.made.borrow();
        let mirrored = made.files.iter().enumerate().filter(|(at, _)| shape.copies_of(*at) > 1);
        let prefixes: Vec<String> = mirrored.map(|(_, id)| format!("f{id:x}.")).collect();
        let is_object = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or_default();
            path.starts_with("target-") && prefixes.iter().any(|of| name.starts_with(of.as_str()))
        };
        let disk = self.disk(NodeName::Data(server));
        let objects = disk.files().into_iter().map(|(path, _)| path);
        let path = rng.choice(objects.filter(|path| is_object(path)).collect::<Vec<_>>())?;
        let bytes = disk.read_file(&path).ok()?;
        let data = bytes.get(SLOTS_BYTES..).unwrap_or_default().chunks(BLOCK_BYTES);
        let slots = HEADER_BYTES + SLOT_BYTES * data.len();
        let used = data.enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        let used: Vec<usize> = used.map(|(at, _)| SLOTS_BYTES + at * BLOCK_BYTES).collect();
        let byte = match (rng.u8(0..4), rng.choice(used)) {
            (1.., Some(block)) => block + rng.usize(0..BLOCK_BYTES),
            _ => rng.usize(0..slots),
        };
        let flipped = disk.flip_bit(&path, byte as u64, rng.u32(0..8)).ok()?;
        flipped.then(|| format!("{path} of data{server} rots at byte {byte}"))
    }

    /// Cuts the auditor's node off from a data server, or connects it again.
    pub fn cut_off_auditor(&self, from: NodeName, on: bool) {
        self.sim.network().partition(self.auditor, self.nodes[&from], on);
    }

    pub fn client_config(&self, write_behind: bool) -> ClientConfig {
        let mut config = ClientConfig::new(META_ADDRESS, CLIENT, master().client(CLIENT));
        config.transport = Transport::Tcp;
        config.request_timeout_ms = self.shared.plan.shape.request_timeout_ms.into();
        config.connect_timeout_ms = 2_000;
        config.lazy = true;
        config.consistency = match (self.shared.plan.shape.leases, write_behind) {
            (true, _) => Consistency::Strict,
            (false, true) => Consistency::Relaxed,
            (false, false) => Consistency::None,
        };
        config.keep_metadata = self.shared.plan.shape.leases;
        let policies = ReadPolicy::OF_ANY_READER;
        config.read_policy = policies[usize::from(self.shared.plan.read_policy) % policies.len()];
        if write_behind { config } else { config.without_cache() }
    }

    /// Reads every block of every target, as `weir scrub` does, and returns what is wrong. The
    /// servers must have ended.
    pub fn scrub(&mut self) -> Result<(), String> {
        let shape = self.shared.plan.shape.clone();
        let mut scrubbers = Vec::new();
        for server in 0..shape.all_servers() {
            let (shared, shape) = (self.shared.clone(), shape.clone());
            let scrub = move || {
                for target in shared.members_of(&shape, server) {
                    let found = match scrub_target(target) {
                        Ok(found) if found.is_empty() => continue,
                        Ok(found) => found.join("; "),
                        Err(error) => error.to_string(),
                    };
                    *shared.trouble.borrow_mut() = Some(format!("target {target}: {found}"));
                }
            };
            scrubbers.push(self.sim.start(self.nodes[&NodeName::Data(server)], "scrub", scrub));
        }
        self.wait_for(&scrubbers, "scrub")
    }

    /// For each cell of a file, the data servers that have it, the first copy first.
    pub fn nodes_of_cells(&self, file: usize) -> Vec<Vec<u8>> {
        let made = self.shared.made.borrow();
        let layout = &made.layouts[file];
        let targets_of = |cell: u32| {
            let offset = u64::from(cell) * CELL_BYTES as u64;
            let segment = &layout.segments[weir_layout::segment_at(layout, offset)?];
            let place = weir_layout::locate(segment.stripe(), offset - segment.start);
            Some(segment.columns.get(usize::from(place.column.0))?.targets.clone())
        };
        let nodes_of = |cell: u32| {
            let targets = targets_of(cell).unwrap_or_default();
            targets.into_iter().map(|target| self.server_of(target)).collect()
        };
        (0..self.shared.plan.cells(file as u8)).map(nodes_of).collect()
    }

    /// For each column of a file, the data servers that have it, the first copy first.
    pub fn nodes_of_columns(&self, file: usize) -> BTreeSet<Vec<u8>> {
        let made = self.shared.made.borrow();
        let columns = made.layouts[file].segments.iter().flat_map(|segment| &segment.columns);
        let nodes_of =
            |column: &Column| column.copies().map(|(_, target)| self.server_of(target)).collect();
        columns.map(nodes_of).collect()
    }

    fn server_of(&self, target: TargetId) -> u8 {
        server_of(&self.shared.plan.shape, target)
    }
}

/// The data server of a target.
pub(crate) fn server_of(shape: &Shape, target: TargetId) -> u8 {
    let serves = |server: &u8| targets_of(shape, *server).contains(&target.0);
    (0..shape.all_servers()).find(serves).unwrap_or_default()
}

fn server_id(server: u8) -> ServerId {
    ServerId(u32::from(server) + 1)
}

fn make_targets(shape: &Shape, server: u8) -> Result<()> {
    for target in targets_of(shape, server) {
        let (target_id, server) = (TargetId(target), server_id(server));
        let identity = TargetIdentity { cluster: CLUSTER, target: target_id, server };
        Target::create(PathBuf::from(format!("/target-{target}")), identity)?;
    }
    Ok(())
}

fn scrub_target(target: u32) -> Result<Vec<String>> {
    let target = Target::open(PathBuf::from(format!("/target-{target}")))?;
    let mut cursor = ScrubCursor::default();
    let mut found = Vec::new();
    loop {
        let step = target.scrub(&cursor, SCRUB_BYTES)?;
        found.extend(step.findings.iter().map(ToString::to_string));
        match step.next {
            Some(next) => cursor = next,
            None => return Ok(found),
        }
    }
}

fn make_file_system(shape: &Shape, model: &SharedModel) -> Result<()> {
    let new = NewFileSystem {
        // Published files have as many copies as the first file.
        default_layout: spec(shape, 0),
        ..NewFileSystem::new(CLUSTER, CLIENT)
    };
    match shape.engine {
        EngineKind::Embedded => weir_metaserver::init(META_DIR.as_ref(), &master(), &new),
        EngineKind::Model => {
            let mut engine = model.open(None);
            let now = Timestamp(weir_host::clock::unix_now().as_nanos() as i64);
            weir_metaserver::init::initialize(&mut engine, &master(), &new, now)
        }
    }
}

/// The whole life of a server's process.
fn serve(node: NodeName, shape: &Shape, shared: &Shared, model: &SharedModel) -> Result<()> {
    let signal = Signal::new().map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
    shared.signals.borrow_mut().insert(node, signal.clone());
    match node {
        NodeName::Data(server) => {
            let mut config =
                DataServerConfig::new(server_id(server).0, address(server), "/server.key".into());
            config.metadata = vec![META_ADDRESS.into()];
            config.event_loops = usize::from(shape.event_loops);
            config.buffer_bytes = 4 << 20;
            let target = |target: u32| TargetConfig {
                target,
                dir: format!("/target-{target}").into(),
                key_file: format!("/target-{target}.key").into(),
            };
            config.targets = targets_of(shape, server).into_iter().map(target).collect();
            weir_dataserver::run(config, &signal, |_| {})
        }
        _ => {
            let dir = META_DIR.into();
            let mut config =
                MetaServerConfig::new(dir, vec![META_ADDRESS.into()], "/master.key".into());
            config.cache_bytes = 4 << 20;
            config.lease_ms = shape.lease_ms.into();
            config.session_timeout_ms = shape.session_ms.into();
            config.grace_ms = shape.grace_ms.into();
            if shape.target_timeout_ms > 0 {
                config.target_timeout_ms = shape.target_timeout_ms.into();
                config.heartbeat_ms = shape.target_timeout_ms / HEARTBEATS;
                config.rebuild_after_ms = shape.rebuild_after_ms.into();
            }
            match shape.engine {
                EngineKind::Embedded => weir_metaserver::run(config, &signal, |_| {}),
                EngineKind::Model => {
                    let open = |_: &MetaServerConfig, notify| Ok(model.open(Some(notify)));
                    weir_metaserver::serve(config, open, &signal, |_| {})
                }
            }
        }
    }
}

/// A striped layout with the number of copies of a file.
fn spec(shape: &Shape, file: usize) -> LayoutSpec {
    let spec = LayoutSpec { stripe_unit_bytes: 4096, ..LayoutSpec::default() };
    let duplication = match shape.protocol_of(file) {
        Protocol::ServerSync => Duplication::ServerSync,
        Protocol::ServerAsync => Duplication::ServerAsync,
        Protocol::ClientSync => Duplication::ClientSync,
        Protocol::ClientAsync => Duplication::ClientAsync,
        Protocol::Hybrid => Duplication::Hybrid,
    };
    match shape.copies_of(file) {
        1 => spec,
        copies => {
            with_copies(LayoutSpec { duplication: Some(duplication), ..spec }, shape, file, copies)
        }
    }
}

/// A layout with the copies and the placement of a file.
pub(crate) fn with_copies(spec: LayoutSpec, shape: &Shape, file: usize, copies: u8) -> LayoutSpec {
    let in_groups = copies == 2 && spec.kind != LayoutKind::Chunked;
    let placement = match shape.placement_of(file) {
        Placement::Chained => weir_types::Placement::Chained,
        Placement::Groups if in_groups => weir_types::Placement::Groups,
        Placement::Random => weir_types::Placement::Random,
        Placement::Usual | Placement::Groups => weir_types::Placement::Usual,
    };
    LayoutSpec { copies, placement, ..spec }
}

/// The layout of a file.
pub(crate) fn layout(shape: &Shape, file: usize) -> LayoutSpec {
    let spec = spec(shape, file);
    match shape.layout {
        FileShape::Striped => spec,
        FileShape::OneTarget => LayoutSpec { count: 1, ..spec },
        FileShape::Fragments => LayoutSpec {
            kind: LayoutKind::Fragments,
            fragment_bytes: vec![8192, 4096],
            segment_bytes: 4096,
            ..spec
        },
        FileShape::Chunked => {
            let spec = LayoutSpec { kind: LayoutKind::Chunked, segment_bytes: 4096, ..spec };
            match shape.copies_of(file) {
                1 => spec,
                copies => with_copies(spec, shape, file, copies),
            }
        }
    }
}

/// Makes directories, files of full size, and empty files, all durable.
fn make_files(shared: &Shared, config: &ClientConfig) -> Result<Made> {
    let ctx = Context::root();
    let shape = &shared.plan.shape;
    let client = loop {
        match Client::connect(config.clone()) {
            Ok(client) => break client,
            Err(_) => weir_host::thread::sleep(Duration::from_millis(50)),
        }
    };
    let targets = usize::from(shape.data_servers) * usize::from(shape.targets_each);
    while client.cluster_map()?.targets().count() < targets {
        weir_host::thread::sleep(Duration::from_millis(50));
    }
    let mut made = Made::default();
    for dir in 0..DIRECTORIES {
        let attr = client.mkdir(&ctx, FileId::ROOT, format!("dir{dir}").as_bytes(), 0o755)?;
        made.directories.push(attr.file.0);
    }
    for file in 0..shared.plan.files() {
        let options = CreateOptions {
            exclusive: true,
            layout: Some(layout(shape, usize::from(file))),
            ..CreateOptions::default()
        };
        let name = format!("file{file}");
        let (handle, attr) = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options)?;
        if file < shared.plan.first_log() {
            handle.truncate(&ctx, u64::from(shape.cells) * CELL_BYTES as u64)?;
        }
        handle.sync(&ctx)?;
        made.files.push(attr.file.0);
        made.layouts.push(handle.layout());
        handle.close(&ctx)?;
    }
    client.sync_metadata(&ctx)?;
    client.shutdown();
    Ok(made)
}
