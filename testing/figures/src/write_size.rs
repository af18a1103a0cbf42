//! As many writers as disks, each of a file of its own, while all disks are well: what does the size
//! of calls cost?

use crate::args::WriteSize;
use crate::graduated_write::{LINES, NEAR, Writing, room, text};
use crate::lab::Lab;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::report::Report;
use crate::writing::{Tables, with_slow_disks};
use std::io::Result;

pub fn run(plan: &WriteSize) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "write-size")?;
    let disks = plan.disks as usize;
    let writing = Writing::new(Lab::new(&plan.common, disks, room(plan.file))?, plan.file)?;
    let mut tables = Tables::new(&report, "trial,call_bytes,line")?;
    let mut speeds = Points::default();
    with_slow_disks(&writing.lab, plan.common.trials(), &[0], |trial, _, rates| {
        for call_bytes in plan.calls() {
            for line in LINES {
                let written = writing.round(line, call_bytes)?;
                let key = [trial.to_string(), call_bytes.to_string(), line.into()];
                tables.write(&key, rates, &written)?;
                let speed = writing.speed(&written);
                let kib = call_bytes >> 10;
                println!("trial {trial}, {kib:4} KiB, {line:9}: {}", text(speed, &written));
                speeds.add(line, call_bytes, speed);
            }
        }
        Ok(())
    })?;
    let takes = writing.lab.rate as f64 / (1 << 20) as f64;
    drop(writing);
    speeds.write(&report, "summary.csv", "call_bytes")?;
    for call_bytes in plan.calls() {
        for line in LINES {
            let Some(rate) = speeds.mean(line, call_bytes) else { continue };
            let what = format!(
                "{} KiB, {line}: the slowest writer has {rate:.2} of {takes:.2} MiB/s that a disk \
                 takes, {:.1} %",
                call_bytes >> 10,
                rate / takes * 100.0
            );
            report.verdict(rate >= takes * NEAR, &what);
        }
    }
    let title = format!("The slowest of {disks} writers, all disks are well");
    let labels = Labels { title: &title, x: "KiB of a call", y: "MiB/s" };
    plot::lines(&report.path("write-size.svg"), &labels, &speeds.series(&LINES, 1024.0))?;
    report.finish()
}
