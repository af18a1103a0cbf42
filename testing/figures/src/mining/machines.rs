//! The machines: drives of a cluster, clients, and an NFS server, each on a node of its own.

use super::cells::{Cell, System};
use super::disks::{Disks, FILE, SPARE_BYTES, of_array, of_replica};
use crate::args::{Common, Mining, WorkKind};
use crate::bed::{Bed, Found};
use crate::cluster::{Cluster, said};
use crate::programs::beside;
use crate::proof::nothing_in_memory;
use crate::worker::nfs_client;
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use tempfile::TempDir;
use weir_testbed::profile::{Plan, Profile, Wishes};
use weir_testbed::{ETHERNET_QUEUE, LinkCounts, Network, NfsServer, Processor, Worker};

/// The NFS server has two links.
const SERVER_LINKS: u64 = 2;
/// What a chunk of the file may lack at its end: the last one is full too.
const SLACK_BYTES: u64 = 64 << 10;
/// Requests of a client, and stripes.
const UNIT: &str = "512K";

/// Which machines.
pub struct Wanted<'a> {
    pub profile: &'a str,
    /// Numbers of drives, in ascending order.
    pub drives: &'a [u32],
    pub clients: u32,
    /// Of the file.
    pub bytes: u64,
    /// Disks and links are slower by this.
    pub scale: u64,
}

/// What disks and links give, in bytes a second.
pub struct Rates {
    pub drive: u64,
    pub nfs_disk: u64,
    pub server_link: u64,
    /// They are slower than those of the profile by this.
    pub scale: f64,
}

/// Goes in the order in which it stands here.
pub struct Lab {
    _server: NfsServer,
    pub processor: Processor,
    nfs: Disks,
    pub cluster: Cluster,
    found: Found,
    drives: u32,
    clients: u32,
    scale: f64,
    dir: TempDir,
}

impl Lab {
    /// With the file on all of them.
    pub fn new(plan: &Mining, wanted: &Wanted<'_>) -> Result<Self> {
        let common = &plan.common;
        let dir = tempfile::Builder::new().prefix("weir-fig").tempdir_in(&common.scratch)?;
        let [export, own] = ["export", "own"].map(|name| dir.path().join(name));
        [&export, &own].into_iter().try_for_each(fs::create_dir)?;
        let file = dir.path().join(FILE);
        let mut generate = beside("weir-mining")?;
        generate.arg("generate").arg(&file).env_remove("SIO_FILES");
        said(generate.args(["--size", &(wanted.bytes - SLACK_BYTES).to_string()]))?;
        let drives = wanted.drives.last().copied().unwrap_or(1);
        let mut bed = Bed::new(wanted.profile, drives);
        // The last one is the NFS server.
        bed.clients = wanted.clients + 1;
        let machines = machines(plan, wanted)?;
        let slower = Common { rate: machines.disk_rates.first().copied(), ..common.clone() };
        bed.link_rate = Some(machines.link_rate);
        let share = |drives: &u32| wanted.bytes / u64::from(*drives);
        let room = wanted.drives.iter().map(share).sum::<u64>() * 5 / 4 + SPARE_BYTES;
        let cluster = bed.up(&slower, dir.path().with_extension("bed"), room)?;
        let found = bed.found(&cluster)?;
        let nfs = Disks::new(common.read_ahead_kib, &machines, wanted, (&export, &file))?;
        let node = drives + wanted.clients + 1;
        let network = &cluster.machines()?.network;
        network.limit(node, SERVER_LINKS * machines.link_rate, ETHERNET_QUEUE)?;
        let server = NfsServer::start(network, node, &export, &own)?;
        let processor = Processor::new(&format!("weir-figures-cpu{}", std::process::id()))?;
        processor.add(server.pid())?;
        nfs.group.iter().try_for_each(|group| group.add(server.pid()))?;
        let (clients, scale) = (wanted.clients, wanted.scale as f64);
        let lab =
            Self { _server: server, processor, nfs, cluster, found, drives, clients, scale, dir };
        lab.stripe(wanted.drives, &file)?;
        Ok(lab)
    }

