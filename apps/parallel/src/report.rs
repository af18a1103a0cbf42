//! Statistics of a process: amounts, and the time of each phase.

use crate::job::Job;
use crate::options::Run;
use crate::reading::Totals;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::time::Instant;
use weir_types::Result;

/// Collects statistics of a run.
pub struct Report {
    program: &'static str,
    begun: Instant,
    phase: Instant,
    phases: Map<String, Value>,
    values: Map<String, Value>,
}

impl Report {
    /// Starts the clock.
    pub fn begin(program: &'static str) -> Self {
        let now = Instant::now();
        Self { program, begun: now, phase: now, phases: Map::new(), values: Map::new() }
    }

    /// Ends a phase and begins the next one.
    pub fn phase(&mut self, name: &str) {
        let now = Instant::now();
        self.phases.insert(name.to_owned(), rounded((now - self.phase).as_secs_f64()));
        self.phase = now;
    }

    /// Adds a value.
    pub fn count(&mut self, name: &str, value: u64) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// Adds the amounts that were read.
    pub fn read(&mut self, totals: Totals) {
        self.count("input_bytes", totals.bytes);
        self.count("local_bytes", totals.local_bytes);
    }

    /// Prints a line of JSON to standard error with a single write, so that lines of several
    /// processes do not mix.
    pub fn print(self, run: &Run) {
        let Job { rank, ranks, .. } = run.job;
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let mut all = json!({
            "program": self.program,
            "rank": rank,
            "ranks": ranks,
            "read": run.inputs.way().name(),
            "seconds": rounded(self.begun.elapsed().as_secs_f64()),
            "cpu_seconds": rounded(cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9),
            "phases": self.phases,
        });
        if let Some(all) = all.as_object_mut() {
            all.extend(self.values);
        }
        // An error of this write has no other place to go.
        drop(std::io::stderr().write_all(format!("{all}\n").as_bytes()));
    }
}

/// Seconds, rounded to milliseconds.
fn rounded(seconds: f64) -> Value {
    json!((seconds * 1e3).round() / 1e3)
}

/// Ends a run: leaves the job, or reports this process's failure to the others. After success
/// prints the report.
///
/// # Errors
/// That of the run, or of other processes.
pub fn finish<T>(run: &Run, done: Result<T>, report: Option<Report>) -> Result<T> {
    let done = done.inspect_err(|error| run.job.fail(error))?;
    run.job.leave()?;
    if let Some(report) = report {
        report.print(run);
    }
    Ok(done)
}
