//! `weir status`: shows daemons, targets, space, counters and problems.

use crate::args::Status;
use crate::cluster::daemon::{META, cluster_id, data_name, is_meta};
use crate::cluster::encoding::Encoding;
use crate::cluster::etcd::etcd_name;
use crate::cluster::life::Life;
use crate::cluster::meta_members::{self, MetaMember};
use crate::cluster::metas;
use crate::cluster::mounting::{MountFiles, mounts_of};
use crate::cluster::mounts::WeirMount;
use crate::cluster::moving::Moving;
use crate::cluster::process::Process;
use crate::cluster::replacing;
use crate::cluster::rot::Rot;
use crate::cluster::state::{Description, StateDir};
use crate::cluster::trouble::{Trouble, recovers};
use crate::cluster::{secret, targets};
use crate::failure::{Done, Failure};
use crate::files::remote::try_to_connect;
use crate::layouts::df::{percent, state_name, used};
use crate::metrics;
use crate::output::{print, print_json};
use crate::settings::{self, Cluster};
use crate::text::{Table, human_duration, human_size};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use weir_client::Client;
use weir_types::{Error, ErrorKind, FsUsage, ServerId, TargetId};
use weir_wire::Level;
use weir_wire::data::ServerStatus;
use weir_wire::map::{ClusterMap, ServerEntry};
use weir_wire::targets::TargetView;

/// The longest to wait for a server's status, in milliseconds.
const STATUS_TIMEOUT_MS: u64 = 3_000;

/// A daemon of this machine.
#[derive(Debug, Serialize)]
struct DaemonState {
    name: String,
    pid: Option<i32>,
    uptime_s: Option<u64>,
    address: String,
    /// The address at which the daemon serves metrics, if it does.
    metrics: Option<String>,
}

/// A mount on this machine.
#[derive(Debug, Serialize)]
struct MountState {
    mountpoint: String,
    /// The process. `None` if it has ended, or if it was started in the foreground and could write
    /// no pid file.
    pid: Option<i32>,
    log: String,
    /// The address at which the mount serves metrics, if it does.
    metrics: Option<String>,
}

/// Everything that `weir status` shows.
struct Picture {
    name: String,
    place: String,
    daemons: Vec<DaemonState>,
    mounts: Vec<MountState>,
    map: Option<ClusterMap>,
    /// The metadata server's view of each target.
    views: Vec<TargetView>,
    /// The metadata servers, if there are several.
    metas: Vec<MetaMember>,
    /// The status of each server that answered, with the server's name.
    servers: Vec<(String, ServerStatus)>,
    /// The problems, with what to do about each.
    trouble: Vec<Trouble>,
    /// How the connection of this command to the metadata server was protected.
    protection: Option<Level>,
    /// The cluster's state on this machine, if it has one.
    here: Option<(StateDir, Description)>,
}

/// Runs `weir status`. The exit code is 1 if there is a problem. Notes do not count as problems.
pub fn run(status: &Status) -> Done {
    let cluster = settings::cluster(&status.client)?;
    let mut picture = look(&cluster)?;
    ask_servers(&cluster, &mut picture)?;
    if status.json {
        print_json(&picture.json(status.counters))?;
    } else {
        print(&picture.text(status.counters))?;
    }
    if picture.is_well() { Ok(()) } else { Err(Failure::new("")) }
}

