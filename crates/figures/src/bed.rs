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

impl<'a> Bed<'a> {
    pub fn new(profile: &'a str, disks: u32) -> Self {
        Self { profile, disks, clients: 0, link_rate: None }
    }

    /// Makes them, with so much room on each disk.
    pub fn up(&self, common: &Common, dir: PathBuf, room: u64) -> Result<Cluster> {
        let weir = common.weir()?;
        let mut command = Command::new(&weir);
        command.args(["testbed", "up", self.profile, "--dir"]).arg(&dir);
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
        let status = status(&weir, &dir)?;
        let (name, state) = (word(&status["name"])?, word(&status["cluster"])?);
        let network = Network::found(name, *all.end());
        Ok(Cluster::on(weir, state.into(), Machines { dir, network, readers }))
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
        // Disks with a head need no group: everybody waits for it.
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
