//! The cluster that is measured, by the program `weir`.

use crate::bed::Guard;
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_testbed::{Disk, Network, Processor};

/// A cluster of one data server for each disk. Dropped, it is stopped and deleted.
pub struct Cluster {
    weir: PathBuf,
    state: PathBuf,
    /// The machines that it is on.
    pub bed: Option<Machines>,
}

/// Machines of a testbed.
pub struct Machines {
    /// Of each node, from the first on: who is started there has it; none: all that there is.
    pub processors: Vec<Processor>,
    pub guard: Guard,
    pub network: Network,
    /// The nodes that read, in turn.
    pub readers: Vec<u32>,
}

impl Machines {
    /// A program in the place of a reader.
    fn command(&self, reader: usize, program: &Path) -> Command {
        let node = self.readers[reader % self.readers.len()];
        let Some(processor) = self.processors.get(node as usize - 1) else {
            return self.network.command(node, program.as_os_str());
        };
        let mut command = self.network.command(node, "sh".as_ref());
        command.args(["-c", "echo 0 > \"$0\" && exec \"$@\""]).arg(processor.members());
        command.arg(program);
        command
    }

    /// A process is given what a reader's node has of a processor.
    pub fn take_in(&self, reader: usize, process: i32) -> Result<()> {
        let node = self.readers[reader % self.readers.len()];
        let processor = self.processors.get(node as usize - 1);
        processor.map_or(Ok(()), |processor| processor.add(process))
    }
}

impl Cluster {
    /// One that is there, on machines of a testbed. They go with it.
    pub fn on(weir: PathBuf, state: PathBuf, machines: Machines) -> Self {
        Self { weir, state, bed: Some(machines) }
    }

    /// Starts one with its state in a new directory, and its targets on the disks.
    pub fn start(weir: PathBuf, state: PathBuf, disks: &[Disk]) -> Result<Self> {
        let cluster = Self { weir, state, bed: None };
        let targets = disks.len().to_string();
        let up = ["up", "--targets", &targets, "--targets-per-server", "1"];
        cluster.weir(&up)?;
        cluster.weir(&["down"])?;
        for (n, disk) in disks.iter().enumerate() {
            let dir = cluster.state.join(format!("targets/{}", n + 1));
            let there = disk.path().join("target");
            said(Command::new("cp").arg("-a").args([&dir, &there]))?;
            fs::remove_dir_all(&dir)?;
            std::os::unix::fs::symlink(there, dir)?;
        }
        cluster.weir(&["up"])?;
        Ok(cluster)
    }

    /// The machines of its testbed.
    pub fn machines(&self) -> Result<&Machines> {
        self.bed.as_ref().ok_or_else(|| Error::other("no testbed"))
    }

    /// What `weir testbed status` says of its machines.
    pub fn bed_status(&self) -> Result<serde_json::Value> {
        crate::bed::status(&self.weir, self.machines()?.guard.dir())
    }

    /// What the link of its first machine carries each way in a second.
    pub fn link_rate(&self) -> Result<u64> {
        let status = self.bed_status()?;
        let rate = status["nodes"][0]["link"]["bytes_per_s"].as_u64();
        rate.ok_or_else(|| Error::other(format!("weir testbed status: {status}")))
    }

    /// The credential file of its administrator.
    pub fn credential(&self) -> PathBuf {
        self.state.join("client.toml")
    }

    /// Runs the program for this cluster; returns what it prints.
    pub fn weir(&self, arguments: &[&str]) -> Result<String> {
        self.weir_from(0, arguments)
    }

    /// The same, in the place of a reader.
    pub fn weir_from(&self, reader: usize, arguments: &[&str]) -> Result<String> {
        said(&mut self.command(reader, arguments)?)
    }

    /// The same, on a machine of such a name, which daemons that it starts have too.
    pub fn weir_on(&self, host: &str, arguments: &[&str]) -> Result<String> {
        said(&mut named(host, &self.command(0, arguments)?))
    }

