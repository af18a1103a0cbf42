//! Spark as a cluster of its own on the machines of a testbed: a master on the node without a disk,
//! a worker on each other one, under the names that data servers have.

use crate::args::Spark;
use crate::cluster::{Machines, said};
use crate::hdfs::{command, name, process};
use crate::lab::Lab;
use crate::stop;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SCRIPT: &str = "testing/figures/spark/search.py";
const MASTER_PORT: u16 = 7077;
/// A process of Spark has begun within so long.
const STARTS_WITHIN: Duration = Duration::from_secs(120);
const ENDS_WITHIN: Duration = Duration::from_secs(400);
const PAUSE: Duration = Duration::from_millis(100);
/// A task waits for its own node as long as a task takes, and longer.
const LOCALITY_WAIT_S: &str = "60";

/// What has to be there.
pub struct Parts {
    python: PathBuf,
    /// The directory of Spark.
    home: PathBuf,
    jar: PathBuf,
}

/// Where it is; `None`: it is not there.
pub fn parts(plan: &Spark) -> Result<Option<Parts>> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent);
    let java = target.ok_or_else(|| Error::other("no target directory"))?.join("java");
    let jar = java.join(format!("maven/weir-hadoop-{}.jar", env!("CARGO_PKG_VERSION")));
    let usual = java.join("spark-4.0.1/bin/python");
    let python = plan.python.clone().unwrap_or(usual);
    let find = "import os, pyspark; print(os.path.dirname(pyspark.__file__))";
    let home = said(Command::new(&python).args(["-c", find]));
    Ok(match (home, jar.is_file()) {
        (Ok(home), true) => Some(Parts { python, home: home.trim().into(), jar }),
        _ => None,
    })
}

/// A cluster of Spark. Dropped, it ends.
pub struct Standalone<'a> {
    parts: Parts,
    lab: &'a Lab,
    dir: PathBuf,
    nodes: u32,
    block_bytes: u64,
    processes: Vec<Child>,
}

impl<'a> Standalone<'a> {
    pub fn start(parts: Parts, lab: &'a Lab, plan: &Spark) -> Result<Self> {
        let dir = lab.place("spark");
        fs::create_dir(&dir)?;
        let (nodes, block_bytes) = (plan.nodes, plan.chunk_bytes());
        let mut all = Self { parts, lab, dir, nodes, block_bytes, processes: Vec::new() };
        let bed = lab.cluster.machines()?;
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        for node in 1..=nodes + 1 {
            // A string takes everything, here and below.
            _ = writeln!(hosts, "{} {}", bed.network.address(node), name(node));
        }
        fs::write(all.hosts(), hosts)?;
        let master = ["master.Master", "--host", &name(nodes + 1), "--webui-port", "0"];
        let port = MASTER_PORT.to_string();
        all.launch(
            bed,
            nodes + 1,
            &[&master[..], &["--port", &port]].concat(),
            "New state: ALIVE",
        )?;
        for node in 1..=nodes {
            let (work, own) = (all.dir.join(format!("work{node}")), name(node));
            let worker = ["worker.Worker", "--host", &own, "--cores", "1", "--memory", "700m"];
            let more = ["--port", "0", "--webui-port", "0", "--work-dir", path(&work)?];
            let master = all.master();
            let words = [&worker[..], &more, &[&*master]].concat();
            all.launch(bed, node, &words, "Successfully registered with master")?;
        }
        Ok(all)
    }

    fn master(&self) -> String {
        format!("spark://{}:{MASTER_PORT}", name(self.nodes + 1))
    }

    fn hosts(&self) -> PathBuf {
        self.dir.join("hosts")
    }

    /// A shell on a node, which has what `weir spark-env` prints there and then runs a command.
    fn shell(&self, bed: &Machines, node: u32) -> Result<Command> {
        let mut shell = command(&bed.network, node, "sh".as_ref());
        let weir = std::env::current_exe()?.with_file_name("weir");
        let state = self.lab.cluster.credential();
        let state = state.parent().ok_or_else(|| Error::other("no state directory"))?;
        let script =
            "eval \"$(\"$0\" spark-env --dir \"$1\" --jar \"$2\")\" && shift 2 && exec \"$@\"";
        shell.args(["-c", script]).args([&weir, state, &self.parts.jar]);
        let names = format!("-Djdk.net.hosts.file={}", self.hosts().display());
        shell.env("SPARK_HOME", &self.parts.home).env("SPARK_DAEMON_MEMORY", "256m");
        shell.env("SPARK_DAEMON_JAVA_OPTS", &names).env("PYSPARK_PYTHON", &self.parts.python);
        shell.env("SPARK_LOCAL_IP", bed.network.address(node).to_string());
        shell.env("SPARK_LOCAL_DIRS", &self.dir).current_dir(&self.dir);
        Ok(shell)
    }

