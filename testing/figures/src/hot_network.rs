//! Clients of files with two copies that are in the servers' memory, while somebody sends through
//! the link of one server of first copies.

use crate::args::{HotClients, HotNetwork};
use crate::bed::Bed;
use crate::lab::Lab;
use crate::mirrored::{names, write};
use crate::outcome::Outcome;
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::records::Records;
use crate::report::Report;
use crate::round::{Load, Round};
use std::io::Result;

const CALL_BYTES: u64 = 1 << 20;
/// The server whose link is loaded.
const LOADED: usize = 0;
/// Without a load, as the default reads: `halves` has half of the servers at a time.
const NONE: &str = "no load";
const LINES: [(&str, &str); 4] = [
    (NONE, "proportional"),
    ("halves", "halves"),
    ("skip-hot", "skip-hot"),
    ("proportional", "proportional"),
];
/// So much of what the links allow is to be reached.
const AIM: f64 = 0.95;
/// CEFT-PVFS, figure 7, in GB/s: of 2.0 without a load so much is left.
const STATED: [(&str, f64); 2] = [("halves, 1.25 of 2.0", 1.25), ("skip-hot, 1.53 of 2.0", 1.53)];
const STATED_WITHOUT: f64 = 2.0;
const MIB: f64 = (1 << 20) as f64;
/// Of a full Ethernet frame of 1514 bytes TCP brings so many: what is left of a link's rate, which
/// the kernel counts with all headers.
const DATA_SHARE: f64 = 1448.0 / 1514.0;

pub fn run(plan: &HotNetwork) -> Result<()> {
    let mut report = Report::new(&plan.hot.common.out, "hot-network")?;
    let lab = prepare(&plan.hot, (plan.file, plan.most_clients()), &[2])?;
    let mut records = Records::new(&report, "trial,line,clients")?;
    let (mut points, mut by_the_last) = (Points::default(), Points::default());
    let load = Load::Sends { bytes_per_s: plan.hot.link_rate * plan.share / 100 };
    for trial in 1..=plan.hot.common.trials() {
        for clients in plan.clients() {
            for (line, policy) in LINES {
                let files = &names(2, plan.file, clients);
                let perturbed: &[usize] = if line == NONE { &[] } else { &[LOADED] };
                let (call_bytes, in_memory) = (CALL_BYTES, 100);
                let round =
                    Round { call_bytes, perturbed, load, in_memory, ..Round::of(policy, files) };
                let outcome = lab.round(&round)?;
                let key = [trial.to_string(), line.into(), clients.to_string()];
                records.write(&key, perturbed, &outcome)?;
                points.add(line, clients.into(), outcome.aggregate());
                by_the_last.add(line, clients.into(), all_by_the_last(&outcome));
                println!("trial {trial}, {}", text(line, clients, &outcome));
            }
        }
    }
    drop(lab);
    points.write(&report, "summary.csv", "clients")?;
    by_the_last.write(&report, "by-the-last.csv", "clients")?;
    for clients in plan.clients() {
        judge(&mut report, plan, &by_the_last, clients);
    }
    shape(&mut report, plan, &points);
    let title = format!("Hot reads of {} MiB each, one link is loaded", plan.file >> 20);
    let labels = Labels { title: &title, x: "clients", y: "MiB/s, all clients" };
    let mut series = points.series(&LINES.map(|(line, _)| line), 1.0);
    let most = plan.most_clients();
    let without = points.mean(NONE, most.into());
    series.extend(STATED.into_iter().filter_map(|(name, gb_per_s)| {
        Series::stated(name, [(most.into(), without? * gb_per_s / STATED_WITHOUT)])
    }));
    plot::lines(&report.path("hot-network.svg"), &labels, &series)?;
    report.finish()
}

/// Machines, and for each client a file of each of these numbers of copies; what was written is in
/// memory.
pub fn prepare(hot: &HotClients, (file, clients): (u64, u32), copies: &[u32]) -> Result<Lab> {
    let columns = hot.disks as usize / 2;
    let mut bed = Bed::new(&hot.profile, 2 * columns as u32);
    (bed.clients, bed.link_rate) = (clients, Some(hot.link_rate));
    let of_a_disk = copies.len() as u64 * file * u64::from(clients) / columns as u64;
    let lab = Lab::on(&hot.common, &bed, of_a_disk)?;
    for copies in copies {
        let files = names(*copies, file, clients);
        files.iter().try_for_each(|name| write(&lab, name, *copies, columns, file))?;
    }
    Ok(lab)
}

/// MiB/s of data that a link carries.
pub fn link_carries(hot: &HotClients) -> f64 {
    hot.link_rate as f64 * DATA_SHARE / MIB
}

impl HotNetwork {
    fn clients(&self) -> Vec<u32> {
        self.hot.clients(&[1, 4, 16])
    }

    fn most_clients(&self) -> u32 {
        self.clients().into_iter().max().unwrap_or(1)
    }

    /// MiB/s of data that the links of so many clients, and what is left of those of the servers,
    /// carry: of each file one column is on two servers alone, and all columns are as fast as that one.
    fn allowed(&self, clients: u32, is_loaded: bool) -> f64 {
        let taken = if is_loaded { self.share as f64 / 100.0 } else { 0.0 };
        let columns = f64::from(self.hot.disks / 2);
        let links = f64::from(clients).min(columns * (2.0 - taken));
        links * link_carries(&self.hot)
    }
}

/// MiB/s of all clients until the last one had ended: by the mean time of a client it may be more
/// than links carry, since clients end one after another.
fn all_by_the_last(outcome: &Outcome) -> f64 {
    outcome.together() * outcome.readers.len() as f64
}

fn text(line: &str, clients: u32, outcome: &Outcome) -> String {
    let sent: Vec<u64> = outcome.links.iter().map(|link| link.out_bytes >> 20).collect();
    let (rate, load) = (outcome.aggregate(), outcome.sent_bytes[LOADED] >> 20);
    let by_the_last = all_by_the_last(outcome);
    format!(
        "{line:12} {clients:2} clients: {rate:6.1} MiB/s ({by_the_last:.1} until the last has ended); MiB that the servers' links sent {sent:?}, the load {load}"
    )
}

fn judge(report: &mut Report, plan: &HotNetwork, points: &Points, clients: u32) {
    for (line, _) in LINES.iter().filter(|(line, _)| matches!(*line, NONE | "proportional")) {
        let Some(rate) = points.mean(line, clients.into()) else { continue };
        let allowed = plan.allowed(clients, *line != NONE);
        let part = rate / allowed;
        let what = format!(
            "{clients} clients, {line}: {rate:.1} MiB/s until the last has ended, of {allowed:.1} that the links allow, {:.0} % (aim {:.0} %)",
            part * 100.0,
            AIM * 100.0
        );
        report.verdict(part >= AIM, &what);
    }
}

/// With the most clients: without a load is fastest, then who skips the server.
fn shape(report: &mut Report, plan: &HotNetwork, points: &Points) {
    let clients = plan.most_clients();
    let rate = |line| points.mean(line, clients.into());
    let (Some(none), Some(skip), Some(halves)) = (rate(NONE), rate("skip-hot"), rate("halves"))
    else {
        return;
    };
    let what = format!(
        "{clients} clients: no load {none:.1} > skip-hot {skip:.1} > halves {halves:.1} MiB/s; skipping gives {:.0} % more",
        100.0 * (skip / halves - 1.0)
    );
    report.verdict(none > skip && skip > halves, &what);
}
