//! The measured cluster: `weir up` with four data servers, and a mount.

use crate::accounting::{Accounting, Group};
use crate::failure::{Done, Failure};
use crate::stop;
use crate::worker_process::end;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_wire::Level;

/// Maximum time of `weir up`, `weir down` and mounting.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running cluster. Dropping it stops and deletes it.
#[derive(Debug)]
pub struct Cluster {
    weir: PathBuf,
    state: PathBuf,
    mountpoint: PathBuf,
    mount: Option<Child>,
    targets: usize,
    /// Number of metadata servers.
    metas: u32,
    data_pids: Vec<u32>,
    /// Number of the server that was killed last; 0: none.
    killed: usize,
}

impl Cluster {
    /// Starts a cluster with this many data servers below a directory, without a mount.
    pub fn start(
        weir: &Path,
        dir: &Path,
        targets: usize,
        accounting: &mut Accounting,
    ) -> Done<Self> {
        Self::start_with_metas(weir, dir, (targets, 1), accounting)
    }

    /// As [`Cluster::start`], with this many metadata servers.
    pub fn start_with_metas(
        weir: &Path,
        dir: &Path,
        (targets, metas): (usize, u32),
        accounting: &mut Accounting,
    ) -> Done<Self> {
        let mut cluster = Self {
            weir: weir.to_owned(),
            targets,
            metas,
            state: dir.join("cluster"),
            mountpoint: dir.join("mnt"),
            mount: None,
            data_pids: Vec::new(),
            killed: 0,
        };
        std::fs::create_dir(&cluster.mountpoint)
            .map_err(|e| Failure::file(&cluster.mountpoint, e))?;
        cluster.up(accounting)?;
        Ok(cluster)
    }

    fn up(&mut self, accounting: &mut Accounting) -> Done {
        let mut up = accounting.command(Group::Data, &self.weir)?;
        up.args(["up", "--name", "bench", "--targets", &self.targets.to_string(), "--dir"]);
        up.arg(&self.state);
        if self.metas > 1 {
            up.args(["--meta", &self.metas.to_string()]);
        }
        run(up, "weir up")?;
        self.find_pids(accounting)
    }

    /// Kills the next data server. A server that goes and comes often is kept offline for a while,
    /// so each is killed in turn.
    pub fn kill_next(&mut self) -> Done {
        self.killed = self.killed % self.targets + 1;
        self.kill(&format!("data-{}", self.killed))
    }

