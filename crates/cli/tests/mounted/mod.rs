//! A cluster with one or several mounts, for programs.

use crate::harness::{Cluster, Place, said};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mounts of one cluster.
pub struct Mounts<'a> {
    pub cluster: Cluster<'a>,
    pub at: Vec<PathBuf>,
}

impl<'a> Mounts<'a> {
    /// Starts a cluster and mounts it so many times.
    pub fn new(place: &'a Place, name: &str, count: usize) -> Self {
        let at: Vec<PathBuf> = (0..count).map(|i| place.path(&format!("m{i}"))).collect();
        let cluster = place.up(name, &["--mount", at[0].to_str().unwrap()]);
        for more in &at[1..] {
            std::fs::create_dir(more).unwrap();
            cluster.weir(&["mount", more.to_str().unwrap()]).ok();
        }
        Self { cluster, at }
    }
}

/// A shell script in a directory, for any program of this machine.
pub fn script(dir: &Path, text: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", text]).current_dir(dir);
    // Tools must not read the settings of the user who runs the tests.
    command.env("HOME", dir).env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

/// Runs a script; it must succeed.
#[track_caller]
pub fn sh(dir: &Path, text: &str) -> String {
    said(script(dir, text)).ok()
}