/// Collects what can be seen without asking a server.
fn look(cluster: &Cluster) -> Done<Picture> {
    let mut picture = Picture {
        name: String::new(),
        place: String::new(),
        daemons: Vec::new(),
        mounts: Vec::new(),
        map: None,
        views: Vec::new(),
        metas: Vec::new(),
        servers: Vec::new(),
        trouble: Vec::new(),
        protection: None,
        here: None,
    };
    match cluster {
        Cluster::Elsewhere(file) => {
            picture.name = cluster.credential()?.cluster;
            picture.place = file.display().to_string();
        }
        Cluster::Here(state) => {
            let description = state.description()?;
            picture.name.clone_from(&description.name);
            picture.place = state.dir().display().to_string();
            for member in &description.etcd {
                picture.daemon(state, &etcd_name(member.id), &member.client);
            }
            for (name, address) in metas::of_this_machine(&description) {
                picture.daemon(state, &name, &address);
                picture.look_at_metadata_space(&state.meta_dir(&name));
            }
            for server in description.servers.iter().filter(|s| !s.targets.is_empty()) {
                picture.daemon(state, &data_name(server.id), &server.address);
            }
            for mount in mounts_of(state)? {
                picture.mount(cluster, &mount)?;
            }
            picture.here = Some((state.clone(), description));
        }
    }
    Ok(picture)
}

/// Adds the answers of the servers.
fn ask_servers(cluster: &Cluster, picture: &mut Picture) -> Done {
    // If no metadata server of this machine runs, there is none to ask.
    let mut metas = picture.daemons.iter().filter(|daemon| is_meta(&daemon.name)).peekable();
    if metas.peek().is_some() && metas.all(|daemon| daemon.pid.is_none()) {
        return Ok(());
    }
    let credential = cluster.credential()?;
    let host = credential.metadata.join(", ");
    let no_answer = |server: String, error| {
        // The client's message names the servers that it has asked.
        Trouble::NoAnswer { server, host: host.clone(), error }
    };
    let client = match try_to_connect(&credential, "status") {
        Ok(client) => client,
        Err(error) => {
            let server = format!("cannot connect to cluster {}", credential.cluster);
            picture.trouble.push(no_answer(server, error));
            return Ok(());
        }
    };
    picture.protection = Some(client.protection());
    let of_metadata = |error| no_answer("metadata server".to_owned(), error);
    match client.metadata_status() {
        Ok(status) => picture.look_at_metadata(status, &host),
        Err(error) => picture.trouble.push(of_metadata(error)),
    }
    match client.cluster_map() {
        Ok(map) => picture.ask_data_servers(&client, map, of_metadata),
        Err(error) => picture.trouble.push(of_metadata(error)),
    }
    Ok(())
}

impl Picture {
    fn is_well(&self) -> bool {
        self.trouble.iter().all(Trouble::is_note)
    }

    fn daemon(&mut self, state: &StateDir, name: &str, address: &str) {
        let process = Process::from_file(&state.pid_file(name));
        let metrics = metrics_in(&state.config_file(name));
        // A daemon in a network namespace of its own cannot be reached from here.
        let is_near = !state.network_file(name).is_symlink();
        match (process, &metrics) {
            (None, _) => self.trouble.push(Trouble::DaemonDown { name: name.to_owned() }),
            (Some(_), Some(address)) if is_near && !metrics::are_at(address) => {
                let (name, address) = (name.to_owned(), address.clone());
                self.trouble.push(Trouble::NoMetrics { name, address });
            }
            _ => {}
        }
        self.daemons.push(DaemonState {
            name: name.to_owned(),
            pid: process.map(Process::id),
            uptime_s: process.map(Process::uptime_s),
            address: address.to_owned(),
            metrics,
        });
    }

    fn mount(&mut self, cluster: &Cluster, mount: &WeirMount) -> Done {
        let path = mount.mountpoint.display().to_string();
        let files = MountFiles::of(cluster, &mount.mountpoint)?;
        let log = files.log.display().to_string();
        let (path_of_it, log_of_it) = (path.clone(), log.clone());
        self.trouble.extend(match Life::of(mount) {
            Life::Dead => Some(Trouble::MountDead { path: path_of_it, log: log_of_it }),
            Life::Stuck(process) => {
                let pid = process.id();
                Some(Trouble::MountStuck { path: path_of_it, pid, log: log_of_it })
            }
            Life::Stopped(pid) => Some(Trouble::MountStopped { path: path_of_it, pid }),
            Life::Serves => None,
        });
        let pid = files.process().map(Process::id);
        let metrics = files.metrics_address().filter(|_| pid.is_some());
        self.mounts.push(MountState { mountpoint: path, pid, log, metrics });
        Ok(())
    }

