//! A cluster of real processes, each on a machine of its own: network namespaces,
//! small disks for the targets, and two machines that mount it. Everything is gone
//! when a [`Lab`] is dropped.

mod disk;
mod faults;
mod network;
mod objects;

pub use disk::{Disk, Failure};
pub use faults::{Fault, KINDS};
pub use network::Network;

use network::through;

use crate::harness::{Place, said};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const META: &str = "meta";
pub const SERVERS: [&str; 4] = ["data-1", "data-2", "data-3", "data-4"];
pub const CLIENTS: [&str; 2] = ["client-1", "client-2"];
const MACHINES: [&str; 7] =
    [META, SERVERS[0], SERVERS[1], SERVERS[2], SERVERS[3], CLIENTS[0], CLIENTS[1]];
const PORT: u16 = 7700;
/// A server is missed after this time.
pub const DETECTION: Duration = Duration::from_secs(3);
/// The time between heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(DETECTION.as_millis() as u64 / 6);
/// For so long a server goes on to report one that it could not reach: `KEPT` of
/// `dataserver/src/standing/unreachable.rs`, which is private there.
const KEPT: Duration = Duration::from_millis(3_500);
/// After this time nobody is left out any more because of an earlier cut: the last report has come,
/// and what follows from it is known.
const SUSPICION: Duration = KEPT.saturating_add(HEARTBEAT).saturating_add(HEARTBEAT);
/// How long a mount's call waits for a server that is away.
pub const TIMEOUT: Duration = Duration::from_secs(60);

struct Daemon {
    name: &'static str,
    process: Child,
}

/// The cluster, its machines and its mounts.
pub struct Lab<'a> {
    place: &'a Place,
    dir: PathBuf,
    daemons: Vec<Daemon>,
    mounts: Vec<PathBuf>,
    disks: Vec<Disk>,
    pub network: Network,
}

/// Rewrites a configuration with other values.
fn edit(path: &Path, change: impl FnOnce(&mut toml::Table)) {
    let mut table: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    change(&mut table);
    fs::write(path, toml::to_string(&table).unwrap()).unwrap();
}

impl<'a> Lab<'a> {
    /// Nothing, and a word about it, where this machine does not have what it takes.
    /// Who asks for a number of cycles is told by a failure.
    pub fn new(place: &'a Place) -> Option<Self> {
        let lab = Self::possible(place);
        let asked = std::env::var_os("WEIR_KILL_CYCLES").is_some();
        assert!(lab.is_some() || !asked, "cycles were asked for, and are not possible here");
        lab
    }