    fn command(&self, reader: usize, arguments: &[&str]) -> Result<Command> {
        let mut command = match &self.bed {
            Some(machines) => machines.command(reader, &self.weir),
            None => Command::new(&self.weir),
        };
        // Behind a command of two words, as `target remove`.
        command.args(arguments).arg("--dir").arg(&self.state);
        // Nothing of the user's is used.
        let ours = std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            name.starts_with("WEIR_") && name != "WEIR_LOG"
        });
        ours.for_each(|(name, _)| _ = command.env_remove(name));
        Ok(command)
    }

    /// Makes an empty file by such a layout.
    pub fn make_file(&self, name: &str, layout: &[&str]) -> Result<()> {
        let path = format!("weir:/{name}");
        let words: Vec<&str> = ["mkfile"].iter().chain(layout).copied().chain([&*path]).collect();
        self.weir(&words).map(drop)
    }

    /// The first segment of a file, as `weir layout` has it.
    pub fn segment(&self, name: &str) -> Result<serde_json::Value> {
        let json = self.weir(&["layout", "--json", &format!("weir:/{name}")])?;
        let layout: serde_json::Value = serde_json::from_str(&json)?;
        Ok(layout[0]["segments"][0].clone())
    }

    /// On which disk each copy of a file's columns is, from 0: all copies of the first column,
    /// then those of the next, and so on through all segments.
    pub fn places(&self, name: &str) -> Result<Vec<usize>> {
        let json = self.weir(&["layout", "--json", &format!("weir:/{name}")])?;
        let layout: serde_json::Value = serde_json::from_str(&json)?;
        let place = |(segment, object): (usize, &serde_json::Value)| {
            let number = |what: &str| object[what].as_u64();
            let disk = number("target")?.checked_sub(1)?;
            Some((segment, number("column")?, number("copy")?, disk))
        };
        let all = || {
            let segments = layout[0]["segments"].as_array()?.iter().enumerate();
            let objects = segments.map(|(n, segment)| Some((n, segment["objects"].as_array()?)));
            let objects: Vec<_> = objects.collect::<Option<_>>()?;
            let each = objects.into_iter().flat_map(|(n, of)| of.iter().map(move |o| (n, o)));
            each.map(place).collect::<Option<Vec<_>>>()
        };
        let mut all = all().ok_or_else(|| Error::other(format!("weir layout: {json}")))?;
        all.sort_unstable();
        Ok(all.into_iter().map(|(.., disk)| disk as usize).collect())
    }

    /// Numbers of the data servers' processes.
    pub fn data_pids(&self, disks: usize) -> Result<Vec<i32>> {
        (1..=disks).map(|n| self.pid(&format!("data-{n}"))).collect()
    }

    /// Numbers of all servers' processes.
    pub fn pids(&self, disks: usize) -> Result<Vec<i32>> {
        let mut all = self.data_pids(disks)?;
        all.push(self.pid("meta")?);
        Ok(all)
    }

    fn pid(&self, daemon: &str) -> Result<i32> {
        let path = self.state.join(format!("run/{daemon}.pid"));
        let text = fs::read_to_string(&path)?;
        let pid = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
        pid.ok_or_else(|| Error::other(format!("{}: no number", path.display())))
    }

    /// Mounts it at a new directory, in the place of a reader.
    pub fn mount(&self, reader: usize, at: PathBuf, options: &str) -> Result<Mount> {
        fs::create_dir(&at)?;
        let path = at.to_str().ok_or_else(|| Error::other("a path that is not UTF-8"))?;
        match self.weir_from(reader, &["mount", path, "-o", options]) {
            Ok(_) => Ok(Mount { weir: self.weir.clone(), at }),
            Err(error) => {
                let _ = fs::remove_dir(&at);
                Err(error)
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // One of a testbed goes with its machines.
        if self.bed.is_some() {
            return;
        }
        if let Err(error) = self.weir(&["down", "--purge", "--yes", "--force"]) {
            eprintln!("weir-figures: {error}; the cluster is in {}", self.state.display());
        }
    }
}

/// Dropped, it is unmounted, and all that it and the kernel have of it in memory is gone.
pub struct Mount {
    weir: PathBuf,
    at: PathBuf,
}

impl Mount {
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // `weir umount` returns when the process has ended.
        if said(Command::new(&self.weir).arg("umount").arg(&self.at)).is_err() {
            let _ = unmount(&self.at, UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir(&self.at);
    }
}

/// A command on a machine of such a name. The number of the process stays.
pub fn named(host: &str, inner: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", host]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Runs a command to its end; returns what it prints.
pub fn said(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Err(Error::other(format!("{command:?}: {}: {why}", output.status)))
}
