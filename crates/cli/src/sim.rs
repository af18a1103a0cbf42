//! `weir sim`: runs whole clusters on simulated machines, with faults chosen by seeds.

use crate::args::Sim;
use crate::failure::{Done, Failure};
use crate::output::{print, print_json};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weir_host::plant::{self, Bug};
use weir_sim::batch::{self, Line};
use weir_sim::plan::Plan;
use weir_sim::{generate, run, shrink};

/// The most runs for shrinking a plan.
const SHRINK_RUNS: usize = 1500;

/// Runs `weir sim`.
pub fn run(sim: &Sim) -> Done {
    if sim.list_bugs {
        return list_bugs(sim.json);
    }
    if let Some(name) = &sim.plant {
        plant_bug(name)?;
    }
    if let Some(file) = &sim.plan {
        return replay(sim, file);
    }
    let seed = match sim.seed {
        Some(seed) => seed,
        None => random_seed()?,
    };
    match sim.seeds {
        Some(count) => {
            let seeds = seed..seed.saturating_add(count);
            if sim.child {
                batch::run_here(seeds, sim.duration, sim.verify_determinism);
                return Ok(());
            }
            many(sim, seeds)
        }
        None => one(sim, seed),
    }
}

fn list_bugs(as_json: bool) -> Done {
    let names: Vec<&str> = Bug::ALL.iter().map(|(_, name)| *name).collect();
    if as_json {
        return print_json(&json!(names));
    }
    print(&format!("{}\n", names.join("\n")))
}

fn plant_bug(name: &str) -> Done {
    let bug = Bug::ALL.iter().find(|(_, known)| *known == name).map(|(bug, _)| *bug);
    let bug = bug.ok_or_else(|| {
        Failure::new(format!("there is no bug '{name}' to plant")).hint("weir sim --list-bugs")
    })?;
    if plant::plant(Some(bug)) {
        return Ok(());
    }
    Err(Failure::new("this build has no bugs to plant").hint("use a build with debug assertions"))
}

fn random_seed() -> Done<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| Failure::new(format!("no random seed: {e}")))?;
    // The seed is short enough to be typed.
    Ok(u64::from_le_bytes(bytes) % 1_000_000_000)
}

fn one(sim: &Sim, seed: u64) -> Done {
    let line = batch::run_line(seed, sim.duration, sim.verify_determinism);
    tell(sim, &line)?;
    if line.violations.is_empty() {
        return Ok(());
    }
    let plan = generate::plan(seed, sim.duration.as_millis() as u32);
    explain(sim, &plan)
}

fn replay(sim: &Sim, file: &Path) -> Done {
    let about = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| about(&e))?;
    let plan: Plan = serde_json::from_str(&text).map_err(|e| about(&e))?;
    let (report, history) = run::run_with(&plan, false);
    let line = batch::line(plan.seed, &report);
    tell(sim, &line)?;
    if line.violations.is_empty() {
        return Ok(());
    }
    if !sim.json {
        print(&format!("{plan}\nhistory:\n{}", history.excerpt(|_| true)))?;
    }
    Err(Failure::new(format!("{}: {} violations", file.display(), line.violations.len())))
}

/// Prints one line for a run, and its failure.
fn tell(sim: &Sim, line: &Line) -> Done {
    if sim.json {
        return print_json(&json!(line));
    }
    let mut text = summary(line);
    for violation in &line.violations {
        text.push_str(&format!("\n{violation}"));
    }
    print(&format!("{text}\n"))
}

fn summary(line: &Line) -> String {
    let verdict = if line.violations.is_empty() { "ok" } else { "FAILED" };
    format!(
        "seed {} {verdict}: trace {:016x}, {:.1} simulated s in {:.2} CPU s, {} calls, {} faults",
        line.seed,
        line.trace_hash,
        line.simulated_ms as f64 / 1e3,
        line.cpu_ms as f64 / 1e3,
        line.calls,
        line.faults,
    )
}

/// Shrinks a failing plan, shows it, and prints how to run it again.
fn explain(sim: &Sim, plan: &Plan) -> Done {
    let again = command_line(sim, plan.seed);
    let failure = Failure::new(format!("seed {} fails", plan.seed));
    if sim.no_shrink {
        return Err(failure.hint(again));
    }
    let (small, runs) = shrink::shrink(plan, SHRINK_RUNS);
    let path = save(&small)?;
    let (report, _) = run::run_with(&small, false);
    if !sim.json {
        let mut text = format!("the smallest plan that fails, after {runs} runs:\n{small}");
        for violation in report.violations.iter().take(2) {
            text.push_str(&format!("\n{violation}"));
        }
        print(&format!("{text}\n"))?;
    }
    let plant = sim.plant.as_ref().map_or(String::new(), |bug| format!(" --plant {bug}"));
    let replay = format!("weir sim{plant} --plan {}", path.display());
    Err(failure.hint(format!("{again}\n{replay}")))
}

