//! What a process has done, and how long each phase took.

use crate::job::Job;
use crate::options::Run;
use crate::reading::Totals;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::time::Instant;
use weir_types::Result;

/// Measures a run.
pub struct Report {
    program: &'static str,
    begun: Instant,
    phase: Instant,
    phases: Map<String, Value>,
    values: Map<String, Value>,
}

impl Report {
    /// Begins to measure.
    pub fn begin(program: &'static str) -> Self {
        let now = Instant::now();
        Self { program, begun: now, phase: now, phases: Map::new(), values: Map::new() }
    }

    /// A phase has ended, and the next one begins.
    pub fn phase(&mut self, name: &str) {
        let now = Instant::now();
        self.phases.insert(name.to_owned(), rounded((now - self.phase).as_secs_f64()));
        self.phase = now;
    }

    /// Adds a number.
    pub fn count(&mut self, name: &str, value: u64) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// Adds what was read.
    pub fn read(&mut self, totals: Totals) {
        self.count("input_bytes", totals.bytes);
        self.count("local_bytes", totals.local_bytes);
    }

    /// A line of JSON on standard error. In one call: what several processes say is not mixed.
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
        // There is nobody else to tell of an error of this.
        drop(std::io::stderr().write_all(format!("{all}\n").as_bytes()));
    }
}

/// Seconds, to the millisecond.
fn rounded(seconds: f64) -> Value {
    json!((seconds * 1e3).round() / 1e3)
}

/// Ends a run: leaves the job, or tells the other processes that this one has failed. Prints the
/// report of a run that went well.
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
