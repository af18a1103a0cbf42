//! A cluster of real processes in a temporary directory, which is gone when
//! the test ends, even by a panic.

mod stopped;

pub use stopped::{Stopped, state};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The program under test.
pub const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// A place for clusters, with a home of its own: nothing of the user's is read.
pub struct Place {
    dir: TempDir,
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Self {
        // Short, because the paths of Unix sockets have to be.
        Self { dir: tempfile::Builder::new().prefix("weir-t").tempdir_in("/tmp").unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program, with an environment of its own.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(WEIR);
        command.args(arguments);
        self.prepare(&mut command);
        command
    }

    /// Gives a command an environment of its own.
    pub fn prepare(&self, command: &mut Command) {
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("WEIR_") && name != "WEIR_LOG" {
                command.env_remove(name);
            }
        }
        let home = self.dir.path();
        command
            .env("HOME", home)
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_CONFIG_HOME", home.join("config"));
    }

    /// Runs the program to its end.
    pub fn weir<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Said {
        said(self.command(arguments))
    }

    /// Makes a cluster with `--name NAME` and some more arguments.
    pub fn up(&self, name: &str, more: &[&str]) -> Cluster<'_> {
        let cluster = self.cluster(name);
        let address = self.address().to_string();
        let mut arguments = vec!["up", "--name", name];
        if !more.contains(&"--listen") {
            arguments.extend(["--listen", &address]);
        }
        arguments.extend(more);
        self.weir(&arguments).ok();
        cluster
    }

    /// A loopback address of this place's own: while a test has stopped one of
    /// its servers, no cluster of another test can take the port.
    pub fn address(&self) -> Ipv4Addr {
        let mut hasher = DefaultHasher::new();
        self.dir.path().hash(&mut hasher);
        let [_, a, b, c, ..] = hasher.finish().to_le_bytes();
        Ipv4Addr::new(127, a, b, c.clamp(1, 254))
    }

    /// A cluster that a test makes by itself; it too is gone in the end.
    pub fn cluster(&self, name: &str) -> Cluster<'_> {
        Cluster { place: self, name: name.to_owned() }
    }
}

/// One cluster of a [`Place`].
pub struct Cluster<'a> {
    pub place: &'a Place,
    pub name: String,
}

impl Cluster<'_> {
    /// Its state directory.
    pub fn dir(&self) -> PathBuf {
        self.place.path("state/weir").join(&self.name)
    }

    /// Runs the program for this cluster.
    pub fn weir<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Said {
        said(self.command(arguments))
    }

    /// The program, for this cluster.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = self.place.command(arguments);
        command.env("WEIR_CLUSTER", &self.name);
        command
    }

    /// `weir up` starts this data server no more: its machine is gone.
    pub fn forget(&self, server: i64) {
        let path = self.dir().join("cluster.toml");
        let mut text: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        let servers = text["server"].as_array_mut().unwrap();
        servers.retain(|entry| entry["id"].as_integer() != Some(server));
        std::fs::write(path, text.to_string()).unwrap();
    }

    /// Changes settings of its metadata server, and restarts it.
    pub fn set_meta(&self, values: &[(&str, u64)]) {
        let path = self.dir().join("meta.toml");
        let mut settings: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        for (name, value) in values {
            settings.insert((*name).into(), toml::Value::Integer(*value as i64));
        }
        std::fs::write(&path, settings.to_string()).unwrap();
        self.kill("meta");
        self.place.weir(&["up", "--name", &self.name]).ok();
    }

    /// Mounts it (once more), with options.
    pub fn mount(&self, name: &str, options: &str) -> PathBuf {
        let at = self.place.path(name);
        std::fs::create_dir(&at).unwrap();
        self.weir(&["mount", at.to_str().unwrap(), "-o", options]).ok();
        at
    }

    /// `weir umount`. See [`Said::is_busy`].
    #[track_caller]
    pub fn umount(&self, at: impl AsRef<OsStr>) -> String {
        self.unless_busy(&["umount".as_ref(), at.as_ref()])
    }

    /// `weir down` of a cluster that is mounted. See [`Said::is_busy`].
    #[track_caller]
    pub fn down(&self, more: &[&str]) -> String {
        self.unless_busy(&[&["down"], more].concat())
    }

    #[track_caller]
    fn unless_busy<S: AsRef<OsStr>>(&self, arguments: &[S]) -> String {
        let mut said = self.weir(arguments);
        eventually("nobody uses the mount", || {
            if said.is_busy() {
                said = self.weir(arguments);
            }
            !said.is_busy()
        });
        said.ok()
    }

    /// Number of the process of a mount.
    pub fn mount_pid(&self, at: &Path) -> i32 {
        let name = at.canonicalize().unwrap();
        let crc = weir_types::checksum::crc32c(name.as_os_str().as_encoded_bytes());
        self.pid(&format!("mount-{crc:08x}"))
    }

    /// How many threads of this name the process of a mount has.
    pub fn threads_of_mount(&self, at: &Path, name: &str) -> usize {
        let threads = format!("/proc/{}/task", self.mount_pid(at));
        let named = |thread: &std::fs::DirEntry| {
            std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|is| is.trim() == name)
        };
        std::fs::read_dir(threads).unwrap().flatten().filter(named).count()
    }

    /// Numbers of the processes that its pid files name, if they are ours.
    pub fn pids(&self) -> Vec<i32> {
        let Ok(files) = std::fs::read_dir(self.dir().join("run")) else { return Vec::new() };
        files
            .flatten()
            .filter(|f| f.path().extension() == Some(OsStr::new("pid")))
            .filter_map(|f| pid_in(&f.path()))
            .collect()
    }

    /// Number of the process of one daemon.
    pub fn pid(&self, daemon: &str) -> i32 {
        pid_in(&self.dir().join("run").join(format!("{daemon}.pid")))
            .unwrap_or_else(|| panic!("{daemon} does not run"))
    }

    /// Whether a daemon runs.
    pub fn runs(&self, daemon: &str) -> bool {
        pid_in(&self.dir().join("run").join(format!("{daemon}.pid"))).is_some()
    }

    /// Stops daemons until what it returns is gone.
    pub fn stopped(&self, daemons: &[&str]) -> Stopped {
        Stopped::these(daemons.iter().map(|daemon| self.pid(daemon)))
    }

    /// The name of the daemon of its only mount.
    pub fn mount_daemon(&self) -> String {
        let run = std::fs::read_dir(self.dir().join("run")).unwrap().flatten();
        let mut names = run.map(|f| f.file_name().to_string_lossy().into_owned());
        let found = names.find(|n| n.starts_with("mount-") && n.ends_with(".pid")).unwrap();
        found.trim_end_matches(".pid").to_owned()
    }

    /// SIGKILL to one daemon; returns when it is gone.
    pub fn kill(&self, daemon: &str) {
        let pid = self.pid(daemon);
        kill_and_wait(pid);
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let pids = self.pids();
        let _ = self.place.weir(&["down", "--name", &self.name, "--force", "--purge", "--yes"]);
        // Whatever went wrong with that: nothing of this test stays behind.
        let ours = self.place.dir.path().to_owned();
        for line in std::fs::read_to_string("/proc/self/mounts").unwrap_or_default().lines() {
            let mut words = line.split(' ').skip(1);
            let (at, kind) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            if kind == "fuse.weir" && Path::new(at).starts_with(&ours) {
                let _ = Command::new("umount").arg("-l").arg(at).status();
            }
        }
        for pid in pids.into_iter().filter(|pid| is_ours(*pid)) {
            kill_and_wait(pid);
        }
    }
}

