//! One search of a whole file by all nodes: how long it took, what disks and links gave, and what
//! processors did.

use crate::cluster::Mount;
use crate::hdfs::hadoop::Hadoop;
use crate::hdfs::nodes::{busy_seconds, command, cpu_seconds};
use crate::hdfs::process;
use crate::hdfs::readers::Readers;
use crate::hdfs::text::NEEDLE;
use crate::lab::Lab;
use serde_json::Value;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{Error, Result};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_testbed::{Counts, Disk, LinkCounts, forget};

const ENDS_WITHIN: Duration = Duration::from_secs(300);
/// The disks have nothing to do any more when they have done nothing for so long.
const RESTED: Duration = Duration::from_millis(1_200);
/// Bytes of searches that are not measured, at least: one search or more.
const WARM_UP_BYTES: u64 = 1 << 30;
/// Each is a job of its own.
static SCANS: AtomicU32 = AtomicU32::new(0);

/// Who reads, and what it knows of where the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Equal shares of a file on a mount, with these options and in calls of so many bytes.
    Mount { options: &'static str, call_bytes: u64 },
    /// Processes of a cluster, by `--read`.
    Cluster { way: &'static str },
    /// Those of HDFS.
    Hdfs,
    /// The same program as for HDFS, on the cluster through the jar.
    Jar,
}

/// What came of a search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scanned {
    /// Until the last node had ended.
    pub seconds: f64,
    pub bytes: u64,
    /// Lines with the text.
    pub lines: u64,
    /// What the disks gave, by the kernel's count.
    pub disk_bytes: u64,
    /// What all links carried to nodes, by the kernel's count.
    pub link_bytes: u64,
    /// Seconds of processor time of the processes that searched,
    pub readers_cpu: f64,
    /// of the servers,
    pub servers_cpu: f64,
    /// and of all that went on, with the kernel's work for disks, links and mounts.
    pub machine_cpu: f64,
}

/// Everything that searches.
pub struct Machines<'a> {
    pub lab: &'a Lab,
    pub hadoop: &'a Hadoop,
    pub readers: Readers,
    /// `None`: there is no jar.
    pub jar: Option<Readers>,
}

impl Machines<'_> {
    /// Searches a file by all nodes together, when nothing of it is in memory.
    pub fn scan(&mut self, reader: Reader, file: &str, chunk_bytes: u64) -> Result<Scanned> {
        let lab = self.lab;
        let nodes = lab.disks.len();
        lab.disks.iter().try_for_each(|disk| forget(disk.path()))?;
        lab.settle(RESTED)?;
        lab.disks.iter().try_for_each(|disk| forget(disk.path()))?;
        let number = SCANS.fetch_add(1, Relaxed);
        // What processes tell each other beside the cluster.
        let work = lab.place(&format!("work{number}"));
        fs::create_dir(&work)?;
        let scanned = match reader {
            Reader::Mount { options, call_bytes } => {
                let mount = |n| lab.cluster.mount(n, lab.place(&format!("m{number}-{n}")), options);
                let mounts = (0..nodes).map(mount).collect::<Result<Vec<Mount>>>()?;
                let grep = |(node, mount): (u32, &Mount)| {
                    let path = mount.path().join(file);
                    let mut grep = self.weir_grep(node, number, path.as_os_str(), call_bytes)?;
                    grep.arg("--work").arg(&work);
                    Ok(grep)
                };
                let commands = (1..).zip(&mounts).map(grep).collect::<Result<Vec<_>>>()?;
                measure(lab, &lab.cluster.pids(nodes)?, || all(commands))?
            }
            Reader::Cluster { way } => {
                let path = format!("weir:/{file}");
                let grep = |node| {
                    let mut grep = self.weir_grep(node, number, OsStr::new(&path), chunk_bytes)?;
                    grep.args(["--read", way]).env("WEIR_CREDENTIAL", lab.cluster.credential());
                    Ok(grep)
                };
                let commands = (1..=nodes as u32).map(grep).collect::<Result<Vec<_>>>()?;
                measure(lab, &lab.cluster.pids(nodes)?, || all(commands))?
            }
            Reader::Hdfs => self.measure_hdfs(file, &work)?,
            Reader::Jar => self.measure_jar(file, &work)?,
        };
        fs::remove_dir_all(&work)?;
        Ok(scanned)
    }

    /// Has the JVMs search a file, before any of them is measured: afterwards their code is compiled.
    pub fn warm_up(&mut self, file: &str, bytes: u64) -> Result<()> {
        for _ in 0..WARM_UP_BYTES.div_ceil(bytes) {
            let work = self.lab.place("warm");
            fs::create_dir(&work)?;
            self.readers.search(file, &work, ENDS_WITHIN)?;
            if let Some(jar) = &mut self.jar {
                let work = self.lab.place("warm-jar");
                fs::create_dir(&work)?;
                jar.search(file, &work, ENDS_WITHIN)?;
                fs::remove_dir_all(&work)?;
            }
            fs::remove_dir_all(&work)?;
        }
        Ok(())
    }

    fn weir_grep(&self, node: u32, number: u32, file: &OsStr, block_bytes: u64) -> Result<Command> {
        let bed = self.lab.cluster.bed.as_ref().ok_or_else(|| Error::other("no testbed"))?;
        let program = env::current_exe()?.with_file_name("weir-grep");
        let mut grep = command(&bed.network, node, program.as_os_str());
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            if ["WEIR_", "OMPI_", "PMI", "SLURM_"].iter().any(|prefix| name.starts_with(prefix)) {
                grep.env_remove(&*name);
            }
        }
        grep.env("WEIR_JOB", format!("scan{}-{number}", std::process::id()));
        grep.env("WEIR_RANK", (node - 1).to_string());
        grep.env("WEIR_RANKS", self.lab.disks.len().to_string());
        grep.args(["--count", "--json", "--block", &block_bytes.to_string(), NEEDLE]).arg(file);
        Ok(grep)
    }

    fn measure_hdfs(&mut self, file: &str, claims: &Path) -> Result<Scanned> {
        let Self { lab, hadoop, readers, .. } = self;
        measure(lab, &hadoop.pids(), || {
            let said = readers.search(file, claims, ENDS_WITHIN)?;
            said.iter().map(|said| told(said)).collect()
        })
    }

    fn measure_jar(&mut self, file: &str, claims: &Path) -> Result<Scanned> {
        let jar = self.jar.as_mut().ok_or_else(|| Error::other("no jar"))?;
        measure(self.lab, &self.lab.cluster.pids(self.lab.disks.len())?, || {
            let said = jar.search(file, claims, ENDS_WITHIN)?;
            said.iter().map(|said| told(said)).collect()
        })
    }
}