    /// Starts a class of Spark, and waits until its log has such a text.
    fn launch(&mut self, bed: &Machines, node: u32, words: &[&str], sign: &str) -> Result<()> {
        let log = self.dir.join(format!("{}-{node}.log", words[0]));
        let out = File::create(&log)?;
        let mut launch = self.shell(bed, node)?;
        launch.arg(self.parts.home.join("bin/spark-class"));
        launch.arg(format!("org.apache.spark.deploy.{}", words[0])).args(&words[1..]);
        launch.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        self.processes.push(launch.spawn()?);
        let begin = Instant::now();
        loop {
            stop::check()?;
            let text = fs::read_to_string(&log)?;
            if text.contains(sign) {
                return Ok(());
            }
            if begin.elapsed() > STARTS_WITHIN {
                let what = format!("{} on {} has not begun: {text}", words[0], name(node));
                return Err(Error::other(what));
            }
            sleep(PAUSE);
        }
    }

    /// Runs a search as a job of this name on the node without a disk; what it says. `hidden`: the
    /// data servers have names that no worker has.
    pub fn submit(&self, job: &str, file: &str, text: &str, hidden: bool) -> Result<Value> {
        let (cluster, nodes) = (&self.lab.cluster, self.nodes);
        let mut spark_env = vec!["spark-env", "--conf", "--jar", path(&self.parts.jar)?];
        spark_env.extend(["--locality-wait", LOCALITY_WAIT_S]);
        let away: Vec<String> = (1..=nodes).map(|n| format!("{0}=away-{0}", name(n))).collect();
        if hidden {
            away.iter().for_each(|pair| spark_env.extend(["--host", pair]));
        }
        let mut options = cluster.weir(&spark_env)?;
        let names = format!("-Djdk.net.hosts.file={}", self.hosts().display());
        let own = name(nodes + 1);
        let cores = nodes.to_string();
        for (key, value) in [
            ("spark.hadoop.fs.weir.job", job),
            ("spark.hadoop.fs.weir.block.size", &self.block_bytes.to_string()),
            ("spark.cores.max", &cores),
            ("spark.executor.memory", "500m"),
            ("spark.driver.host", &own),
            ("spark.driver.extraJavaOptions", &names),
            ("spark.executor.extraJavaOptions", &names),
            // All of them are there before the first task.
            ("spark.scheduler.minRegisteredResourcesRatio", "1.0"),
            ("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s"),
        ] {
            _ = writeln!(options, "{key} {value}");
        }
        let conf = self.dir.join(format!("{job}.conf"));
        fs::write(&conf, options)?;
        let script = Path::new(SCRIPT).canonicalize()?;
        let uri = format!("weir://{}/{file}", cluster_name(cluster)?);
        let mut submit = self.shell(cluster.machines()?, nodes + 1)?;
        submit.arg(&self.parts.python).arg(script).arg(self.master()).arg(&conf);
        submit.args([&uri, text, &self.block_bytes.to_string()]);
        // The JVM takes its options when it starts, before the program says any.
        submit.env("JDK_JAVA_OPTIONS", &names);
        submit.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let told = process::end(vec![submit.spawn()?], ENDS_WITHIN)?.concat();
        let line = told.lines().rev().find(|line| line.starts_with('{'));
        let none = || Error::other(format!("the program with Spark said: {told}"));
        Ok(serde_json::from_str(line.ok_or_else(none)?)?)
    }
}

/// The name of a cluster, as its credential has it.
fn cluster_name(cluster: &crate::cluster::Cluster) -> Result<String> {
    let needs: Value = serde_json::from_str(&cluster.weir(&["spark-env", "--json"])?)?;
    let name = needs["cluster"].as_str();
    name.map(str::to_owned).ok_or_else(|| Error::other("weir spark-env: not understood"))
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::other("a path that is not UTF-8"))
}

impl Drop for Standalone<'_> {
    fn drop(&mut self) {
        // Executors end when their worker does.
        process::kill(&mut self.processes);
    }
}
