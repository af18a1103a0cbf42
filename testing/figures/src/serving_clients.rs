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
    let mut points = Points::default();
    for trial in 1..=plan.common.trials() {
        for thousandths in plan.processors() {
            for processor in &lab.cluster.machines()?.processors {
                processor.limit(Some(thousandths))?;
            }
            for (line, first) in [(APART, nodes + 1), (TOGETHER, 1)] {
                if let Some(bed) = &mut lab.cluster.bed {
                    bed.readers = (first..first + nodes).collect();
                }
                let outcome =
                    lab.round(&Round { in_memory: 100, ..Round::of("primary", &files) })?;
                let key = [trial.to_string(), line.into(), thousandths.to_string()];
                records.write(&key, &[], &outcome)?;
                let (all, last) = (outcome.aggregate(), outcome.together() * f64::from(nodes));
                points.add(line, thousandths.into(), all);
                println!(
                    "trial {trial}, {thousandths:3} thousandths of a core, clients {line}: {all:.1} MiB/s ({last:.1} until the last has ended)"
                );
            }
        }
    }
    drop(lab);
    points.write(&report, "summary.csv", "thousandths")?;
    for thousandths in plan.processors() {
        judge(&mut report, &points, thousandths);
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

fn judge(report: &mut Report, points: &Points, thousandths: u32) {
    let of = |line| points.mean(line, thousandths.into());
    let Some((apart, together)) = of(APART).zip(of(TOGETHER)) else { return };
    let part = together / apart;
    let what = format!(
        "{thousandths} thousandths of a core for each node: clients {TOGETHER} have {together:.1} MiB/s, {:.0} % of {apart:.1} {APART} (paper: they lose; aim: {:.0} % or less)",
        part * 100.0,
        LOSES * 100.0
    );
    report.verdict(part <= LOSES, &what);
}
