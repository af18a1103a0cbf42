//! `weir status`: daemons, targets, space, counters, and what is wrong.

use crate::args::Status;
use crate::cluster::daemon::{META, data_name};
use crate::cluster::life::{self, Life};
use crate::cluster::mounting::{MountFiles, mounts_of};
use crate::cluster::moving::Moving;
use crate::cluster::process::Process;
use crate::cluster::state::StateDir;
use crate::cluster::targets;
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::layouts::df::{percent, state_name, used};
use crate::output::{Table, human_duration, human_size, print, print_json};
use crate::settings::{self, Cluster};
use serde::Serialize;
use serde_json::{Value, json};
use weir_client::Client;
use weir_types::TargetId;
use weir_wire::data::ServerStatus;
use weir_wire::map::ClusterMap;
use weir_wire::targets::TargetView;

/// The longest to wait for a server's status.
const STATUS_TIMEOUT_MS: u64 = 3_000;

/// A daemon of this machine.
#[derive(Debug, Serialize)]
struct DaemonState {
    name: String,
    pid: Option<i32>,
    uptime_s: Option<u64>,
    address: String,
}

/// A mount on this machine.
#[derive(Debug, Serialize)]
struct MountState {
    mountpoint: String,
    /// Nothing if it has ended, or was started in the foreground.
    pid: Option<i32>,
    log: String,
}

/// Everything that is known.
struct Picture {
    name: String,
    place: String,
    daemons: Vec<DaemonState>,
    mounts: Vec<MountState>,
    map: Option<ClusterMap>,
    /// What the metadata server says of each target.
    views: Vec<TargetView>,
    /// Name of each server that answered, with its status.
    servers: Vec<(String, ServerStatus)>,
    /// What is wrong, with what to do.
    trouble: Vec<String>,
}

/// Runs `weir status`. Trouble is an exit code of 1.
pub fn run(status: &Status) -> Done {
    let cluster = settings::cluster(&status.client)?;
    let mut picture = look(&cluster)?;
    ask_servers(&cluster, &mut picture)?;
    if status.json {
        print_json(&picture.json(status.counters))?;
    } else {
        print(&picture.text(status.counters))?;
    }
    if picture.trouble.is_empty() { Ok(()) } else { Err(Failure::new("")) }
}

/// What can be seen without asking a server.
fn look(cluster: &Cluster) -> Done<Picture> {
    let mut picture = Picture {
        name: String::new(),
        place: String::new(),
        daemons: Vec::new(),
        mounts: Vec::new(),
        map: None,
        views: Vec::new(),
        servers: Vec::new(),
        trouble: Vec::new(),
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
            picture.daemon(state, META, &description.metadata);
            for server in description.servers.iter().filter(|s| !s.targets.is_empty()) {
                picture.daemon(state, &data_name(server.id), &server.address);
            }
            for mount in mounts_of(state)? {
                let path = mount.mountpoint.display().to_string();
                let files = MountFiles::of(cluster, &mount.mountpoint)?;
                let log = files.log.display().to_string();
                let what_to_do = format!(
                    "`weir mount {path}` takes over, `weir umount {path}` takes it away; its log: \
                     {log}"
                );
                match Life::of(&mount) {
                    Life::Dead => picture.trouble.push(format!(
                        "the process of the mount on {path} has ended: {what_to_do}"
                    )),
                    Life::Stuck(process) => picture.trouble.push(format!(
                        "the process of the mount on {path}, {}, was killed, and cannot end while \
                         the kernel waits for it: {what_to_do}",
                        process.id()
                    )),
                    Life::Stopped(pid) => {
                        picture.trouble.push(life::stopped(&mount.mountpoint, pid).to_string());
                    }
                    Life::Serves => {}
                }
                let pid = files.process().map(Process::id);
                picture.mounts.push(MountState { mountpoint: path, pid, log });
            }
        }
    }
    Ok(picture)
}

/// Adds what the servers say.
fn ask_servers(cluster: &Cluster, picture: &mut Picture) -> Done {
    // Nothing to ask where this machine's metadata server does not run.
    if picture.daemons.first().is_some_and(|meta| meta.pid.is_none()) {
        return Ok(());
    }
    let client = match connect(&cluster.credential()?, "status") {
        Ok(client) => client,
        Err(failure) => {
            picture.trouble.push(failure.to_string());
            return Ok(());
        }
    };
    match client.metadata_status() {
        Ok(status) => picture.servers.push((META.to_owned(), status)),
        Err(e) => picture.trouble.push(format!("metadata server: {e}")),
    }
    match client.cluster_map() {
        Ok(map) => picture.ask_data_servers(&client, map),
        Err(e) => picture.trouble.push(format!("metadata server: {e}")),
    }
    Ok(())
}

