//! A search for a rare text on HDFS and on Weir, whose layout is hidden from who schedules, or
//! exposed (DISC, figure 1), where links are three times as fast as disks, and where they are slower.
//!
//! ```text
//! hadoop    servers of HDFS;  nodes: machines with names;  process: what has to end in time
//! scan      one search by all nodes;  readers: those of HDFS;  text: what is searched
//! chunks    searches of files whose chunks are many, or few
//! ```

mod chunks;
mod hadoop;
mod nodes;
pub mod process;
mod readers;
mod scan;
mod text;

pub use nodes::{command, cpu_seconds, name, name_servers};
pub use text::{NEEDLE, write as write_text};

use crate::args::Hdfs;
use crate::bed::Bed;
use crate::lab::Lab;
use crate::plot::{self, Labels, Series};
use crate::report::Report;
use crate::statistics::Spread;
use crate::stop;
use chunks::Placed;
use hadoop::{Files, Hadoop};
use readers::Readers;
use scan::{Machines, Reader, Scanned};
use std::collections::BTreeMap;
use std::io::{Error, Result};
use weir_testbed::ETHERNET_QUEUE;

const COPIES: u64 = 3;
/// A call of a task, as Hadoop reads.
const CALL_BYTES: u64 = 128 << 10;
/// Tasks of a node at a time, as Hadoop runs by default; a process of Weir reads two blocks ahead.
const TASKS: u32 = 2;
const NO_AHEAD: &str = "no read-ahead";
const HIDDEN: &str = "hidden";
const LOCATIONS: &str = "locations";
const TAKE: &str = "take";
const JAR: &str = "jar";
const HDFS: &str = "HDFS";
/// The one that takes longest comes last.
const LINES: [(&str, Reader); 6] = [
    (HIDDEN, Reader::Mount { options: "ro", call_bytes: CALL_BYTES }),
    (LOCATIONS, Reader::Cluster { way: "locations" }),
    (TAKE, Reader::Cluster { way: "take" }),
    (JAR, Reader::Jar),
    (HDFS, Reader::Hdfs),
    (NO_AHEAD, Reader::Mount { options: "ro,nocache,direct_io", call_bytes: CALL_BYTES }),
];
/// The disk that may be slow, and what it gives then.
const SLOW_DISK: usize = 4;
const SLOWER: u64 = 4;
/// While files are written links are as fast as this machine.
const WRITING_RATE: u64 = 1_000_000_000;
/// Random places differ from disk to disk.
const ROOM: u64 = 2;
/// To reach: of what is had without locations, of HDFS, and of HDFS with a slow disk.
const OF_HIDDEN: f64 = 2.0;
const OF_HDFS: f64 = 1.0;
const OF_SLOW_HDFS: f64 = 1.3;
/// The paper's MB/s.
const STATED: [(&str, f64); 3] = [(HDFS, 579.4), (HIDDEN, 244.9), (LOCATIONS, 597.1)];
const MB: f64 = 1e6;

/// A cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    link_rate: u64,
    is_slow: bool,
    line: &'static str,
}

type Cells = BTreeMap<Key, Vec<Scanned>>;

pub fn run(plan: &Hdfs) -> Result<()> {
    let Some(jars) = hadoop::jars()? else {
        println!("skipped: needs java and mvn, and what Maven downloads");
        return Ok(());
    };
    let mut report = Report::new(&plan.common.out, "hdfs")?;
    let lab = machines(plan)?;
    let hadoop = Hadoop::start(jars, &lab, plan.chunk_bytes())?;
    let found = write(plan, &lab, &hadoop)?;
    let start = |of| Readers::start(&hadoop, plan.nodes, (text::NEEDLE, TASKS), of);
    let jar = if hadoop.has_jar() { Some(start(Files::Jar)?) } else { None };
    let mut all = Machines { lab: &lab, hadoop: &hadoop, readers: start(Files::Hdfs)?, jar };
    all.warm_up(FILE, plan.bytes())?;
    let (mut cells, mut table) = (Cells::new(), report.table("scans.csv", HEAD)?);
    for trial in 1..=plan.trials() {
        for link_rate in plan.links.iter().copied() {
            links(&lab, link_rate)?;
            for is_slow in [false, true] {
                slow_down(&lab, is_slow)?;
                for (line, reader) in LINES {
                    let is_left_out = matches!(reader, Reader::Mount { .. }) && is_slow
                        || reader == Reader::Jar && all.jar.is_none();
                    if is_left_out {
                        continue;
                    }
                    stop::check()?;
                    let scanned = all.scan(reader, FILE, plan.chunk_bytes())?;
                    check(&scanned, (plan.bytes(), found.0))?;
                    let key = Key { link_rate, is_slow, line };
                    table.row(&row(trial, key, &scanned))?;
                    println!("trial {trial}, {}", text(key, &scanned));
                    cells.entry(key).or_default().push(scanned);
                }
            }
            slow_down(&lab, false)?;
        }
    }
    judge(&mut report, plan, &cells);
    draw(&report, plan, &cells)?;
    links(&lab, plan.fast_link())?;
    chunks::run(plan, &mut report, &mut all, found.1)?;
    drop(all);
    drop(hadoop);
    drop(lab);
    report.finish()
}