fn save(plan: &Plan) -> Done<PathBuf> {
    let path = std::env::temp_dir().join(format!("weir-sim-{}.json", plan.seed));
    let text = serde_json::to_string_pretty(plan).unwrap_or_default();
    std::fs::write(&path, text)
        .map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
    Ok(path)
}

fn command_line(sim: &Sim, seed: u64) -> String {
    let plant = sim.plant.as_ref().map_or(String::new(), |bug| format!(" --plant {bug}"));
    format!("weir sim --seed {seed} --duration {}ms{plant}", sim.duration.as_millis())
}

/// The totals of many runs.
#[derive(Default)]
struct Totals {
    runs: u64,
    simulated_ms: u64,
    cpu_ms: u64,
    calls: u64,
    faults: u64,
    undecided: u64,
    failed: Vec<u64>,
}

impl Totals {
    fn add(&mut self, line: &Line) {
        self.runs += 1;
        self.simulated_ms += line.simulated_ms;
        self.cpu_ms += line.cpu_ms;
        self.calls += line.calls;
        self.faults += line.faults;
        self.undecided += line.undecided;
        if !line.violations.is_empty() {
            self.failed.push(line.seed);
        }
    }

    fn simulated_s_per_cpu_s(&self) -> u64 {
        self.simulated_ms / self.cpu_ms.max(1)
    }
}

fn many(sim: &Sim, seeds: Range<u64>) -> Done {
    let bar = progress(sim, seeds.end - seeds.start);
    let mut totals = Totals::default();
    let mut said = Ok(());
    let program = std::env::current_exe().map_err(|e| Failure::new(e.to_string()))?;
    let command = |range: Range<u64>| child_command(sim, &program, range);
    let ran = batch::run_in_children(seeds, sim.jobs, command, |line| {
        totals.add(&line);
        bar.inc(1);
        if sim.json || !line.violations.is_empty() {
            said = bar.suspend(|| tell(sim, &line));
        }
        said.is_ok() && (sim.keep_going || totals.failed.is_empty())
    });
    bar.finish_and_clear();
    said?;
    tell_totals(sim, &totals)?;
    ran.map_err(|e| Failure::new(e.to_string()))?;
    match totals.failed.first() {
        None => Ok(()),
        Some(seed) => {
            let what = format!("{} of {} seeds fail", totals.failed.len(), totals.runs);
            Err(Failure::new(what).hint(command_line(sim, *seed)))
        }
    }
}

fn progress(sim: &Sim, seeds: u64) -> ProgressBar {
    if sim.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(seeds);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} seeds {eta}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn child_command(sim: &Sim, program: &Path, range: Range<u64>) -> Command {
    let mut command = Command::new(program);
    command.arg("sim").arg("--child");
    command.arg("--seed").arg(range.start.to_string());
    command.arg("--seeds").arg((range.end - range.start).to_string());
    command.arg("--duration").arg(format!("{}ms", sim.duration.as_millis()));
    if sim.verify_determinism {
        command.arg("--verify-determinism");
    }
    if let Some(bug) = &sim.plant {
        command.arg("--plant").arg(bug);
    }
    command
}

fn tell_totals(sim: &Sim, totals: &Totals) -> Done {
    if sim.json {
        return print_json(&json!({
            "runs": totals.runs,
            "failed": totals.failed,
            "simulated_ms": totals.simulated_ms,
            "cpu_ms": totals.cpu_ms,
            "simulated_s_per_cpu_s": totals.simulated_s_per_cpu_s(),
            "calls": totals.calls,
            "faults": totals.faults,
            "undecided": totals.undecided,
        }));
    }
    print(&format!(
        "{} runs, {} failed: {:.0} simulated s in {:.1} CPU s ({} s/s), {} calls, {} faults, \
         {} judgements undecided\n",
        totals.runs,
        totals.failed.len(),
        totals.simulated_ms as f64 / 1e3,
        totals.cpu_ms as f64 / 1e3,
        totals.simulated_s_per_cpu_s(),
        totals.calls,
        totals.faults,
        totals.undecided,
    ))
}
