//! Writes the configurations of data servers on this machine, and changes them when targets are
//! added or removed.

use crate::cluster::daemon::{data_name, to_text};
use crate::cluster::metas;
use crate::cluster::secret;
use crate::cluster::state::{Description, StateDir};
use crate::failure::{Done, Failure};
use weir_dataserver::{DataServerConfig, TargetConfig};

/// The configuration of a new data server that serves metrics at an address.
pub fn new_config(
    state: &StateDir,
    description: &Description,
    (server, address): (u32, &str),
    targets: &[u32],
    metrics: Option<String>,
) -> DataServerConfig {
    DataServerConfig {
        metrics,
        unix: state.socket_file(&data_name(server)),
        metadata: metas::addresses(state, description),
        targets: targets.iter().map(|target| target_config(state, *target)).collect(),
        ..DataServerConfig::new(server, address, state.key_file(&format!("server-{server}")))
    }
}

/// The entry of a target in the configuration of its server.
pub fn target_config(state: &StateDir, target: u32) -> TargetConfig {
    TargetConfig {
        target,
        dir: state.target_dir(target),
        key_file: state.key_file(&format!("target-{target}")),
    }
}

/// Reads the configuration of a server without resolving its paths; `None` if there is none.
pub fn read(state: &StateDir, server: u32) -> Done<Option<DataServerConfig>> {
    let path = state.config_file(&data_name(server));
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let config = toml::from_str(&text);
            config.map(Some).map_err(|e| Failure::new(e.to_string()).about(path.display()))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::file(&path, e)),
    }
}

/// Writes the configuration of a server and replaces the old one.
pub fn write(state: &StateDir, config: &DataServerConfig) -> Done {
    let path = state.config_file(&data_name(config.server));
    secret::replace_public(&path, &to_text(config)?)
}
