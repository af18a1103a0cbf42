//! Where settings come from: the configuration file, then the environment,
//! then flags, each over the one before (clap merges the last two).

use crate::args::{ClientChoice, ClusterChoice};
use crate::cluster::credential::Credential;
use crate::cluster::state::StateDir;
use crate::failure::{Done, Failure};
use serde::Deserialize;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The configuration file. Every entry may be left out.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// Name of the cluster.
    pub cluster: Option<String>,
    /// Its state directory.
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

const DEFAULT_NAME: &str = "default";

/// Which cluster is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// One of `weir up` on this machine.
    Here(StateDir),
    /// One that is known by a credential only.
    Elsewhere(PathBuf),
}

impl Cluster {
    /// The credential of a client.
    pub fn credential(&self) -> Done<Credential> {
        match self {
            Cluster::Here(state) => {
                state.require()?;
                Credential::read(&state.credential_file())
            }
            Cluster::Elsewhere(file) => Credential::read(file),
        }
    }

    /// The source of its mounts, from which [`Cluster::from_source`] finds it again.
    pub fn source(&self) -> String {
        match self {
            Cluster::Here(state) => format!("weir:{}", state.dir().display()),
            Cluster::Elsewhere(file) => format!("weir:{}", file.display()),
        }
    }

    /// The cluster that somebody means by a source: one as [`Cluster::source`] says it, with or
    /// without its `weir:`, or the name of a cluster on this machine.
    pub fn named_by_source(source: &str) -> Done<Self> {
        let meant = source.strip_prefix("weir:").unwrap_or(source);
        if !meant.starts_with('/') {
            return named(meant).map(Cluster::Here).map_err(|failure| {
                failure.hint(
                    "the source is weir:/FILE, the credential of a client; weir:/DIR, the state \
                     directory of a cluster on this machine; or the name of one",
                )
            });
        }
        let path = absolute(Path::new(meant))?;
        Ok(if path.is_dir() { Cluster::Here(StateDir::at(path)) } else { Cluster::Elsewhere(path) })
    }

    /// The cluster of a mount, by the mount's source.
    pub fn from_source(source: &str) -> Option<Self> {
        let path = Path::new(source.strip_prefix("weir:")?);
        if !path.is_absolute() {
            return None;
        }
        Some(if path.is_dir() {
            Cluster::Here(StateDir::at(path.to_owned()))
        } else {
            Cluster::Elsewhere(path.to_owned())
        })
    }
}

/// Reads the configuration file: the one named, or the first of the usual ones.
pub fn config_file(choice: &ClusterChoice) -> Done<ConfigFile> {
    let path = match &choice.config {
        Some(path) => path.clone(),
        None => match usual_files("config.toml").into_iter().find(|path| path.is_file()) {
            Some(path) => path,
            None => return Ok(ConfigFile::default()),
        },
    };
    let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, e))?;
    toml::from_str(&text).map_err(|e| Failure::new(e.to_string()).about(path.display()))
}

/// Where a file is that nobody named: in the user's configuration, then in the machine's.
fn usual_files(name: &str) -> Vec<PathBuf> {
    let home_config = match absolute_env("XDG_CONFIG_HOME") {
        Some(dir) => Some(dir),
        None => home().map(|home| home.join(".config")),
    };
    let mut files: Vec<PathBuf> =
        home_config.into_iter().map(|d| d.join("weir").join(name)).collect();
    files.push(Path::new("/etc/weir").join(name));
    files
}

/// The state directory that is meant.
pub fn state_dir(choice: &ClusterChoice) -> Done<StateDir> {
    let config = config_file(choice)?;
    // A name on the command line is over a directory in the file, and the
    // other way round.
    match (&choice.name, &choice.dir) {
        (_, Some(dir)) => at(dir),
        (Some(name), None) => named(name),
        (None, None) => match (config.dir, config.cluster) {
            (Some(dir), _) => at(&dir),
            (None, name) => named(name.as_deref().unwrap_or(DEFAULT_NAME)),
        },
    }
}

