//! As many writers as disks, each of a file of its own: on its disk alone, or with each chunk on that
//! one of two disks that has it first. Some disks give half: how fast is the slowest writer?

use crate::args::GraduatedWrite;
use crate::lab::Lab;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::report::Report;
use crate::writing::{Tables, Written, at_once, with_slow_disks};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, Result};

/// So near to what all disks give the slowest writer is to be.
pub const NEAR: f64 = 0.97;
/// Where each writer's file is.
pub const LINES: [&str; 2] = ["one disk", "graduated"];
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
            }
            speeds.add("ideal", slow.into(), rates.iter().sum::<f64>() / disks as f64 / MIB);
        }
        Ok(())
    })?;
    drop(writing);
    for (call_bytes, speeds) in &speeds {
        let kib = call_bytes >> 10;
        speeds.write(&report, &format!("summary-{kib}k.csv"), "slow_disks")?;
        faults.iter().for_each(|slow| judge(&mut report, speeds, kib, (*slow).into()));
        let title =
            format!("The slowest of {disks} writers, some disks give half, calls of {kib} KiB");
        let labels = Labels { title: &title, x: "slow disks", y: "MiB/s" };
        let series = speeds.series(&["one disk", "graduated", "ideal"], 1.0);
        plot::lines(&report.path(&format!("graduated-write-{kib}k.svg")), &labels, &series)?;
    }
    report.finish()
}

fn judge(report: &mut Report, speeds: &Points, kib: u64, slow: u64) {
    let mean = |line| speeds.mean(line, slow);
    let (Some(one), Some(graduated), Some(ideal)) =
        (mean("one disk"), mean("graduated"), mean("ideal"))
    else {
        return;
    };
    let what = format!(
        "{kib} KiB, {slow} slow: the slowest writer has {graduated:.2} of {ideal:.2} MiB/s, {:.1} %; on \
         one disk {one:.2}",
        graduated / ideal * 100.0
    );
    report.verdict(graduated >= ideal * NEAR, &what);
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

    /// MiB/s of the slowest.
    pub fn speed(&self, written: &Written) -> f64 {
        self.file_bytes as f64 / MIB / written.seconds()
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
        let mounts = (0..writers).map(|n| lab.cluster.mount(0, lab.place(&format!("m{n}")), "rw"));
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
