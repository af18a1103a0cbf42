//! `weir-matrix`: runs each program on each layout, in each way of reading, alone and as a job.
//! Writes the results as a page of Markdown. Matching and mining use the SIO interface and run once
//! on each layout. Fails if any output differs.

use clap::Parser;
use std::fmt::Write;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_parallel::sort;
use weir_parallel::tree::Tree;
use weir_types::size::parse_size;

/// Run each program on each layout, compare the outputs, and write a table
#[derive(Parser)]
#[command(name = "weir-matrix", version)]
struct Arguments {
    /// The page to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Size of the text, and of the records, in bytes
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    size: u64,
    /// Number of processes in a job
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(2..=64))]
    processes: u32,
    /// The program `weir` [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
}

/// Name, and flags of `weir setlayout`.
const LAYOUTS: [(&str, &[&str]); 9] = [
    ("one target", &["--layout", "striped", "--count", "1"]),
    ("striped, unit 64 KiB", &["--layout", "striped", "--unit", "64K"]),
    ("striped, unit 1 MiB", &["--layout", "striped", "--unit", "1M"]),
    ("striped, two copies, random", &["--layout", "striped", "--copies", "2"]),
    (
        "striped, two copies, chained",
        &["--layout", "striped", "--copies", "2", "--placement", "chained"],
    ),
    (
        "striped, two copies, mirrored halves",
        &["--layout", "striped", "--copies", "2", "--placement", "groups"],
    ),
    ("chunks of 4 MiB, two copies", &["--layout", "chunked", "--chunk", "4M", "--copies", "2"]),
    (
        "chunks where written first",
        &["--layout", "chunked", "--placement", "graduated", "--count", "2"],
    ),
    (
        "RAID 6 of two columns, from three copies",
        &[
            "--layout", "striped", "--count", "2", "--copies", "3", "--reduce", "raid6", "--after",
            "0s",
        ],
    ),
];
/// Maximum time until parities exist.
const ENCODED: Duration = Duration::from_secs(600);
const WAYS: [&str; 3] = ["take", "locations", "shares"];
/// Programs that use the SIO interface.
const OVER_SIO: [&str; 2] = ["weir-match", "weir-mining"];
/// The text that grep looks for: one line in 20,000.
const NEEDLE: &str = "needle";

/// The result of one run of a program.
struct Cell {
    seconds: f64,
    cpu_seconds: f64,
    equal: bool,
}

impl Cell {
    fn text(&self) -> String {
        let Self { seconds, cpu_seconds, equal } = self;
        let result = if *equal { "" } else { " **differs**" };
        format!("{seconds:.2} s, {cpu_seconds:.2} s{result}")
    }
}

/// A cluster in a temporary directory, removed at the end.
struct Lab {
    dir: TempDir,
    weir: PathBuf,
    runs: std::cell::Cell<u32>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            let _ = writeln!(
                io::stderr(),
                "weir-matrix: outputs differ: see {}",
                arguments.out.display()
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "weir-matrix: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let beside = |name: &str| {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        Ok::<_, String>(own.with_file_name(name))
    };
    let weir = arguments.weir.clone().map_or_else(|| beside("weir"), Ok)?;
    let dir = tempfile::Builder::new().prefix("weir-m").tempdir();
    let dir = dir.map_err(|e| format!("a temporary directory: {e}"))?;
    let lab = Lab { dir, weir, runs: 0.into() };
    lab.make_inputs(arguments.size)?;
    let programs = ["weir-grep", "weir-wordcount", "weir-sort"];
    let (mut rows, mut sio_rows) = (Vec::new(), Vec::new());
    sio_rows.push(("local files", OVER_SIO.map(|program| lab.over_sio(program, false))));
    for ranks in [1, arguments.processes] {
        let cells = programs.map(|program| lab.cell(program, None, "shares", ranks));
        rows.push(("local files", "shares", ranks, cells));
    }
    lab.up()?;
    for (name, flags) in LAYOUTS {
        lab.prepare(flags)?;
        for (way, ranks) in [("take", 1)].into_iter().chain(WAYS.map(|w| (w, arguments.processes)))
        {
            let cells = programs.map(|program| lab.cell(program, Some("weir:/d"), way, ranks));
            rows.push((name, way, ranks, cells));
        }
        sio_rows.push((name, OVER_SIO.map(|program| lab.over_sio(program, true))));
        lab.weir(&["rm", "-r", "weir:/d"])?;
    }
    let mut table = String::new();
    let mut all_equal = true;
    for (name, way, ranks, cells) in rows {
        _ = write!(table, "| {name} | {way} | {ranks} |");
        for cell in cells {
            let cell = cell?;
            all_equal &= cell.equal;
            _ = write!(table, " {} |", cell.text());
        }
        table.push('\n');
    }
    let mut sio_table = String::new();
    for (name, cells) in sio_rows {
        _ = write!(sio_table, "| {name} |");
        for cell in cells {
            let cell = cell?;
            all_equal &= cell.equal;
            _ = write!(sio_table, " {} |", cell.text());
        }
        sio_table.push('\n');
    }
    let page = page(arguments, &table, &sio_table);
    std::fs::write(&arguments.out, page)
        .map_err(|e| format!("{}: {e}", arguments.out.display()))?;
    Ok(all_equal)
}

