//! The machines of the paper: a cluster on eight nodes, and an NFS server on the first of them with
//! a disk of its own.

use super::cells::{Cell, RECORD, System, files};
use crate::args::{Nfs, WorkKind};
use crate::bed::{Bed, Found};
use crate::cluster::{Cluster, Machines, Mount, said};
use crate::programs::beside;
use crate::proof::nothing_in_memory;
use crate::worker::nfs_client;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::thread;
use tempfile::TempDir;
use weir_testbed::profile::{NFS_RATE, Profile, Wishes};
use weir_testbed::{Disk, Drive, NfsServer, Throttle, Worker};

/// Files by their names.
type Files = BTreeMap<&'static str, (System, u64)>;
/// The stripes of the paper.
const PVFS_UNIT: &str = "8K";
/// Each has a disk, and a part of a striped file.
pub const NODES: u32 = 8;
/// The first node serves NFS, and does not read.
pub const SERVER: u32 = 1;
/// A disk has so much more than the file, for the file system and for what servers note.
const SPARE_BYTES: u64 = 64 << 20;

/// Goes in the order in which it stands here.
pub struct Lab {
    server: NfsServer,
    pub cluster: Cluster,
    pub found: Found,
    /// Of a disk without a head.
    _nfs_group: Option<Throttle>,
    nfs_disk: Disk,
    /// Of mounts that are read through.
    options: String,
    dir: TempDir,
}

impl Lab {
    /// With the files of these cells.
    pub fn new(plan: &Nfs, cells: &BTreeSet<Cell>) -> Result<Self> {
        let common = &plan.common;
        let of = |is_nfs: bool| {
            files(cells.iter().filter(|cell| cell.system.is_nfs() == is_nfs), plan.share)
        };
        let (of_nfs, of_weir) = (of(true), of(false));
        let bytes = |files: &Files| files.values().map(|(_, bytes)| bytes).sum::<u64>();
        let dir = tempfile::Builder::new().prefix("weir-fig").tempdir_in(&common.scratch)?;
        let mut bed = Bed::new(&plan.profile, NODES);
        bed.link_rate = plan.link_rate;
        let room = 2 * bytes(&of_weir) / u64::from(NODES) + SPARE_BYTES;
        let cluster = bed.up(common, dir.path().with_extension("bed"), room)?;
        let found = bed.found(&cluster)?;
        let (nfs_disk, nfs_group) = nfs_disk(plan, dir.path(), bytes(&of_nfs) + SPARE_BYTES)?;
        nfs_disk.device().read_ahead(common.read_ahead_kib)?;
        let (export, own) = (nfs_disk.path().join("export"), dir.path().join("own"));
        [&export, &own].into_iter().try_for_each(fs::create_dir)?;
        of_nfs.iter().try_for_each(|(name, (_, bytes))| generate(&export.join(name), *bytes))?;
        let network = &cluster.machines()?.network;
        let server = NfsServer::start(network, SERVER, &export, &own)?;
        nfs_group.iter().try_for_each(|group| group.add(server.pid()))?;
        let options = crate::lab::options(common);
        let lab = Self { server, cluster, found, _nfs_group: nfs_group, nfs_disk, options, dir };
        for (name, (system, _)) in &of_weir {
            let as_pvfs: &[&str] = &["--unit", PVFS_UNIT];
            lab.cluster.make_file(name, if *system == System::Pvfs { as_pvfs } else { &[] })?;
        }
        lab.write(&of_weir)?;
        Ok(lab)
    }

    /// Each file from a node of its own: links are what takes time.
    fn write(&self, files: &Files) -> Result<()> {
        let write = |(n, (name, (_, bytes))): (usize, (&&str, &(System, u64)))| {
            let mount =
                self.cluster.mount(n % NODES as usize, self.place(&format!("w{n}")), "rw")?;
            generate(&mount.path().join(name), *bytes)
        };
        let failed = |_| Error::other("who writes a file has panicked");
        thread::scope(|scope| {
            let writers: Vec<_> =
                files.iter().enumerate().map(|file| scope.spawn(move || write(file))).collect();
            writers.into_iter().try_for_each(|writer| writer.join().map_err(failed)?)
        })
    }

    pub fn machines(&self) -> Result<&Machines> {
        self.cluster.machines()
    }

