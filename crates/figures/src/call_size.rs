//! As many readers as disks with a head, each of a file of its own with two copies on
//! neighbouring disks; nothing is perturbed. What do turns from one stream to another cost, by
//! the size of calls?

use crate::args::{CallSize, Line};
use crate::bed::Bed;
use crate::files::chained;
use crate::lab::Lab;
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::records::Records;
use crate::report::Report;
use crate::round::Round;
use std::io::Result;

/// So near to what a disk gives everybody is to be, but who takes the copies in turn.
const NEAR: f64 = 0.97;
/// River, figure 1, of what a disk gives (on the disks of `now`): KiB of a call, and the part.
const STATED: [(&str, f64, f64); 2] =
    [("Non-Robust, 5.45 MB/s", 8.0, 1.0), ("Basic, within 5 %", 1024.0, 0.95)];

pub fn run(plan: &CallSize) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "call-size")?;
    let disks = plan.disks as usize;
    let lab = Lab::on(&plan.common, &Bed::new(&plan.profile, plan.disks), 2 * plan.file)?;
    let files = chained(&lab, disks, 2, plan.file)?;
    let mut records = Records::new(&report, "trial,call_bytes,policy")?;
    let mut points = Points::default();
    for trial in 1..=plan.common.trials() {
        for call_bytes in plan.calls() {
            for line in &plan.lines {
                let policy = line.policy();
                let round = Round { call_bytes, job: true, ..Round::of(policy, &files) };
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
    let gives = lab.rate as f64 / (1 << 20) as f64;
    drop(lab);
    points.write(&report, "summary.csv", "call_bytes")?;
    for call_bytes in plan.calls() {
        judge(&mut report, plan, &points, call_bytes, gives);
    }
    let lines: Vec<&str> = plan.lines.iter().map(|line| line.policy()).collect();
    let title = format!("The slowest of {disks} readers, no disk is perturbed");
    let labels = Labels { title: &title, x: "KiB of a call", y: "MiB/s" };
    let mut series = points.series(&lines, 1024.0);
    if plan.profile == "now" {
        let of = |(name, kib, part)| Series::stated(name, [(kib, gives * part)]);
        series.extend(STATED.into_iter().filter_map(of));
    }
    plot::lines(&report.path("call-size.svg"), &labels, &series)?;
    report.finish()
}

fn judge(report: &mut Report, plan: &CallSize, points: &Points, call_bytes: u64, gives: f64) {
    let kib = call_bytes >> 10;
    for line in &plan.lines {
        let Some(rate) = points.mean(line.policy(), call_bytes) else { continue };
        let part = rate / gives;
        let what = format!(
            "{kib} KiB, {}: the slowest has {rate:.2} of {gives:.2} MiB/s that a disk gives, {:.0} %",
            line.policy(),
            part * 100.0
        );
        match line {
            // In the paper it loses what the disks read ahead, the more the shorter its calls.
            Line::Graduated => report.verdict(part < NEAR, &format!("{what} (it is to lose)")),
            _ => report.verdict(part >= NEAR, &format!("{what} (aim 97 %)")),
        }
    }
}
