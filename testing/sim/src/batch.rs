//! Runs many seeds in child processes of a few dozen seeds each, because killed simulated processes
//! do not free their memory.

use crate::run::{self, Report};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Number of seeds of a child process.
pub const SEEDS_OF_A_PROCESS: u64 = 50;
/// Maximum number of violations reported for each run.
const MAX_VIOLATIONS: usize = 4;

/// The summary of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Line {
    /// The seed.
    pub seed: u64,
    /// Hash of the trace; equal for equal runs.
    pub trace_hash: u64,
    /// Virtual time, milliseconds.
    pub simulated_ms: u64,
    /// CPU time, milliseconds.
    pub cpu_ms: u64,
    /// Number of calls of clients.
    pub calls: u64,
    /// Number of faults.
    pub faults: u64,
    /// Number of judgements given up.
    pub undecided: u64,
    /// What is wrong.
    pub violations: Vec<String>,
}

/// Runs one seed. With `twice`, runs it again, and both runs must be equal.
pub fn run_line(seed: u64, duration: Duration, twice: bool) -> Line {
    let report = run::run_seed(seed, duration);
    let mut line = line(seed, &report);
    if twice {
        let second = run::run_seed(seed, duration).trace_hash;
        if second != report.trace_hash {
            let what = format!(
                "not deterministic: trace hashes {:016x} and {second:016x}",
                report.trace_hash
            );
            line.violations.insert(0, what);
        }
    }
    line
}

/// The summary of a report.
pub fn line(seed: u64, report: &Report) -> Line {
    let violations = report.violations.iter().take(MAX_VIOLATIONS);
    Line {
        seed,
        trace_hash: report.trace_hash,
        simulated_ms: report.simulated.as_millis() as u64,
        cpu_ms: report.cpu.as_millis() as u64,
        calls: report.calls,
        faults: report.faults,
        undecided: report.undecided,
        violations: violations.map(ToString::to_string).collect(),
    }
}

/// Runs seeds one after another and writes a line of JSON for each, in a child process.
pub fn run_here(seeds: Range<u64>, duration: Duration, twice: bool) {
    for seed in seeds {
        let line = run_line(seed, duration, twice);
        if let Ok(text) = serde_json::to_string(&line) {
            // Ends when the collector of the lines is gone.
            if writeln!(io::stdout(), "{text}").is_err() {
                return;
            }
        }
    }
}

/// Runs seeds in child processes, `jobs` at a time. `command` makes the command that runs a range
/// with [`run_here`]. `each` gets the lines as they come, and stops everything by returning false.
///
/// # Errors
/// A child that cannot be started, or that ended before its seeds did: which
/// seed it was.
pub fn run_in_children(
    seeds: Range<u64>,
    jobs: usize,
    command: impl Fn(Range<u64>) -> Command,
    mut each: impl FnMut(Line) -> bool,
) -> io::Result<()> {
    let mut todo: VecDeque<Range<u64>> = VecDeque::new();
    let mut at = seeds.start;
    while at < seeds.end {
        let end = seeds.end.min(at + SEEDS_OF_A_PROCESS);
        todo.push_back(at..end);
        at = end;
    }
    let (sender, receiver) = mpsc::channel();
    let mut running = 0;
    let mut children = Children(Vec::new());
    loop {
        while running < jobs.max(1)
            && let Some(range) = todo.pop_front()
        {
            let index = children.0.len();
            children.0.push(start(command(range.clone()), range, index, sender.clone())?);
            running += 1;
        }
        if running == 0 {
            return Ok(());
        }
        match receiver.recv().map_err(io::Error::other)? {
            News::Line(line) => {
                if !each(*line) {
                    return Ok(());
                }
            }
            News::Ended { index, next, end } => {
                running -= 1;
                let status = children.0[index].wait()?;
                if next < end {
                    let what = format!("the process that ran seed {next} ended with {status}");
                    return Err(io::Error::other(what));
                }
            }
        }
    }
}

enum News {
    Line(Box<Line>),
    Ended { index: usize, next: u64, end: u64 },
}

/// Kills the running child processes when dropped.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It fails for processes that have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(
    mut command: Command,
    range: Range<u64>,
    index: usize,
    sender: mpsc::Sender<News>,
) -> io::Result<Child> {
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
    let output = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    std::thread::spawn(move || {
        let mut next = range.start;
        for text in BufReader::new(output).lines().map_while(Result::ok) {
            // A test harness prints lines of its own.
            let Some(at) = text.find("{\"seed\":") else { continue };
            if let Ok(line) = serde_json::from_str::<Line>(&text[at..]) {
                next = line.seed + 1;
                if sender.send(News::Line(Box::new(line))).is_err() {
                    return;
                }
            }
        }
        // The receiver is gone: everything was stopped.
        let _ = sender.send(News::Ended { index, next, end: range.end });
    });
    Ok(child)
}