fn page(arguments: &Arguments, table: &str, sio_table: &str) -> String {
    let size = arguments.size >> 20;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let build = if cfg!(debug_assertions) { "the build of tests" } else { "a release build" };
    format!(
        "# Programs on layouts

`make matrix` writes this page. It runs the programs of `apps/parallel` on the same inputs, whose files have another
layout in each row, and compares the outputs byte by byte. It fails if any output differs.

- The inputs: {size} MiB of text, {size} MiB of records of 100 bytes. Programs: `weir-grep` (one line in 20,000),
  `weir-wordcount`, `weir-sort`.
- The files of a job and the output lie beside the inputs, so they have the same layout.
- A cell: seconds from the start to the end of all processes, and seconds of processor time that these used together.
  Servers are not counted.
- The machine: {cores} processors, {build}; four data servers, which share one disk with everything else. The times
  compare ways of reading roughly. [figures](figures.md) and [performance](performance.md) have measurements.
- All outputs are equal unless a cell says **differs**.

| layout | read by | processes | grep | word count | sort |
| --- | --- | --- | --- | --- | --- |
{table}
## Over the SIO interface

`weir-match` ({customers} customers and as many records, four readers, hinted) and `weir-mining` ({size} MiB of
transactions, four clients) read by themselves; [applications](applications.md) says how. Links, itemsets and rules are
compared.

| layout | match | mining |
| --- | --- | --- |
{sio_table}",
        customers = customers(arguments.size)
    )
}

/// Number of customers for inputs of this many bytes.
fn customers(size: u64) -> u64 {
    (size / (16 * 838)).max(100)
}

