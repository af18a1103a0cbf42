//! Clients of files with two copies, while one disk of the first copies is written to and synced
//! without a pause.

use crate::args::Mirrored;
use crate::mirrored::{names, text};
use crate::outcome::Outcome;
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::records::Records;
use crate::report::Report;
use crate::round::{Load, Round, WRITERS_PART};
use std::io::{Error, Result};

const CALL_BYTES: u64 = 1 << 20;
const HOT: usize = 0;
const POLICIES: [&str; 4] = ["primary", "halves", "skip-hot", "proportional"];
/// So much more than `halves` gives who skips the hot disk, whatever is read.
const AIM: f64 = 1.25;
/// Of reads no larger than this it is several times as much; the paper states ten times.
const SMALL_BYTES: u64 = 1 << 20;
const SEVERAL: f64 = 3.0;
const STATED_LEAST: f64 = 10.0;
const MIB: f64 = (1 << 20) as f64;
/// And the default so much of what the best of the others gives.
const OF_THE_BEST: f64 = 0.95;
/// The writer has at least this part of what it may have.
const WRITES: f64 = 0.7;

pub fn run(plan: &Mirrored) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "hot-spot")?;
    let sizes = plan.sizes(match plan.common.quick {
        true => &[1 << 20, 4 << 20, 16 << 20],
        false => &[1 << 20, 4 << 20, 16 << 20, 64 << 20],
    });
    let clients = plan.most_clients();
    let lab = plan.lab(&sizes, &[2], None)?;
    let mut records = Records::new(&report, "trial,policy,clients,bytes")?;
    let mut points = Points::default();
    for trial in 1..=plan.common.trials() {
        for size in &sizes {
            for policy in POLICIES {
                let files = names(2, *size, clients);
                let (perturbed, load, call_bytes) = (&[HOT][..], Load::Writes, CALL_BYTES);
                let round = Round { call_bytes, perturbed, load, ..Round::of(policy, &files) };
                let outcome = lab.round(&round)?;
                prove_stressed(lab.rate, &outcome)?;
                let (of, bytes) = (clients.to_string(), size.to_string());
                records.write(&[trial.to_string(), policy.into(), of, bytes], &[HOT], &outcome)?;
                println!("trial {trial}, {}", text(policy, clients, *size, &outcome));
                points.add(policy, *size, outcome.aggregate());
            }
        }
    }
    drop(lab);
    points.write(&report, "summary.csv", "bytes")?;
    for size in &sizes {
        let times = if *size <= SMALL_BYTES { SEVERAL } else { AIM };
        judge(&mut report, &points, (*size, times));
    }
    let title = format!("Cold reads of {clients} clients, one disk of first copies is hot");
    let labels = Labels { title: &title, x: "MiB of each client", y: "MiB/s, all clients" };
    let mut series = points.series(&POLICIES, MIB);
    let ends = sizes.iter().min().zip(sizes.iter().max());
    let times =
        |size: &u64, times: f64| Some((*size as f64 / MIB, points.mean("halves", *size)? * times));
    if let Some((least, most)) = ends {
        series.extend(Series::stated("skip, 10 x halves", times(least, STATED_LEAST)));
        series.extend(Series::stated("skip, 1.25 x", times(most, AIM)));
    }
    plot::lines(&report.path("hot-spot.svg"), &labels, &series)?;
    report.finish()
}

/// The disk was written to all the time: by the kernel's count.
fn prove_stressed(rate: u64, outcome: &Outcome) -> Result<()> {
    let may = rate as f64 * WRITERS_PART * outcome.seconds;
    let part = outcome.disks[HOT].meanwhile_written_bytes as f64 / may;
    // In less than two seconds the kernel's limit is not kept exactly.
    if part >= WRITES || outcome.seconds < 2.0 {
        return Ok(());
    }
    Err(Error::other(format!("the writer had {:.0} % of what it may have", part * 100.0)))
}

fn judge(report: &mut Report, points: &Points, (size, aim): (u64, f64)) {
    let Some(halves) = points.mean("halves", size) else { return };
    for policy in ["skip-hot", "proportional"] {
        let Some(rate) = points.mean(policy, size) else { continue };
        let times = rate / halves;
        let mib = size >> 20;
        let what = format!(
            "{mib} MiB each, {policy}: {rate:.1} MiB/s, halves {halves:.1}: {times:.2} times (aim {aim})"
        );
        report.verdict(times >= aim, &what);
    }
    let others = POLICIES.iter().filter(|policy| **policy != "proportional");
    let best = others.filter_map(|policy| Some((points.mean(policy, size)?, policy)));
    let best = best.max_by(|(a, _), (b, _)| a.total_cmp(b));
    let Some(((best, policy), rate)) = best.zip(points.mean("proportional", size)) else { return };
    let part = rate / best;
    let what = format!(
        "{} MiB each: {rate:.1} MiB/s by default, {best:.1} by {policy}, the best of the others: {:.0} % (aim {:.0} %)",
        size >> 20,
        part * 100.0,
        OF_THE_BEST * 100.0
    );
    report.verdict(part >= OF_THE_BEST, &what);
}
