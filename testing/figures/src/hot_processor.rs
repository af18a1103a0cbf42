//! Clients of files with two copies that are in the servers' memory, while one server of first copies
//! has next to no processor.

use crate::args::HotProcessor;
use crate::hot_network::{link_carries, prepare};
use crate::mirrored::names;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::records::Records;
use crate::report::Report;
use crate::round::Round;
use std::io::Result;
use weir_testbed::Processor;

const LOADED: usize = 0;
/// As the default reads, while all servers have a processor.
const NONE: &str = "no load";
const LINES: [(&str, &str); 5] = [
    (NONE, "proportional"),
    ("primary", "primary"),
    ("halves", "halves"),
    ("skip-hot", "skip-hot"),
    ("proportional", "proportional"),
];
/// The default has so much of what the best of the others has.
const OF_THE_BEST: f64 = 0.95;
/// That server's threads wait for their share for so much of a round by first copies.
const WAITS: f64 = 0.5;

pub fn run(plan: &HotProcessor) -> Result<()> {
    let mut report = Report::new(&plan.hot.common.out, "hot-processor")?;
    let lab = prepare(&plan.hot, (plan.file, plan.most_clients()), &[2])?;
    let processor = Processor::new(&format!("weir-figures-cpu{}", std::process::id()))?;
    processor.add(lab.cluster.data_pids(lab.disks.len())?[LOADED])?;
    let mut records = Records::new(&report, "trial,line,clients")?;
    let mut waits = report.table("processor.csv", "trial,line,clients,waited_s,seconds")?;
    let mut waited = Points::default();
    let (mut points, mut by_the_last) = (Points::default(), Points::default());
    for trial in 1..=plan.hot.common.trials() {
        for clients in plan.clients() {
            for (line, policy) in LINES {
                processor.limit((line != NONE).then_some(plan.left))?;
                let files = names(2, plan.file, clients);
                let before = processor.waited_seconds()?;
                let outcome = lab.round(&Round { in_memory: 100, ..Round::of(policy, &files) })?;
                let wait = processor.waited_seconds()? - before;
                waited.add(line, clients.into(), wait / outcome.seconds);
                let key = [trial.to_string(), line.into(), clients.to_string()];
                records.write(&key, &[], &outcome)?;
                let times = [wait, outcome.seconds].map(|seconds| format!("{seconds:.3}"));
                waits.row(&[&key[..], &times].concat())?;
                let (all, last) = (outcome.aggregate(), outcome.together() * f64::from(clients));
                points.add(line, clients.into(), all);
                by_the_last.add(line, clients.into(), last);
                let sent: Vec<u64> =
                    outcome.links.iter().map(|link| link.out_bytes >> 20).collect();
                println!(
                    "trial {trial}, {line:12} {clients:2} clients: {all:6.1} MiB/s ({last:.1} until the last has ended); MiB that the servers sent {sent:?}; the first one waited for its processor {wait:.1} s of {:.1}",
                    outcome.seconds
                );
            }
        }
    }
    drop((processor, lab));
    points.write(&report, "summary.csv", "clients")?;
    by_the_last.write(&report, "by-the-last.csv", "clients")?;
    for clients in plan.clients() {
        judge(&mut report, plan, &points, clients);
    }
    shape(&mut report, &points, plan.most_clients());
    limited(&mut report, &waited, plan.most_clients());
    let title = format!("Hot reads of {} MiB each, one server has no processor", plan.file >> 20);
    let labels = Labels { title: &title, x: "clients", y: "MiB/s, all clients" };
    let series = points.series(&LINES.map(|(line, _)| line), 1.0);
    plot::lines(&report.path("hot-processor.svg"), &labels, &series)?;
    report.finish()
}

impl HotProcessor {
    fn clients(&self) -> Vec<u32> {
        self.hot.clients(&[1, 8])
    }

    fn most_clients(&self) -> u32 {
        self.clients().into_iter().max().unwrap_or(1)
    }
}

fn judge(report: &mut Report, plan: &HotProcessor, points: &Points, clients: u32) {
    let of = |line| points.mean(line, clients.into());
    let others = LINES.iter().filter(|(line, _)| ![NONE, "proportional"].contains(line));
    let best = others.filter_map(|(line, _)| Some((of(line)?, line)));
    let best = best.max_by(|(a, _), (b, _)| a.total_cmp(b));
    let Some(((best, line), rate)) = best.zip(of("proportional")) else { return };
    let part = rate / best;
    // Of each column one server has a link, and of all but one a second.
    let links = f64::from(clients.min(plan.hot.disks / 2)) * link_carries(&plan.hot);
    let what = format!(
        "{clients} clients: {rate:.1} MiB/s by default, {best:.1} by {line}, the best of the others: {:.0} % (aim {:.0} %); {links:.1} is what links carry without that server",
        part * 100.0,
        OF_THE_BEST * 100.0
    );
    report.verdict(part >= OF_THE_BEST, &what);
}

/// It is the processor that makes the server slow.
fn limited(report: &mut Report, waited: &Points, clients: u32) {
    let of = |line| waited.mean(line, clients.into()).map(|part| part * 100.0);
    let Some((none, primary)) = of(NONE).zip(of("primary")) else { return };
    let what = format!(
        "{clients} clients: by first copies threads of the server wait for their share of the processor, on all cores together, {primary:.0} % of the time, without a load {none:.0} % (aim {:.0} %)",
        WAITS * 100.0
    );
    report.verdict(primary >= WAITS * 100.0 && none < primary, &what);
}

/// With the most clients: without a load is fastest, then who skips the server.
fn shape(report: &mut Report, points: &Points, clients: u32) {
    let of = |line| points.mean(line, clients.into());
    let (Some(none), Some(skip), Some(halves)) = (of(NONE), of("skip-hot"), of("halves")) else {
        return;
    };
    let what = format!(
        "{clients} clients: no load {none:.1} > skip-hot {skip:.1} > halves {halves:.1} MiB/s; skipping gives {:.0} % more",
        100.0 * (skip / halves - 1.0)
    );
    report.verdict(none > skip && skip > halves, &what);
}
