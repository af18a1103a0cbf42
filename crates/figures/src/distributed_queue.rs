//! Writers of a job spread records over disks, some of which give half: what does each disk get,
//! and how long does it take, beside files that are striped over all of them?

use crate::args::{DistributedQueue, faults};
use crate::lab::Lab;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::report::{Report, Table};
use crate::stop;
use std::io::{Error, Result};
use std::thread;
use std::time::Instant;
use weir_testbed::Counts;

/// Each disk gets its share, so nearly.
const AIM: f64 = 0.03;
const RECORD: &str = "64K";
/// Small beside what a disk gets: what is under way to a slow one at the end is more than its share.
const BATCH: &str = "512K";
/// Of what a disk gives; 1 is the file system's.
const SLOW: f64 = 0.5;
const LINES: [&str; 2] = ["striped", "distributed-queue"];

/// What a round came to.
struct Outcome {
    /// Written to each disk, by the kernel's count.
    disk_bytes: Vec<u64>,
    seconds: f64,
}

pub fn run(plan: &DistributedQueue) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "distributed-queue")?;
    let (disks, writers) = (plan.disks as usize, plan.writers as usize);
    let faults = faults(&plan.faults, plan.disks, plan.common.quick);
    let each = plan.total / writers as u64;
    // For the slowest rounds, and what was written before may not be gone yet.
    let lab = Lab::new(&plan.common, disks, plan.total * 3 / disks as u64)?;
    let input = lab.input("input", each)?;
    let head = "trial,line,slow_disks,disk,is_slow,disk_bytes,expected_bytes,seconds";
    let mut table: Table = report.table("disks.csv", head)?;
    let (mut speeds, mut worst) = (Points::default(), Points::default());
    for trial in 1..=plan.common.trials() {
        for slow in &faults {
            let rates = rates(disks, *slow as usize, lab.rate);
            for (disk, rate) in lab.disks.iter().zip(&rates) {
                lab.throttle.limit_writes(disk, *rate as u64)?;
            }
            for line in LINES {
                stop::check()?;
                let outcome = round(&lab, line, writers, &input)?;
                let shares = shares(line, &outcome, &rates);
                for (n, (bytes, expected)) in outcome.disk_bytes.iter().zip(&shares).enumerate() {
                    let is_slow = u8::from(rates[n] < lab.rate as f64);
                    let key = [trial.to_string(), line.into(), slow.to_string(), n.to_string()];
                    let seconds = format!("{:.3}", outcome.seconds);
                    let values = [is_slow.to_string(), bytes.to_string(), format!("{expected:.0}")];
                    table.row(&[&key[..], &values, &[seconds]].concat())?;
                }
                let mib = plan.total as f64 / (1 << 20) as f64;
                let error = furthest(&outcome.disk_bytes, &shares);
                let share = ideal_seconds(&outcome, &rates) / outcome.seconds;
                println!(
                    "trial {trial}, {line:17} {slow} slow: {:6.1} MiB/s, {:3.0} % of all disks; furthest \
                     from its share {:.1} %",
                    mib / outcome.seconds,
                    share * 100.0,
                    error * 100.0
                );
                speeds.add(line, (*slow).into(), mib / outcome.seconds);
                if line == "distributed-queue" {
                    worst.add(line, (*slow).into(), error);
                    speeds.add("all disks", (*slow).into(), mib / ideal_seconds(&outcome, &rates));
                }
            }
        }
    }
    drop(lab);
    speeds.write(&report, "summary.csv", "slow_disks")?;
    for slow in &faults {
        judge(&mut report, &speeds, &worst, (*slow).into());
    }
    let title = format!("{writers} writers on {disks} disks, some of which give half");
    let labels = Labels { title: &title, x: "slow disks", y: "MiB/s, all writers" };
    let lines = ["striped", "distributed-queue", "all disks"];
    plot::lines(&report.path("distributed-queue.svg"), &labels, &speeds.series(&lines, 1.0))?;
    report.finish()
}

