//! A data server that `weir up` knows nothing of, as on another machine.

use crate::harness::Cluster;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// It has one target, of its own number.
pub struct Added<'a> {
    cluster: &'a Cluster<'a>,
    number: u32,
    /// The name of its machine; `None`: it is on this one.
    host: Option<&'a str>,
    process: Option<Child>,
}

impl<'a> Added<'a> {
    pub fn new(
        cluster: &'a Cluster<'a>,
        number: u32,
        host: Option<&'a str>,
        more: &[&str],
    ) -> Self {
        let text = number.to_string();
        let node = format!("node-{number}");
        let new = ["key", "server", "--server", &text, "--targets", &text, "-o", &node];
        let said = cluster.weir(&[&new[..], &["--listen", "127.0.0.1:0"], more].concat()).ok();
        let line = said.lines().find(|line| line.contains("weir target create")).unwrap();
        let mut create: Vec<String> = line.split_whitespace().skip(1).map(str::to_owned).collect();
        // Among the others, where its objects are looked for.
        let dir = cluster.dir().join(format!("targets/{number}")).display().to_string();
        let target = format!("target-{number}");
        *create.iter_mut().find(|word| **word == target).unwrap() = dir.clone();
        cluster.place.weir(&create).ok();
        let mut added = Self { cluster, number, host, process: None };
        let config = added.directory().join(format!("data-{number}.toml"));
        let text = fs::read_to_string(&config).unwrap();
        assert!(text.contains(&format!("\"{target}\"")), "{text}");
        fs::write(&config, text.replace(&format!("\"{target}\""), &format!("{dir:?}"))).unwrap();
        added.start();
        added
    }

    fn directory(&self) -> PathBuf {
        self.cluster.place.path(&format!("node-{}", self.number))
    }

    pub fn start(&mut self) {
        let config = format!("data-{}.toml", self.number);
        let mut server = self.cluster.place.command(&["data", "--config", &config]);
        if let Some(host) = self.host {
            server = on_host(host, &server);
        }
        server.current_dir(self.directory()).stdin(Stdio::null()).stderr(Stdio::null());
        self.process = Some(server.spawn().unwrap());
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A command where the machine has this name (its network and files are those of
/// everybody). Needs root.
pub fn on_host(host: &str, command: &Command) -> Command {
    let name = format!("echo {host} > /proc/sys/kernel/hostname && exec \"$@\"");
    let mut inside = Command::new("unshare");
    inside.args(["--uts", "sh", "-c", &name, "sh"]);
    inside.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        inside.current_dir(dir);
    }
    inside
}