impl Picture {
    fn daemon(&mut self, state: &StateDir, name: &str, address: &str) {
        let process = Process::from_file(&state.pid_file(name));
        if process.is_none() {
            self.trouble.push(format!(
                "{name} does not run: `weir up` starts it; its log: {}",
                state.log_file(name).display()
            ));
        }
        self.daemons.push(DaemonState {
            name: name.to_owned(),
            pid: process.map(Process::id),
            uptime_s: process.map(Process::uptime_s),
            address: address.to_owned(),
        });
    }

    fn ask_data_servers(&mut self, client: &Client, map: ClusterMap) {
        for server in &map.servers {
            let name = data_name(server.server.0);
            let Some(first) = server.targets.first() else { continue };
            match client.data_status(first.target, STATUS_TIMEOUT_MS) {
                Ok(status) => {
                    for target in status.targets.iter().filter(|t| !t.trouble.is_empty()) {
                        let (id, trouble) = (target.target, &target.trouble);
                        self.trouble.push(format!(
                            "target {id}: {trouble}: see to its disk, then start {name} on {} anew{}",
                            server.host,
                            self.how_to_restart(&name)
                        ));
                    }
                    self.servers.push((name, status));
                }
                Err(e) => self.trouble.push(format!("{name}: {e}")),
            }
        }
        match client.targets() {
            Ok(views) => {
                self.trouble.extend(views.iter().filter_map(targets::trouble_of));
                self.views = views;
            }
            Err(e) => self.trouble.push(format!("metadata server: {e}")),
        }
        self.map = Some(map);
    }

    /// A hint, for a daemon of this machine.
    fn how_to_restart(&self, name: &str) -> String {
        let pid = self.daemons.iter().find(|d| d.name == name).and_then(|d| d.pid);
        pid.map(|pid| format!(": `kill {pid}`, then `weir up`")).unwrap_or_default()
    }

    fn text(&self, counters: bool) -> String {
        let mut text = format!("Cluster {} ({})\n", self.name, self.place);
        if !self.daemons.is_empty() {
            let mut table = Table::new(&["DAEMON", ">PID", "ADDRESS", ">UP", ">CONNECTIONS"]);
            for daemon in &self.daemons {
                let status = self.servers.iter().find(|(name, _)| *name == daemon.name);
                let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
                table.row(vec![
                    daemon.name.clone(),
                    or_dash(daemon.pid.map(|pid| pid.to_string())),
                    daemon.address.clone(),
                    or_dash(daemon.uptime_s.map(human_duration)),
                    or_dash(status.map(|(_, s)| s.connections.to_string())),
                ]);
            }
            text += &format!("\n{}", table.render());
        }
        text += &self.targets_text();
        text += &Moving::of(&self.servers).map(|moving| moving.text()).unwrap_or_default();
        text += &rot_text(&self.servers);
        for mount in &self.mounts {
            let MountState { mountpoint, pid, log } = mount;
            let by = pid.map(|pid| format!(" by process {pid}")).unwrap_or_default();
            text += &format!("\nMounted on {mountpoint}{by}; its log: {log}\n");
        }
        if counters {
            text += &self.counters_text();
        }
        text += "\n";
        if self.trouble.is_empty() {
            text += "All is well.\n";
        }
        for trouble in &self.trouble {
            text += &format!("TROUBLE: {trouble}\n");
        }
        text
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

    /// What the metadata server counts of a target; 0 if it says nothing of it.
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
        json!({
            "name": self.name,
            "daemons": self.daemons,
            "servers": servers,
            "targets": targets,
            "mounts": self.mounts.iter().map(|m| &m.mountpoint).collect::<Vec<_>>(),
            "mount_daemons": self.mounts,
            "copies": Moving::of(&self.servers).map(|moving| moving.json()),
            "trouble": self.trouble,
        })
    }
}

/// What was found to have rotted since the servers started, if anything.
fn rot_text(servers: &[(String, ServerStatus)]) -> String {
    let sum = |name: &str| -> u64 {
        let counters = servers.iter().flat_map(|(_, status)| &status.counters);
        counters.filter(|(counter, _)| counter == name).map(|(_, value)| value).sum()
    };
    match (sum("rot.found"), sum("rot.repaired"), sum("rot.unrepairable")) {
        (0, ..) => String::new(),
        (found, repaired, 0) => {
            format!("\nRot: {found} blocks found, {repaired} repaired from other copies\n")
        }
        (found, repaired, lost) => format!(
            "\nRot: {found} blocks found, {repaired} repaired from other copies, {lost} not: `weir \
             scrub` names their files\n"
        ),
    }
}