    fn look_at_metadata_space(&mut self, dir: &Path) {
        // Without the permission to look at the directory, its space is not shown.
        let Ok(space) = rustix::fs::statvfs(dir) else { return };
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        let usage = FsUsage {
            total_bytes: bytes(space.f_blocks),
            free_bytes: bytes(space.f_bavail),
            ..FsUsage::default()
        };
        self.trouble.extend(Trouble::of_metadata_space(dir.display().to_string(), usage));
    }

    fn look_at_metadata(&mut self, status: ServerStatus, host: &str) {
        self.look_at_version(META, &status);
        self.metas = meta_members::of(&status);
        let silent: Vec<Trouble> = meta_members::troubles(&self.metas)
            .filter(|silent| !self.trouble.iter().any(|known| known.is_of_same_daemon(silent)))
            .collect();
        self.trouble.extend(silent);
        // Not if the problem was already found on this machine, where it has a directory.
        if !self.trouble.iter().any(|trouble| matches!(trouble, Trouble::MetadataFull { .. })) {
            let usage = metadata_space(&status);
            self.trouble.extend(Trouble::of_metadata_space(format!("on {host}"), usage));
        }
        self.servers.push((META.to_owned(), status));
        if let Some(moving) = Moving::of(&self.servers) {
            let (segments, copies) = (moving.stuck, moving.without_source);
            self.trouble.extend((segments > 0).then_some(Trouble::CopiesStuck { segments }));
            let sourceless = Trouble::CopiesWithoutSource { copies };
            self.trouble.extend((copies > 0).then_some(sourceless));
        }
    }

    fn look_at_version(&mut self, server: &str, status: &ServerStatus) {
        let ServerStatus { version, .. } = status;
        let differs = *version != env!("CARGO_PKG_VERSION");
        let (server, version) = (server.to_owned(), version.clone());
        self.trouble.extend(differs.then_some(Trouble::OtherVersion { server, version }));
    }

    fn ask_data_servers(
        &mut self,
        client: &Client,
        map: ClusterMap,
        of_metadata: impl Fn(Error) -> Trouble,
    ) {
        for server in &map.servers {
            let name = data_name(server.server.0);
            let Some(first) = server.targets.first() else { continue };
            match client.data_status(first.target, STATUS_TIMEOUT_MS) {
                Ok(status) => {
                    self.look_at_data_server(server, &name, &status);
                    self.servers.push((name, status));
                }
                Err(error) => {
                    let host = server.host.clone();
                    self.trouble.push(Trouble::NoAnswer { server: name, host, error });
                }
            }
        }
        match client.targets() {
            Ok(views) => {
                // For a server that is still recovering, its targets report the problem.
                let recovering = |server: &str| {
                    views.iter().any(|view| recovers(view) && data_name(view.server.0) == server)
                };
                self.trouble.retain(|trouble| match trouble {
                    Trouble::NoAnswer { server, .. } => !recovering(server),
                    _ => true,
                });
                let of_target = |view: &TargetView| {
                    Trouble::of_target(view, self.replacing(view.target.0, view.server, &view.host))
                };
                let troubles: Vec<Trouble> = views.iter().filter_map(of_target).collect();
                self.trouble.extend(troubles);
                let targets = views.len();
                let none = targets > 0 && views.iter().all(|view| !view.state.is_online());
                self.trouble.extend(none.then_some(Trouble::NoTargetOnline { targets }));
                self.views = views;
            }
            Err(error) => self.trouble.push(of_metadata(error)),
        }
        let blocks = Rot::of(&self.servers).unrepairable;
        self.trouble.extend((blocks > 0).then_some(Trouble::Rotten { blocks }));
        self.look_for_own(&map);
        self.map = Some(map);
    }