    /// Kills a daemon by its name.
    pub fn kill(&self, daemon: &str) -> Done {
        let path = self.state.join("run").join(format!("{daemon}.pid"));
        let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, e))?;
        let pid = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
        let pid = pid.and_then(Pid::from_raw).ok_or_else(|| Failure::other("no number"))?;
        kill_process(pid, Signal::KILL).map_err(|e| Failure::system("kill", e))
    }

    /// Changes settings of a daemon, and restarts everything.
    pub fn configure(
        &mut self,
        daemon: &str,
        settings: &[(&str, String)],
        accounting: &mut Accounting,
    ) -> Done {
        let mut down = Command::new(&self.weir);
        down.arg("down").arg("--dir").arg(&self.state);
        run(down, "weir down")?;
        let path = self.state.join(format!("{daemon}.toml"));
        let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, e))?;
        let is_set = |line: &&str| settings.iter().any(|(name, _)| line.starts_with(name));
        let others = text.lines().filter(|line| !is_set(line)).map(str::to_owned);
        let own = settings.iter().map(|(name, value)| format!("{name} = {value}"));
        // The changed settings come first: later lines may belong to a table.
        let text = own.chain(others).collect::<Vec<_>>().join("\n");
        std::fs::write(&path, text + "\n").map_err(|e| Failure::file(&path, e))?;
        self.start_again(accounting)
    }

    /// The output of `weir status` with all counters.
    pub fn status(&self) -> Done<serde_json::Value> {
        let mut command = Command::new(&self.weir);
        command.args(["status", "--json", "--counters", "--dir"]).arg(&self.state);
        let output = command.output().map_err(|e| Failure::system("weir status", e))?;
        serde_json::from_slice(&output.stdout)
            .map_err(|e| Failure::other(format!("weir status: {e}")))
    }

    /// Starts what is not running, and waits until all targets are up to date.
    pub fn start_again(&mut self, accounting: &mut Accounting) -> Done {
        for pid in std::mem::take(&mut self.data_pids) {
            accounting.forget(Group::Data, pid);
        }
        self.up(accounting)
    }

    fn find_pids(&mut self, accounting: &mut Accounting) -> Done {
        let run_dir = self.state.join("run");
        let files = std::fs::read_dir(&run_dir).map_err(|e| Failure::file(&run_dir, e))?;
        for path in files.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|e| e != "pid") {
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, e))?;
            let pid = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
            let pid: u32 = pid.ok_or_else(|| Failure::other("a pid file without a number"))?;
            let is_data =
                path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"data"));
            accounting.adopt(if is_data { Group::Data } else { Group::Meta }, pid)?;
            if is_data {
                self.data_pids.push(pid);
            }
        }
        if self.data_pids.len() != self.targets {
            let found = self.data_pids.len();
            return Err(Failure::other(format!("{found} data servers run, not {}", self.targets)));
        }
        Ok(())
    }

    /// The processes of the data servers.
    pub fn data_pids(&self) -> &[u32] {
        &self.data_pids
    }

    /// The configuration of a daemon.
    pub fn configuration(&self, daemon: &str) -> Done<toml::Table> {
        let path = self.state.join(format!("{daemon}.toml"));
        let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, e))?;
        text.parse().map_err(|e| Failure::other(format!("{}: {e}", path.display())))
    }

    /// The credential file.
    pub fn credential(&self) -> PathBuf {
        self.state.join("client.toml")
    }

    /// The credential file for sessions at a level of protection.
    pub fn credential_at(&self, level: Level) -> Done<PathBuf> {
        let usual = self.credential();
        if level == Level::Args {
            return Ok(usual);
        }
        let path = self.state.join(format!("client-{level}.toml"));
        if !path.exists() {
            // With the mode of the other one: it has the key.
            let copied = std::fs::copy(&usual, &path);
            let file = copied.and_then(|_| std::fs::File::options().append(true).open(&path));
            let line = format!("protection = \"{level}\"\n");
            file.and_then(|mut file| file.write_all(line.as_bytes()))
                .map_err(|e| Failure::file(&path, e))?;
        }
        Ok(path)
    }

    /// Where the cluster is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Makes a directory whose files have two copies, written with a protocol.
    pub fn make_mirrored(&self, dir: &str, protocol: &str) -> Done {
        let path = format!("weir:/{dir}");
        let layout = ["--copies", "2", "--duplication", protocol, &path];
        for (verb, rest) in [("mkdir", &layout[4..]), ("setlayout", &layout[..])] {
            let mut command = Command::new(&self.weir);
            command.arg(verb).arg("--dir").arg(&self.state).args(rest);
            run(command, &format!("weir {verb}"))?;
        }
        Ok(())
    }

    /// Sets the placement of copies in a directory.
    pub fn place(&self, dir: &str, placement: &str) -> Done {
        let mut command = Command::new(&self.weir);
        command.arg("setlayout").arg("--dir").arg(&self.state);
        command.args(["--copies", "2", "--placement", placement, &format!("weir:/{dir}")]);
        run(command, "weir setlayout")
    }

    /// Mounts the cluster, if it is not mounted.
    pub fn mount(&mut self, accounting: &mut Accounting) -> Done {
        self.mount_with("tcp", accounting)
    }

    /// As [`Cluster::mount`], with a metrics page of the mount.
    pub fn mount_counting(&mut self, accounting: &mut Accounting) -> Done {
        self.mount_with("tcp,metrics=127.0.0.1:0", accounting)
    }

    /// The metrics page of the mount.
    pub fn metrics_of_mount(&self) -> Done<String> {
        let status = self.status()?;
        let address = status["mount_daemons"][0]["metrics"].as_str();
        let address = address.ok_or_else(|| Failure::other("the mount shows no metrics"))?;
        let failed = |e| Failure::system("the metrics of the mount", e);
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").map_err(failed)?;
        let mut page = String::new();
        stream.read_to_string(&mut page).map_err(failed)?;
        Ok(page)
    }

    fn mount_with(&mut self, options: &str, accounting: &mut Accounting) -> Done {
        if self.mount.is_some() {
            return Ok(());
        }
        let mut command = accounting.command(Group::Mount, &self.weir)?;
        command.args(["mount", "--foreground", "-o", options, "--dir"]).arg(&self.state);
        command.arg(&self.mountpoint).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|e| Failure::system("weir mount", e))?;
        accounting.adopt(Group::Mount, child.id())?;
        let child = self.mount.insert(child);
        let mut ended = None;
        stop::wait_until("weir mount", PATIENCE, || {
            ended = child.try_wait().ok().flatten();
            ended.is_some() || is_mounted(&self.mountpoint)
        })?;
        match ended {
            Some(status) => Err(Failure::other(format!("weir mount: {status}"))),
            None => Ok(()),
        }
    }

    /// Unmounts the cluster, if it is mounted. All caches of the kernel and the mount are dropped
    /// then.
    pub fn unmount(&mut self, accounting: &mut Accounting) {
        if let Some(child) = self.mount.take() {
            accounting.forget(Group::Mount, child.id());
            unmount_and_end(&self.mountpoint, child);
        }
    }

    fn down(&mut self) {
        if let Some(child) = self.mount.take() {
            unmount_and_end(&self.mountpoint, child);
        }
        let mut down = Command::new(&self.weir);
        down.args(["down", "--purge", "--yes", "--force", "--dir"]).arg(&self.state);
        if let Err(failure) = run(down, "weir down") {
            eprintln!("weir-bench: {failure}; the cluster is in {}", self.state.display());
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.down();
    }
}

