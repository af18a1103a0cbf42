//! As many writers as disks, each of a file of its own: on its disk alone, or with each chunk on that
//! one of two disks that has it first. Some disks give half: how fast is the slowest writer?

use crate::args::GraduatedWrite;
use crate::lab::Lab;
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::report::Report;
use crate::writing::{Tables, Written, at_once, with_slow_disks};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, Result};

/// So near to the ideal the slowest writer is to be.
pub const NEAR: f64 = 0.97;
/// Where each writer's file is.
pub const LINES: [&str; 2] = ["one disk", "graduated"];
/// All writers on one disk each, in the mean.
const MEAN: &str = "one disk, mean";
/// From the mean of all on one disk each when all disks are well to that when all are slow, as in
/// the paper.
const IDEAL: &str = "ideal";
/// What all disks give, for each writer.
const DISKS: &str = "disks";
const MIB: f64 = (1 << 20) as f64;

pub fn run(plan: &GraduatedWrite) -> Result<()> {
    let common = &plan.writers.common;
    let mut report = Report::new(&common.out, "graduated-write")?;
    let (disks, faults) = (plan.writers.disks as usize, plan.writers.faults());
    let writing = Writing::new(Lab::new(common, disks, room(plan.file))?, plan.file)?;
    let mut tables = Tables::new(&report, "trial,call_bytes,line,slow_disks")?;
    let mut speeds: BTreeMap<u64, Points> = BTreeMap::new();
    with_slow_disks(&writing.lab, common.trials(), &faults, |trial, slow, rates| {
        for call_bytes in plan.calls() {
            let speeds = speeds.entry(call_bytes).or_default();
            for line in LINES {
                let written = writing.round(line, call_bytes)?;
                let key =
                    [trial.to_string(), call_bytes.to_string(), line.into(), slow.to_string()];
                tables.write(&key, rates, &written)?;
                let speed = writing.speed(&written);
                println!(
                    "trial {trial}, {} KiB, {line:9} {slow} slow: {}",
                    call_bytes >> 10,
                    text(speed, &written)
                );
                speeds.add(line, slow.into(), speed);
                if line == LINES[0] {
                    speeds.add(MEAN, slow.into(), writing.mean(&written));
                }
            }
            speeds.add(DISKS, slow.into(), rates.iter().sum::<f64>() / disks as f64 / MIB);
        }
        Ok(())
    })?;
    drop(writing);
    for (call_bytes, speeds) in &mut speeds {
        let kib = call_bytes >> 10;
        add_ideal(speeds, &faults, plan.writers.disks);
        speeds.write(&report, &format!("summary-{kib}k.csv"), "slow_disks")?;
        faults.iter().for_each(|slow| judge(&mut report, speeds, kib, (*slow).into()));
        let title =
            format!("The slowest of {disks} writers, some disks give half, calls of {kib} KiB");
        let labels = Labels { title: &title, x: "slow disks", y: "MiB/s" };
        let mut series = speeds.series(&["one disk", "graduated", IDEAL, DISKS], 1.0);
        let half = speeds.mean("one disk", 0).map(|whole| (1.0, whole / 2.0));
        series.extend(Series::stated("one disk, half", half));
        plot::lines(&report.path(&format!("graduated-write-{kib}k.svg")), &labels, &series)?;
    }
    report.finish()
}

fn add_ideal(speeds: &mut Points, faults: &[u32], disks: u32) {
    let ends = speeds.mean(MEAN, 0).zip(speeds.mean(MEAN, disks.into()));
    let Some((none, all)) = ends else { return };
    for slow in faults {
        let share = f64::from(*slow) / f64::from(disks);
        speeds.add(IDEAL, (*slow).into(), none + (all - none) * share);
    }
}

fn judge(report: &mut Report, speeds: &Points, kib: u64, slow: u64) {
    let mean = |line| speeds.mean(line, slow);
    let (Some(one), Some(graduated), Some(disks)) =
        (mean("one disk"), mean("graduated"), mean(DISKS))
    else {
        return;
    };
    let what = format!(
        "{kib} KiB, {slow} slow: the slowest writer has {graduated:.2} MiB/s, on one disk {one:.2}; {:.1} % of the {disks:.2} that disks give",
        graduated / disks * 100.0
    );
    let Some(ideal) = mean(IDEAL) else {
        println!("{what} (the ideal needs rounds with none and with all slow)");
        return;
    };
    let part = graduated / ideal;
    let what = format!("{what}, {:.1} % of the ideal, {ideal:.2}", part * 100.0);
    report.verdict(part >= NEAR, &what);
}

/// So much is on a disk at most: what was written before may not be gone yet.
pub fn room(file_bytes: u64) -> u64 {
    5 * file_bytes
}

pub fn text(speed: f64, written: &Written) -> String {
    let mib: Vec<u64> = written.disk_bytes.iter().map(|bytes| bytes >> 20).collect();
    format!("slowest {speed:6.2} MiB/s; MiB written {mib:?}")
}

/// As many writers as disks.
pub struct Writing {
    pub lab: Lab,
    input: String,
    file_bytes: u64,
}

impl Writing {
    pub fn new(lab: Lab, file_bytes: u64) -> Result<Self> {
        let input = lab.input("input", file_bytes)?;
        Ok(Self { lab, input, file_bytes })
    }

    /// What all writers write.
    pub fn input(&self) -> &str {
        &self.input
    }

    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// MiB/s of the slowest.
    pub fn speed(&self, written: &Written) -> f64 {
        self.file_bytes as f64 / MIB / written.seconds()
    }

    /// MiB/s of all writers, in the mean.
    pub fn mean(&self, written: &Written) -> f64 {
        let rates = written.ends.iter().map(|end| self.file_bytes as f64 / MIB / end);
        rates.sum::<f64>() / written.ends.len() as f64
    }

    /// All write the same input, each through a mount of its own.
    pub fn round(&self, line: &str, call_bytes: u64) -> Result<Written> {
        let lab = &self.lab;
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
        let mounts = (0..writers).map(|n| lab.cluster.mount(n, lab.place(&format!("m{n}")), "rw"));
        let mounts = mounts.collect::<Result<Vec<_>>>()?;
        let copy = |n: usize| lab.copy(&self.input, &mounts[n].path().join(name(n)), call_bytes);
        let written = at_once(lab, writers, copy)?;
        for (n, mount) in mounts.iter().enumerate() {
            let bytes = fs::metadata(mount.path().join(name(n)))?.len();
            if bytes != self.file_bytes {
                return Err(Error::other(format!("file {n} has {bytes} bytes")));
            }
        }
        drop(mounts);
        (0..writers)
            .try_for_each(|n| lab.cluster.weir(&["rm", &format!("weir:/{}", name(n))]).map(drop))?;
        Ok(written)
    }
}
