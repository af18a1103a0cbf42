//! Clients of what is in the servers' memory, on the nodes of the servers or on as many nodes of
//! their own: what does it cost that a processor serves and reads?

use crate::args::ServingClients;
use crate::bed::Bed;
use crate::lab::Lab;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::records::Records;
use crate::report::Report;
use crate::round::Round;
use std::io::Result;
use weir_testbed::Processor;

/// Where clients are.
const APART: &str = "on nodes of their own";
const TOGETHER: &str = "on the servers' nodes";
/// Who shares a processor with a server has no more than this part of what others have.
const LOSES: f64 = 0.9;
/// With so many thousandths of a core there is room to spare,
const SPARE: u32 = 200;
/// and nothing is lost.
const KEEPS: f64 = 0.95;

pub fn run(plan: &ServingClients) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "serving-clients")?;
    let nodes = plan.nodes;
    let mut bed = Bed::new(&plan.profile, nodes);
    bed.clients = nodes;
    let mut lab = Lab::on(&plan.common, &bed, 2 * plan.file)?;
    let files: Vec<String> = (0..nodes).map(|n| format!("f{n}")).collect();
    let count = nodes.to_string();
    let layout = ["--layout", "striped", "--base", "0", "--count", &count];
    files.iter().try_for_each(|name| lab.write(name, &layout, plan.file))?;
    share_processors(&mut lab, nodes)?;
    let mut records = Records::new(&report, "trial,line,thousandths")?;
    let mut waits = report.table("processors.csv", "trial,line,thousandths,waited_s,seconds")?;
    let (mut points, mut waited) = (Points::default(), Points::default());
    for trial in 1..=plan.common.trials() {
        for thousandths in plan.processors() {
            for processor in &lab.cluster.machines()?.processors {
                processor.limit(Some(thousandths))?;
            }
            for (line, first) in [(APART, nodes + 1), (TOGETHER, 1)] {
                if let Some(bed) = &mut lab.cluster.bed {
                    bed.readers = (first..first + nodes).collect();
                }
                let before = all_waited(&lab)?;
                let outcome =
                    lab.round(&Round { in_memory: 100, ..Round::of("primary", &files) })?;
                let key = [trial.to_string(), line.into(), thousandths.to_string()];
                records.write(&key, &[], &outcome)?;
                let wait = (all_waited(&lab)? - before) / f64::from(nodes);
                waited.add(line, thousandths.into(), wait / outcome.seconds);
                let times = [wait, outcome.seconds].map(|seconds| format!("{seconds:.3}"));
                waits.row(&[&key[..], &times].concat())?;
                let (all, last) = (outcome.aggregate(), outcome.together() * f64::from(nodes));
                points.add(line, thousandths.into(), all);
                println!(
                    "trial {trial}, {thousandths:3} thousandths of a core, clients {line}: {all:.1} MiB/s ({last:.1} until the last has ended); processes of a server's node waited for its processor {wait:.1} s of {:.1}",
                    outcome.seconds
                );
            }
        }
    }
    drop(lab);
    points.write(&report, "summary.csv", "thousandths")?;
    for thousandths in plan.processors() {
        judge(&mut report, (&points, &waited), thousandths);
    }
    let title = format!("{nodes} clients of {nodes} servers, files in memory");
    let labels = Labels { title: &title, x: "a node's processor, thousandths", y: "MiB/s, all" };
    plot::lines(
        &report.path("serving-clients.svg"),
        &labels,
        &points.series(&[APART, TOGETHER], 1.0),
    )?;
    report.finish()
}

/// A processor for each node, which all have that run there: servers now, and clients from now on.
fn share_processors(lab: &mut Lab, servers: u32) -> Result<()> {
    let name = |node: u32| format!("weir-figures-cpu{}-{node}", std::process::id());
    let new = |node: u32| Processor::new(&name(node));
    let processors = (1..=2 * servers).map(new).collect::<Result<Vec<_>>>()?;
    // The metadata server, which is the last, is on the first node.
    let pids = lab.cluster.pids(servers as usize)?;
    for (n, pid) in pids.into_iter().enumerate() {
        processors[n % servers as usize].add(pid)?;
    }
    if let Some(bed) = &mut lab.cluster.bed {
        bed.processors = processors;
    }
    Ok(())
}

/// For how long processes of all servers' nodes had nothing left of a processor.
fn all_waited(lab: &Lab) -> Result<f64> {
    let servers = lab.cluster.machines()?.processors.iter().take(lab.disks.len());
    servers.map(Processor::waited_seconds).sum()
}

/// Clients of their own have twice the processors: it is lost where these are the limit alone.
fn judge(report: &mut Report, (points, waited): (&Points, &Points), thousandths: u32) {
    let of = |line| points.mean(line, thousandths.into());
    let waits = |line| waited.mean(line, thousandths.into()).unwrap_or_default() * 100.0;
    let Some((apart, together)) = of(APART).zip(of(TOGETHER)) else { return };
    let part = together / apart;
    let (is_spare, percent) = (thousandths >= SPARE, part * 100.0);
    let aim = match is_spare {
        true => format!("room to spare, aim: {:.0} % or more", KEEPS * 100.0),
        false => format!("paper: they lose; aim: {:.0} % or less", LOSES * 100.0),
    };
    let what = format!(
        "{thousandths} thousandths of a core for each node: clients {TOGETHER} have {together:.1} MiB/s, {percent:.0} % of {apart:.1} {APART} ({aim}); servers' nodes wait for a processor, on all cores together, {:.0} % of the time, {:.0} % with clients {APART}",
        waits(TOGETHER),
        waits(APART)
    );
    report.verdict(if is_spare { part >= KEEPS } else { part <= LOSES }, &what);
}