/// Runs a command to its end. A failure shows its output.
fn run(mut command: Command, what: &str) -> Done {
    // Into a file, because daemons that it starts may keep its standard error open.
    let said = tempfile::tempfile().map_err(|e| Failure::system("a temporary file", e))?;
    let copy = said.try_clone().map_err(|e| Failure::system("a temporary file", e))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(copy);
    let mut child = command.spawn().map_err(|e| Failure::system(what, e))?;
    let begin = std::time::Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| Failure::system(what, e))? {
            Some(status) => break status,
            None if begin.elapsed() > PATIENCE => {
                end(&mut child, Duration::ZERO);
                return Err(Failure::other(format!("{what}: not within {} s", PATIENCE.as_secs())));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut text = String::new();
    // Without its output, the exit status has to suffice.
    let _ = std::io::Seek::rewind(&mut &said)
        .and_then(|()| std::io::Read::read_to_string(&mut &said, &mut text));
    Err(Failure::other(format!("{what}: {status}\n{}", text.trim_end())))
}

/// Whether a file system is mounted exactly here.
pub fn is_mounted(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|at| Path::new(at) == dir))
}

/// Unmounts, and waits for the process that served the mount.
pub fn unmount_and_end(mountpoint: &Path, mut child: Child) {
    let busy = is_mounted(mountpoint)
        && unmount(mountpoint, UnmountFlags::empty()).is_err()
        && unmount(mountpoint, UnmountFlags::DETACH).is_err();
    if busy {
        eprintln!("weir-bench: {} cannot be unmounted", mountpoint.display());
    }
    end(&mut child, Duration::from_secs(10));
}
