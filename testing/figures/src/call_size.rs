//! As many readers as disks with a head, each of a file of its own with two copies on
//! neighbouring disks; nothing is perturbed. What do turns from one stream to another cost, by
//! the size of calls?

use crate::args::{CallSize, Line};
use crate::bed::Bed;
use crate::files::chained;
use crate::lab::Lab;
use crate::outcome::Outcome;
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::records::Records;
use crate::report::Report;
use crate::round::Round;
use std::io::{Error, Result};

/// Files of one copy: River's Non-Robust. (Who reads first copies alone is not, where a second one is
/// asked when the first does not answer within a second.)
const ONE_COPY: &str = "one copy";
const DEFAULT: &str = "proportional";
/// So near to that everybody is to be, but who takes the copies in turn.
const NEAR: f64 = 0.98;
/// In the paper who does has lost much with calls shorter than this, and little with longer ones.
const SHORT_BYTES: u64 = 512 << 10;
const MUCH: f64 = 0.9;
const LITTLE: f64 = 0.95;
/// River, figure 1, of what a disk gives (on the disks of `now`): KiB of a call, and the part.
const STATED: [(&str, f64, f64); 2] =
    [("Non-Robust, 5.45 MB/s", 8.0, 1.0), ("Basic, within 5 %", 1024.0, 0.95)];

pub fn run(plan: &CallSize) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "call-size")?;
    let disks = plan.disks as usize;
    let lab = Lab::on(&plan.common, &Bed::new(&plan.profile, plan.disks), 3 * plan.file)?;
    let (files, of_one_copy) =
        (chained(&lab, disks, 2, plan.file)?, chained(&lab, disks, 1, plan.file)?);
    let lines: Vec<_> = [(ONE_COPY, "primary", &of_one_copy)]
        .into_iter()
        .chain(plan.lines.iter().map(|line| (line.policy(), line.policy(), &files)))
        .collect();
    let mut records = Records::new(&report, "trial,call_bytes,policy")?;
    let (mut points, mut elsewhere) = (Points::default(), Points::default());
    for trial in 1..=plan.common.trials() {
        for call_bytes in plan.calls() {
            for (line, policy, files) in &lines {
                let round = Round { call_bytes, job: true, ..Round::of(policy, files) };
                let outcome = lab.round(&round)?;
                let numbers = [u64::from(trial), call_bytes].map(|n| n.to_string());
                records.write(&[&numbers[..], &[(*line).into()]].concat(), &[], &outcome)?;
                let slowest = outcome.rates().into_iter().fold(f64::INFINITY, f64::min);
                points.add(line, call_bytes, slowest);
                let given: u64 = outcome.disks.iter().map(|disk| disk.disk_bytes >> 20).sum();
                let (kib, other) = (call_bytes >> 10, from_other_copies(&lab, &outcome)?);
                elsewhere.add(line, call_bytes, other);
                println!(
                    "trial {trial}, {kib:4} KiB, {line:17}: slowest {slowest:5.2} MiB/s; the disks gave {given} MiB, {:.1} % was read from second copies",
                    other * 100.0
                );
            }
        }
    }
    let gives = lab.rate as f64 / (1 << 20) as f64;
    drop(lab);
    points.write(&report, "summary.csv", "call_bytes")?;
    for call_bytes in plan.calls() {
        judge(&mut report, plan, &points, (call_bytes, gives));
        let Some(other) = elsewhere.mean(DEFAULT, call_bytes) else { continue };
        let what = format!(
            "{} KiB, {DEFAULT}: {:.1} % is read from second copies (aim: nothing)",
            call_bytes >> 10,
            other * 100.0
        );
        report.verdict(other == 0.0, &what);
    }
    let lines: Vec<&str> = lines.iter().map(|(line, ..)| *line).collect();
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

/// What part of all that a job has read did not come from first copies, as the servers say.
fn from_other_copies(lab: &Lab, outcome: &Outcome) -> Result<f64> {
    let job = outcome.job.as_deref().unwrap_or_default();
    let said = lab.cluster.weir(&["explain", job, "--json"])?;
    let jobs: serde_json::Value = serde_json::from_str(&said)?;
    let sum = |name: &str| {
        let processes = jobs[0]["processes"].as_array()?;
        processes.iter().map(|process| process[name].as_u64()).sum::<Option<u64>>()
    };
    let (first, other) = sum("first_copy_bytes").zip(sum("other_copy_bytes")).unwrap_or_default();
    // A server that did not answer is missing.
    if first + other < outcome.read_bytes() {
        return Err(Error::other(format!("weir explain {job} does not know of all: {said}")));
    }
    Ok(other as f64 / (first + other) as f64)
}

fn judge(report: &mut Report, plan: &CallSize, points: &Points, (call_bytes, gives): (u64, f64)) {
    let Some(one_copy) = points.mean(ONE_COPY, call_bytes) else { return };
    for line in &plan.lines {
        let Some(rate) = points.mean(line.policy(), call_bytes) else { continue };
        let part = rate / one_copy;
        let what = format!(
            "{} KiB, {}: the slowest has {rate:.2} MiB/s, {:.1} % of {one_copy:.2} that it has of one copy ({gives:.2} is what a disk gives)",
            call_bytes >> 10,
            line.policy(),
            part * 100.0
        );
        match line {
            Line::Graduated if call_bytes < SHORT_BYTES => {
                report.verdict(part < MUCH, &format!("{what} (it is to lose much)"))
            }
            Line::Graduated => report.verdict(part >= LITTLE, &format!("{what} (aim 95 %)")),
            _ => report.verdict(part >= NEAR, &format!("{what} (aim 98 %)")),
        }
    }
}