const FILE: &str = "text";
const HEAD: &str = "trial,link_bytes_per_s,slow_disk,line,seconds,mb_per_s,bytes,disk_bytes,\
    link_bytes,readers_cpu_s,servers_cpu_s,machine_cpu_s";

/// Nodes with a disk each and one without, on which nothing is limited yet but by this machine.
fn machines(plan: &Hdfs) -> Result<Lab> {
    let mut bed = Bed::new(&plan.profile, plan.nodes);
    (bed.clients, bed.link_rate) = (1, Some(WRITING_RATE));
    let all = plan.bytes() + 2 * plan.sweep.len() as u64 * chunks::bytes(plan);
    let of_a_disk = 2 * COPIES * all / u64::from(plan.nodes) * ROOM;
    let mut lab = Lab::on(&plan.common, &bed, of_a_disk)?;
    let machines = lab.cluster.bed.as_mut().ok_or_else(|| Error::other("no testbed"))?;
    machines.readers = machines.network.nodes().collect();
    nodes::name_servers(&lab)?;
    // 0: as much as there is.
    lab.disks.iter().try_for_each(|disk| lab.throttle.limit_writes(disk, 0))?;
    Ok(lab)
}

/// Writes the files, from the node without a disk: no node has more of the first copies. Returns how
/// many lines of each kind of file have the text.
fn write(plan: &Hdfs, lab: &Lab, hadoop: &Hadoop) -> Result<(u64, u64)> {
    let (large, small) = (lab.place("large"), lab.place("small"));
    let found = (text::write(&large, plan.bytes())?, text::write(&small, chunks::bytes(plan))?);
    let word = |path: &std::path::Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| Error::other("a path that is not UTF-8"))
    };
    let (large, small) = (word(&large)?, word(&small)?);
    let files = [(FILE.to_owned(), plan.chunk_bytes())];
    let mount = lab.cluster.mount(plan.nodes as usize, lab.place("w"), "rw")?;
    let chunked = chunks::sizes(plan, Placed::AtRandom);
    let striped = chunks::sizes(plan, Placed::RoundRobin);
    for (input, files, layout) in [
        (&large, &files[..], ["--layout", "chunked", "--chunk"]),
        (&small, &chunked[..], ["--layout", "chunked", "--chunk"]),
        (&small, &striped[..], ["--layout", "striped", "--unit"]),
    ] {
        for (name, chunk_bytes) in files {
            let (chunk, copies) = (chunk_bytes.to_string(), COPIES.to_string());
            let layout = [&layout[..], &[&chunk, "--copies", &copies]].concat();
            lab.cluster.make_file(name, &layout)?;
            lab.copy(input, &mount.path().join(name), 1 << 20)?;
        }
        // HDFS knows but one way to place them.
        if layout[1] == "chunked" && !files.is_empty() {
            hadoop.put(input, files)?;
        }
    }
    drop(mount);
    Ok(found)
}

/// From now on links carry so much.
fn links(lab: &Lab, bytes_per_s: u64) -> Result<()> {
    let bed = lab.cluster.bed.as_ref().ok_or_else(|| Error::other("no testbed"))?;
    let mut nodes = bed.network.nodes();
    nodes.try_for_each(|node| bed.network.limit(node, bytes_per_s, ETHERNET_QUEUE))
}

fn slow_down(lab: &Lab, is_slow: bool) -> Result<()> {
    let rate = if is_slow { lab.rate / SLOWER } else { lab.rate };
    lab.throttle.limit(&lab.disks[SLOW_DISK % lab.disks.len()], rate)
}

/// All was read once, and all that is there was found.
fn check(scanned: &Scanned, (bytes, lines): (u64, u64)) -> Result<()> {
    if (scanned.bytes, scanned.lines) == (bytes, lines) {
        return Ok(());
    }
    let Scanned { bytes: read, lines: found, .. } = scanned;
    let what = format!("{read} of {bytes} bytes were read, and {found} of {lines} lines found");
    Err(Error::other(what))
}

