//! What tests of several metadata servers share.

use crate::harness::{Place, Running, eventually};
use crate::library;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use weir_client::{Client, ClientConfig};
use weir_types::ErrorKind;
use weir_wire::map::TargetState;

/// The metadata servers of a cluster, as clients see them.
pub struct Metas {
    pub dir: PathBuf,
    /// Where each of them serves.
    pub addresses: Vec<String>,
}

impl Metas {
    pub fn config(&self) -> ClientConfig {
        // One call waits for as long as it takes another server to lead.
        ClientConfig { request_timeout_ms: 60_000, ..library::config_in(&self.dir) }
    }

    /// A client of the leader, as soon as there is one.
    pub fn client(&self) -> Client {
        let mut client = None;
        eventually("somebody leads", || {
            client = Client::connect(self.config()).ok();
            client.is_some()
        });
        client.unwrap()
    }

    /// A client that knows only this member.
    pub fn asks(&self, member: usize) -> weir_types::Result<Client> {
        let metadata = vec![self.addresses[member].clone()];
        Client::connect(ClientConfig { metadata, connect_timeout_ms: 1_000, ..self.config() })
    }

    /// Whether this member says that another one leads.
    pub fn stands_by(&self, member: usize) -> bool {
        self.asks(member).is_err_and(|error| error.kind == ErrorKind::NotLeader)
    }

    /// Waits until so many targets are online.
    pub fn all_online(&self, targets: usize) {
        let client = self.client();
        eventually("all targets are online", || {
            let map = client.cluster_map().unwrap();
            let online = map.targets().filter(|(_, target)| target.state == TargetState::Online);
            online.count() == targets
        });
    }

    /// Starts the data servers of a cluster that was made elsewhere, and moved here.
    pub fn start_data(&self, place: &Place, from: &Path) -> Vec<Running> {
        let start = |server: usize| {
            let path = self.dir.join(format!("data-{server}.toml"));
            let text = fs::read_to_string(&path).unwrap();
            let moved = text.replace(from.to_str().unwrap(), self.dir.to_str().unwrap());
            fs::write(&path, moved).unwrap();
            set(&path, &[("metadata", list(&self.addresses))]);
            daemon(place, "data", &path)
        };
        [1, 2].map(start).into()
    }
}

pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub fn set(path: &Path, values: &[(&str, toml::Value)]) {
    let mut settings: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    for (name, value) in values {
        settings.insert((*name).into(), value.clone());
    }
    fs::write(path, settings.to_string()).unwrap();
}

pub fn list(items: &[String]) -> toml::Value {
    toml::Value::Array(items.iter().map(|item| item.clone().into()).collect())
}

pub fn daemon(place: &Place, what: &str, config: &Path) -> Running {
    let log = fs::File::create(config.with_extension("log")).unwrap();
    let mut command = place.command(&[what, "--config", config.to_str().unwrap()]);
    Running(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
}
