//! Which cluster a program uses, and where its state is. Explicit choices override the environment,
//! and the environment overrides the configuration file.

use crate::{ConfigFile, Credential, Problem};
use std::path::{Path, PathBuf};
use weir_client::Client;
use weir_types::ErrorKind;

const DEFAULT_NAME: &str = "default";

/// How a program chooses a cluster. Every field is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Name of a cluster made by `weir up` on this machine.
    pub name: Option<String>,
    /// State directory of the cluster.
    pub dir: Option<PathBuf>,
    /// Configuration file, in place of the usual ones.
    pub config: Option<PathBuf>,
    /// Credential file of a client, for clusters elsewhere.
    pub credential: Option<PathBuf>,
}

/// Where the chosen cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// On this machine, with this state directory.
    Here(PathBuf),
    /// Elsewhere, known by this credential file only.
    Elsewhere(PathBuf),
}

impl Choice {
    /// The choice of the environment: `WEIR_CLUSTER`, `WEIR_DIR`, `WEIR_CONFIG`, `WEIR_CREDENTIAL`.
    pub fn from_environment() -> Self {
        let path = |name: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        Self {
            name: std::env::var("WEIR_CLUSTER").ok().filter(|name| !name.is_empty()),
            dir: path("WEIR_DIR"),
            config: path("WEIR_CONFIG"),
            credential: path("WEIR_CREDENTIAL"),
        }
    }

    /// The cluster with this name on this machine. Without a name, the choice of the environment.
    pub fn of_cluster(name: Option<&str>) -> Self {
        match name {
            Some(name) => Self { name: Some(name.to_owned()), ..Self::default() },
            None => Self::from_environment(),
        }
    }

    /// The cluster of a credential file.
    pub fn of_credential(file: impl Into<PathBuf>) -> Self {
        Self { credential: Some(file.into()), ..Self::default() }
    }

    /// The state directory of the chosen cluster.
    pub fn state_dir(&self) -> Result<PathBuf, Problem> {
        let config = ConfigFile::read(self.config.as_deref())?;
        // A name on the command line overrides a directory in the file, and a directory there a
        // name in the file.
        match (&self.name, &self.dir) {
            (_, Some(dir)) => absolute(dir),
            (Some(name), None) => named(name),
            (None, None) => match (config.dir, config.cluster) {
                (Some(dir), _) => absolute(&dir),
                (None, name) => named(name.as_deref().unwrap_or(DEFAULT_NAME)),
            },
        }
    }

    /// The chosen cluster, for a client.
    pub fn find(&self) -> Result<Found, Problem> {
        let named = self.name.is_some() || self.dir.is_some();
        let credential = match &self.credential {
            Some(file) => Some(file.clone()),
            None if named => None,
            None => {
                let config = ConfigFile::read(self.config.as_deref())?;
                match config.credential.is_some()
                    || config.dir.is_some()
                    || config.cluster.is_some()
                {
                    true => config.credential,
                    false => usual_credential(&self.state_dir()?),
                }
            }
        };
        match credential {
            Some(file) => Ok(Found::Elsewhere(absolute(&file)?)),
            None => Ok(Found::Here(self.state_dir()?)),
        }
    }

    /// The credential for the chosen cluster.
    pub fn credential(&self) -> Result<Credential, Problem> {
        match self.find()? {
            Found::Elsewhere(file) => Credential::read(&file),
            Found::Here(dir) if has_cluster(&dir) => Credential::read(&dir.join("client.toml")),
            Found::Here(dir) => Err(Problem::new(
                ErrorKind::NotFound,
                format!("there is no cluster in {}", dir.display()),
            )
            .hint(
                "`weir up` makes one; for another, give its name, or the credential file of one \
                 elsewhere",
            )),
        }
    }

    /// Connects to the chosen cluster. `weir clients` shows `program`.
    pub fn connect(&self, program: &str) -> Result<Client, Problem> {
        self.credential()?.connect(program)
    }
}

/// Whether a state directory contains a cluster.
fn has_cluster(dir: &Path) -> bool {
    dir.join("cluster.toml").is_file()
}

/// The credential of this user or machine, if no cluster was chosen and this machine has none.
fn usual_credential(here: &Path) -> Option<PathBuf> {
    match has_cluster(here) {
        true => None,
        false => usual_files("client.toml").into_iter().find(|path| path.is_file()),
    }
}

/// Checks that a name may be that of a cluster: letters, digits, `-`, `_` and `.`.
///
/// # Errors
/// `InvalidArgument` with what is allowed.
pub fn check_name(name: &str) -> Result<(), Problem> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || name.len() > 64 || !name.chars().all(allowed) {
        return Err(Problem::argument(format!("'{name}' cannot be the name of a cluster"))
            .hint("use letters, digits, '-', '_' and '.'"));
    }
    Ok(())
}

/// The state directory of a cluster made by name.
pub fn named(name: &str) -> Result<PathBuf, Problem> {
    check_name(name)?;
    Ok(state_home()?.join(name))
}

/// The places of a file that was not named: the user's configuration, then the machine's.
pub(crate) fn usual_files(name: &str) -> Vec<PathBuf> {
    let home_config = match absolute_env("XDG_CONFIG_HOME") {
        Some(dir) => Some(dir),
        None => home().map(|home| home.join(".config")),
    };
    let mut files: Vec<PathBuf> =
        home_config.into_iter().map(|d| d.join("weir").join(name)).collect();
    files.push(Path::new("/etc/weir").join(name));
    files
}

/// Where clusters of this user keep their state, one directory each.
pub fn state_home() -> Result<PathBuf, Problem> {
    if let Some(home) = absolute_env("XDG_STATE_HOME") {
        return Ok(home.join("weir"));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/weir"));
    }
    match home() {
        Some(home) => Ok(home.join(".local/state/weir")),
        None => Err(Problem::argument("neither HOME nor XDG_STATE_HOME is set")
            .hint("name the state directory with --dir")),
    }
}

/// From HOME, or else from the user database: mount(8) removes HOME from its helper's environment
/// when a user mounts.
pub fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|path| path.is_absolute())
}

/// An environment variable that is an absolute path.
fn absolute_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// A path in a form that processes in other directories can use.
pub fn absolute(path: &Path) -> Result<PathBuf, Problem> {
    // Links are resolved where the path exists, so that a directory has one name.
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(_) => std::path::absolute(path).map_err(|e| Problem::file(path, e)),
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
    fn what_is_said_wins_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.toml");
        std::fs::write(&config, "dir = \"/from-the-file\"\n").unwrap();
        let mut choice = Choice { config: Some(config), ..Choice::default() };
        assert_eq!(choice.state_dir().unwrap(), Path::new("/from-the-file"));
        choice.dir = Some("/said".into());
        assert_eq!(choice.state_dir().unwrap(), Path::new("/said"));
    }

    #[test]
    fn a_word_that_means_nothing_in_the_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.toml");
        std::fs::write(&config, "clutser = \"x\"\n").unwrap();
        let choice = Choice { config: Some(config), ..Choice::default() };
        assert!(choice.state_dir().unwrap_err().message.contains("clutser"));
    }

    #[test]
    fn a_cluster_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let choice = Choice { dir: Some(dir.path().to_owned()), ..Choice::default() };
        let problem = choice.credential().unwrap_err();
        assert_eq!(problem.kind, ErrorKind::NotFound);
        assert!(problem.message.contains(&dir.path().display().to_string()), "{problem}");
    }
}
