//! Runs the policies at scale, and writes tables and plots into a directory.

use clap::Parser;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Instant;
use weir_policy::Watermarks;
use weir_scale::grid::{NODES, Row, SCENARIOS, Scenario, Settings};
use weir_scale::{grid, plot, table};

/// Simulate the read policies with 16 to 10,000 nodes
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Directory for tables and plots; it is created
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Up to 256 nodes, two trials: less than a minute
    #[arg(long)]
    quick: bool,
    /// Only this scenario (can be repeated)
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// Only this number of nodes (can be repeated)
    #[arg(long, value_parser = clap::value_parser!(u32).range(16..=10_000))]
    nodes: Vec<u32>,
    /// Number of trials [default: 5, with --quick 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99))]
    trials: Option<u32>,
    /// Amount that a disk serves one reader before the next [default: 16384 (HDD), 1024 (SSD)]
    #[arg(long, value_parser = clap::value_parser!(u64).range(128..=1 << 20))]
    run_kib: Option<u64>,
    /// Size of a request [default: 4096 (HDD), 2048 (SSD)]
    #[arg(long, value_parser = clap::value_parser!(u64).range(64..=1 << 16))]
    block_kib: Option<u64>,
    /// A request that has waited for longer at a disk is served first
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    longest_wait_ms: u64,
    /// Interval of a disk's messages to readers that have not heard from it
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    push_ms: u64,
    /// The high watermark, per mille of the work; the low one is a tenth of it
    #[arg(long, default_value_t = 10.0)]
    high: f64,
    /// Simulations at the same time [default: one for each processor]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
}

impl Arguments {
    fn settings(&self) -> Settings {
        Settings {
            run_bytes: self.run_kib.map(|kib| kib << 10),
            block_bytes: self.block_kib.map(|kib| kib << 10),
            longest_wait_us: self.longest_wait_ms * 1000,
            push_us: self.push_ms * 1000,
            marks: Watermarks {
                high: self.high / 1e3,
                low: self.high / 1e4,
                adapts: true,
                request_bytes: 0,
            },
        }
    }

    fn nodes(&self) -> Vec<usize> {
        if !self.nodes.is_empty() {
            return self.nodes.iter().map(|nodes| *nodes as usize).collect();
        }
        let most = if self.quick { 256 } else { usize::MAX };
        NODES.into_iter().filter(|nodes| *nodes <= most).collect()
    }

    fn threads(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or(processors, |threads| threads as usize)
    }

    /// The tasks: small ones first; each large one once before any of them twice.
    fn tasks(&self, scenarios: &[Scenario]) -> Vec<Task> {
        const LARGE: usize = 4096;
        let trials = self.trials.unwrap_or(if self.quick { 2 } else { 5 });
        let mut tasks = Vec::new();
        for trial in 0..trials {
            for nodes in self.nodes() {
                let scenarios = scenarios.iter().filter(|scenario| nodes <= scenario.most_nodes);
                tasks.extend(scenarios.map(|scenario| Task { scenario: *scenario, nodes, trial }));
            }
        }
        tasks.sort_by_key(|task| (task.nodes >= LARGE, task.trial));
        tasks
    }

    fn scenarios(&self) -> Result<Vec<Scenario>, String> {
        if self.scenario.is_empty() {
            return Ok(SCENARIOS.into());
        }
        let named = |name: &String| {
            let found = SCENARIOS.into_iter().find(|scenario| scenario.name == name);
            let names = SCENARIOS.map(|scenario| scenario.name).join(", ");
            found.ok_or_else(|| format!("there is no scenario {name}, but {names}"))
        };
        self.scenario.iter().map(named).collect()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let scenarios = arguments.scenarios()?;
    std::fs::create_dir_all(&arguments.out)?;
    let tasks = arguments.tasks(&scenarios);
    let mut done: Vec<Vec<Row>> = vec![Vec::new(); tasks.len()];
    // Before other threads slow it down.
    let times: Vec<_> = arguments.nodes().into_iter().flat_map(grid::times).collect();
    std::fs::write(arguments.out.join("cpu.csv"), table::csv_of_times(&times))?;
    plot::cpu(&arguments.out.join("cpu.svg"), &times)?;
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let (sender, results) = mpsc::channel();
        let (tasks, next, settings) = (&tasks, &next, arguments.settings());
        for _ in 0..arguments.threads() {
            let sender = sender.clone();
            scope.spawn(move || run(tasks, next, settings, &sender));
        }
        drop(sender);
        for (number, rows) in results {
            if rows.iter().any(|row| !row.outcome.is_complete) {
                return Err("not every block was read exactly once".into());
            }
            done[number] = rows;
            // Written after each task, so that an interrupted run leaves its results.
            write(&arguments.out, &scenarios, &done.concat())?;
        }
        Ok(())
    })?;
    print!("{}", table::markdown(&table::means(&done.concat())));
    Ok(())
}

/// One trial.
#[derive(Clone, Copy)]
struct Task {
    scenario: Scenario,
    nodes: usize,
    trial: u32,
}

/// Carries out tasks until there are none, or the receiver is gone.
fn run(
    tasks: &[Task],
    next: &AtomicUsize,
    settings: Settings,
    results: &Sender<(usize, Vec<Row>)>,
) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(Task { scenario, nodes, trial }) = tasks.get(number).copied() else { return };
        let begun = Instant::now();
        let rows = grid::trial(scenario, nodes, trial, settings);
        let s = begun.elapsed().as_secs_f64();
        eprintln!("{}, {nodes} nodes, trial {trial}: {s:.1} s", scenario.name);
        if results.send((number, rows)).is_err() {
            return;
        }
    }
}

fn write(out: &Path, scenarios: &[Scenario], rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let means = table::means(rows);
    std::fs::write(out.join("runs.csv"), table::csv_of_runs(rows))?;
    std::fs::write(out.join("means.csv"), table::csv_of_means(&means))?;
    std::fs::write(out.join("means.md"), table::markdown(&means))?;
    for Scenario { name, .. } in scenarios {
        plot::slowest(&out.join(format!("{name}.svg")), name, &means)?;
    }
    Ok(())
}
