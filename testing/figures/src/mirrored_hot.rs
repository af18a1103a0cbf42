//! Clients of files with one copy on half of the servers, and of files with a second copy on the
//! other half, which are in the servers' memory: what do twice the links give?

use crate::args::MirroredHot;
use crate::hot_network::{link_carries, prepare};
use crate::mirrored::{STATED_CLIENTS, names};
use crate::outcome::Outcome;
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::records::Records;
use crate::report::Report;
use crate::round::Round;
use std::io::Result;

const CALL_BYTES: u64 = 1 << 20;
/// So much more two copies are to give than one, where the servers' links are what is waited for.
const AIM: f64 = 1.95;
/// Files of how many copies are read, and how.
const LINES: [(&str, u32, &str); 3] =
    [("one copy", 1, "primary"), ("halves", 2, "halves"), ("proportional", 2, "proportional")];

pub fn run(plan: &MirroredHot) -> Result<()> {
    let mut report = Report::new(&plan.hot.common.out, "mirrored-hot")?;
    let lab = prepare(&plan.hot, (plan.file, plan.most_clients()), &[1, 2])?;
    let mut records = Records::new(&report, "trial,line,clients")?;
    let (mut points, mut by_the_last) = (Points::default(), Points::default());
    for trial in 1..=plan.hot.common.trials() {
        for clients in plan.clients() {
            for (line, copies, policy) in LINES {
                let files = names(copies, plan.file, clients);
                let in_memory = 100;
                let round =
                    Round { call_bytes: CALL_BYTES, in_memory, ..Round::of(policy, &files) };
                let outcome = lab.round(&round)?;
                let key = [trial.to_string(), line.into(), clients.to_string()];
                records.write(&key, &[], &outcome)?;
                let last = outcome.together() * f64::from(clients);
                points.add(line, clients.into(), outcome.aggregate());
                by_the_last.add(line, clients.into(), last);
                let allowed = plan.allowed(clients, copies);
                println!("trial {trial}, {}", text(line, clients, (&outcome, last), allowed));
            }
        }
    }
    drop(lab);
    points.write(&report, "by-clients.csv", "clients")?;
    by_the_last.write(&report, "by-the-last.csv", "clients")?;
    for clients in plan.clients() {
        judge(&mut report, plan, (&points, &by_the_last), clients);
    }
    let title = format!("Hot reads of {} MiB each, one copy and two", plan.file >> 20);
    let labels = Labels { title: &title, x: "clients", y: "MiB/s, all clients" };
    let mut series = points.series(&LINES.map(|(line, ..)| line), 1.0);
    let most = plan.most_clients();
    let twice = points.mean("one copy", most.into()).map(|one| (most.into(), one * STATED_CLIENTS));
    series.extend(Series::stated("2 x one copy", twice));
    plot::lines(&report.path("mirrored-hot.svg"), &labels, &series)?;
    report.finish()
}

impl MirroredHot {
    fn clients(&self) -> Vec<u32> {
        self.hot.clients(&[1, 16])
    }

    fn most_clients(&self) -> u32 {
        self.clients().into_iter().max().unwrap_or(1)
    }

    /// MiB/s of data that the links of so many clients and of the servers of so many copies carry.
    fn allowed(&self, clients: u32, copies: u32) -> f64 {
        let links = clients.min(self.hot.disks / 2 * copies);
        f64::from(links) * link_carries(&self.hot)
    }
}

fn text(line: &str, clients: u32, (outcome, last): (&Outcome, f64), allowed: f64) -> String {
    let sent: Vec<u64> = outcome.links.iter().map(|link| link.out_bytes >> 20).collect();
    let rate = outcome.aggregate();
    format!(
        "{line:12} {clients:2} clients: {rate:6.1} MiB/s ({last:.1} until the last has ended) of {allowed:.1} that links allow; MiB that the servers' links sent {sent:?}"
    )
}

/// Where links of clients are what is waited for, twice the servers are no faster. (`halves` takes
/// turns after 4 MiB of a column: all clients have the same half of the servers at a time.)
fn judge(
    report: &mut Report,
    plan: &MirroredHot,
    (points, by_the_last): (&Points, &Points),
    clients: u32,
) {
    let rates = |of: &Points| {
        let of = |line| of.mean(line, clients.into());
        Some((of("one copy")?, of("proportional")?))
    };
    let (Some((one, both)), Some((one_last, both_last))) = (rates(points), rates(by_the_last))
    else {
        return;
    };
    let allowed = plan.allowed(clients, 2) / plan.allowed(clients, 1);
    let (times, aim) = (both / one, allowed * AIM / 2.0);
    let text = format!(
        "{clients} clients: {both:.1} MiB/s of two copies, {one:.1} of one: {times:.2} times, {:.2} until the last has ended (links allow {allowed:.2}, aim {aim:.2})",
        both_last / one_last
    );
    report.verdict(times >= aim, &text);
}
