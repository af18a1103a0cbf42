//! Processes on the nodes of their disks read a file each, and then write one, while links carry
//! much more than disks give, or less: what goes over the network, and how fast is the slowest?

mod verdicts;
mod writers;

use crate::args::{Common, Congested};
use crate::bed::Bed;
use crate::distributed_queue::QUEUE;
use crate::files::chained;
use crate::lab::Lab;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::report::{Report, Table};
use crate::round::Round;
use std::io::{Error, Result};
use weir_testbed::LinkCounts;
use weir_testbed::profile::Profile;

/// Calls of readers and writers.
pub const CALL_BYTES: u64 = 1 << 20;
/// The node whose link alone is congested; the first one has the metadata server besides.
const CONGESTED: u32 = 3;
/// How processes read: files of one copy, and of two by these policies.
pub const READS: [&str; 4] = [ONE_COPY, "graduated", "graduated-primary", "proportional"];
const ONE_COPY: &str = "one copy";
/// How those write.
pub const WRITES: [&str; 3] = ["one disk", "graduated write", QUEUE];
/// What a disk gives if nothing else is said: so slow that links and processors can carry more.
const DISK_RATE: u64 = 8 << 20;
const MIB: f64 = (1 << 20) as f64;

/// How fast links are.
#[derive(Clone, Copy)]
pub struct Case {
    /// Of what a disk gives, per cent.
    pub percent: u64,
    /// Only that of [`CONGESTED`]; the others carry as much as in the first case.
    pub is_one: bool,
}

/// What is measured, by the speed of links.
#[derive(Default)]
pub struct Measured {
    /// MiB/s of the slowest process.
    pub slowest: Points,
    /// The slowest process's rate, of that of the fastest.
    pub evenness: Points,
    /// Bytes that nodes sent to others, of all that was read or written.
    pub sent: Points,
}

/// What a round came to.
pub struct Seen {
    /// MiB/s of each process.
    pub rates: Vec<f64>,
    pub bytes: u64,
    pub links: Vec<LinkCounts>,
}

pub fn run(plan: &Congested) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "congested")?;
    let nodes = plan.nodes as usize;
    // What is read, and what was written before, which may not be gone yet.
    let room = 3 * plan.file + crate::graduated_write::room(plan.file);
    let common = Common { rate: plan.common.rate.or(Some(DISK_RATE)), ..plan.common.clone() };
    let lab = Lab::on(&common, &Bed::new(&plan.profile, plan.nodes), room)?;
    let links = Links::of(plan, &lab)?;
    let of_one_copy = chained(&lab, nodes, 1, plan.file)?;
    let of_two = chained(&lab, nodes, 2, plan.file)?;
    let lab = writers::Lab::new(lab, plan.file)?;
    let mut table =
        report.table("rounds.csv", "trial,percent,links,line,process,mib_per_s,sent")?;
    let (mut all, mut one) = (Measured::default(), Measured::default());
    for trial in 1..=plan.common.trials() {
        for case in plan.cases() {
            links.limit(case)?;
            let measured = if case.is_one { &mut one } else { &mut all };
            for line in READS {
                let (policy, files) = match line {
                    ONE_COPY => ("primary", &of_one_copy),
                    policy => (policy, &of_two),
                };
                let (call_bytes, job) = (CALL_BYTES, true);
                let round = Round { call_bytes, job, ..Round::of(policy, files) };
                let outcome = lab.disks().round(&round)?;
                let (rates, bytes) = (outcome.rates(), outcome.read_bytes());
                let seen = Seen { rates, bytes, links: outcome.links };
                note(&mut table, measured, (trial, case, line), &seen)?;
            }
            for line in WRITES {
                let seen = lab.round(line)?;
                note(&mut table, measured, (trial, case, line), &seen)?;
            }
        }
    }
    let gives = lab.disks().rate as f64 / MIB;
    drop(lab);
    for (measured, which) in [(&all, "all"), (&one, "one")] {
        measured.slowest.write(&report, &format!("slowest-{which}.csv"), "link_percent")?;
    }
    verdicts::judge(&mut report, plan, (&all, &one));
    let title = format!("The slowest of {nodes} processes; a disk gives {gives:.1} MiB/s");
    let labels = Labels { title: &title, x: "a link, per cent of a disk", y: "MiB/s" };
    let lines = [&READS[..], &WRITES].concat();
    plot::lines(&report.path("congested.svg"), &labels, &all.slowest.series(&lines, 1.0))?;
    report.finish()
}

fn note(
    table: &mut Table,
    measured: &mut Measured,
    (trial, case, line): (u32, Case, &'static str),
    seen: &Seen,
) -> Result<()> {
    let sent = seen.links.iter().map(|link| link.out_bytes).sum::<u64>() as f64;
    let sent = sent / seen.bytes as f64;
    let (slowest, fastest) = ends(&seen.rates);
    let which = if case.is_one { "one" } else { "all" };
    measured.slowest.add(line, case.percent, slowest);
    measured.evenness.add(line, case.percent, slowest / fastest);
    measured.sent.add(line, case.percent, sent);
    println!(
        "trial {trial}, {which} at {:3} %, {line:17}: slowest {slowest:5.2} MiB/s, fastest {fastest:5.2}; {:.1} % of all bytes went to another node",
        case.percent,
        sent * 100.0
    );
    for (n, rate) in seen.rates.iter().enumerate() {
        let key = [trial.to_string(), case.percent.to_string(), which.into(), line.into()];
        let own = seen.links[n].out_bytes.to_string();
        table.row(&[&key[..], &[n.to_string(), format!("{rate:.3}"), own]].concat())?;
    }
    Ok(())
}

fn ends(rates: &[f64]) -> (f64, f64) {
    let ends = |(least, most): (f64, f64), rate: &f64| (least.min(*rate), most.max(*rate));
    rates.iter().fold((f64::INFINITY, 0.0), ends)
}

/// The links of all nodes.
struct Links<'a> {
    plan: &'a Congested,
    network: weir_testbed::Network,
    disk_rate: u64,
    queue_bytes: u64,
}

impl<'a> Links<'a> {
    fn of(plan: &'a Congested, lab: &Lab) -> Result<Self> {
        let profile = Profile::of(&plan.profile);
        let none = || Error::other(format!("there is no profile {}", plan.profile));
        let network = &lab.cluster.machines()?.network;
        let network = weir_testbed::Network::found(network.name(), plan.nodes);
        let queue_bytes = profile.ok_or_else(none)?.link_queue;
        Ok(Self { plan, network, disk_rate: lab.rate, queue_bytes })
    }

    fn limit(&self, case: Case) -> Result<()> {
        self.network.nodes().try_for_each(|node| {
            let is_congested = !case.is_one || node == CONGESTED;
            let percent = if is_congested { case.percent } else { self.plan.most() };
            self.network.limit(node, self.disk_rate * percent / 100, self.queue_bytes)
        })
    }
}

impl Congested {
    /// Of the greatest to the least, first with all links alike.
    fn cases(&self) -> Vec<Case> {
        let all = self.percents().into_iter().map(|percent| Case { percent, is_one: false });
        let less = self.percents().into_iter().filter(|percent| *percent < self.most());
        all.chain(less.map(|percent| Case { percent, is_one: true })).collect()
    }

    /// Links of this speed have room to spare.
    pub fn most(&self) -> u64 {
        self.percents().into_iter().max().unwrap_or_default()
    }
}