    fn possible(place: &'a Place) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let Some(network) = Network::new(&MACHINES) else {
            eprintln!("skipped: needs network namespaces, bridges and iptables");
            return None;
        };
        let dir = place.path("lab");
        let dir_text = dir.to_str().unwrap();
        place.weir(&["up", "--dir", dir_text, "--targets", "4"]).ok();
        place.weir(&["down", "--dir", dir_text]).ok();
        let mut lab = Self {
            place,
            dir,
            daemons: Vec::new(),
            mounts: Vec::new(),
            disks: Vec::new(),
            network,
        };
        for number in 1..=SERVERS.len() {
            let image = place.path(&format!("disk-{number}"));
            let Some(disk) = Disk::new(image, lab.dir.join(format!("targets/{number}"))) else {
                eprintln!("skipped: needs mkfs.ext4 and loop devices");
                return None;
            };
            lab.disks.push(disk);
        }
        lab.configure();
        lab.start(META);
        SERVERS.iter().for_each(|server| lab.start(server));
        lab.all_online(Duration::from_secs(30));
        CLIENTS.iter().for_each(|client| lab.mount(client));
        Some(lab)
    }

    /// Every daemon on its machine: there are no sockets but those of the network.
    fn configure(&self) {
        let address = |name: &str| format!("{}:{PORT}", self.network.machine(name).address);
        let metadata = toml::Value::from(vec![address(META)]);
        edit(&self.dir.join("meta.toml"), |meta| {
            meta.insert("listen".into(), metadata.clone());
            let timeout = DETECTION.as_millis() as i64;
            meta.insert("target_timeout_ms".into(), timeout.into());
            meta.insert("heartbeat_ms".into(), (HEARTBEAT.as_millis() as i64).into());
        });
        for server in SERVERS {
            edit(&self.dir.join(format!("{server}.toml")), |data| {
                data.insert("listen".into(), address(server).into());
                data.insert("metadata".into(), metadata.clone());
                data.remove("unix");
            });
        }
        edit(&self.dir.join("client.toml"), |client| {
            client.insert("metadata".into(), metadata.clone());
        });
    }

    /// Starts a daemon that does not run.
    pub fn start(&mut self, name: &'static str) {
        let command = self.daemon(name);
        self.spawn(name, &command);
    }

    /// The same, where the clock since the start of the machine shows so much more.
    pub fn start_ahead(&mut self, name: &'static str, seconds: u64) {
        let mut ahead = Command::new("unshare");
        ahead.args(["--time", &format!("--boottime={seconds}"), &format!("--monotonic={seconds}")]);
        let command = through(ahead, &self.daemon(name));
        self.spawn(name, &command);
    }

    /// The same, where every clock runs so much faster (or slower) than elsewhere.
    pub fn start_at_rate(&mut self, name: &'static str, rate: f64) {
        let library = self.place.path("clock.so");
        if !library.exists() {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kill_lab/clock.c");
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
                .args([&library, &source]);
            said(cc).ok();
        }
        let mut command = self.daemon(name);
        command.env("LD_PRELOAD", library).env("CLOCK_RATE", rate.to_string());
        self.spawn(name, &command);
    }

    fn daemon(&self, name: &str) -> Command {
        let config = self.dir.join(format!("{name}.toml"));
        let kind = if name == META { "meta" } else { "data" };
        let mut command = self.place.command(&[kind, "--config", config.to_str().unwrap()]);
        if let Some(level) = std::env::var_os("WEIR_LOG") {
            command.env("WEIR_LOG", level);
        }
        command
    }

    fn spawn(&mut self, name: &'static str, command: &Command) {
        let log = File::options().create(true).append(true).open(self.log_file(name)).unwrap();
        let mut command = self.network.machine(name).command(command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().unwrap();
        self.daemons.push(Daemon { name, process });
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(&mut self, name: &str) {
        let at = self.daemons.iter().position(|daemon| daemon.name == name).unwrap();
        let mut daemon = self.daemons.swap_remove(at);
        daemon.process.kill().unwrap();
        daemon.process.wait().unwrap();
    }

    /// A daemon that has ended by itself: an error of this test.
    pub fn check_daemons(&mut self) {
        for daemon in &mut self.daemons {
            let ended = daemon.process.try_wait().unwrap();
            assert_eq!(ended, None, "{} has ended by itself", daemon.name);
        }
    }

    pub fn signal(&self, name: &str, signal: Signal) {
        let daemon = self.daemons.iter().find(|daemon| daemon.name == name).unwrap();
        kill_process(Pid::from_child(&daemon.process), signal).unwrap();
    }

    /// The disk of a data server's target.
    pub fn disk(&self, server: &str) -> &Disk {
        &self.disks[SERVERS.iter().position(|name| *name == server).unwrap()]
    }

    pub fn log_file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("log/{name}.log"))
    }

    /// The program, on the machine of the first client.
    pub fn weir(&self, arguments: &[&str]) -> Command {
        self.weir_on(CLIENTS[0], arguments)
    }

    fn weir_on(&self, machine: &str, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command.env("WEIR_DIR", &self.dir);
        self.network.machine(machine).command(&command)
    }

    /// Also where the process of a former mount has died.
    fn mount(&mut self, client: &str) {
        let at = self.place.path(client);
        if !self.mounts.contains(&at) {
            fs::create_dir(&at).unwrap();
            self.mounts.push(at.clone());
        }
        let timeout = format!("tcp,timeout={}", TIMEOUT.as_secs());
        said(self.weir_on(client, &["mount", at.to_str().unwrap(), "-o", &timeout])).ok();
    }

    /// SIGKILL for the process of a mount.
    fn kill_mount(&mut self, client: &str) {
        let at = self.place.path(client);
        let at = at.to_str().unwrap();
        let is_its = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == at.as_bytes())
        };
        let pid = self.recorded_pids().into_iter().find(is_its).unwrap();
        crate::harness::kill_and_wait(pid);
    }

    /// Processes that have files of their numbers.
    fn recorded_pids(&self) -> Vec<i32> {
        let run = fs::read_dir(self.dir.join("run")).into_iter().flatten().flatten();
        let files = run.filter(|f| f.path().extension().is_some_and(|e| e == "pid"));
        let pid = |file: fs::DirEntry| {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            text.split_whitespace().next().and_then(|word| word.parse().ok())
        };
        files.filter_map(pid).collect()
    }

    /// Where it is mounted, by each client.
    pub fn mounts(&self) -> &[PathBuf] {
        &self.mounts
    }

    /// The states of all targets, and how long ago each was heard of.
    fn states(&self) -> Result<Vec<(String, Duration)>, String> {
        let said = said(self.weir(&["targets", "--json"]));
        let targets = match said.code {
            Some(0) => serde_json::from_str::<Vec<serde_json::Value>>(&said.out).unwrap(),
            _ => return Err(said.err),
        };
        let state = |target: &serde_json::Value| {
            let heard = Duration::from_millis(target["heard_ms_ago"].as_u64().unwrap());
            (target["state"].as_str().unwrap().to_owned(), heard)
        };
        Ok(targets.iter().map(state).collect())
    }

    /// Waits until all targets are online, and have been heard of since this was called;
    /// how long that took.
    pub fn all_online(&mut self, within: Duration) -> Duration {
        self.online_for(Duration::ZERO, within)
    }

    /// Waits until nobody can lose its place any more for what was before: a server reports one that
    /// it could not reach for a while after it could. Until then the targets there may be left out,
    /// and files have a copy less.
    pub fn all_stay_online(&mut self, within: Duration) -> Duration {
        self.online_for(SUSPICION, within)
    }

    fn online_for(&mut self, time: Duration, within: Duration) -> Duration {
        let begin = Instant::now();
        let mut online_since = None;
        loop {
            let since = begin.elapsed();
            let states = self.states();
            let are_online = states.as_ref().is_ok_and(|states| {
                let is_online =
                    |(state, heard): &(String, Duration)| state == "online" && *heard < since;
                states.len() == SERVERS.len() && states.iter().all(is_online)
            });
            online_since = are_online.then(|| online_since.unwrap_or(since));
            if online_since.is_some_and(|online| since - online >= time) {
                return begin.elapsed();
            }
            assert!(begin.elapsed() < within, "not all online within {within:?}: {states:?}");
            self.check_daemons();
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until all copies of every object have the same contents. Nobody may write.
    pub fn all_the_same(&self) {
        let targets: Vec<PathBuf> =
            (1..=SERVERS.len()).map(|n| self.dir.join(format!("targets/{n}"))).collect();
        let mut differ = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            differ = objects::differing(&targets);
            if differ.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        panic!("copies differ while all targets are online: {differ:#?}");
    }

    /// Waits until names, files and objects belong together, as `weir fsck` has it, no copy
    /// lacks anything, and all checksums are right. Nobody may write. What is not in a
    /// directory of these may be lost.
    pub fn belongs_together(&self, safe: &[&str]) {
        let begin = Instant::now();
        let is_safe = |problem: &serde_json::Value| match problem["path"].as_str() {
            Some(path) => safe.iter().any(|name| path.starts_with(&format!("/{name}/"))),
            // A change that was under way when its file was removed may leave one: a leak.
            None => problem["kind"] != "orphan-object",
        };
        loop {
            let said = said(self.weir(&["fsck", "--json"]));
            let report: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
            let all = report["problems"].as_array().cloned().unwrap_or_default();
            let wrong: Vec<_> = all.iter().filter(|problem| is_safe(problem)).collect();
            let looked = report["not_checked"].as_array().is_some_and(Vec::is_empty);
            if wrong.is_empty() && looked {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "fsck: {wrong:#?}\n{said:?}");
            std::thread::sleep(Duration::from_millis(500));
        }
        said(self.weir(&["scrub", "--quiet"])).ok();
    }

    /// What a reader of a failure wants to have: everything that was logged.
    pub fn keep_logs(&self) {
        let kept = PathBuf::from(format!("/tmp/weir-kills-{}", std::process::id()));
        let _ = Command::new("cp").arg("-r").arg(self.dir.join("log")).arg(&kept).status();
        eprintln!("logs are kept in {}", kept.display());
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
        }
        // By force, which ends every call that waits: whoever makes one can be killed then.
        for at in &self.mounts {
            let _ = Command::new("umount").arg("-f").arg(at).output();
        }
        for daemon in &mut self.daemons {
            let _ = daemon.process.kill();
            let _ = daemon.process.wait();
        }
        for at in &self.mounts {
            let _ = Command::new("umount").arg("-l").arg(at).output();
        }
        for pid in self.recorded_pids().into_iter().filter(|pid| crate::harness::is_ours(*pid)) {
            crate::harness::kill_and_wait(pid);
        }
        self.disks.clear();
    }
}