impl Lab {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program in an environment of its own.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if ["WEIR_", "OMPI_", "PMI", "SLURM_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&*name);
            }
        }
        command
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .env("HOME", self.dir.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("WEIR_CLUSTER", "matrix");
        command
    }

    fn weir(&self, arguments: &[&str]) -> Result<(), String> {
        let done = self.command(&self.weir).args(arguments).output();
        let done = done.map_err(|e| format!("{}: {e}", self.weir.display()))?;
        let said = String::from_utf8_lossy(&done.stderr);
        done.status.success().then_some(()).ok_or_else(|| format!("weir {arguments:?}: {said}"))
    }

    fn up(&self) -> Result<(), String> {
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let listen = format!("127.{}.{b}.{}", a.max(1), c.clamp(1, 254));
        self.weir(&["up", "--targets", "4", "--targets-per-server", "1", "--listen", &listen])
    }

    /// Makes the inputs on this machine.
    fn make_inputs(&self, bytes: u64) -> Result<(), String> {
        let mut text = String::new();
        let mut line = 0u64;
        while (text.len() as u64) < bytes {
            for word in 0..line % 17 {
                // A few words are frequent, and many are rare.
                let number = (line * 7919 + word * 104_729) % 100_003;
                _ = write!(text, "{:x} ", number % (number % 5_000 + 1));
            }
            if line % 20_000 == 19_999 {
                text.push_str(NEEDLE);
            }
            text.push('\n');
            line += 1;
        }
        let path = self.path("text");
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        let records = self.path("records");
        let records = records.to_str().ok_or("the temporary directory is not UTF-8")?;
        let count = bytes / sort::RECORD_BYTES as u64;
        sort::generate(&Tree::Local, records, count, 1).map_err(|e| e.to_string())?;
        let (count, size) = (customers(bytes).to_string(), bytes.to_string());
        self.said("weir-match", &["generate", "customers", "people", "--count", &count])?;
        self.said("weir-mining", &["generate", "sales", "--size", &size]).map(drop)
    }

    /// Makes a directory with a layout, and copies the inputs there.
    fn prepare(&self, layout: &[&str]) -> Result<(), String> {
        self.weir(&["mkdir", "weir:/d"])?;
        self.weir(&[&["setlayout"], layout, &["weir:/d"]].concat())?;
        let inputs = ["text", "records", "customers", "people", "sales"];
        self.weir(&[&["cp", "--quiet"], &inputs[..], &["weir:/d"]].concat())?;
        match layout.contains(&"--reduce") {
            true => inputs.iter().try_for_each(|input| self.is_encoded(input)),
            false => Ok(()),
        }
    }

    /// Waits until an input has parities instead of copies.
    fn is_encoded(&self, input: &str) -> Result<(), String> {
        let begun = Instant::now();
        let path = format!("weir:/d/{input}");
        while begun.elapsed() < ENCODED {
            let done = self.command(&self.weir).args(["layout", &path]).output();
            let done = done.map_err(|e| format!("{}: {e}", self.weir.display()))?;
            if String::from_utf8_lossy(&done.stdout).contains("2 parities") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Err(format!("{path} has no parities after {ENCODED:?}"))
    }

    /// Runs a program beside this one, and returns its output.
    fn said(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let done = self.command(&own.with_file_name(program)).args(arguments).output();
        let done = done.map_err(|e| format!("{program}: {e}"))?;
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => Err(format!("{program}: {}", String::from_utf8_lossy(&done.stderr))),
        }
    }

    /// Runs a program that uses the SIO interface, on a directory of the cluster or on local files.
    /// Compares the result with that on local files.
    fn over_sio(&self, program: &str, in_cluster: bool) -> Result<Cell, String> {
        let dir = if in_cluster { "d/" } else { "" };
        let [people, customers, result, sales] =
            ["people", "customers", "result", "sales"].map(|name| format!("{dir}{name}"));
        let mut arguments = match program {
            "weir-match" => {
                let run = ["run", &people, &customers, "--readers", "4", "--hinted"];
                [&run[..], &["--out", &result, "--json"]].concat()
            }
            _ => vec!["run", &sales, "--clients", "4", "--json"],
        };
        if in_cluster {
            arguments.extend(["--files", "weir:matrix"]);
        }
        let (begun, cpu_before) = (Instant::now(), cpu_of_children()?);
        let said = self.said(program, &arguments)?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu_seconds = cpu_of_children()? - cpu_before;
        let told: serde_json::Value =
            serde_json::from_str(&said).map_err(|e| format!("{program}: {said}: {e}"))?;
        let found = match program {
            "weir-match" => {
                let links = self.path("result.links");
                if in_cluster {
                    self.weir(&["cp", "--quiet", "weir:/d/result.links", "result.links"])?;
                }
                std::fs::read(&links).map_err(|e| format!("{}: {e}", links.display()))?
            }
            _ => format!("{} {}", told["itemsets"], told["rules"]).into_bytes(),
        };
        let first = self.path(&format!("first.{program}"));
        if !in_cluster {
            std::fs::write(&first, &found).map_err(|e| format!("{}: {e}", first.display()))?;
        }
        let first = std::fs::read(&first).map_err(|e| format!("{}: {e}", first.display()))?;
        Ok(Cell { seconds, cpu_seconds, equal: !first.is_empty() && found == first })
    }

    /// Runs a program on a directory of the cluster or on local files. Compares the output with
    /// that of the first run, which was alone and on local files.
    fn cell(
        &self,
        program: &str,
        dir: Option<&str>,
        way: &str,
        ranks: u32,
    ) -> Result<Cell, String> {
        let at = |name: &str| dir.map_or(name.to_owned(), |dir| format!("{dir}/{name}"));
        let input = at(if program == "weir-sort" { "records" } else { "text" });
        let output = at("out");
        let mut arguments = vec!["--json", "--read", way, "--output", &output];
        if program == "weir-grep" {
            arguments.push(NEEDLE);
        }
        arguments.push(&input);
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let run = self.runs.replace(self.runs.get() + 1);
        let begun = Instant::now();
        let start = |rank: u32| {
            let mut command = self.command(&own.with_file_name(program));
            if ranks > 1 {
                command.env("WEIR_JOB", format!("run{run}"));
                command.env("WEIR_RANK", rank.to_string()).env("WEIR_RANKS", ranks.to_string());
            }
            command.args(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
        };
        let children: Vec<_> = (0..ranks).map(start).collect();
        let mut cpu_seconds = 0.0;
        for child in children {
            let done = child.and_then(std::process::Child::wait_with_output);
            let done = done.map_err(|e| format!("{program}: {e}"))?;
            let said = String::from_utf8_lossy(&done.stderr);
            if !done.status.success() {
                return Err(format!("{program} {arguments:?}: {said}"));
            }
            let told: serde_json::Value =
                serde_json::from_str(&said).map_err(|e| format!("{program}: {said}: {e}"))?;
            cpu_seconds += told["cpu_seconds"].as_f64().unwrap_or(0.0);
        }
        let seconds = begun.elapsed().as_secs_f64();
        let (found, first) = (self.path("found"), self.path(&format!("first.{program}")));
        match dir {
            Some(_) => self.weir(&["cp", "--quiet", &output, "found"])?,
            None => rename(&self.path("out"), &found)?,
        }
        if !first.exists() {
            rename(&found, &first)?;
            return Ok(Cell { seconds, cpu_seconds, equal: true });
        }
        let read =
            |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        Ok(Cell { seconds, cpu_seconds, equal: read(&found)? == read(&first)? })
    }
}

/// CPU seconds of ended children of this process.
fn cpu_of_children() -> Result<f64, String> {
    let stat = std::fs::read_to_string("/proc/self/stat").map_err(|e| e.to_string())?;
    // After the name, which may contain spaces: fields 16 and 17, in hundredths of a second.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    Ok(fields.skip(13).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>() / 100.0)
}

fn rename(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::rename(from, to).map_err(|e| format!("{}: {e}", from.display()))
}

impl Drop for Lab {
    fn drop(&mut self) {
        // The cluster may not have started. The temporary directory is removed in any case.
        drop(self.weir(&["down", "--force", "--purge", "--yes"]));
    }
}
