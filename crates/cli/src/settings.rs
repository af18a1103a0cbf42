//! The sources of settings: the configuration file, then the environment, then flags. Later ones
//! take precedence (clap merges the last two).

use crate::args::{ClientChoice, ClusterChoice};
use crate::cluster::state::StateDir;
use crate::failure::Done;
use std::path::{Path, PathBuf};
use weir_connect::{Choice, ConfigFile, Credential, Found};

/// The cluster that a command uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// A cluster of `weir up` or `weir join` on this machine.
    Here(StateDir),
    /// A cluster that is known only by a credential.
    Elsewhere(PathBuf),
}

impl Cluster {
    /// The credential of a client.
    pub fn credential(&self) -> Done<Credential> {
        match self {
            Cluster::Here(state) => {
                state.require()?;
                Ok(Credential::read(&state.credential_file())?)
            }
            Cluster::Elsewhere(file) => Ok(Credential::read(file)?),
        }
    }

    /// The source of this cluster's mounts. [`Cluster::from_source`] reverses this.
    pub fn source(&self) -> String {
        match self {
            Cluster::Here(state) => format!("weir:{}", state.dir().display()),
            Cluster::Elsewhere(file) => format!("weir:{}", file.display()),
        }
    }

    /// The cluster that a user names as a source: the text of [`Cluster::source`] with or without
    /// `weir:`, or the name of a cluster on this machine.
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

/// Reads the configuration file: the one on the command line, or the first that exists in the usual
/// places.
pub fn config_file(choice: &ClusterChoice) -> Done<ConfigFile> {
    Ok(ConfigFile::read(choice.config.as_deref())?)
}

/// The state directory that the arguments choose.
pub fn state_dir(choice: &ClusterChoice) -> Done<StateDir> {
    Ok(StateDir::at(said(choice).state_dir()?))
}

/// The cluster that a client command uses.
pub fn cluster(choice: &ClientChoice) -> Done<Cluster> {
    let choice = Choice { credential: choice.credential.clone(), ..said(&choice.cluster) };
    Ok(match choice.find()? {
        Found::Here(dir) => Cluster::Here(StateDir::at(dir)),
        Found::Elsewhere(file) => Cluster::Elsewhere(file),
    })
}

/// What flags and environment say (clap merges them).
fn said(choice: &ClusterChoice) -> Choice {
    Choice {
        name: choice.name.clone(),
        dir: choice.dir.clone(),
        config: choice.config.clone(),
        credential: None,
    }
}

/// The state directory of a cluster by its name.
pub fn named(name: &str) -> Done<StateDir> {
    Ok(StateDir::at(weir_connect::named(name)?))
}

/// The directory for the state of this user's clusters, with one subdirectory each.
pub fn state_home() -> Done<PathBuf> {
    Ok(weir_connect::state_home()?)
}

/// The directory in which this user's processes find each other, for all clusters. Other users
/// cannot open its files.
pub fn runtime_dir() -> Done<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/run/weir"));
    }
    match absolute_env("XDG_RUNTIME_DIR") {
        Some(dir) => Ok(dir.join("weir")),
        None => Ok(state_home()?.join(".mounts")),
    }
}

fn absolute_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The absolute form of a path, for processes with other working directories.
pub fn absolute(path: &Path) -> Done<PathBuf> {
    Ok(weir_connect::absolute(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