    /// What to do with a lost target.
    fn replacing(&self, target: u32, server: ServerId, host: &str) -> String {
        let here = self.here.as_ref().map(|(_, description)| description);
        replacing::if_lost(here, target, server, host)
    }

    /// Checks whether the cluster still has the servers and targets of this machine.
    fn look_for_own(&mut self, map: &ClusterMap) {
        let Some((state, description)) = &self.here else { return };
        let mut found = Vec::new();
        for own in description.servers.iter().filter(|own| !own.targets.is_empty()) {
            let (id, name) = (ServerId(own.id), data_name(own.id));
            if !map.servers.iter().any(|server| server.server == id) {
                found.push(match is_removed(state, description, id) {
                    true => Trouble::Removed { name, joined: description.joined },
                    false => Trouble::NotKnown { name },
                });
                continue;
            }
            let is_known = |target: u32| map.targets().any(|(_, t)| t.target.0 == target);
            found.extend(own.targets.iter().filter(|target| !is_known(**target)).map(|target| {
                let dir = state.target_dir(*target);
                let dir = std::fs::read_link(&dir).unwrap_or(dir).display().to_string();
                Trouble::TargetRemoved { target: *target, dir }
            }));
        }
        // Starting servers and targets that are out of the cluster is useless.
        let removed: Vec<String> = found.iter().filter_map(Trouble::removed).collect();
        self.trouble.retain(
            |trouble| !matches!(trouble, Trouble::DaemonDown { name } if removed.contains(name)),
        );
        self.trouble.extend(found);
    }

    fn look_at_data_server(&mut self, server: &ServerEntry, name: &str, status: &ServerStatus) {
        self.look_at_version(name, status);
        let pid = self.daemons.iter().find(|d| d.name == name).and_then(|d| d.pid);
        for target in &status.targets {
            let (id, host) = (target.target.0, server.host.as_str());
            let place = (server.server.0, host);
            self.trouble.extend(match target.trouble.is_empty() {
                true => Trouble::of_space(id, place, target.usage),
                false => Some(Trouble::OutOfService {
                    target: id,
                    reason: target.trouble.clone(),
                    server: name.to_owned(),
                    host: host.to_owned(),
                    pid,
                    replace: self.replacing(id, server.server, host),
                }),
            });
        }
    }

    /// The progress of encoding, if the metadata server answered.
    fn encoding(&self) -> Option<Encoding> {
        let found = self.servers.iter().find(|(name, _)| name == META);
        found.map(|(_, status)| Encoding::of(status))
    }

    fn text(&self, counters: bool) -> String {
        let mut text = format!("Cluster {} ({})\n", self.name, self.place);
        if !self.daemons.is_empty() {
            let mut titles = vec!["DAEMON", ">PID", "ADDRESS", ">UP", ">CONNECTIONS"];
            let with_metrics = self.daemons.iter().any(|daemon| daemon.metrics.is_some());
            titles.extend(with_metrics.then_some("METRICS"));
            let mut table = Table::new(&titles);
            for daemon in &self.daemons {
                let status = self.status_of(&daemon.name);
                let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
                let mut row = vec![
                    daemon.name.clone(),
                    or_dash(daemon.pid.map(|pid| pid.to_string())),
                    daemon.address.clone(),
                    or_dash(daemon.uptime_s.map(human_duration)),
                    or_dash(status.map(|status| status.connections.to_string())),
                ];
                let metrics = daemon.metrics.as_ref().map(|at| format!("http://{at}/metrics"));
                row.extend(with_metrics.then(|| or_dash(metrics)));
                table.row(row);
            }
            text += &format!("\n{}", table.render());
        }
        if let Some(level) = self.protection.filter(|level| *level > Level::Args) {
            text += &format!("\nConnections are protected as `{level}`.\n");
        }
        text += &meta_members::text(&self.metas);
        text += &self.targets_text();
        text += &Moving::of(&self.servers).map(|moving| moving.text()).unwrap_or_default();
        text += &self.encoding().map(|encoding| encoding.text()).unwrap_or_default();
        text += &Rot::of(&self.servers).text();
        for mount in &self.mounts {
            let MountState { mountpoint, pid, log, metrics } = mount;
            let by = pid.map(|pid| format!(" by process {pid}")).unwrap_or_default();
            let metrics = metrics.as_ref().map(|at| format!("; its metrics: http://{at}/metrics"));
            let metrics = metrics.unwrap_or_default();
            text += &format!("\nMounted on {mountpoint}{by}; its log: {log}{metrics}\n");
        }
        if counters {
            text += &self.counters_text();
        }
        text += "\n";
        text += &self.trouble.iter().map(Trouble::text).collect::<String>();
        if let Some((_, here)) = self.here.as_ref().filter(|(_, here)| here.joined)
            && !self.trouble.is_empty()
        {
            text += &format!(
                "This machine has joined the cluster. Commands that change it (`weir target`, \
                 `weir server`, `weir invite`) are for the machine of the metadata server, at \
                 {}.\n",
                here.metadata
            );
        }
        if self.is_well() {
            text += "All is well.\n";
        }
        text
    }

