//! Where settings come from: the configuration file, then the environment,
//! then flags, each over the one before (clap merges the last two).

use crate::args::{ClientChoice, ClusterChoice};
use crate::cluster::state::StateDir;
use crate::failure::Done;
use std::path::{Path, PathBuf};
use weir_connect::{Choice, ConfigFile, Credential, Found};

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
                Ok(Credential::read(&state.credential_file())?)
            }
            Cluster::Elsewhere(file) => Ok(Credential::read(file)?),
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
    Ok(ConfigFile::read(choice.config.as_deref())?)
}

/// The state directory that is meant.
pub fn state_dir(choice: &ClusterChoice) -> Done<StateDir> {
    Ok(StateDir::at(said(choice).state_dir()?))
}

/// The cluster that a client command means.
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

/// The state directory of a cluster made by name.
pub fn named(name: &str) -> Done<StateDir> {
    Ok(StateDir::at(weir_connect::named(name)?))
}

/// Where clusters of this user keep their state, one directory each.
pub fn state_home() -> Done<PathBuf> {
    Ok(weir_connect::state_home()?)
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

fn absolute_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// A path as other processes, which run elsewhere, can use it.
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
