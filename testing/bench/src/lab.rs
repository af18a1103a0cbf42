//! Everything that runs during the benchmark, and the measurement of one run.

use crate::accounting::{Accounting, Group};
use crate::args::Plan;
use crate::cluster::Cluster;
use crate::failure::{Done, Failure};
use crate::fuse_limit::FuseLimit;
use crate::machine::{Meters, disk_read_bytes};
use crate::memory;
use crate::order::{Order, Work};
use crate::sample::Sample;
use crate::ways::Via;
use crate::worker_process::WorkerProcess;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use weir_wire::Level;

/// Data servers of the cluster, with a target each.
const TARGETS: usize = 4;

/// A worker: its group and its index.
type Name = (Group, usize);

/// All running parts. Fields are dropped in this order.
pub struct Lab {
    workers: BTreeMap<Name, WorkerProcess>,
    fuse: Option<FuseLimit>,
    cluster: Option<Cluster>,
    /// Accounting of CPU time.
    pub accounting: Accounting,
    dir: TempDir,
}

/// Workers that have prepared their orders.
pub struct Job<'a> {
    lab: &'a mut Lab,
    prepared: Vec<Name>,
}

impl Lab {
    /// An empty lab, on the disk to be measured.
    pub fn new(plan: &Plan) -> Done<Self> {
        let dir = tempfile::Builder::new()
            .prefix("weir-bench-")
            .tempdir_in(&plan.base_dir)
            .map_err(|e| Failure::file(&plan.base_dir, e))?;
        let mut accounting = Accounting::new();
        let cluster = match plan.with_weir {
            true => Some(Cluster::start(&plan.weir, dir.path(), TARGETS, &mut accounting)?),
            false => None,
        };
        Ok(Self { workers: BTreeMap::new(), fuse: None, cluster, accounting, dir })
    }

    /// A directory on the local disk.
    pub fn local_dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// The cluster's credential file for sessions at a level of protection.
    pub fn credential_at(&self, level: Level) -> Done<PathBuf> {
        self.cluster.as_ref().ok_or_else(no_cluster)?.credential_at(level)
    }

    /// Makes a directory whose files have two copies, written with a protocol.
    pub fn make_mirrored(&mut self, dir: &str, protocol: &str) -> Done {
        let cluster = self.cluster.as_ref().ok_or_else(no_cluster)?;
        cluster.make_mirrored(dir, protocol)
    }

    /// Where the cluster is mounted. Mounts it if necessary.
    pub fn mountpoint(&mut self) -> Done<PathBuf> {
        let cluster = self.cluster.as_mut().ok_or_else(no_cluster)?;
        cluster.mount(&mut self.accounting)?;
        Ok(cluster.mountpoint().to_owned())
    }

    /// Unmounts the cluster, which empties all caches of the mount.
    pub fn unmount(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.unmount(&mut self.accounting);
        }
    }

    /// Where the trivial FUSE server is mounted. Starts it if necessary.
    pub fn fuse_mountpoint(&mut self) -> Done<PathBuf> {
        if self.fuse.is_none() {
            let mountpoint = self.dir.path().join("fuse");
            self.fuse = Some(FuseLimit::start(mountpoint, &mut self.accounting)?);
        }
        let fuse = self.fuse.as_ref().ok_or_else(|| Failure::other("no FUSE server"))?;
        Ok(fuse.mountpoint().to_owned())
    }

    /// Begins to prepare a run.
    pub fn job(&mut self) -> Job<'_> {
        Job { lab: self, prepared: Vec::new() }
    }

    /// Lets two workers work, kills a data server after some time, and starts it again when the
    /// workers have ended.
    pub fn kill_within(
        &mut self,
        orders: &[(usize, Order)],
        via: Via,
        after: Duration,
    ) -> Done<(Sample, Vec<Work>)> {
        let mut job = self.job();
        for (index, order) in orders {
            job.prepare((via.worker_group(), *index), order)?;
        }
        let done = job.run_and(via.groups(), 0, |lab| {
            std::thread::sleep(after);
            lab.cluster.as_mut().ok_or_else(no_cluster)?.kill_next()
        });
        self.workers.clear();
        let cluster = self.cluster.as_mut().ok_or_else(no_cluster)?;
        cluster.start_again(&mut self.accounting)?;
        done
    }

    /// Carries out an order without measuring it.
    pub fn once(&mut self, group: Group, order: &Order) -> Done {
        let mut job = self.job();
        job.prepare((group, 0), order)?;
        job.run(&[group], 0).map(drop)
    }

    fn data_pids(&self) -> &[u32] {
        self.cluster.as_ref().map_or(&[], Cluster::data_pids)
    }

    fn worker(&mut self, name: Name) -> Done<&mut WorkerProcess> {
        use std::collections::btree_map::Entry;
        match self.workers.entry(name) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                Ok(entry.insert(WorkerProcess::start(&mut self.accounting, name.0)?))
            }
        }
    }
}

