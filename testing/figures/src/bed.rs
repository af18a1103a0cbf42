//! Machines of a profile: `weir testbed`.

use crate::args::Common;
use crate::cluster::{Cluster, Machines, said};
use serde_json::Value;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_testbed::{Disk, Network, Throttle};

/// Which.
pub struct Bed<'a> {
    profile: &'a str,
    disks: u32,
    /// Nodes besides, which read; without, those with disks do.
    pub clients: u32,
    pub link_rate: Option<u64>,
}

/// What there is of them, as a [`crate::lab::Lab`] has it.
pub struct Found {
    pub disks: Vec<Disk>,
    pub throttle: Throttle,
    pub rate: u64,
}

/// The directory of a testbed, from before there is one. Dropped, whatever became of it goes.
pub struct Guard {
    weir: PathBuf,
    dir: PathBuf,
}

impl Guard {
    pub fn new(weir: PathBuf, dir: PathBuf) -> Self {
        Self { weir, dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Without this nothing was made, or all has gone again.
        if !self.dir.join("testbed.json").exists() {
            return;
        }
        let mut down = Command::new(&self.weir);
        if let Err(error) = said(down.args(["testbed", "down", "--dir"]).arg(&self.dir)) {
            eprintln!("weir-figures: {error}; the testbed is in {}", self.dir.display());
        }
    }
}

impl<'a> Bed<'a> {
    pub fn new(profile: &'a str, disks: u32) -> Self {
        Self { profile, disks, clients: 0, link_rate: None }
    }

    /// Makes them, with so much room on each disk.
    pub fn up(&self, common: &Common, dir: PathBuf, room: u64) -> Result<Cluster> {
        let weir = common.weir()?;
        let guard = Guard::new(weir.clone(), dir);
        let mut command = Command::new(&weir);
        command.args(["testbed", "up", self.profile, "--dir"]).arg(guard.dir());
        let mut number = |flag: &str, value: u64| _ = command.arg(flag).arg(value.to_string());
        number("--nodes", self.disks.into());
        number("--clients", self.clients.into());
        number("--disk-size", room);
        number("--read-ahead-kib", common.read_ahead_kib);
        common.rate.iter().for_each(|rate| number("--disk-rate", *rate));
        self.link_rate.iter().for_each(|rate| number("--link-rate", *rate));
        said(&mut command)?;
        let all = 1..=self.disks + self.clients;
        let readers = all.clone().filter(|n| self.clients == 0 || *n > self.disks).collect();
        let status = status(&weir, guard.dir())?;
        let (name, state) = (word(&status["name"])?, word(&status["cluster"])?);
        let network = Network::found(name, *all.end());
        Ok(Cluster::on(
            weir,
            state.into(),
            Machines { processors: Vec::new(), guard, network, readers },
        ))
    }

    /// Their disks.
    pub fn found(&self, cluster: &Cluster) -> Result<Found> {
        let none = || Error::other("no testbed");
        let status = cluster.bed_status()?;
        let nodes = status["nodes"].as_array().ok_or_else(none)?;
        let of_disks = nodes.iter().map(|node| &node["disk"]).filter(|disk| !disk.is_null());
        let of_disks: Vec<&Value> = of_disks.collect();
        let disk = |disk: &&Value| {
            Disk::found(Path::new(word(&disk["file"])?), Path::new(word(&disk["at"])?))
        };
        let disks = of_disks.iter().map(disk).collect::<Result<_>>()?;
        let rates = of_disks.iter().filter_map(|disk| disk["bytes_per_s"].as_u64());
        let rate = rates.min().ok_or_else(none)?;
        // Those with a head have no group of the testbed: everybody waits for it.
        let has_heads = of_disks.iter().any(|disk| !disk["drive"].is_null());
        let throttle = match has_heads {
            true => Throttle::new(&format!("weir-figures-{}", std::process::id()))?,
            false => Throttle::found(word(&status["name"])?)?,
        };
        Ok(Found { disks, throttle, rate })
    }
}

/// What `weir testbed status` says.
pub fn status(weir: &Path, dir: &Path) -> Result<Value> {
    let mut command = Command::new(weir);
    Ok(serde_json::from_str(&said(
        command.args(["testbed", "status", "--json", "--dir"]).arg(dir),
    )?)?)
}

fn word(value: &Value) -> Result<&str> {
    value.as_str().ok_or_else(|| Error::other("weir testbed status: not understood"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_half_made_is_taken_down_and_what_never_was_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (weir, bed) = (dir.path().join("weir"), dir.path().join("bed"));
        fs::write(&weir, "#!/bin/sh\necho \"$@\" >> \"$0.said\"\n").unwrap();
        fs::set_permissions(&weir, fs::Permissions::from_mode(0o755)).unwrap();
        let calls = || fs::read_to_string(dir.path().join("weir.said")).unwrap_or_default();
        drop(Guard::new(weir.clone(), bed.clone()));
        assert_eq!(calls(), "");
        fs::create_dir(&bed).unwrap();
        fs::write(bed.join("testbed.json"), "{}").unwrap();
        drop(Guard::new(weir.clone(), bed.clone()));
        assert_eq!(calls(), format!("testbed down --dir {}\n", bed.display()));
    }
}
