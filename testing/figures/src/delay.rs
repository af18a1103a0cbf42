//! One client behind a link on which every frame takes a while, as to another building or another
//! town: what it reads and writes in a second, by how much the kernel reads ahead, and what making
//! a file costs.

use crate::args::Delay;
use crate::bed::Bed;
use crate::lab::Lab;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::report::Report;
use crate::round::Round;
use crate::stop;
use std::fs::File;
use std::io::{Error, Result};
use std::path::Path;
use std::time::{Duration, Instant};
use weir_testbed::{Delayed, ETHERNET_QUEUE};

/// Of a full Ethernet frame of 1514 bytes TCP brings so many.
const DATA_SHARE: f64 = 1448.0 / 1514.0;
/// So much of what the link carries is to be reached.
const AIM: f64 = 0.9;
/// With this delay there and back, by the widest window.
const AIM_AT_MS: u64 = 50;
const CALL_BYTES: u64 = 1 << 20;
/// Files that are made, one after the other.
const MADE: u32 = 20;
const MIB: f64 = (1 << 20) as f64;
const READ: &str = "read";
const WRITTEN: &str = "written";

/// What is asked of a client in a round.
struct Case {
    round_trip_ms: u64,
    window: u64,
}

pub fn run(plan: &Delay) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "delay")?;
    let mut bed = Bed::new("modern", plan.disks);
    (bed.clients, bed.link_rate) = (1, Some(plan.link_rate));
    // What is read and what is written.
    let room = 3 * plan.file / u64::from(plan.disks);
    let mut lab = Lab::on(&plan.common, &bed, room)?;
    lab.write("read", &[], plan.file)?;
    let input = lab.input("input", plan.file)?;
    let link = delayed(&lab, plan)?;
    let mut table = report
        .table("delay.csv", "trial,round_trip_ms,read_ahead,read_mib_s,written_mib_s,make_ms")?;
    let (mut points, mut wide) = (Points::default(), Points::default());
    let windows = named(&plan.windows);
    let widest = windows.last().map(|(window, _)| *window).unwrap_or_default();
    for trial in 1..=plan.common.trials() {
        for round_trip_ms in plan.round_trips() {
            link.set(Duration::from_micros(round_trip_ms * 500));
            for &(window, name) in &windows {
                let case = Case { round_trip_ms, window };
                let read = read(&mut lab, plan, &case)?;
                // What is written does not depend on what is read ahead.
                let (written, made) = match window == widest {
                    true => write(&lab, &input, plan.file).map(|(w, m)| (Some(w), Some(m)))?,
                    false => (None, None),
                };
                let number = |n: Option<f64>| n.map_or(String::new(), |n| format!("{n:.2}"));
                let key = [trial.into(), round_trip_ms, window].map(|n: u64| n.to_string());
                let values = [Some(read), written, made].map(number);
                table.row(&[&key[..], &values[..]].concat())?;
                println!("trial {trial}, {}", text(&case, name, read, written.zip(made)));
                if window == widest {
                    wide.add(READ, round_trip_ms, read);
                    written.iter().for_each(|rate| wide.add(WRITTEN, round_trip_ms, *rate));
                }
                points.add(name, round_trip_ms, read);
            }
        }
    }
    let lost = link.lost();
    drop((link, lab));
    points.write(&report, "by-read-ahead.csv", "round_trip_ms")?;
    wide.write(&report, "widest.csv", "round_trip_ms")?;
    judge(&mut report, plan, &wide);
    println!("{lost} frames were lost by the relay");
    let labels = Labels {
        title: "One client behind a link with a delay",
        x: "round trip, ms",
        y: "MiB/s, by what the kernel reads ahead",
    };
    let lines: Vec<&str> = windows.iter().map(|(_, name)| *name).collect();
    plot::lines(&report.path("delay.svg"), &labels, &points.series(&lines, 1.0))?;
    report.finish()
}

/// The link of the client's node.
fn delayed(lab: &Lab, plan: &Delay) -> Result<Delayed> {
    let bed = lab.cluster.bed.as_ref().ok_or_else(|| Error::other("no testbed"))?;
    if let Some(rule) = &plan.congestion {
        bed.network.congestion(rule)?;
    }
    // Enough waits before the link for what is under way on it.
    bed.network.delay(plan.disks + 1, plan.link_rate, ETHERNET_QUEUE.max(plan.link_rate / 10))
}

/// MiB/s of a file that is in the servers' memory.
fn read(lab: &mut Lab, plan: &Delay, case: &Case) -> Result<f64> {
    let more = plan.common.mount_options.iter().map(|more| format!(",{more}"));
    lab.options = format!("ro,read_ahead={}{}", case.window, more.collect::<String>());
    let files = [READ.to_owned()];
    let round = Round { in_memory: 100, ..Round::of("proportional", &files) };
    Ok(lab.round(&round)?.together())
}

/// MiB/s of a file that is written and synced, and milliseconds to make an empty one.
fn write(lab: &Lab, input: &str, bytes: u64) -> Result<(f64, f64)> {
    stop::check()?;
    let mount = lab.cluster.mount(0, lab.place("d"), "rw")?;
    let path = mount.path().join("written");
    File::create(&path)?;
    let begin = Instant::now();
    lab.copy(input, &path, CALL_BYTES)?;
    let rate = bytes as f64 / MIB / begin.elapsed().as_secs_f64();
    let made = make(mount.path())?;
    std::fs::remove_file(&path)?;
    Ok((rate, made))
}

fn make(at: &Path) -> Result<f64> {
    let all: Vec<_> = (0..MADE).map(|n| at.join(format!("made{n}"))).collect();
    let begin = Instant::now();
    all.iter().try_for_each(|path| File::create(path).map(drop))?;
    let made = begin.elapsed().as_secs_f64() * 1e3 / f64::from(MADE);
    all.iter().try_for_each(std::fs::remove_file)?;
    Ok(made)
}

fn text(case: &Case, window: &str, read: f64, wrote: Option<(f64, f64)>) -> String {
    let after = case.round_trip_ms;
    let wrote = wrote
        .map(|(rate, made)| format!("; written at {rate:.1} MiB/s, a file made in {made:.1} ms"));
    format!("{after:3} ms, {window} read ahead: {read:.1} MiB/s{}", wrote.unwrap_or_default())
}

/// Each window with the name of its line, which it has as long as the program runs.
fn named(windows: &[u64]) -> Vec<(u64, &'static str)> {
    let name = |window: u64| &*Box::leak(format!("{} KiB", window >> 10).into_boxed_str());
    let mut all = windows.to_vec();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|window| (window, name(window))).collect()
}

fn judge(report: &mut Report, plan: &Delay, wide: &Points) {
    let carries = plan.link_rate as f64 * DATA_SHARE / MIB;
    for line in [READ, WRITTEN] {
        let Some(rate) = wide.mean(line, AIM_AT_MS) else { continue };
        let text = format!(
            "{line} at a round trip of {AIM_AT_MS} ms: {rate:.1} MiB/s of {carries:.1} that the link carries, {:.0} % (aim {:.0} %)",
            rate / carries * 100.0,
            AIM * 100.0
        );
        report.verdict(rate >= AIM * carries, &text);
    }
}

impl Delay {
    fn round_trips(&self) -> Vec<u64> {
        match (&*self.round_trips, self.common.quick) {
            ([], true) => vec![0, AIM_AT_MS],
            ([], false) => vec![0, 1, 10, AIM_AT_MS, 100],
            (asked, _) => asked.to_vec(),
        }
    }
}