fn counts(lab: &Lab) -> Result<(Vec<Counts>, Vec<LinkCounts>)> {
    let disks = lab.disks.iter().map(Disk::counts).collect::<Result<_>>()?;
    Ok((disks, lab.links()?))
}

/// Does the work, and counts what happens meanwhile.
fn measure(
    lab: &Lab,
    servers: &[i32],
    work: impl FnOnce() -> Result<Vec<Value>>,
) -> Result<Scanned> {
    let (disks, links) = counts(lab)?;
    let (servers_cpu, busy) = (cpu_seconds(servers)?, busy_seconds()?);
    let begin = Instant::now();
    let told = work()?;
    let seconds = begin.elapsed().as_secs_f64();
    let (machine_cpu, servers_cpu) = (busy_seconds()? - busy, cpu_seconds(servers)? - servers_cpu);
    let (disks_after, links_after) = counts(lab)?;
    let disk = disks_after.iter().zip(&disks).map(|(a, b)| a.read_bytes - b.read_bytes);
    let link = links_after.iter().zip(&links).map(|(a, b)| a.since(*b).in_bytes);
    let sum = |key: &str| told.iter().filter_map(|one| one[key].as_u64()).sum();
    let scanned = Scanned {
        seconds,
        bytes: sum("input_bytes"),
        lines: sum("lines"),
        disk_bytes: disk.sum(),
        link_bytes: link.sum(),
        readers_cpu: told.iter().filter_map(|one| one["cpu_seconds"].as_f64()).sum(),
        servers_cpu,
        machine_cpu,
    };
    if scanned.disk_bytes < scanned.bytes {
        let Scanned { disk_bytes, bytes, .. } = scanned;
        let what = format!("not cold: the disks gave {disk_bytes} bytes, {bytes} were read");
        return Err(Error::other(what));
    }
    Ok(scanned)
}

/// Runs them to their end.
fn all(commands: Vec<Command>) -> Result<Vec<Value>> {
    let start = |mut command: Command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
    };
    let children = commands.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    process::end(children, ENDS_WITHIN)?.iter().map(|said| told(said)).collect()
}

/// The line of JSON that a process says in the end.
fn told(said: &str) -> Result<Value> {
    let line = said.lines().find(|line| line.starts_with('{'));
    Ok(serde_json::from_str(line.ok_or_else(|| Error::other(format!("not understood: {said}")))?)?)
}
