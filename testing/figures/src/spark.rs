//! Spark on the nodes of its data: a search on a cluster of machines with a data server and a worker
//! each, with the places of the data told to Spark and hidden from it. How much does a job read from
//! the disks of its own nodes?
//!
//! ```text
//! standalone   master, workers and the program that submits, each on a node
//! ```

mod standalone;

use crate::args::Spark;
use crate::bed::Bed;
use crate::hdfs::{NEEDLE, name_servers, write_text};
use crate::lab::Lab;
use crate::report::Report;
use crate::stop;
use standalone::{Standalone, parts};
use std::io::{Error, Result};
use std::time::Duration;
use weir_testbed::{Disk, ETHERNET_QUEUE, forget};

/// While files are written links are as fast as this machine.
const WRITING_RATE: u64 = 1_000_000_000;
/// Random places differ from disk to disk.
const ROOM: u64 = 2;
/// The disks have nothing to do any more when they have done nothing for so long.
const RESTED: Duration = Duration::from_millis(1_200);
const FILE: &str = "text";
const HEAD: &str = "trial,places,seconds,mb_per_s,local_percent,link_bytes";
/// To reach: of the bytes that are read, when the places are told.
const LOCAL: f64 = 0.9;
const MB: f64 = 1e6;

/// What Spark is told of where the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Places {
    Told,
    /// By names that no worker has.
    Hidden,
}

/// What came of a job.
#[derive(Clone, Copy, Debug)]
struct Searched {
    seconds: f64,
    /// Of the bytes that were read, from disks of the own node, as the data servers have counted.
    local: f64,
    /// What all links carried to nodes, by the kernel's count.
    link_bytes: u64,
}

pub fn run(plan: &Spark) -> Result<()> {
    let Some(parts) = parts(plan)? else {
        println!("skipped: needs the jar (`make java`) and pyspark (`make test-spark`)");
        return Ok(());
    };
    let mut report = Report::new(&plan.common.out, "spark")?;
    let lab = machines(plan)?;
    let lines = write(plan, &lab)?;
    let bed = lab.cluster.machines()?;
    bed.network.nodes().try_for_each(|n| bed.network.limit(n, plan.link, ETHERNET_QUEUE))?;
    let mut table = report.table("spark.csv", HEAD)?;
    let spark = Standalone::start(parts, &lab, plan)?;
    let mut all: Vec<(Places, Searched)> = Vec::new();
    for trial in 1..=plan.common.trials.unwrap_or(1) {
        for places in [Places::Hidden, Places::Told] {
            stop::check()?;
            let searched = search(&lab, &spark, (trial, places), lines)?;
            let Searched { seconds, local, link_bytes } = searched;
            let rate = plan.bytes() as f64 / MB / seconds;
            table.row(&[
                trial.to_string(),
                format!("{places:?}").to_lowercase(),
                format!("{seconds:.3}"),
                format!("{rate:.3}"),
                format!("{:.1}", local * 100.0),
                link_bytes.to_string(),
            ])?;
            println!(
                "trial {trial}, places {}: {seconds:.1} s, {rate:.2} MB/s, {:.1} % from the own node; \
                 links carried {:.0} % of it",
                format!("{places:?}").to_lowercase(),
                local * 100.0,
                link_bytes as f64 / plan.bytes() as f64 * 100.0
            );
            all.push((places, searched));
        }
    }
    judge(&mut report, &all);
    drop(spark);
    drop(lab);
    report.finish()
}

/// Nodes with a disk each and one without, on which nothing is limited yet but by this machine.
fn machines(plan: &Spark) -> Result<Lab> {
    let mut bed = Bed::new(&plan.profile, plan.nodes);
    (bed.clients, bed.link_rate) = (1, Some(WRITING_RATE));
    let of_a_disk = u64::from(plan.copies) * plan.share * ROOM;
    let mut lab = Lab::on(&plan.common, &bed, of_a_disk)?;
    let machines = lab.cluster.bed.as_mut().ok_or_else(|| Error::other("no testbed"))?;
    machines.readers = machines.network.nodes().collect();
    name_servers(&lab)?;
    // 0: as much as there is.
    lab.disks.iter().try_for_each(|disk| lab.throttle.limit_writes(disk, 0))?;
    Ok(lab)
}

/// Writes the file from the node without a disk; how many of its lines have the text.
fn write(plan: &Spark, lab: &Lab) -> Result<u64> {
    let input = lab.place("input");
    let lines = write_text(&input, plan.bytes())?;
    let input = input.to_str().ok_or_else(|| Error::other("a path that is not UTF-8"))?;
    let (chunk, copies) = (plan.chunk_bytes().to_string(), plan.copies.to_string());
    let layout = ["--layout", "chunked", "--chunk", &chunk, "--copies", &copies];
    lab.cluster.make_file(FILE, &layout)?;
    let mount = lab.cluster.mount(plan.nodes as usize, lab.place("w"), "rw")?;
    lab.copy(input, &mount.path().join(FILE), 1 << 20)?;
    Ok(lines)
}

/// One job, when nothing of the file is in memory.
fn search(
    lab: &Lab,
    spark: &Standalone<'_>,
    (trial, places): (u32, Places),
    lines: u64,
) -> Result<Searched> {
    let cold = |disk: &Disk| forget(disk.path());
    lab.disks.iter().try_for_each(cold)?;
    lab.settle(RESTED)?;
    lab.disks.iter().try_for_each(cold)?;
    let before = lab.links()?;
    let job = format!("{places:?}-{trial}").to_lowercase();
    let told = spark.submit(&job, FILE, NEEDLE, places == Places::Hidden)?;
    let number = |key: &str| told[key].as_f64().ok_or_else(|| Error::other(format!("{told}")));
    if number("lines")? != lines as f64 {
        return Err(Error::other(format!("{} of {lines} lines were found", told["lines"])));
    }
    let links = lab.links()?;
    let link_bytes = links.iter().zip(&before).map(|(now, was)| now.since(*was).in_bytes).sum();
    let explained = lab.cluster.weir(&["explain", &job, "-d", "0.1", "--json"])?;
    let explained: serde_json::Value = serde_json::from_str(&explained)?;
    let local = explained[0]["local"].as_f64();
    let local = local.ok_or_else(|| Error::other(format!("weir explain: {explained}")))?;
    Ok(Searched { seconds: number("seconds")?, local, link_bytes })
}

fn judge(report: &mut Report, all: &[(Places, Searched)]) {
    let mean = |places: Places, of: fn(&Searched) -> f64| {
        let values: Vec<f64> =
            all.iter().filter(|(had, _)| *had == places).map(|(_, one)| of(one)).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    let local = |places| mean(places, |one| one.local);
    let (told, hidden) = (local(Places::Told), local(Places::Hidden));
    let what = format!(
        "{:.0} % of the bytes come from the own node, {:.0} % if the places are hidden (aim {:.0})",
        told * 100.0,
        hidden * 100.0,
        LOCAL * 100.0
    );
    report.verdict(told >= LOCAL && told > hidden, &what);
    let seconds = |places| mean(places, |one| one.seconds);
    let gain = seconds(Places::Hidden) / seconds(Places::Told);
    report.verdict(gain > 1.0, &format!("the search is {gain:.2} times as fast as without places"));
}
