//! As many readers as disks, each of a file of its own, which lie further and further inside on their
//! disks: inner tracks give less. Are all equally fast?

use crate::args::{Common, ZonedReads};
use crate::files::chained;
use crate::lab::{Lab, without_seeks};
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::records::Records;
use crate::report::Report;
use crate::round::Round;
use std::io::Result;
use weir_policy::best_common_rate;
use weir_testbed::{Drive, Zones};

/// Each file on its disk alone: River's Non-Robust.
const ONE_COPY: &str = "one copy";
const DEFAULT: &str = "proportional";
const LINES: [&str; 4] = [ONE_COPY, "graduated", "graduated-primary", DEFAULT];
/// What the outermost track gives if nothing else is said.
const RATE: u64 = 8 << 20;
/// The slowest reader has so much of what is possible, and of what the fastest has.
const NEAR: f64 = 0.95;

pub fn run(plan: &ZonedReads) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "zoned-reads")?;
    let disks = plan.disks as usize;
    let common = Common { rate: plan.common.rate.or(Some(RATE)), ..plan.common.clone() };
    let room = 3 * plan.file;
    let drives: Vec<Drive> = (0..u64::from(plan.disks)).map(|n| plan.drive(&common, n)).collect();
    let lab = Lab::with_heads(&common, room, &drives)?;
    let (of_one, of_two) =
        (chained(&lab, disks, 1, plan.file)?, chained(&lab, disks, 2, plan.file)?);
    let mut records = Records::new(&report, "trial,line")?;
    let (mut rates, mut ends) = (Points::default(), Ends::default());
    for trial in 1..=common.trials() {
        for line in LINES {
            let (policy, files) =
                if line == ONE_COPY { ("primary", &of_one) } else { (line, &of_two) };
            let outcome = lab.round(&Round { job: true, ..Round::of(policy, files) })?;
            records.write(&[trial.to_string(), line.into()], &[], &outcome)?;
            let of_readers = outcome.rates();
            for (reader, rate) in of_readers.iter().enumerate() {
                rates.add(line, reader as u64, *rate);
            }
            let slowest = of_readers.iter().copied().fold(f64::INFINITY, f64::min);
            let fastest = of_readers.iter().copied().fold(0.0, f64::max);
            ends.slowest.add(line, 0, slowest);
            ends.evenness.add(line, 0, slowest / fastest);
            println!("trial {trial}, {line:17}: slowest {slowest:.2} MiB/s, fastest {fastest:.2}");
        }
    }
    drop(lab);
    rates.write(&report, "summary.csv", "reader")?;
    ends.slowest.write(&report, "slowest.csv", "all")?;
    judge(&mut report, plan, &common, &ends);
    let title = format!("Readers of files on {disks} parts of a disk, from outside to inside");
    let labels = Labels { title: &title, x: "reader", y: "MiB/s" };
    plot::lines(&report.path("zoned-reads.svg"), &labels, &rates.series(&LINES, 1.0))?;
    report.finish()
}

/// Of each line, of all trials.
#[derive(Default)]
struct Ends {
    /// MiB/s of the slowest reader.
    slowest: Points,
    /// Of what the fastest has.
    evenness: Points,
}

impl ZonedReads {
    /// The disk of one server is one of as many equal parts of a drive.
    fn drive(&self, common: &Common, part: u64) -> Drive {
        let bytes = Lab::disk_bytes(3 * self.file);
        let zones = Zones {
            inner_bytes_per_s: common.rate() * self.inner / 100,
            disk_bytes: bytes * u64::from(self.disks),
            begin: bytes * part,
        };
        Drive { zones: Some(zones), ..without_seeks(common.rate()) }
    }

    /// MiB/s in the middle of each of these disks.
    fn middles(&self, common: &Common) -> Vec<f64> {
        let fall = 1.0 - self.inner as f64 / 100.0;
        let from_outside = |part| (f64::from(part) + 0.5) / f64::from(self.disks);
        let rate = |part| (common.rate() >> 10) as f64 / 1024.0 * (1.0 - fall * from_outside(part));
        (0..self.disks).map(rate).collect()
    }
}

fn judge(report: &mut Report, plan: &ZonedReads, common: &Common, ends: &Ends) {
    let rates = plan.middles(common);
    let Some(possible) = best_common_rate(&vec![1.0; rates.len()], &rates, 2) else { return };
    for line in LINES {
        let (Some(slowest), Some(even)) = (ends.slowest.mean(line, 0), ends.evenness.mean(line, 0))
        else {
            continue;
        };
        let (part, percent) = (slowest / possible, NEAR * 100.0);
        let what = format!(
            "{line}: the slowest reader has {slowest:.2} MiB/s, {:.1} % of {possible:.2} that is possible, and {:.1} % of what the fastest has",
            part * 100.0,
            even * 100.0
        );
        match line {
            ONE_COPY => report
                .verdict(even < NEAR, &format!("{what} (disks differ: aim below {percent:.0} %)")),
            DEFAULT => {
                report.verdict(part.min(even) >= NEAR, &format!("{what} (aim {percent:.0} %)"))
            }
            _ => println!("{what}"),
        }
    }
}
