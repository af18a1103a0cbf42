//! Clients of files with one copy on half of the disks, and of files on as many with a second copy
//! on the other half (CEFT-PVFS's two groups): what do twice the disks give?

use crate::args::{Mirrored, MirroredReads};
use crate::lab::{Lab, without_seeks};
use crate::outcome::Outcome;
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::records::Records;
use crate::report::Report;
use crate::round::Round;
use std::io::{Error, Result};
use weir_testbed::Drive;

/// What is read when the number of clients varies.
const USUAL_BYTES: u64 = 16 << 20;
const CALL_BYTES: u64 = 1 << 20;
/// So much more two copies are to give than one.
const AIM: f64 = 1.95;
/// CEFT-PVFS states about so much by the number of clients (figure 3),
pub const STATED_CLIENTS: f64 = 2.0;
/// and by the size of what they read (figure 4, cold) in the mean.
const STATED_SIZES: f64 = 1.91;
/// Files of how many copies are read, and how.
const LINES: [(&str, u32, &str); 4] = [
    ("one copy", 1, "primary"),
    ("primary", 2, "primary"),
    ("halves", 2, "halves"),
    ("proportional", 2, "proportional"),
];

pub fn run(reads: &MirroredReads) -> Result<()> {
    let plan = &reads.mirrored;
    let mut report = Report::new(&plan.common.out, "mirrored-reads")?;
    let sizes = plan.sizes(&[4 << 20, 16 << 20, 64 << 20]);
    let [mut by_clients, mut by_size, mut by_memory] = <[Points; 3]>::default();
    let usual = sizes.iter().copied().find(|size| *size == USUAL_BYTES).unwrap_or(sizes[0]);
    let lab = plan.lab(&sizes, &[1, 2], Some(plan.drive()))?;
    let mut records = Records::new(&report, "trial,line,clients,bytes,in_memory")?;
    for trial in 1..=plan.common.trials() {
        for (clients, size, in_memory) in reads.rounds(&sizes, usual) {
            for (line, copies, policy) in LINES {
                let files = names(copies, size, clients);
                let call_bytes = CALL_BYTES;
                let round = Round { call_bytes, in_memory, ..Round::of(policy, &files) };
                let outcome = lab.round(&round)?;
                let numbers = [u64::from(clients), size, in_memory].map(|n| n.to_string());
                let key = [&[trial.to_string(), line.into()][..], &numbers].concat();
                records.write(&key, &[], &outcome)?;
                let text = text(line, clients, size, &outcome);
                println!("trial {trial}, {in_memory} % in memory, {text}");
                let rate = outcome.aggregate();
                if (clients, size) == (plan.most_clients(), usual) {
                    by_memory.add(line, in_memory, rate);
                }
                if in_memory == 0 && size == usual {
                    by_clients.add(line, clients.into(), rate);
                }
                if in_memory == 0 && clients == plan.most_clients() {
                    by_size.add(line, size, rate);
                }
            }
        }
    }
    drop(lab);
    by_clients.write(&report, "by-clients.csv", "clients")?;
    by_size.write(&report, "by-size.csv", "bytes")?;
    by_memory.write(&report, "by-memory.csv", "in_memory")?;
    let what = format!("{} clients, {} % in memory", plan.most_clients(), reads.memory);
    judge(&mut report, &by_memory, reads.memory, &what);
    for clients in plan.clients() {
        judge(&mut report, &by_clients, clients.into(), &format!("{clients} clients"));
    }
    for size in sizes.iter().filter(|size| **size != usual) {
        let what = format!("{} clients, {} MiB each", plan.most_clients(), size >> 20);
        judge(&mut report, &by_size, *size, &what);
    }
    let lines = LINES.map(|(line, ..)| line);
    let y = "MiB/s, all clients";
    let title = format!("Cold reads of {} MiB each, one copy and two", usual >> 20);
    let labels = Labels { title: &title, x: "clients", y };
    let most = plan.most_clients();
    let mut series = by_clients.series(&lines, 1.0);
    let twice =
        by_clients.mean("one copy", most.into()).map(|one| (most.into(), one * STATED_CLIENTS));
    series.extend(Series::stated("2 x one copy", twice));
    plot::lines(&report.path("by-clients.svg"), &labels, &series)?;
    let title = format!("Cold reads of {} clients, one copy and two", plan.most_clients());
    let labels = Labels { title: &title, x: "MiB of each client", y };
    let unit = (1 << 20) as f64;
    let mut series = by_size.series(&lines, unit);
    let times = |size: &u64| {
        let one = by_size.mean("one copy", *size)?;
        Some((*size as f64 / unit, one * STATED_SIZES))
    };
    series.extend(Series::stated("1.91 x one copy", sizes.iter().filter_map(times)));
    plot::lines(&report.path("by-size.svg"), &labels, &series)?;
    report.finish()
}

