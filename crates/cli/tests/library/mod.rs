//! The client library for the cluster of a test.

use crate::harness::Cluster;
use weir_client::{Client, ClientConfig};
use weir_types::ClientId;
use weir_wire::Key;

/// What is in the credential that `weir up` made.
pub fn config(cluster: &Cluster<'_>) -> ClientConfig {
    config_in(&cluster.dir())
}

/// The same, by the state directory of the cluster.
pub fn config_in(dir: &std::path::Path) -> ClientConfig {
    credential(&dir.join("client.toml"))
}

/// What is in a credential.
pub fn credential(path: &std::path::Path) -> ClientConfig {
    let text = std::fs::read_to_string(path).unwrap();
    let file: toml::Table = text.parse().unwrap();
    let id = ClientId(file["client"].as_integer().unwrap() as u64);
    let key = Key::from_hex(file["key"].as_str().unwrap()).unwrap();
    let addresses = file["metadata"].as_array().unwrap();
    let metadata = addresses.iter().map(|a| a.as_str().unwrap().to_string()).collect();
    ClientConfig { metadata, ..ClientConfig::new("", id, key) }
}

/// A client with or without cache.
pub fn client(cluster: &Cluster<'_>, cached: bool) -> Client {
    let config = config(cluster);
    Client::connect(if cached { config } else { config.without_cache() }).unwrap()
}

/// The value of one of a client's counters.
pub fn counter(client: &Client, name: &str) -> u64 {
    let found = client.counters().into_iter().find(|(n, _)| n == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}
