//! The server processes of the benchmark.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weir_dataserver::{DataServerConfig, TargetConfig};
use weir_store::{Target, TargetIdentity};
use weir_types::{KeyGeneration, ServerId, TargetId};
use weir_wire::Key;
use weir_wire::key::MasterKey;

pub const SERVERS: usize = 4;
pub const UNIT_BYTES: u64 = 64 << 10;
/// What one call reads.
pub const STRIPE_BYTES: u64 = 1 << 20;

pub struct Options {
    pub dir: PathBuf,
    pub unix: bool,
    pub ahead: u64,
    pub passes: usize,
    pub mib: u64,
    /// `read`, `write` or `random`; empty: all.
    pub only: String,
}

impl Options {
    pub fn parse(args: &[String]) -> Self {
        let mut options = Self {
            dir: std::env::temp_dir(),
            unix: false,
            ahead: 1,
            passes: 5,
            mib: 2048,
            only: String::new(),
        };
        for arg in args {
            match arg.split_once('=') {
                Some(("ahead", n)) => options.ahead = n.parse().expect("a number"),
                Some(("passes", n)) => options.passes = n.parse().expect("a number"),
                Some(("mib", n)) => options.mib = n.parse().expect("a number"),
                Some(("only", what)) => options.only = what.into(),
                _ if arg == "unix" => options.unix = true,
                _ => options.dir = arg.into(),
            }
        }
        options
    }

    pub fn wants(&self, what: &str) -> bool {
        self.only.is_empty() || self.only == what
    }

    pub fn scratch_dir(&self) -> PathBuf {
        let dir = self.dir.join(format!("weir-wire-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory to work in");
        dir
    }
}

pub fn master() -> MasterKey {
    MasterKey(Key::from_bytes([7; 32]))
}

/// Running server processes; killed at the end.
pub struct Processes {
    children: Vec<Child>,
    pub addresses: Vec<String>,
}

impl Processes {
    pub fn start_data_servers(dir: &Path, options: &Options) -> Self {
        let transport = if options.unix { "unix" } else { "tcp" };
        Self::start(|n| {
            let server = dir.join(format!("server{n}"));
            prepare(&server, n as u32);
            vec!["serve".into(), server.display().to_string(), n.to_string(), transport.into()]
        })
    }

    pub fn start_raw(dir: &Path, bytes: u64) -> Self {
        Self::start(|n| {
            let file = dir.join(format!("raw{n}"));
            vec!["raw".into(), file.display().to_string(), bytes.to_string()]
        })
    }

    fn start(args: impl Fn(usize) -> Vec<String>) -> Self {
        let mut processes = Self { children: Vec::new(), addresses: Vec::new() };
        for n in 0..SERVERS {
            let mut child = Command::new(std::env::current_exe().expect("our own path"))
                .args(args(n))
                .stdout(Stdio::piped())
                .spawn()
                .expect("a server process");
            let mut line = String::new();
            let stdout = child.stdout.take().expect("its output");
            BufReader::new(stdout).read_line(&mut line).expect("its address");
            processes.children.push(child);
            processes.addresses.push(line.trim().to_string());
        }
        processes
    }

    /// CPU time of all of them so far.
    pub fn cpu_seconds(&self) -> f64 {
        self.children.iter().map(|child| thread_seconds(child.id())).sum()
    }
}

/// CPU time of all threads of a process, from the scheduler, in nanoseconds.
fn thread_seconds(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    threads
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<f64>().ok())
        .sum::<f64>()
        * 1e-9
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.children {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn prepare(dir: &Path, n: u32) {
    std::fs::create_dir_all(dir).expect("a directory");
    let identity = TargetIdentity { cluster: [1; 16], target: TargetId(n), server: ServerId(n) };
    Target::create(dir.join("target"), identity).expect("a target");
    write_key(&dir.join("target.key"), &master().target(TargetId(n), KeyGeneration(1)));
    write_key(&dir.join("server.key"), &master().server(ServerId(n), KeyGeneration(1)));
}

fn write_key(path: &Path, key: &Key) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    std::io::Write::write_all(&mut file.expect("a key file"), key.to_hex().as_bytes())
        .expect("a key file");
}

/// A server process: prints its address, serves until it is killed.
pub fn serve(args: &[String]) {
    let (dir, n) = (Path::new(&args[0]), args[1].parse().expect("a number"));
    let mut config = DataServerConfig::new(n, "127.0.0.1:0", dir.join("server.key"));
    config.targets =
        vec![TargetConfig { target: n, dir: dir.join("target"), key_file: dir.join("target.key") }];
    let unix = args[2] == "unix";
    config.unix = unix.then(|| dir.join("sock"));
    let never = weir_host::net::Signal::new().expect("a signal");
    weir_dataserver::run(config, &never, |ready| {
        println!("{}", if unix { ready.unix } else { ready.tcp });
    })
    .expect("a data server");
}