fn row(trial: u32, key: Key, scanned: &Scanned) -> Vec<String> {
    let Scanned { seconds, bytes, disk_bytes, link_bytes, .. } = scanned;
    let Scanned { readers_cpu, servers_cpu, machine_cpu, .. } = scanned;
    let mut row = vec![trial.to_string(), key.link_rate.to_string()];
    row.extend([u8::from(key.is_slow).to_string(), key.line.to_owned()]);
    row.extend([seconds, &rate(scanned)].map(|number| format!("{number:.3}")));
    row.extend([bytes, disk_bytes, link_bytes].map(u64::to_string));
    row.extend([readers_cpu, servers_cpu, machine_cpu].map(|cpu| format!("{cpu:.2}")));
    row
}

/// MB/s of all nodes.
fn rate(scanned: &Scanned) -> f64 {
    scanned.bytes as f64 / MB / scanned.seconds
}

fn text(key: Key, scanned: &Scanned) -> String {
    let slow = if key.is_slow { ", a slow disk" } else { "" };
    let link = scanned.link_bytes as f64 / scanned.bytes as f64 * 100.0;
    format!(
        "links of {:.1} MB/s{slow}, {:13}: {:5.1} s, {:6.2} MB/s; links carried {link:.0} % of it; \
         seconds of processors: {:.1} of readers, {:.1} of servers, {:.1} in all",
        key.link_rate as f64 / MB,
        key.line,
        scanned.seconds,
        rate(scanned),
        scanned.readers_cpu,
        scanned.servers_cpu,
        scanned.machine_cpu,
    )
}

fn mean(cells: &Cells, key: Key) -> Option<f64> {
    let rates: Vec<f64> = cells.get(&key)?.iter().map(rate).collect();
    Some(Spread::of(&rates).mean)
}

/// The fastest of the ways to go by locations.
fn best(cells: &Cells, key: Key) -> Option<f64> {
    let of = |line| mean(cells, Key { line, ..key });
    Some(of(LOCATIONS)?.max(of(TAKE)?).max(of(JAR).unwrap_or_default()))
}

fn judge(report: &mut Report, plan: &Hdfs, cells: &Cells) {
    for link_rate in plan.links.iter().copied() {
        let links = format!("links of {:.1} MB/s", link_rate as f64 / MB);
        for (is_slow, line, aim) in
            [(false, HIDDEN, OF_HIDDEN), (false, HDFS, OF_HDFS), (true, HDFS, OF_SLOW_HDFS)]
        {
            let key = Key { link_rate, is_slow, line };
            let Some((best, other)) = best(cells, key).zip(mean(cells, key)) else { continue };
            let slow = if is_slow { ", one disk gives a quarter" } else { "" };
            let what = format!(
                "{links}{slow}: with locations {best:.1} MB/s, {line} {other:.1}: {:.2} times",
                best / other
            );
            // Where disks are the limit nothing is gained by being near them.
            match line == HIDDEN && link_rate > plan.slow_link() {
                true => println!("{what}"),
                false => report.verdict(best / other >= aim, &format!("{what} (aim {aim})")),
            }
        }
    }
}

fn draw(report: &Report, plan: &Hdfs, cells: &Cells) -> Result<()> {
    let series = |(line, _): &(&'static str, Reader)| {
        let at = |link_rate: &u64| {
            let rates = cells.get(&Key { link_rate: *link_rate, is_slow: false, line })?;
            let rates: Vec<f64> = rates.iter().map(rate).collect();
            Some((*link_rate as f64 / MB, Spread::of(&rates)))
        };
        Series::new((*line).into(), plan.links.iter().filter_map(at).collect())
    };
    let mut all: Vec<Series> = LINES.iter().map(series).collect();
    // In units of what HDFS has here.
    let key = Key { link_rate: plan.slow_link(), is_slow: false, line: HDFS };
    if let Some(hdfs) = mean(cells, key) {
        let at = |(name, mb): (&str, f64)| {
            Series::stated(name, [(key.link_rate as f64 / MB, hdfs * mb / STATED[0].1)])
        };
        all.extend(STATED.into_iter().filter_map(at));
    }
    let title = format!("{} nodes search {} MiB in three copies", plan.nodes, plan.bytes() >> 20);
    let labels = Labels { title: &title, x: "MB/s of a link", y: "MB/s, all nodes" };
    plot::lines(&report.path("links.svg"), &labels, &all)
}
