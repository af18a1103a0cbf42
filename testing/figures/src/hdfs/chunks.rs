//! Searches of files whose chunks are many, or few: does it show that chunks lie at random, and not on
//! one node after the other?

use super::scan::{Machines, Reader};
use super::{HDFS, LOCATIONS, TAKE, check, rate};
use crate::args::Hdfs;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::report::Report;
use crate::stop;
use std::io::Result;

const LINES: [(&str, Reader, Placed); 5] = [
    (LOCATIONS, Reader::Cluster { way: "locations" }, Placed::AtRandom),
    (TAKE, Reader::Cluster { way: "take" }, Placed::AtRandom),
    (HDFS, Reader::Hdfs, Placed::AtRandom),
    ("locations, round robin", Reader::Cluster { way: "locations" }, Placed::RoundRobin),
    ("take, round robin", Reader::Cluster { way: "take" }, Placed::RoundRobin),
];

/// Where the chunks of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    AtRandom,
    /// As stripe units are.
    RoundRobin,
}

impl Placed {
    /// The beginning of the names of such files.
    fn prefix(self) -> &'static str {
        match self {
            Self::AtRandom => "chunks",
            Self::RoundRobin => "stripes",
        }
    }
}
/// A file is so much smaller than the one of figure 1.
const SMALLER: u64 = 2;
const MB: f64 = 1e6;

/// Bytes of each of these files.
pub fn bytes(plan: &Hdfs) -> u64 {
    if plan.sweep.is_empty() { 0 } else { plan.bytes() / SMALLER }
}

/// The files, with what a chunk of each has.
pub fn sizes(plan: &Hdfs, placed: Placed) -> Vec<(String, u64)> {
    let prefix = placed.prefix();
    let file = |chunks: &u64| (format!("{prefix}{chunks}"), chunk_bytes(plan, *chunks));
    plan.sweep.iter().map(file).collect()
}

fn chunk_bytes(plan: &Hdfs, chunks: u64) -> u64 {
    bytes(plan) / u64::from(plan.nodes) / chunks
}

/// Searches all of them.
pub fn run(plan: &Hdfs, report: &mut Report, all: &mut Machines<'_>, lines: u64) -> Result<()> {
    if plan.sweep.is_empty() {
        return Ok(());
    }
    let head = "trial,chunks_of_a_node,line,seconds,percent_of_disks";
    let (mut points, mut table) = (Points::default(), report.table("chunks.csv", head)?);
    // What disks give if all work to the end.
    let most = all.lab.rate as f64 * all.lab.disks.len() as f64 / MB;
    for trial in 1..=plan.trials() {
        for chunks in &plan.sweep {
            for (line, reader, placed) in LINES {
                stop::check()?;
                let (file, chunk_bytes) =
                    (format!("{}{chunks}", placed.prefix()), chunk_bytes(plan, *chunks));
                let scanned = all.scan(reader, &file, chunk_bytes)?;
                check(&scanned, (bytes(plan), lines))?;
                let part = rate(&scanned) / most * 100.0;
                points.add(line, *chunks, part);
                let numbers = [scanned.seconds, part].map(|number| format!("{number:.3}"));
                let key = [trial.to_string(), chunks.to_string(), line.to_owned()];
                table.row(&[&key[..], &numbers].concat())?;
                println!(
                    "trial {trial}, {chunks:2} chunks of a node, {line:22}: {:.1} s, {part:.0} %",
                    scanned.seconds
                );
            }
        }
    }
    for (line, ..) in LINES {
        let ends = plan.sweep.first().zip(plan.sweep.last());
        let Some((few, many)) = ends else { continue };
        let Some((at_few, at_many)) = points.mean(line, *few).zip(points.mean(line, *many)) else {
            continue;
        };
        let what = format!(
            "{line}: with {many} chunks of a node {at_many:.0} % of what disks give, with {few} \
             {at_few:.0} %: much work hides where chunks are"
        );
        report.verdict(at_many > at_few, &what);
    }
    let labels = Labels {
        title: "Chunks at random places and round robin, in three copies",
        x: "chunks of a node",
        y: "% of what disks give",
    };
    plot::lines(&report.path("chunks.svg"), &labels, &points.series(&LINES.map(|l| l.0), 1.0))
}
