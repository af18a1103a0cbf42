//! Writers on disks of which some give half: what experiments with them share.

use crate::lab::Lab;
use crate::report::{Report, Table};
use crate::stop;
use std::io::{Error, Result};
use std::thread;
use std::time::Instant;
use weir_testbed::Counts;

/// Of what a disk gives; 1 is the file system's.
const SLOW: f64 = 0.5;

/// What all writers came to.
pub struct Written {
    /// When each writer's bytes were durable, seconds.
    pub ends: Vec<f64>,
    /// Written to each disk, by the kernel's count.
    pub disk_bytes: Vec<u64>,
}

impl Written {
    /// Until the last one had ended.
    pub fn seconds(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }

    /// How long all disks need for what was written to any.
    pub fn ideal_seconds(&self, rates: &[f64]) -> f64 {
        self.disk_bytes.iter().sum::<u64>() as f64 / rates.iter().sum::<f64>()
    }
}

/// Has each number of disks slow, in each trial; `act` is told the trial, that number, and bytes a
/// second of each disk.
pub fn with_slow_disks(
    lab: &Lab,
    trials: u32,
    faults: &[u32],
    mut act: impl FnMut(u32, u32, &[f64]) -> Result<()>,
) -> Result<()> {
    for trial in 1..=trials {
        for slow in faults {
            let rates = rates(lab.disks.len(), *slow as usize, lab.rate);
            for (disk, rate) in lab.disks.iter().zip(&rates) {
                lab.throttle.limit_writes(disk, *rate as u64)?;
            }
            act(trial, *slow, &rates)?;
        }
    }
    Ok(())
}

/// Bytes a second of each disk; the slow ones are spread evenly.
fn rates(disks: usize, slow: usize, rate: u64) -> Vec<f64> {
    let is_slow = |n: usize| (n + 1) * slow / disks > n * slow / disks;
    (0..disks).map(|n| rate as f64 * if is_slow(n) { SLOW } else { 1.0 }).collect()
}

/// So many writers write at once, each until all is durable.
pub fn at_once(
    lab: &Lab,
    writers: usize,
    write: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Written> {
    stop::check()?;
    let counts = || lab.disks.iter().map(|disk| disk.counts()).collect::<Result<Vec<Counts>>>();
    let before = counts()?;
    let begin = Instant::now();
    let write = |n: usize| {
        write(n)?;
        Ok(begin.elapsed().as_secs_f64())
    };
    let ends = thread::scope(|scope| {
        let write = &write;
        let all: Vec<_> = (0..writers).map(|n| scope.spawn(move || write(n))).collect();
        let panicked = |_| Err(Error::other("a thread has panicked"));
        all.into_iter().map(|w| w.join().unwrap_or_else(panicked)).collect::<Result<Vec<f64>>>()
    })?;
    let written = |(after, before): (&Counts, &Counts)| after.written_bytes - before.written_bytes;
    Ok(Written { ends, disk_bytes: counts()?.iter().zip(&before).map(written).collect() })
}

/// What was measured in each round, as CSV.
pub struct Tables {
    disks: Table,
    writers: Table,
}

impl Tables {
    /// `key`: the heads of the columns that name a round.
    pub fn new(report: &Report, key: &str) -> Result<Self> {
        Ok(Self {
            disks: report.table("disks.csv", &format!("{key},disk,bytes_per_s,bytes,seconds"))?,
            writers: report.table("writers.csv", &format!("{key},writer,seconds"))?,
        })
    }

    pub fn write(&mut self, key: &[String], rates: &[f64], written: &Written) -> Result<()> {
        let seconds = format!("{:.3}", written.seconds());
        for (n, (bytes, rate)) in written.disk_bytes.iter().zip(rates).enumerate() {
            let values = [n.to_string(), format!("{rate:.0}"), bytes.to_string(), seconds.clone()];
            self.disks.row(&[key, &values].concat())?;
        }
        for (n, end) in written.ends.iter().enumerate() {
            self.writers.row(&[key, &[n.to_string(), format!("{end:.3}")]].concat())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_disks_are_spread_evenly_and_the_last_writer_counts() {
        assert_eq!(rates(4, 0, 10), [10.0; 4]);
        assert_eq!(rates(4, 2, 10), [10.0, 5.0, 10.0, 5.0]);
        assert_eq!(rates(4, 4, 10), [5.0; 4]);
        let written = Written { ends: vec![3.0, 4.0], disk_bytes: vec![10, 20, 10] };
        assert_eq!(written.seconds(), 4.0);
        assert_eq!(written.ideal_seconds(&[5.0, 10.0, 5.0]), 2.0);
    }
}
