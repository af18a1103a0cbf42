//! As many readers as disks with a head, each of a file of its own with two copies on
//! neighbouring disks; nothing is perturbed. What do turns from one stream to another cost, by
//! the size of calls?

use crate::args::{CallSize, Line};
use crate::bed::Bed;
use crate::even_reads::write_files;
use crate::lab::Lab;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::records::Records;
use crate::report::Report;
use crate::round::{Load, Round};
use std::io::Result;
use std::time::Duration;

/// So near to who reads the first copies alone the others are to be.
const NEAR: f64 = 0.97;

pub fn run(plan: &CallSize) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "call-size")?;
    let disks = plan.disks as usize;
    let lab = Lab::on(&plan.common, &Bed::new(&plan.profile, plan.disks), 2 * plan.file)?;
    let files = write_files(&lab, disks, plan.file)?;
    let mut records = Records::new(&report, "trial,call_bytes,policy")?;
    let mut points = Points::default();
    for trial in 1..=plan.common.trials() {
        for call_bytes in plan.calls() {
            for line in &plan.lines {
                let load = Load::Reads { turn: Duration::ZERO };
                let policy = line.policy();
                let (perturbed, job, is_hot) = (&[], true, false);
                let files = &files;
                let round = Round { policy, files, call_bytes, perturbed, load, job, is_hot };
                let outcome = lab.round(&round)?;
                let numbers = [u64::from(trial), call_bytes].map(|n| n.to_string());
                records.write(&[&numbers[..], &[policy.into()]].concat(), &[], &outcome)?;
                let slowest = outcome.rates().into_iter().fold(f64::INFINITY, f64::min);
                points.add(policy, call_bytes, slowest);
                let given: u64 = outcome.disks.iter().map(|disk| disk.disk_bytes >> 20).sum();
                let kib = call_bytes >> 10;
                println!(
                    "trial {trial}, {kib:4} KiB, {policy:17}: slowest {slowest:5.2} MiB/s; the disks gave {given} MiB"
                );
            }
        }
    }
    drop(lab);
    points.write(&report, "summary.csv", "call_bytes")?;
    for call_bytes in plan.calls() {
        judge(&mut report, plan, &points, call_bytes);
    }
    let lines: Vec<&str> = plan.lines.iter().map(|line| line.policy()).collect();
    let title = format!("The slowest of {disks} readers, no disk is perturbed");
    let labels = Labels { title: &title, x: "KiB of a call", y: "MiB/s" };
    plot::lines(&report.path("call-size.svg"), &labels, &points.series(&lines, 1024.0))?;
    report.finish()
}

impl CallSize {
    fn calls(&self) -> Vec<u64> {
        match (&*self.calls, self.common.quick) {
            ([], true) => vec![4 << 10, 64 << 10, 1 << 20],
            ([], false) => vec![4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20],
            (calls, _) => calls.to_vec(),
        }
    }
}

fn judge(report: &mut Report, plan: &CallSize, points: &Points, call_bytes: u64) {
    let Some(primary) = points.mean("primary", call_bytes) else { return };
    let kib = call_bytes >> 10;
    for line in plan.lines.iter().map(|line| line.policy()) {
        let Some(rate) = points.mean(line, call_bytes).filter(|_| line != "primary") else {
            continue;
        };
        let part = 100.0 * rate / primary;
        // Who takes the copies in turn loses what disks read ahead, in the paper.
        if line == Line::Graduated.policy() {
            let what = format!("{kib} KiB: {line} loses by turns: {part:.1} % of primary are left");
            report.verdict(part < 100.0 * NEAR, &what);
        } else {
            let what = format!(
                "{kib} KiB: {line} is within 3 % of primary: {rate:.2} of {primary:.2} MiB/s, {part:.1} %"
            );
            report.verdict(part >= 100.0 * NEAR, &what);
        }
    }
}