/// A process that is gone when the test ends, whatever comes of it.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pid_in(file: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(file).ok()?;
    let pid = text.split_whitespace().next()?.parse().ok()?;
    is_ours(pid).then_some(pid)
}

/// Whether a living process runs the program under test, or etcd.
pub fn is_ours(pid: i32) -> bool {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    exe.is_ok_and(|exe| exe == Path::new(WEIR) || exe.file_name() == Some(OsStr::new("etcd")))
}

/// SIGKILL to one of our processes; returns when it is gone, with all that it had open: its
/// memory, with which `is_ours` goes, is given back before its files are closed. (Threads of
/// a mount may wait in the kernel for one of its pages until somebody ends the connection:
/// those are waited for a little only.)
pub fn kill_and_wait(pid: i32) {
    let Some(process) = rustix::process::Pid::from_raw(pid) else { return };
    let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return };
    let _ = pidfd_send_signal(&handle, Signal::KILL);
    let closed = Timespec { tv_sec: 5, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&closed));
    eventually("the process is gone", || !is_ours(pid));
}

/// Less than a call waits for a server that does not answer (30 s): what has taken less has waited
/// for none, however busy the machine is.
pub const SOON: Duration = Duration::from_secs(25);

/// Waits, not for ever, until something is so.
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    eventually_within(Duration::from_secs(60), what, is_so);
}

/// As [`eventually`], for what takes longer.
pub fn eventually_within(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As [`eventually`], for what says why it is not so yet.
pub fn eventually_ok<E: std::fmt::Debug>(what: &str, mut is_so: impl FnMut() -> Result<(), E>) {
    let begin = Instant::now();
    while let Err(why) = is_so() {
        let patience = Duration::from_secs(60);
        assert!(begin.elapsed() < patience, "not within {patience:?}: {what}: {why:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// This program once more, for one of its tests: a process of its own.
pub fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command
}

/// Runs a command to its end.
pub fn said(mut command: Command) -> Said {
    let Output { status, stdout, stderr } = command.output().unwrap();
    Said {
        code: status.code(),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

impl Said {
    /// It succeeded; what it printed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// It failed with exit code 1 and a message that has all of these words.
    #[track_caller]
    pub fn fails(self, words: &[&str]) -> String {
        assert_eq!(self.code, Some(1), "stdout: {}\nstderr: {}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in: {}", self.err);
        }
        self.err
    }

    /// Somebody uses the mount. That may be a program that another test of this process has just
    /// started: until it begins it has open what this process had, and has closed since.
    pub fn is_busy(&self) -> bool {
        self.code == Some(1) && self.err.contains("busy: ")
    }

    /// It printed JSON.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).unwrap()
    }
}

/// Bytes without a pattern that a stripe could hide, the same for equal seeds.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Whether this test may do what only root may; says so if not.
pub fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not root: this test checks nothing");
    }
    root
}

/// Whether the kernel is of this version or a later one.
pub fn kernel_is(version: (u32, u32)) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap());
    let is = (numbers.next().unwrap(), numbers.next().unwrap()) >= version;
    if !is {
        println!("skipped: needs Linux {}.{}, this is {release}", version.0, version.1);
    }
    is
}

/// Fails unless `diff -r` finds no difference.
#[track_caller]
pub fn same_trees(a: &Path, b: &Path) {
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference"]).arg(a).arg(b);
    let said = said(diff);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
}