fn no_cluster() -> Failure {
    Failure::other("there is no cluster")
}

impl Job<'_> {
    /// Lets a worker prepare an order; returns the port where it listens, if any.
    pub fn prepare(&mut self, name: Name, order: &Order) -> Done<Option<u16>> {
        self.prepared.push(name);
        self.lab.worker(name)?.prepare(order)
    }

    /// Runs the prepared orders. The CPU time of these groups counts. `fresh_bytes`: fresh memory
    /// that will be needed.
    pub fn run(self, groups: &[Group], fresh_bytes: u64) -> Done<(Sample, Vec<Work>)> {
        self.run_and(groups, fresh_bytes, |_| Ok(()))
    }

    /// As [`Job::run`], and runs a function meanwhile.
    fn run_and(
        mut self,
        groups: &[Group],
        fresh_bytes: u64,
        meanwhile: impl FnOnce(&mut Lab) -> Done,
    ) -> Done<(Sample, Vec<Work>)> {
        memory::warm(fresh_bytes);
        let disk_before = disk_read_bytes(self.lab.data_pids());
        let meters = Meters::read();
        let cpu_before = self.lab.accounting.snapshot();
        for name in self.prepared.clone() {
            self.lab.worker(name)?.go()?;
        }
        meanwhile(self.lab)?;
        let mut works = Vec::with_capacity(self.prepared.len());
        for name in self.prepared.clone() {
            works.push(self.lab.worker(name)?.finish()?);
        }
        self.prepared.clear();
        let cpu_after = self.lab.accounting.snapshot();
        let meters_after = Meters::read();
        let spent: BTreeMap<Group, f64> = cpu_after
            .iter()
            .map(|(group, after)| (*group, after - cpu_before.get(group).unwrap_or(&0.0)))
            .collect();
        let begin = works.iter().map(|w| w.begin_ns).min().unwrap_or(0);
        let end = works.iter().map(|w| w.end_ns).max().unwrap_or(0);
        let seconds = (end - begin) as f64 / 1e9;
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let others = meters_after.busy_s - meters.busy_s - spent.values().sum::<f64>();
        let sample = Sample {
            seconds,
            bytes: works.iter().map(|w| w.bytes).sum(),
            ops: works.iter().map(|w| w.ops).sum(),
            cpu_s: spent.into_iter().filter(|(group, _)| groups.contains(group)).collect(),
            others_share: (others / seconds / processors).max(0.0),
            loopback_bytes: meters_after.loopback_bytes - meters.loopback_bytes,
            disk_read_bytes: disk_read_bytes(self.lab.data_pids()).saturating_sub(disk_before),
            written_s: 0.0,
            longest_s: works.iter().map(|w| w.longest_ns as f64 / 1e9).collect(),
        };
        Ok((sample, works))
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        // Workers after a failed preparation are out of step, and are ended.
        for name in self.prepared.drain(..) {
            if let Some(worker) = self.lab.workers.remove(&name) {
                self.lab.accounting.forget(name.0, worker.pid());
            }
        }
    }
}
