//! As many writers as disks, each of a file of its own: on its disk alone, or with each chunk on that
//! one of two disks that has it first. Some disks give half: how fast is the slowest writer?

use crate::args::{GraduatedWrite, faults};
use crate::distributed_queue::rates;
use crate::lab::Lab;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::report::{Report, Table};
use crate::stop;
use std::fs;
use std::io::{Error, Result};
use std::thread;
use std::time::Instant;
use weir_testbed::Counts;

/// So near to what all disks give the slowest writer is to be.
const NEAR: f64 = 0.97;
const LINES: [&str; 2] = ["one disk", "graduated"];

/// What a round came to.
struct Outcome {
    /// When each writer's bytes were durable, seconds.
    ends: Vec<f64>,
    /// Written to each disk, by the kernel's count.
    disk_bytes: Vec<u64>,
}

pub fn run(plan: &GraduatedWrite) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "graduated-write")?;
    let disks = plan.disks as usize;
    let faults = faults(&plan.faults, plan.disks, plan.common.quick);
    // What was written before may not be gone yet.
    let lab = Lab::new(&plan.common, disks, plan.file * 5)?;
    let input = lab.input("input", plan.file)?;
    let mut table: Table = report
        .table("disks.csv", "trial,line,slow_disks,writer,is_slow,disk_bytes,writer_seconds")?;
    let mut speeds = Points::default();
    let mib = plan.file as f64 / (1 << 20) as f64;
    for trial in 1..=plan.common.trials() {
        for slow in &faults {
            let rates = rates(disks, *slow as usize, lab.rate);
            for (disk, rate) in lab.disks.iter().zip(&rates) {
                lab.throttle.limit_writes(disk, *rate as u64)?;
            }
            for line in LINES {
                stop::check()?;
                let outcome = round(&lab, line, &input)?;
                for (n, bytes) in outcome.disk_bytes.iter().enumerate() {
                    let is_slow = u8::from(rates[n] < lab.rate as f64).to_string();
                    let key = [trial.to_string(), line.into(), slow.to_string(), n.to_string()];
                    let end = format!("{:.3}", outcome.ends[n]);
                    table.row(&[&key[..], &[is_slow, bytes.to_string(), end]].concat())?;
                }
                let slowest = outcome.ends.iter().copied().fold(0.0, f64::max);
                let written: Vec<u64> = outcome.disk_bytes.iter().map(|b| b >> 20).collect();
                println!(
                    "trial {trial}, {line:9} {slow} slow: slowest {:6.2} MiB/s; MiB written {written:?}",
                    mib / slowest
                );
                speeds.add(line, (*slow).into(), mib / slowest);
            }
            let all = rates.iter().sum::<f64>() / disks as f64 / (1 << 20) as f64;
            speeds.add("ideal", (*slow).into(), all);
        }
    }
    drop(lab);
    speeds.write(&report, "summary.csv", "slow_disks")?;
    faults.iter().for_each(|slow| judge(&mut report, &speeds, (*slow).into()));
    let title = format!("The slowest of {disks} writers, some disks give half");
    let labels = Labels { title: &title, x: "slow disks", y: "MiB/s" };
    let lines = ["one disk", "graduated", "ideal"];
    plot::lines(&report.path("graduated-write.svg"), &labels, &speeds.series(&lines, 1.0))?;
    report.finish()
}

fn judge(report: &mut Report, speeds: &Points, slow: u64) {
    let mean = |line| speeds.mean(line, slow);
    let (Some(one), Some(graduated), Some(ideal)) =
        (mean("one disk"), mean("graduated"), mean("ideal"))
    else {
        return;
    };
    let what = format!(
        "{slow} slow: the slowest writer has {graduated:.2} of {ideal:.2} MiB/s, {:.1} %; on one disk \
         {one:.2}",
        graduated / ideal * 100.0
    );
    report.verdict(graduated >= ideal * NEAR, &what);
}

/// All write the same input, each through a mount of its own, and end when it is durable.
fn round(lab: &Lab, line: &str, input: &str) -> Result<Outcome> {
    let counts = || lab.disks.iter().map(|disk| disk.counts()).collect::<Result<Vec<Counts>>>();
    let writers = lab.disks.len();
    let name = |n: usize| format!("w{n}");
    for n in 0..writers {
        let base = n.to_string();
        let layout: &[&str] = match line {
            "graduated" => &["--layout", "chunked", "--placement", "graduated", "--count", "2"],
            _ => &["--layout", "striped", "--count", "1"],
        };
        lab.cluster.make_file(&name(n), &[layout, &["--base", &base]].concat())?;
    }
    let mounts = (0..writers).map(|n| lab.cluster.mount(0, lab.place(&format!("m{n}")), "rw"));
    let mounts = mounts.collect::<Result<Vec<_>>>()?;
    let before = counts()?;
    let begin = Instant::now();
    let write = |n: usize| {
        lab.copy(input, &mounts[n].path().join(name(n)))?;
        Ok(begin.elapsed().as_secs_f64())
    };
    let ends = thread::scope(|scope| {
        let all: Vec<_> = (0..writers).map(|n| scope.spawn(move || write(n))).collect();
        let panicked = |_| Err(Error::other("a thread has panicked"));
        all.into_iter().map(|w| w.join().unwrap_or_else(panicked)).collect::<Result<Vec<f64>>>()
    })?;
    let after = counts()?;
    for (n, mount) in mounts.iter().enumerate() {
        let written = fs::metadata(mount.path().join(name(n)))?.len();
        if written != fs::metadata(input)?.len() {
            return Err(Error::other(format!("file {n} has {written} bytes")));
        }
    }
    drop(mounts);
    (0..writers)
        .try_for_each(|n| lab.cluster.weir(&["rm", &format!("weir:/{}", name(n))]).map(drop))?;
    let written = |(after, before): (&Counts, &Counts)| after.written_bytes - before.written_bytes;
    Ok(Outcome { ends, disk_bytes: after.iter().zip(&before).map(written).collect() })
}
