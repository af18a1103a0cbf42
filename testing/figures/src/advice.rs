//! The read workloads of paper 0 by a client that keeps nothing, as PVFS's, on files in stripes of
//! 8 KiB and on files that are laid out as `weir advise` says: figures 2 and 9, with a line more.

use crate::args::Advice;
use crate::bed::Bed;
use crate::cluster::said;
use crate::lab::Lab;
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::report::Report;
use crate::statistics::Spread;
use crate::stop;
use serde_json::Value;
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{Error, Result};
use std::process::Command;
use weir_testbed::forget;

/// Bytes of a record.
const RECORD: &str = "838";
/// The stripes of the paper.
const PAPER_UNIT: &str = "8K";
/// Those of Weir, if nothing is said.
const DEFAULT_UNIT: &str = "64K";
const PAPER: &str = "8 KiB";
const DEFAULT: &str = "64 KiB, the default";
const ADVISED: &str = "advised";
/// Round trip of the testbed's nodes in milliseconds, as `weir advise` measures it.
const ROUND_TRIP: &str = "0.2";
/// What a stream of TCP carries of a frame on Ethernet as links count it: 1448 of 1514 bytes.
pub const PAYLOAD: f64 = 1448.0 / 1514.0;
/// What varies from run to run.
const NOISE: f64 = 0.97;

/// A workload: its name, that of the plot, and further words for the advice.
const WORKLOADS: [(&str, &str, &[&str]); 2] =
    [("lwf", "whole files (figure 2)", &[]), ("random", "at random (figure 9)", &["--random"])];

pub fn run(plan: &Advice) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "advice")?;
    let files = WORKLOADS.len() as u64 * plan.records().len() as u64 + 2;
    let mut bed = Bed::new(&plan.profile, plan.disks);
    bed.link_rate = plan.link_rate;
    let lab = Lab::on(&plan.common, &bed, files * plan.file)?;
    lab.write("paper", &["--unit", PAPER_UNIT], plan.file)?;
    lab.write("default", &["--unit", DEFAULT_UNIT], plan.file)?;
    let bound = bound(plan, lab.cluster.link_rate()?, lab.rate);
    let mut shares: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (workload, title, order) in WORKLOADS {
        let mut points = Points::default();
        for records in plan.records() {
            let layout = advised(&lab, plan, records, order)?;
            let words: Vec<&str> = layout.iter().map(String::as_str).collect();
            let name = format!("{workload}-{records}");
            lab.write(&name, &words, plan.file)?;
            for trial in 1..=plan.common.trials() {
                let lines = [(PAPER, "paper"), (DEFAULT, "default"), (ADVISED, &*name)];
                for (line, file) in lines {
                    let readers = plan.readers() as usize;
                    let reading = Reading { workload, records, chunks: plan.chunks, readers };
                    let rate = read(&lab, &reading, file)?;
                    points.add(line, records, rate);
                    shares.entry(line).or_default().push(rate / bound);
                    let layout =
                        if line == ADVISED { layout.join(" ") } else { "8 columns".to_owned() };
                    println!(
                        "trial {trial}, {workload}, {records} records, {line} ({layout}): \
                         {rate:.2} MB/s"
                    );
                }
            }
            judge(&mut report, &points, (workload, records));
        }
        points.write(&report, &format!("{workload}.csv"), "records")?;
        let title = format!("{} readers of {title}", plan.readers());
        let labels = Labels { title: &title, x: "records of a call", y: "MB/s, all readers" };
        let series: Vec<Series> = points.series(&[PAPER, DEFAULT, ADVISED], 1.0);
        plot::lines(&report.path(&format!("{workload}.svg")), &labels, &series)?;
    }
    drop(lab);
    compare(&mut report, &shares);
    report.finish()
}

/// MB/s that all readers can have by their links, or by the disks if those give less. An equal
/// part of the file is on a reader's own node.
fn bound(plan: &Advice, link: u64, disk: u64) -> f64 {
    let disks = f64::from(plan.disks);
    let links = link as f64 * PAYLOAD * f64::from(plan.readers()) * disks / (disks - 1.0);
    links.min(disk as f64 * disks) / 1e6
}