    /// The status of a daemon of this machine. Of several metadata servers one has answered: the one
    /// that leads.
    fn status_of(&self, daemon: &str) -> Option<&ServerStatus> {
        let leader = self.metas.iter().find(|meta| meta.leads()).map(|meta| meta.name());
        let name = match (is_meta(daemon), leader) {
            (true, Some(leader)) if leader == daemon => META,
            (true, Some(_)) => return None,
            _ => daemon,
        };
        self.servers.iter().find(|(of, _)| of == name).map(|(_, status)| status)
    }

    fn targets_text(&self) -> String {
        let Some(map) = &self.map else { return String::new() };
        let titles = [
            ">TARGET",
            "SERVER",
            "STATE",
            ">SIZE",
            ">USED",
            ">AVAIL",
            ">USE%",
            ">IN FLIGHT",
            "DIRECTORY",
        ];
        let mut table = Table::new(&titles);
        for (server, target) in map.targets() {
            let all = self.servers.iter().flat_map(|(_, status)| &status.targets);
            let status = all.into_iter().find(|t| t.target == target.target);
            let view = self.views.iter().find(|view| view.target == target.target);
            table.row(vec![
                target.target.to_string(),
                format!(
                    "{} ({})",
                    data_name(server.server.0),
                    targets::place_of(&server.host, &server.domain)
                ),
                view.map_or(state_name(target.state).to_owned(), targets::state_of),
                human_size(target.usage.total_bytes),
                human_size(used(&target.usage)),
                human_size(target.usage.free_bytes),
                percent(&target.usage),
                status.map_or("-".to_owned(), |t| t.in_flight.to_string()),
                status.map_or("-".to_owned(), |t| t.dir.clone()),
            ]);
        }
        format!("\n{}", table.render())
    }

    fn counters_text(&self) -> String {
        let mut table = Table::new(&["SERVER", "COUNTER", ">VALUE"]);
        for (name, status) in &self.servers {
            for (counter, value) in &status.counters {
                table.row(vec![name.clone(), counter.clone(), value.to_string()]);
            }
        }
        format!("\n{}", table.render())
    }

    /// A counter of the metadata server for a target; 0 if it reports none.
    fn counter_of(&self, target: TargetId, name: &str) -> u64 {
        let meta = self.servers.iter().find(|(server, _)| server == META);
        let name = format!("target.{target}.{name}");
        let mut counters = meta.iter().flat_map(|(_, status)| &status.counters);
        counters.find(|(counter, _)| *counter == name).map_or(0, |(_, value)| *value)
    }