fn judge(report: &mut Report, points: &Points, x: u64, what: &str) {
    let Some(one) = points.mean("one copy", x) else { return };
    for line in ["halves", "proportional"] {
        let Some(both) = points.mean(line, x) else { continue };
        let times = both / one;
        let text = format!(
            "{what}, {line}: {both:.1} MiB/s of two copies, {one:.1} of one: {times:.2} times (aim {AIM})"
        );
        report.verdict(times >= AIM, &text);
    }
}

/// What a round came to.
pub fn text(line: &str, clients: u32, size: u64, outcome: &Outcome) -> String {
    let disks = outcome.disks.iter();
    let served: Vec<u64> = disks.map(|disk| disk.served_bytes() >> 20).collect();
    let (mib, rate) = (size >> 20, outcome.aggregate());
    let by_the_last = outcome.together() * f64::from(clients);
    format!(
        "{line:12} {clients:2} clients, {mib:3} MiB each: {rate:6.1} MiB/s ({by_the_last:.1} until the last has ended); MiB that the disks served {served:?}"
    )
}

/// The files of so many clients.
pub fn names(copies: u32, size: u64, clients: u32) -> Vec<String> {
    (0..clients).map(|n| format!("c{copies}-{}-{n}", size >> 10)).collect()
}

impl MirroredReads {
    /// Numbers of clients, what each reads, and what part of it is in memory, of a trial.
    fn rounds(&self, sizes: &[u64], usual: u64) -> Vec<(u32, u64, u64)> {
        let plan = &self.mirrored;
        let most = plan.most_clients();
        let by_clients = plan.clients().into_iter().map(|clients| (clients, usual, 0));
        let others = sizes.iter().filter(|size| **size != usual).map(|size| (most, *size, 0));
        by_clients.chain(others).chain([(most, usual, self.memory)]).collect()
    }
}

impl Mirrored {
    pub fn clients(&self) -> Vec<u32> {
        match (&*self.clients, self.common.quick) {
            ([], true) => vec![1, 8],
            ([], false) => vec![1, 2, 4, 8],
            (clients, _) => clients.to_vec(),
        }
    }

    pub fn most_clients(&self) -> u32 {
        self.clients().into_iter().max().unwrap_or(1)
    }

    pub fn sizes(&self, usual: &[u64]) -> Vec<u64> {
        if self.sizes.is_empty() { usual.to_vec() } else { self.sizes.clone() }
    }

    /// A disk: the kernel's throttle lets through what a tenth of a second gives at once, half of
    /// what is read of a disk here.
    fn drive(&self) -> Drive {
        Drive { positioning_us: self.seek_us, ..without_seeks(self.common.rate()) }
    }

    /// Disks with files of all these sizes and numbers of copies; without a `drive` they are
    /// throttled.
    pub fn lab(&self, sizes: &[u64], copies: &[u32], drive: Option<Drive>) -> Result<Lab> {
        let columns = self.disks as usize / 2;
        let bytes: u64 = sizes.iter().sum::<u64>() * u64::from(self.most_clients());
        let of_a_disk = bytes / columns as u64 * copies.len() as u64;
        let lab = match drive {
            Some(drive) => Lab::with_heads(&self.common, of_a_disk, &vec![drive; 2 * columns])?,
            None => Lab::new(&self.common, 2 * columns, of_a_disk)?,
        };
        for copies in copies {
            for name in sizes.iter().flat_map(|size| names(*copies, *size, self.most_clients())) {
                let size = name.split('-').nth(1).and_then(|kib| kib.parse::<u64>().ok());
                write(&lab, &name, *copies, columns, size.unwrap_or(0) << 10)?;
            }
        }
        lab.slow_down()?;
        Ok(lab)
    }
}

/// Stripes over so many disks, with no copy or with one on as many others.
pub fn layout(copies: u32, columns: usize) -> Vec<String> {
    let mut words = format!("--layout striped --base 0 --count {columns}");
    if copies > 1 {
        words += &format!(" --copies {copies} --placement groups");
    }
    words.split(' ').map(str::to_owned).collect()
}

/// With copies, column n has its first one on disk 2n, and the other one on the next.
pub fn write(lab: &Lab, name: &str, copies: u32, columns: usize, bytes: u64) -> Result<()> {
    let layout = layout(copies, columns);
    let all: Vec<&str> = layout.iter().map(String::as_str).collect();
    lab.write(name, &all, bytes)?;
    let places = lab.cluster.places(name)?;
    if places.iter().copied().eq(0..columns * copies as usize) {
        return Ok(());
    }
    Err(Error::other(format!("the copies of {name} are on disks {places:?}")))
}
