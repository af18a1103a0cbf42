//! Readers of records, by what links carry, while disks stay as they are: where the disks become
//! the limit (paper 0: a machine with Myrinet beside one with Fast Ethernet).

use crate::advice::{PAYLOAD, Reading, read};
use crate::args::Links;
use crate::bed::Bed;
use crate::lab::Lab;
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::report::Report;
use std::io::Result;

/// Of what links or disks allow, whichever is less.
const AIM: f64 = 0.9;
const RECORDS: u64 = 350;
const FILE: &str = "records";

pub fn run(plan: &Links) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "links")?;
    let mut points = Points::default();
    let mut common = plan.common.clone();
    common.rate = Some(plan.rate());
    let lines = [(1, "one reader"), (plan.readers(), "all readers")];
    for link in &plan.links() {
        let mut bed = Bed::new(&plan.profile, plan.disks);
        bed.link_rate = Some(*link);
        let lab = Lab::on(&common, &bed, plan.file)?;
        lab.write(FILE, &[], plan.file)?;
        for (readers, line) in lines {
            for trial in 1..=plan.trials() {
                let reading = Reading {
                    workload: "gwf",
                    records: RECORDS,
                    chunks: 1,
                    readers: readers as usize,
                };
                let rate = read(&lab, &reading, FILE)?;
                println!(
                    "trial {trial}: links of {:.1} MB/s, {line}: {rate:.2} MB/s",
                    *link as f64 / 1e6
                );
                points.add(line, *link / 1000, rate);
            }
            judge(&mut report, plan, &points, (*link, readers, line));
        }
    }
    points.write(&report, "links.csv", "link_kb_per_s")?;
    let title = format!("{} disks of {:.0} MB/s", plan.disks, plan.rate() as f64 / 1e6);
    let labels = Labels { title: &title, x: "MB/s of a link", y: "MB/s, all readers" };
    let names: Vec<&str> = lines.iter().map(|(_, line)| *line).collect();
    let series: Vec<Series> = points.series(&names, 1e3);
    plot::lines(&report.path("links.svg"), &labels, &series)?;
    report.finish()
}

/// MB/s that so many readers can have by their links, and by all disks. What is on its own node
/// comes to a reader over no link.
fn bounds(plan: &Links, link: u64, readers: u32) -> (f64, f64) {
    let disks = f64::from(plan.disks);
    let links = link as f64 * PAYLOAD * f64::from(readers) * disks / (disks - 1.0) / 1e6;
    (links, disks * plan.rate() as f64 / 1e6)
}

fn judge(report: &mut Report, plan: &Links, points: &Points, of: (u64, u32, &'static str)) {
    let (link, readers, line) = of;
    let Some(rate) = points.mean(line, link / 1000) else { return };
    let (links, disks) = bounds(plan, link, readers);
    let limit = if links < disks { "links" } else { "disks" };
    let share = rate / links.min(disks);
    let what = format!(
        "links of {:.1} MB/s, {line}: {rate:.1} MB/s, {:.0} % of what {limit} allow",
        link as f64 / 1e6,
        share * 100.0
    );
    report.verdict(share >= AIM, &what);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;
    use crate::args::{Arguments, Experiment};
    use clap::Parser;

    #[test]
    fn disks_are_the_limit_when_links_carry_more() {
        let words = ["weir-figures", "links", "--disks", "8", "--rate", "8000000"];
        let Some(Experiment::Links(plan)) = Arguments::parse_from(words).experiment else {
            panic!("another experiment");
        };
        let (links, disks) = bounds(&plan, 7_000_000, 7);
        assert!(links < disks && (disks - 64.0).abs() < 1e-9, "{links}");
        assert!(bounds(&plan, 10_000_000, 7).0 > disks);
    }
}
