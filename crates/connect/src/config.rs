//! The configuration file of a user or a machine: `~/.config/weir/config.toml`, then
//! `/etc/weir/config.toml`.

use crate::Problem;
use crate::choice::usual_files;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The configuration file. Every entry is optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// Name of the cluster.
    pub cluster: Option<String>,
    /// State directory of the cluster.
    pub dir: Option<PathBuf>,
    /// Credential file of a client.
    pub credential: Option<PathBuf>,
    /// Defaults of `weir up`.
    #[serde(default)]
    pub up: UpDefaults,
    /// Defaults of `weir mount`.
    #[serde(default)]
    pub mount: MountDefaults,
}

/// Defaults of `weir up`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpDefaults {
    /// Number of targets.
    pub targets: Option<u32>,
    /// Targets that one server process serves.
    pub targets_per_server: Option<u32>,
    /// First TCP port.
    pub port: Option<u16>,
    /// Where to mount.
    pub mount: Option<PathBuf>,
    /// Default stripe unit, as in "64K".
    pub unit: Option<String>,
    /// The address at which metrics are served.
    pub metrics: Option<IpAddr>,
}

/// Defaults of `weir mount`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountDefaults {
    /// Mount options.
    #[serde(default)]
    pub options: Vec<String>,
}

impl ConfigFile {
    /// Reads the named file, or the first of the usual ones that exists. Without a file all entries
    /// are empty.
    pub fn read(named: Option<&Path>) -> Result<Self, Problem> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => match usual_files("config.toml").into_iter().find(|path| path.is_file()) {
                Some(path) => path,
                None => return Ok(Self::default()),
            },
        };
        let text = std::fs::read_to_string(&path).map_err(|e| Problem::file(&path, e))?;
        toml::from_str(&text).map_err(|e| Problem::argument(e.to_string()).about(path.display()))
    }
}
