//! Writers of a job spread records over disks, some of which give half: what does each disk get,
//! and how long does it take, beside files that are striped over all of them?

use crate::args::DistributedQueue;
use crate::lab::Lab;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::report::Report;
use crate::writing::{Tables, Written, at_once, with_slow_disks};
use std::io::Result;

/// Each disk gets its share, so nearly.
const AIM: f64 = 0.03;
const RECORD: &str = "64K";
const RECORD_BYTES: u64 = 64 << 10;
/// Small beside what a disk gets: what is under way to a slow one at the end is more than its share.
const BATCH: &str = "512K";
/// The line of `weir spread`.
pub const QUEUE: &str = "distributed-queue";
const LINES: [&str; 2] = ["striped", QUEUE];

pub fn run(plan: &DistributedQueue) -> Result<()> {
    let common = &plan.writers.common;
    let mut report = Report::new(&common.out, "distributed-queue")?;
    let (disks, writers) = (plan.writers.disks as usize, plan.count as usize);
    let faults = plan.writers.faults();
    // For the slowest rounds, and what was written before may not be gone yet.
    let lab = Lab::new(common, disks, plan.total * 3 / disks as u64)?;
    let input = lab.input("input", plan.total / writers as u64)?;
    let mut tables = Tables::new(&report, "trial,line,slow_disks")?;
    let (mut speeds, mut worst) = (Points::default(), Points::default());
    with_slow_disks(&lab, common.trials(), &faults, |trial, slow, rates| {
        for line in LINES {
            let written = round(&lab, line, writers, &input)?;
            tables.write(&[trial.to_string(), line.into(), slow.to_string()], rates, &written)?;
            let mib = plan.total as f64 / (1 << 20) as f64;
            let error = furthest(&written.disk_bytes, &shares(line, &written, rates));
            let (seconds, ideal) = (written.seconds(), written.ideal_seconds(rates));
            println!(
                "trial {trial}, {line:17} {slow} slow: {:6.1} MiB/s, {:3.0} % of all disks; furthest \
                 from its share {:.1} %",
                mib / seconds,
                ideal / seconds * 100.0,
                error * 100.0
            );
            speeds.add(line, slow.into(), mib / seconds);
            if line == "distributed-queue" {
                worst.add(line, slow.into(), error);
                speeds.add("all disks", slow.into(), mib / ideal);
            }
        }
        Ok(())
    })?;
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
        worst.most("distributed-queue", slow),
        speeds.mean("distributed-queue", slow),
        speeds.mean("striped", slow),
    ) else {
        return;
    };
    let what = format!(
        "{slow} slow: the disk furthest from its share, of all trials, is {:.1} % from it (aim {:.0} %); {queue:.1} MiB/s, \
         striped {striped:.1}",
        error * 100.0,
        AIM * 100.0
    );
    report.verdict(error <= AIM, &what);
}

/// What each disk would get: the same, or as much as its part of all speeds.
fn shares(line: &str, written: &Written, rates: &[f64]) -> Vec<f64> {
    let total = written.disk_bytes.iter().sum::<u64>() as f64;
    let (all, count) = (rates.iter().sum::<f64>(), rates.len() as f64);
    let share = |rate: &f64| if line == "striped" { total / count } else { total * rate / all };
    rates.iter().map(share).collect()
}

fn furthest(bytes: &[u64], shares: &[f64]) -> f64 {
    let error = |(bytes, share): (&u64, &f64)| (*bytes as f64 / share - 1.0).abs();
    bytes.iter().zip(shares).map(error).fold(0.0, f64::max)
}

/// All writers write the same input, and end when it is durable.
pub fn round(lab: &Lab, line: &str, writers: usize, input: &str) -> Result<Written> {
    lab.cluster.weir(&["mkdir", "weir:/out"])?;
    if line == "striped" {
        (0..writers).try_for_each(|n| lab.cluster.make_file(&format!("out/{n}"), &[]))?;
    }
    let mount = lab.cluster.mount(0, lab.place("w"), "rw")?;
    let written = at_once(lab, writers, |n| match line {
        "striped" => lab.copy(input, &mount.path().join(format!("out/{n}")), RECORD_BYTES),
        _ => {
            let (writer, options) = (n.to_string(), ["--record", RECORD, "--batch", BATCH]);
            let order = ["spread", "-q", "--writer", &writer, "weir:/out", input];
            lab.cluster.weir_from(n, &[&order[..], &options].concat()).map(drop)
        }
    })?;
    drop(mount);
    lab.cluster.weir(&["rm", "-r", "weir:/out"])?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_is_to_get_as_much_as_it_can_write_of_records_and_the_same_of_stripes() {
        let written = Written { ends: vec![4.0], disk_bytes: vec![10, 20, 10] };
        let shares = |line| shares(line, &written, &[5.0, 10.0, 5.0]);
        assert_eq!(shares("distributed-queue"), [10.0, 20.0, 10.0]);
        assert_eq!(shares("striped"), [40.0 / 3.0; 3]);
        assert_eq!(furthest(&[10, 20], &[10.0, 16.0]), 0.25);
    }
}
