//! HDFS on the machines of a testbed: a NameNode on the node without a disk, a DataNode on each
//! other one, with its blocks on that node's disk.

use crate::hdfs::nodes::{command, name};
use crate::hdfs::process;
use crate::lab::Lab;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Error, Result};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_testbed::Network;

/// Fetches the jars, and says where they are.
const SCRIPT: &str = "scripts/hdfs.sh";
/// What it ends with if something is missing for that.
const MISSING: i32 = 77;
const NAME_NODE: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
const DATA_NODE: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";
const COPIES: &str = "3";
/// Small heaps, since all are on one machine.
const JVM: [&str; 3] = ["-Xmx256m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"];
const FORMATS_WITHIN: Duration = Duration::from_secs(60);
/// All DataNodes come, and all files are written.
const WRITES_WITHIN: Duration = Duration::from_secs(400);
/// Lines of a server's log that an error has.
const LAST_LINES: usize = 5;

/// One that runs. Dropped, it ends, and its blocks go.
pub struct Hadoop {
    jars: PathBuf,
    dir: PathBuf,
    network: Network,
    /// The node of the NameNode, and of whoever writes.
    master: u32,
    servers: Vec<Child>,
    blocks: Vec<PathBuf>,
    /// Of Weir; `None`: nobody has made it.
    jar: Option<PathBuf>,
}

/// Which files are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    Hdfs,
    /// Those of Weir through the jar.
    Jar,
}

/// The jar of `make java`, beside the directory of this program.
fn weir_jar() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let name = format!("weir-hadoop-{}.jar", env!("CARGO_PKG_VERSION"));
    let jar = program.parent()?.parent()?.join("java/maven").join(name);
    jar.is_file().then_some(jar)
}

/// Where the jars are; `None`: they cannot be fetched here.
pub fn jars() -> Result<Option<PathBuf>> {
    let output = Command::new(SCRIPT).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| Error::other(format!("{SCRIPT}: {e}")))?;
    match output.status.code() {
        Some(0) => Ok(Some(String::from_utf8_lossy(&output.stdout).trim().into())),
        Some(MISSING) => Ok(None),
        _ => Err(Error::other(format!("{SCRIPT}: {}", output.status))),
    }
}

impl Hadoop {
    /// Starts it beside the cluster of a lab; its node without a disk is the last one. Through the
    /// jar files of that cluster have blocks of so many bytes.
    pub fn start(jars: PathBuf, lab: &Lab, chunk_bytes: u64) -> Result<Self> {
        let bed = lab.cluster.bed.as_ref().ok_or_else(|| Error::other("no testbed"))?;
        let (disks, dir) = (lab.disks.len() as u32, lab.place("hdfs"));
        let network = Network::found(bed.network.name(), disks + 1);
        let blocks = lab.disks.iter().map(|disk| disk.path().join("hdfs")).collect();
        let (servers, jar) = (Vec::new(), weir_jar());
        let mut all = Self { jars, dir, network, master: disks + 1, servers, blocks, jar };
        all.configure(lab, chunk_bytes)?;
        let mut format = all.java(all.master, NAME_NODE);
        format.args(["-format", "-force", "-nonInteractive"]);
        let format = all.logged(format, "format")?;
        process::end(vec![format], FORMATS_WITHIN).map_err(|e| all.with_log(&e, "format"))?;
        let name_node = all.java(all.master, NAME_NODE);
        let name_node = all.logged(name_node, "namenode")?;
        all.servers.push(name_node);
        for node in 1..=disks {
            let data_node = all.java(node, DATA_NODE);
            let data_node = all.logged(data_node, &name(node))?;
            lab.throttle.add(data_node.id().cast_signed())?;
            all.servers.push(data_node);
        }
        Ok(all)
    }

    /// Numbers of the servers' processes.
    pub fn pids(&self) -> Vec<i32> {
        self.servers.iter().map(|server| server.id().cast_signed()).collect()
    }

    /// Writes a local file to these, which have chunks of so many bytes.
    pub fn put(&self, input: &str, files: &[(String, u64)]) -> Result<()> {
        let mut put = self.java(self.master, "Scan");
        put.arg(self.conf()).args(["put", input, &self.blocks.len().to_string()]);
        for (name, chunk_bytes) in files {
            put.args([&format!("/{name}"), COPIES, &chunk_bytes.to_string()]);
        }
        let put = self.logged(put, "put")?;
        process::end(vec![put], WRITES_WITHIN)
            .map(drop)
            .map_err(|e| self.with_log(&self.with_log(&e, "put"), "namenode"))
    }

    /// Whether the jar of Weir is there.
    pub fn has_jar(&self) -> bool {
        self.jar.is_some()
    }

    /// The program that searches files together with those on all other nodes: those of HDFS, or
    /// those of the lab's cluster through the jar.
    pub fn grep(&self, node: u32, text: &str, tasks: u32, of: Files) -> Command {
        let mut grep = self.java(node, "Scan");
        let (rank, ranks) = ((node - 1).to_string(), self.blocks.len().to_string());
        let host = match of {
            Files::Hdfs => self.network.address(node).to_string(),
            Files::Jar => name(node),
        };
        grep.arg(self.conf()).args(["grep", text, &host, &rank, &ranks, &tasks.to_string()]);
        if of == Files::Jar {
            grep.arg("weir:///");
        }
        grep
    }