/// The cluster that a client command means.
pub fn cluster(choice: &ClientChoice) -> Done<Cluster> {
    let named = choice.cluster.name.is_some() || choice.cluster.dir.is_some();
    let credential = match &choice.credential {
        Some(file) => Some(file.clone()),
        None if named => None,
        None => {
            let config = config_file(&choice.cluster)?;
            match config.credential.is_some() || config.dir.is_some() || config.cluster.is_some() {
                true => config.credential,
                false => usual_credential(&state_dir(&choice.cluster)?),
            }
        }
    };
    match credential {
        Some(file) => Ok(Cluster::Elsewhere(absolute(&file)?)),
        None => Ok(Cluster::Here(state_dir(&choice.cluster)?)),
    }
}

/// The credential of this machine or user, where nobody says which cluster is meant and there is
/// none here.
fn usual_credential(here: &StateDir) -> Option<PathBuf> {
    match here.exists() {
        true => None,
        false => usual_files("client.toml").into_iter().find(|path| path.is_file()),
    }
}

/// The state directory of a cluster made by name.
pub fn named(name: &str) -> Done<StateDir> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || name.len() > 64 || !name.chars().all(allowed) {
        return Err(Failure::new(format!("'{name}' cannot be the name of a cluster"))
            .hint("use letters, digits, '-', '_' and '.'"));
    }
    Ok(StateDir::at(state_home()?.join(name)))
}

fn at(dir: &Path) -> Done<StateDir> {
    Ok(StateDir::at(absolute(dir)?))
}

/// Where clusters of this user keep their state, one directory each.
pub fn state_home() -> Done<PathBuf> {
    if let Some(home) = absolute_env("XDG_STATE_HOME") {
        return Ok(home.join("weir"));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/weir"));
    }
    match home() {
        Some(home) => Ok(home.join(".local/state/weir")),
        None => Err(Failure::new("neither HOME nor XDG_STATE_HOME is set")
            .hint("name the state directory with --dir")),
    }
}

/// Where processes of this user meet, whichever cluster they are for. Nobody else
/// can open what is there.
pub fn runtime_dir() -> Done<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/run/weir"));
    }
    match absolute_env("XDG_RUNTIME_DIR") {
        Some(dir) => Ok(dir.join("weir")),
        None => Ok(state_home()?.join(".mounts")),
    }
}

/// By HOME, else by the table of users: mount(8) keeps HOME from its helper when a user mounts.
fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|path| path.is_absolute())
}

fn absolute_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// A path as other processes, which run elsewhere, can use it.
pub fn absolute(path: &Path) -> Done<PathBuf> {
    // Links are resolved where the path exists, so that a directory has one name.
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(_) => std::path::absolute(path).map_err(|e| Failure::file(path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_the_state_directory_are_refused() {
        for bad in ["", "..", ".hidden", "a/b", "a b"] {
            assert!(named(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.toml");
        std::fs::write(&config, "dir = \"/from-the-file\"\n").unwrap();
        let mut choice = ClusterChoice { config: Some(config), ..ClusterChoice::default() };
        assert_eq!(state_dir(&choice).unwrap().dir(), Path::new("/from-the-file"));
        choice.dir = Some("/from-a-flag".into());
        assert_eq!(state_dir(&choice).unwrap().dir(), Path::new("/from-a-flag"));
    }

    #[test]
    fn a_word_that_means_nothing_in_the_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.toml");
        std::fs::write(&config, "clutser = \"x\"\n").unwrap();
        let choice = ClusterChoice { config: Some(config), ..ClusterChoice::default() };
        assert!(state_dir(&choice).unwrap_err().message.contains("clutser"));
    }

    #[test]
    fn a_mount_leads_back_to_its_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let here = Cluster::Here(StateDir::at(dir.path().to_owned()));
        assert_eq!(Cluster::from_source(&here.source()), Some(here));
        let file = dir.path().join("client.toml");
        let elsewhere = Cluster::Elsewhere(file);
        assert_eq!(Cluster::from_source(&elsewhere.source()), Some(elsewhere));
        assert_eq!(Cluster::from_source("/dev/sda1"), None);
    }
}