/// What lines come to over all workloads and calls.
fn compare(report: &mut Report, shares: &BTreeMap<&str, Vec<f64>>) {
    let mean = |line: &str| Spread::of(shares.get(line).map_or(&[], Vec::as_slice)).mean * 100.0;
    let (paper, default, advised) = (mean(PAPER), mean(DEFAULT), mean(ADVISED));
    let what = format!(
        "all workloads and calls, of what links and disks allow: {PAPER} {paper:.0} %, {DEFAULT} \
         {default:.0} %, advised {advised:.0} %"
    );
    report.verdict(advised >= default * NOISE && advised >= paper * NOISE, &what);
}

/// The flags of the layout that is advised.
fn advised(lab: &Lab, plan: &Advice, records: u64, order: &[&str]) -> Result<Vec<String>> {
    let (records, readers) = (records.to_string(), plan.readers().to_string());
    let (disk, link) = (lab.rate.to_string(), lab.cluster.link_rate()?.to_string());
    let what = ["advise", "weir:/", "--record", RECORD, "--records", &records];
    let machines = ["--link", &link, "--disk", &disk, "--round-trip", ROUND_TRIP];
    let more = ["--readers", &readers, "--no-cache", "--json"];
    let words = [&what[..], &machines, &more, order].concat();
    let text = lab.cluster.weir(&words)?;
    let advice: Value = serde_json::from_str(&text)?;
    let number = |key: &str| {
        let number = advice["advice"][key].as_u64();
        number.ok_or_else(|| Error::other(format!("weir advise: not understood: {text}")))
    };
    let unit = format!("{}K", number("stripe_unit_bytes")? >> 10);
    let count = number("count")?.to_string();
    Ok(["--unit", &unit, "--count", &count].map(str::to_owned).to_vec())
}

/// Who reads what how.
pub struct Reading {
    pub workload: &'static str,
    /// Of a call.
    pub records: u64,
    /// Calls of each reader at random.
    pub chunks: u64,
    pub readers: usize,
}

/// MB/s of all readers of a file, each on a node of its own. Nothing is in memory.
pub fn read(lab: &Lab, reading: &Reading, file: &str) -> Result<f64> {
    stop::check()?;
    let bed = lab.cluster.bed.as_ref().ok_or_else(|| Error::other("no testbed"))?;
    lab.disks.iter().try_for_each(|disk| forget(disk.path()))?;
    let programs = env::current_exe()?.parent().map(ToOwned::to_owned).unwrap_or_default();
    let mut command = Command::new(programs.join("weir-records"));
    let mut path: OsString = programs.into();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let files = format!("weir:{}", lab.cluster.credential().display());
    command.env("PATH", path).args(["read", file, "--json", "--uncached", "--files", &files]);
    command.args(["--workload", reading.workload, "--records", &reading.records.to_string()]);
    command.args(["--chunks", &reading.chunks.to_string()]);
    // The first node has the metadata server: in the paper it serves NFS, and does not read.
    for node in bed.readers.iter().skip(1).take(reading.readers) {
        let entrance = bed.network.entrance(*node);
        command.arg("--via").arg(format!("nsenter --net={} --", entrance.display()));
    }
    let text = said(&mut command)?;
    let report: Value = serde_json::from_str(&text)?;
    report["mb_per_s"].as_f64().ok_or_else(|| Error::other(format!("weir-records: {text}")))
}

/// Advice is not to be worse in any cell.
fn judge(report: &mut Report, points: &Points, (workload, records): (&str, u64)) {
    let rates = points.mean(PAPER, records).zip(points.mean(ADVISED, records));
    let Some((paper, advised)) = rates else { return };
    let what = format!(
        "{workload}, {records} records a call: advised {advised:.2} MB/s, {PAPER} {paper:.2}: {:+.0} %",
        100.0 * (advised / paper - 1.0)
    );
    report.verdict(advised >= paper * NOISE, &what);
}