    fn json(&self, counters: bool) -> Value {
        let targets: Vec<Value> = self
            .map
            .iter()
            .flat_map(ClusterMap::targets)
            .map(|(server, target)| {
                let all = self.servers.iter().flat_map(|(_, status)| &status.targets);
                let status = all.into_iter().find(|t| t.target == target.target);
                let view = self.views.iter().find(|view| view.target == target.target);
                let counter = |name: &str| self.counter_of(target.target, name);
                json!({
                    "target": target.target.0,
                    "behind_bytes_at_most": counter("behind_bytes_at_most"),
                    "filling_copies": counter("filling_copies"),
                    "filling_bytes": counter("filling_bytes"),
                    "filling_bytes_per_s": counter("filling_bytes_per_s"),
                    "filling_expected_s": counter("filling_expected_s"),
                    "draining": view.map(|view| view.draining),
                    "behind": view.map(|view| view.behind),
                    "behind_per_s": view.map(|view| view.behind_per_s),
                    "behind_expected_s": view.map(|view| view.behind_expected_s),
                    "server": server.server.0,
                    "server_name": data_name(server.server.0),
                    "host": server.host,
                    "domain": targets::domain_of(&server.domain),
                    "address": server.tcp,
                    "state": state_name(target.state),
                    "total_bytes": target.usage.total_bytes,
                    "free_bytes": target.usage.free_bytes,
                    "directory": status.map(|t| t.dir.as_str()),
                    "trouble": status.map(|t| t.trouble.as_str()),
                    "disk_hangs_ms": view.map(|view| view.hangs_ms),
                    "in_flight": status.map(|t| t.in_flight),
                    "queue_depth": status.map(|t| t.queue_depth),
                })
            })
            .collect();
        let servers: serde_json::Map<String, Value> = self
            .servers
            .iter()
            .map(|(name, status)| {
                let mut value = json!({
                    "version": status.version,
                    "uptime_ms": status.uptime_ms,
                    "connections": status.connections,
                });
                if counters {
                    let all = status.counters.iter().map(|(n, v)| (n.clone(), json!(v)));
                    value["counters"] = Value::Object(all.collect());
                }
                (name.clone(), value)
            })
            .collect();
        let listed = |notes: bool| -> Vec<Value> {
            let which = self.trouble.iter().filter(|trouble| trouble.is_note() == notes);
            which.map(Trouble::json).collect()
        };
        json!({
            "name": self.name,
            "daemons": self.daemons,
            "metadata_servers": self.metas,
            "protection": self.protection.map(Level::label),
            "servers": servers,
            "targets": targets,
            "mounts": self.mounts.iter().map(|m| &m.mountpoint).collect::<Vec<_>>(),
            "mount_daemons": self.mounts,
            "copies": Moving::of(&self.servers).map(|moving| moving.json()),
            "encoding": self.encoding().map(|encoding| encoding.json()),
            "trouble": listed(false),
            "notes": listed(true),
        })
    }
}

/// Whether the metadata server refuses the key of a data server of this machine.
fn is_removed(state: &StateDir, description: &Description, server: ServerId) -> bool {
    let key = secret::read_key(&state.key_file(&format!("server-{server}")));
    let (Ok(key), Ok(id)) = (key, cluster_id(&description.id)) else { return false };
    metas::addresses_for_others(description).iter().any(|metadata| {
        weir_dataserver::try_key(metadata, server, key.clone(), id)
            .is_err_and(|error| error.kind == ErrorKind::AuthFailed)
    })
}

/// The space of the metadata server's disk, as the server reports it.
fn metadata_space(status: &ServerStatus) -> FsUsage {
    let is = |wanted: &str| {
        let found = status.counters.iter().find(|(name, _)| name == wanted);
        found.map_or(0, |(_, value)| *value)
    };
    FsUsage {
        total_bytes: is("disk.size_bytes"),
        free_bytes: is("disk.free_bytes"),
        ..FsUsage::default()
    }
}

/// The metrics address in the configuration of a daemon.
fn metrics_in(config: &Path) -> Option<String> {
    let config: toml::Table = std::fs::read_to_string(config).ok()?.parse().ok()?;
    Some(config.get("metrics")?.as_str()?.to_owned())
}
