//! A cluster of real processes for a test, stopped when the test ends.
#![allow(dead_code, clippy::unwrap_used)] // Each test program uses its part; a panic fails it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The build directory, which has the program and the library.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}

/// The program `weir` of this build. It is built if it is missing.
fn program() -> PathBuf {
    let program = built().join("weir");
    if !program.is_file() {
        let mut cargo = Command::new(env!("CARGO"));
        assert!(cargo.args(["build", "-p", "weir"]).status().unwrap().success());
    }
    program
}

pub struct Cluster {
    dir: TempDir,
}

impl Cluster {
    /// Starts four targets on two servers.
    pub fn up() -> Self {
        // A short path, because paths of Unix sockets are limited.
        let dir = tempfile::Builder::new().prefix("weir-c").tempdir_in("/tmp").unwrap();
        let cluster = Self { dir };
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let listen = format!("127.{}.{}.{}", a.max(1), b, c.clamp(1, 254));
        cluster.weir(&["up", "--targets", "4", "--targets-per-server", "1", "--listen", &listen]);
        cluster
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The credential file of the cluster.
    pub fn credential(&self) -> PathBuf {
        self.path("state/weir/c/client.toml")
    }

    /// Gives a command an environment in which this is the default cluster.
    pub fn prepare(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("WEIR_") && name != "WEIR_LOG" {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .env("HOME", self.dir.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("WEIR_CLUSTER", "c");
    }

    /// Kills a daemon, and waits until its process is gone.
    pub fn kill(&self, daemon: &str) {
        let file = self.path(&format!("state/weir/c/run/{daemon}.pid"));
        let text = std::fs::read_to_string(file).unwrap();
        let pid = text.split_whitespace().next().unwrap();
        said(Command::new("kill").args(["-9", pid]).output().unwrap(), daemon);
        // A zombie process has no command line.
        let command = format!("/proc/{pid}/cmdline");
        while std::fs::read(&command).is_ok_and(|command| !command.is_empty()) {
            std::thread::yield_now();
        }
    }

    /// Runs the program `weir` to its end.
    pub fn weir(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(program());
        command.args(arguments);
        self.prepare(&mut command);
        said(command.output().unwrap(), arguments)
    }
}

/// The output of a program, which must have succeeded.
pub fn said(output: Output, what: impl std::fmt::Debug) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what:?}: {}\n{out}{err}", output.status);
    out + &err
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut command = Command::new(program());
        command.args(["down", "--force", "--purge", "--yes"]);
        self.prepare(&mut command);
        // The outcome does not matter: the test has failed or is done.
        drop(command.output());
    }
}