    /// Copies the file to files over so many drives, each from a node of its own.
    fn stripe(&self, drives: &[u32], file: &Path) -> Result<()> {
        let file = file.to_str().ok_or_else(|| Error::other("a path that is not UTF-8"))?;
        let copy = |n: usize, drives: u32| -> Result<()> {
            let dir = format!("weir:/of{drives}");
            self.cluster.weir(&["mkdir", &dir])?;
            let layout = ["--unit", UNIT, "--count", &drives.to_string(), "--base", "0"];
            self.cluster.weir(&[&["setlayout"], &layout[..], &[&*dir]].concat())?;
            self.cluster.weir_from(n, &["cp", file, &format!("{dir}/{FILE}")]).map(drop)
        };
        let failed = |_| Error::other("who writes a file has panicked");
        thread::scope(|scope| {
            let all = drives.iter().enumerate();
            let writers: Vec<_> = all.map(|(n, of)| scope.spawn(move || copy(n, *of))).collect();
            writers.into_iter().try_for_each(|writer| writer.join().map_err(failed)?)
        })
    }

    pub fn rates(&self) -> Result<Rates> {
        let server_link = SERVER_LINKS * self.cluster.link_rate()?;
        let (drive, nfs_disk) = (self.found.rate, self.nfs.rate);
        Ok(Rates { drive, nfs_disk, server_link, scale: self.scale })
    }

    fn network(&self) -> Result<&Network> {
        Ok(&self.cluster.machines()?.network)
    }

    fn server_node(&self) -> u32 {
        self.drives + self.clients + 1
    }

    /// The node of a client, from 0.
    fn node(&self, client: u32) -> u32 {
        self.drives + 1 + client
    }

    fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// Nothing of the file is in memory of any server.
    pub fn forget(&self) -> Result<()> {
        self.found.disks.iter().try_for_each(|disk| nothing_in_memory(disk.path()))?;
        self.nfs.forget()
    }

    /// What the disks of a system have given.
    pub fn disk_bytes(&self, system: System) -> Result<u64> {
        match system {
            System::Weir => self.found.disks.iter().map(|disk| disk.read_bytes()).sum(),
            System::Nfs | System::NfsParallel => self.nfs.read_bytes(),
        }
    }

    /// What the link of the NFS server has carried.
    pub fn server_link(&self) -> Result<LinkCounts> {
        self.network()?.counts(self.server_node())
    }

    /// Clients of a cell, and the command that begins with them.
    pub fn clients(&self, cell: &Cell) -> Result<Clients> {
        let clients = 0..cell.clients;
        if cell.system == System::Weir {
            let network = self.network()?;
            let own = beside("weir-mining")?;
            let mut command = network.command(self.node(0), own.get_program());
            own.get_envs()
                .for_each(|(name, value)| _ = value.map(|value| command.env(name, value)));
            command.args(["run", &format!("of{}/{FILE}", cell.drives), "--files"]);
            command.arg(format!("weir:{}", self.cluster.credential().display()));
            for client in clients.skip(1) {
                let entrance = network.entrance(self.node(client));
                command.args(["--via", &format!("nsenter --net={} --", entrance.display())]);
            }
            return Ok(Clients { command, workers: Vec::new() });
        }
        let mut command = beside("weir-mining")?;
        command.args(["run", FILE]).env_remove("SIO_FILES");
        let mut workers = Vec::new();
        for client in clients {
            let at = self.dir.path().join(format!("nfs{client}"));
            fs::create_dir_all(&at)?;
            let (server, export) = (self.network()?.address(self.server_node()), self.export());
            let mount = WorkKind::Nfs { server, export, at: at.clone(), uncached: false };
            workers.push(nfs_client(self.network()?, self.node(client), mount)?);
            let dir = match cell.system {
                System::NfsParallel => of_replica(&at, client),
                System::Weir | System::Nfs => of_array(&at, cell.drives),
            };
            match client {
                0 => command.current_dir(dir),
                _ => command.args(["--via", &format!("env -C {}", dir.display())]),
            };
        }
        Ok(Clients { command, workers })
    }
}

/// Those of a profile, slower by the scale.
fn machines(plan: &Mining, wanted: &Wanted<'_>) -> Result<Plan> {
    let none = || Error::other(format!("there is no profile {}", wanted.profile));
    let profile = Profile::of(wanted.profile).ok_or_else(none)?;
    let whole = profile.plan(Wishes { disk_rate: plan.common.rate, ..Wishes::default() });
    let slower = |rate: u64| (rate / wanted.scale).max(1);
    Ok(profile.plan(Wishes {
        disk_rate: whole.disk_rates.first().copied().map(slower),
        link_rate: Some(slower(whole.link_rate)),
        nodes: None,
    }))
}

/// Clients that can begin.
pub struct Clients {
    pub command: Command,
    workers: Vec<Worker>,
}

impl Clients {
    /// Unmounts all.
    pub fn end(self) -> Result<()> {
        self.workers.into_iter().try_for_each(|worker| worker.end().map(drop))
    }
}