    fn conf(&self) -> PathBuf {
        self.dir.join("conf")
    }

    /// A class on a node.
    fn java(&self, node: u32, class: &str) -> Command {
        let mut java = command(&self.network, node, OsStr::new("java"));
        let (conf, jars) = (self.conf(), self.jars.display());
        java.args(JVM);
        // Nobody asks a name server.
        java.arg(format!("-Djdk.net.hosts.file={}", conf.join("hosts").display()));
        java.arg(format!("-Dhadoop.log.dir={}", self.dir.display()));
        // The configuration has these in it.
        java.arg(format!("-Dweir.address={}", self.network.address(node)));
        if let Some(blocks) = self.blocks.get(node as usize - 1) {
            java.arg(format!("-Dweir.blocks={}", blocks.display()));
        }
        let jar = self.jar.iter().map(|jar| format!(":{}", jar.display()));
        let jar: String = jar.collect();
        java.arg("-cp").arg(format!("{}:{jars}/classes:{jars}/lib/*{jar}", conf.display()));
        java.arg(class);
        java
    }

    fn configure(&self, lab: &Lab, chunk_bytes: u64) -> Result<()> {
        let conf = self.conf();
        for page in ["hdfs", "datanode", "static"] {
            // Without pages of its own a server does not start.
            let pages = conf.join("webapps").join(page).join("WEB-INF");
            fs::create_dir_all(&pages)?;
            fs::write(pages.join("web.xml"), "<web-app/>")?;
        }
        let (dir, master) = (self.dir.display(), self.network.address(self.master));
        let core = [
            ("fs.defaultFS", format!("hdfs://{master}:9820")),
            ("hadoop.tmp.dir", format!("{dir}/tmp")),
            ("fs.weir.credential", lab.cluster.credential().display().to_string()),
            ("fs.weir.block.size", chunk_bytes.to_string()),
        ];
        let fixed = [
            ("dfs.replication", COPIES),
            ("dfs.permissions.enabled", "false"),
            ("dfs.client.read.shortcircuit", "false"),
            ("dfs.namenode.datanode.registration.ip-hostname-check", "false"),
            ("dfs.namenode.redundancy.considerLoad", "false"),
            ("dfs.datanode.data.dir", "${weir.blocks}"),
            ("dfs.datanode.hostname", "${weir.address}"),
            ("dfs.datanode.address", "${weir.address}:9866"),
            ("dfs.datanode.http.address", "${weir.address}:9864"),
            ("dfs.datanode.ipc.address", "${weir.address}:9867"),
            ("dfs.datanode.du.reserved", "0"),
            ("dfs.datanode.round-robin-volume-choosing-policy.additional-available-space", "0"),
            // Chunks are as much smaller as files are.
            ("dfs.namenode.fs-limits.min-block-size", "4096"),
            // Nothing reads a disk but who is measured.
            ("dfs.block.scanner.volume.bytes.per.second", "0"),
        ];
        let mut hdfs: Vec<(&str, String)> =
            fixed.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        hdfs.push(("dfs.namenode.name.dir", format!("{dir}/names")));
        hdfs.push(("dfs.namenode.http-address", format!("{master}:9870")));
        fs::write(conf.join("core-site.xml"), xml(&core))?;
        fs::write(conf.join("hdfs-site.xml"), xml(&hdfs))?;
        let log = "log4j.rootLogger=WARN,c\nlog4j.appender.c=org.apache.log4j.ConsoleAppender\n\
                   log4j.appender.c.target=System.err\n\
                   log4j.appender.c.layout=org.apache.log4j.SimpleLayout\n";
        fs::write(conf.join("log4j.properties"), log)?;
        let host = |node: u32| format!("{} {}\n", self.network.address(node), name(node));
        let hosts: String = (1..=self.master).map(host).collect();
        fs::write(conf.join("hosts"), format!("127.0.0.1 localhost\n{hosts}"))
    }

    /// Where a process that searches on a node writes what it has to say of errors.
    pub fn log_of(&self, node: u32, of: Files) -> Result<File> {
        File::create(self.log(&format!("{of:?}{node}")))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    /// Starts a command that writes to a log.
    fn logged(&self, mut command: Command, name: &str) -> Result<Child> {
        let log = File::create(self.log(name))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
    }

    /// An error, and what a log ends with.
    fn with_log(&self, error: &Error, name: &str) -> Error {
        let text = match fs::read_to_string(self.log(name)) {
            Ok(text) => text,
            Err(of_log) => of_log.to_string(),
        };
        // Without the stack of an exception.
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('\t')).collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        Error::other(format!("{error}\n{name}: {last}"))
    }
}

impl Drop for Hadoop {
    fn drop(&mut self) {
        process::kill(&mut self.servers);
        // The disks go too, and with them what could not be removed.
        self.blocks.iter().for_each(|blocks| _ = fs::remove_dir_all(blocks));
    }
}

/// A configuration as Hadoop has it.
fn xml(properties: &[(&str, String)]) -> String {
    let mut text = "<configuration>\n".to_owned();
    for (name, value) in properties {
        // A string takes everything.
        _ = writeln!(text, "<property><name>{name}</name><value>{value}</value></property>");
    }
    text + "</configuration>\n"
}