fn judge(report: &mut Report, speeds: &Points, worst: &Points, slow: u64) {
    let (Some(error), Some(queue), Some(striped)) = (
        worst.mean("distributed-queue", slow),
        speeds.mean("distributed-queue", slow),
        speeds.mean("striped", slow),
    ) else {
        return;
    };
    let what = format!(
        "{slow} slow: the disk furthest from its share is {:.1} % from it (aim {:.0} %); {queue:.1} MiB/s, \
         striped {striped:.1}",
        error * 100.0,
        AIM * 100.0
    );
    report.verdict(error <= AIM, &what);
}

/// Bytes a second of each disk; the slow ones are spread evenly.
pub fn rates(disks: usize, slow: usize, rate: u64) -> Vec<f64> {
    let is_slow = |n: usize| (n + 1) * slow / disks > n * slow / disks;
    (0..disks).map(|n| rate as f64 * if is_slow(n) { SLOW } else { 1.0 }).collect()
}

/// What each disk would get: the same, or as much as its part of all speeds.
fn shares(line: &str, outcome: &Outcome, rates: &[f64]) -> Vec<f64> {
    let total = outcome.disk_bytes.iter().sum::<u64>() as f64;
    let (all, count) = (rates.iter().sum::<f64>(), rates.len() as f64);
    let share = |rate: &f64| if line == "striped" { total / count } else { total * rate / all };
    rates.iter().map(share).collect()
}

fn furthest(bytes: &[u64], shares: &[f64]) -> f64 {
    let error = |(bytes, share): (&u64, &f64)| (*bytes as f64 / share - 1.0).abs();
    bytes.iter().zip(shares).map(error).fold(0.0, f64::max)
}

fn ideal_seconds(outcome: &Outcome, rates: &[f64]) -> f64 {
    outcome.disk_bytes.iter().sum::<u64>() as f64 / rates.iter().sum::<f64>()
}

/// All writers write the same input, and end when it is durable.
fn round(lab: &Lab, line: &str, writers: usize, input: &str) -> Result<Outcome> {
    let counts = || lab.disks.iter().map(|disk| disk.counts()).collect::<Result<Vec<Counts>>>();
    lab.cluster.weir(&["mkdir", "weir:/out"])?;
    if line == "striped" {
        (0..writers).try_for_each(|n| lab.cluster.make_file(&format!("out/{n}"), &[]))?;
    }
    let mount = lab.cluster.mount(0, lab.place("w"), "rw")?;
    let before = counts()?;
    let begin = Instant::now();
    let write = |n: usize| match line {
        "striped" => lab.copy(input, &mount.path().join(format!("out/{n}"))),
        _ => {
            let (writer, options) = (n.to_string(), ["--record", RECORD, "--batch", BATCH]);
            let order = ["spread", "-q", "--writer", &writer, "weir:/out", input];
            lab.cluster.weir(&[&order[..], &options].concat()).map(drop)
        }
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..writers).map(|n| scope.spawn(move || write(n))).collect();
        let panicked = |_| Err(Error::other("a thread has panicked"));
        all.into_iter().try_for_each(|writer| writer.join().unwrap_or_else(panicked))
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let after = counts()?;
    drop(mount);
    lab.cluster.weir(&["rm", "-r", "weir:/out"])?;
    let written = |(after, before): (&Counts, &Counts)| after.written_bytes - before.written_bytes;
    Ok(Outcome { disk_bytes: after.iter().zip(&before).map(written).collect(), seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_disks_are_spread_evenly_and_get_half() {
        assert_eq!(rates(4, 0, 10), [10.0; 4]);
        assert_eq!(rates(4, 2, 10), [10.0, 5.0, 10.0, 5.0]);
        assert_eq!(rates(4, 4, 10), [5.0; 4]);
        let outcome = Outcome { disk_bytes: vec![10, 20, 10], seconds: 4.0 };
        assert_eq!(shares("distributed-queue", &outcome, &[5.0, 10.0, 5.0]), [10.0, 20.0, 10.0]);
        assert_eq!(ideal_seconds(&outcome, &[5.0, 10.0, 5.0]), 2.0);
        assert_eq!(furthest(&[10, 20], &[10.0, 16.0]), 0.25);
    }
}
