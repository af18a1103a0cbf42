//! As many readers, and writers, as there are servers, each with a file over all of them: what do
//! twice as many servers give? On disks of a set speed, with one copy and with two.

use crate::args::Servers;
use crate::cluster::Mount;
use crate::lab::{Lab, write_noise};
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::proof::Proof;
use crate::report::Report;
use crate::round::Round;
use crate::stop;
use crate::writing::at_once;
use std::io::{Error, Result};

const MIB: f64 = (1 << 20) as f64;
/// Rounds of writers that are tried until
const ATTEMPTS: usize = 5;
/// no disk has taken more than this of what it is to.
const MOST: f64 = 1.1;
/// Of what the disks give.
const AIM: f64 = 0.9;

/// What is measured, and how many bytes disks take for each of a file.
const LINES: [(&str, &str, bool, f64); 4] = [
    ("read", "1", false, 1.0),
    ("write", "1", true, 1.0),
    ("read: two copies", "2", false, 1.0),
    ("write: two copies", "2", true, 2.0),
];

pub fn run(plan: &Servers) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "servers")?;
    let (mut points, mut proof) = (Points::default(), Proof::new(false));
    for trial in 1..=plan.trials() {
        for servers in plan.servers() {
            for copies in ["1", "2"] {
                if copies == "2" && servers < 2 {
                    continue;
                }
                let (written, read) = measure(plan, (servers, copies), &mut proof)?;
                for (name, _, is_write, _) in LINES.iter().filter(|line| line.1 == copies) {
                    let rate = if *is_write { written } else { read };
                    println!("trial {trial}: {servers} servers, {name}: {rate:.2} MiB/s");
                    points.add(name, servers.into(), rate);
                }
            }
        }
    }
    points.write(&report, "servers.csv", "servers")?;
    for (name, _, _, bytes) in LINES {
        judge(&mut report, plan, &points, (name, bytes));
    }
    proof.conclude(&mut report);
    let labels = Labels {
        title: &format!("Disks of {} MiB/s, each with a server", plan.rate() >> 20),
        x: "servers, and clients",
        y: "MiB/s, all clients",
    };
    let names: Vec<&str> = LINES.iter().map(|(name, ..)| *name).collect();
    let series: Vec<Series> = points.series(&names, 1.0);
    plot::lines(&report.path("servers.svg"), &labels, &series)?;
    report.finish()
}

/// MiB a second that were written, and read.
fn measure(
    plan: &Servers,
    (servers, copies): (u32, &str),
    proof: &mut Proof,
) -> Result<(f64, f64)> {
    stop::check()?;
    let mut common = plan.common.clone();
    common.rate = Some(plan.rate());
    let count = servers as usize;
    let lab = Lab::new(&common, count, plan.file() * 3)?;
    let files: Vec<String> = (0..count).map(|n| format!("file{n}")).collect();
    let columns = match copies {
        "2" => (servers / 2).to_string(),
        _ => servers.to_string(),
    };
    for file in &files {
        lab.cluster.make_file(file, &["--count", &columns, "--copies", copies])?;
    }
    lab.disks.iter().try_for_each(|disk| lab.throttle.limit_writes(disk, lab.rate))?;
    lab.slow_down()?;
    let written = write(plan, &lab, &files)?;
    let bytes = plan.file() as f64 * f64::from(servers) / MIB;
    let outcome = proof.round(&lab, &Round::of("proportional", &files))?;
    Ok((bytes / written, bytes / outcome.seconds))
}

/// Seconds until all writers' files are durable. The kernel limits only what servers sync: when
/// somebody syncs all disks of this machine, all goes at once, and it is done again.
fn write(plan: &Servers, lab: &Lab, files: &[String]) -> Result<f64> {
    let mount = |n: usize| lab.cluster.mount(n, lab.place(&format!("w{n}")), "rw");
    let mounts = (0..files.len()).map(mount).collect::<Result<Vec<Mount>>>()?;
    for attempt in 1..=ATTEMPTS {
        let written = at_once(lab, files.len(), |n| {
            let path = mounts[n].path().join(&files[n]);
            write_noise(&path, plan.file(), (attempt * files.len() + n) as u64)
        })?;
        let most = lab.rate as f64 * written.seconds() * MOST;
        if written.disk_bytes.iter().all(|bytes| *bytes as f64 <= most) {
            return Ok(written.seconds());
        }
        println!(
            "left out: disks took {:?} bytes in {:.1} s",
            written.disk_bytes,
            written.seconds()
        );
    }
    Err(Error::other("disks take more than they are to: who syncs this machine's disks?"))
}

/// Whether the most servers give what their disks do, and how it grows.
fn judge(report: &mut Report, plan: &Servers, points: &Points, (name, bytes): (&'static str, f64)) {
    let of = |servers: u32| points.mean(name, servers.into()).map(|rate| (servers, rate));
    let all: Vec<(u32, f64)> = plan.servers().into_iter().filter_map(of).collect();
    let (Some(least), Some(most)) = (all.first(), all.last()) else { return };
    let possible = |servers: u32| f64::from(servers) * plan.rate() as f64 / MIB / bytes;
    let share = most.1 / possible(most.0);
    let rates: Vec<String> = all.iter().map(|(n, rate)| format!("{n}: {rate:.1}")).collect();
    let what = format!(
        "{name}: {} MiB/s; {} servers give {:.2} times {}, and {:.0} % of their disks",
        rates.join(", "),
        most.0,
        most.1 / least.1,
        least.0,
        share * 100.0
    );
    report.verdict(share >= AIM, &what);
}