    pub fn place(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Numbers of the data servers' processes, in the order of their nodes.
    pub fn data_pids(&self) -> Result<Vec<i32>> {
        self.cluster.data_pids(NODES as usize)
    }

    /// That of the NFS server.
    pub fn nfs_pid(&self) -> i32 {
        self.server.pid()
    }

    /// Where nodes of a number of readers are: those after the server.
    pub fn nodes(cell: &Cell) -> impl Iterator<Item = u32> {
        SERVER + 1..=SERVER + cell.readers
    }

    /// The disks that have the file of a system.
    pub fn disks(&self, system: System) -> Vec<&Disk> {
        match system.is_nfs() {
            true => vec![&self.nfs_disk],
            false => self.found.disks.iter().collect(),
        }
    }

    /// Nothing of a system's file is in memory: clients are mounted anew for each cell.
    pub fn forget(&self, system: System) -> Result<()> {
        self.disks(system).into_iter().try_for_each(|disk| nothing_in_memory(disk.path()))
    }

    /// Clients of a cell.
    pub fn clients(&self, cell: &Cell) -> Result<Clients> {
        let kind = if cell.system.is_nfs() { "nfs" } else { "weir" };
        let at = |node: u32| self.place(&format!("{kind}{node}"));
        let mut clients = Clients::default();
        for node in Self::nodes(cell) {
            match cell.system {
                System::Pvfs => {
                    let entrance = self.machines()?.network.entrance(node);
                    clients.vias.push(format!("nsenter --net={} --", entrance.display()));
                    continue;
                }
                System::Weir => {
                    let reader = (node - SERVER) as usize;
                    clients.mounts.push(self.cluster.mount(reader, at(node), &self.options)?);
                }
                System::Nfs | System::NfsUncached => {
                    fs::create_dir_all(at(node))?;
                    clients.workers.push(self.nfs_client(node, at(node), cell.system)?);
                }
            }
            clients.vias.push(format!("env -C {}", at(node).display()));
        }
        if cell.system == System::Pvfs {
            let files = format!("weir:{}", self.cluster.credential().display());
            clients.words = ["--uncached", "--files", &files].map(str::to_owned).to_vec();
        }
        Ok(clients)
    }

    fn nfs_client(&self, node: u32, at: PathBuf, system: System) -> Result<Worker> {
        let network = &self.machines()?.network;
        let export = self.nfs_disk.path().join("export");
        let (server, uncached) = (network.address(SERVER), system == System::NfsUncached);
        nfs_client(network, node, WorkKind::Nfs { server, export, at, uncached })
    }
}

/// How readers of a cell reach the file; dropped, they are unmounted.
#[derive(Default)]
pub struct Clients {
    /// Commands that start a reader each.
    pub vias: Vec<String>,
    /// Words for `weir-records`.
    pub words: Vec<String>,
    mounts: Vec<Mount>,
    workers: Vec<Worker>,
}

impl Clients {
    /// Unmounts all.
    pub fn end(self) -> Result<()> {
        drop(self.mounts);
        self.workers.into_iter().try_for_each(|worker| worker.end().map(drop))
    }
}

/// As those of the nodes, but faster; and who may not read it faster, if it has no head.
fn nfs_disk(plan: &Nfs, dir: &Path, bytes: u64) -> Result<(Disk, Option<Throttle>)> {
    let none = || Error::other(format!("there is no profile {}", plan.profile));
    let profile = Profile::of(&plan.profile).ok_or_else(none)?;
    let (image, at) = (dir.join("nfs.image"), dir.join("nfs"));
    let rate = plan.common.rate.unwrap_or(NFS_RATE);
    if let Some(drive) = profile.plan(Wishes::default()).drive(0) {
        let disk = Disk::make_modelled(&image, &at, bytes, Drive { bytes_per_s: rate, ..drive })?;
        return Ok((disk, None));
    }
    let disk = Disk::make(&image, &at, bytes)?;
    let group = Throttle::new(&format!("weir-figures-nfs{}", std::process::id()))?;
    group.limit(&disk, rate)?;
    Ok((disk, Some(group)))
}

/// A file of records, on the disk when it returns.
fn generate(path: &Path, bytes: u64) -> Result<()> {
    let mut command = beside("weir-records")?;
    command.arg("generate").arg(path).args(["--size", &bytes.next_multiple_of(RECORD).to_string()]);
    said(&mut command).map(drop)
}
