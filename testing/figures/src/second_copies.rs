//! Writers of files that are striped over half of the disks, without a copy or with one on the other
//! half: do twice the disks take twice the bytes in the same time?

use crate::args::{Common, SecondCopies};
use crate::lab::{Lab, without_seeks};
use crate::mirrored::layout;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::report::Report;
use crate::writing::{Tables, Written, at_once};
use std::io::{Error, Result};

const LINES: [(&str, u32); 2] = [("one copy", 1), ("two copies", 2)];
/// Two copies are written so fast, of one.
const AIM: f64 = 0.95;
const CALL_BYTES: u64 = 1 << 20;
/// What a disk takes if nothing else is said.
const RATE: u64 = 8 << 20;
const MIB: f64 = (1 << 20) as f64;

pub fn run(plan: &SecondCopies) -> Result<()> {
    let common = &Common { rate: plan.common.rate.or(Some(RATE)), ..plan.common.clone() };
    let mut report = Report::new(&common.out, "second-copies")?;
    let columns = plan.disks as usize / 2;
    let most = plan.writers().into_iter().max().unwrap_or(1);
    // What was written before may not be gone yet.
    let room = 5 * plan.file * u64::from(most) / columns as u64;
    let drives = vec![without_seeks(common.rate()); 2 * columns];
    let lab = Lab::with_heads(common, room, &drives)?;
    let input = lab.input("input", plan.file)?;
    let rates = vec![lab.rate as f64; lab.disks.len()];
    let mut tables = Tables::new(&report, "trial,line,writers")?;
    let mut points = Points::default();
    for trial in 1..=common.trials() {
        for writers in plan.writers() {
            for (line, copies) in LINES {
                let written = round(&lab, &input, plan.file, (writers as usize, copies))?;
                tables.write(
                    &[trial.to_string(), line.into(), writers.to_string()],
                    &rates,
                    &written,
                )?;
                let mib = plan.file as f64 * f64::from(writers) / MIB;
                let rate = mib / written.seconds();
                let on_disks: Vec<u64> = written.disk_bytes.iter().map(|n| n >> 20).collect();
                println!(
                    "trial {trial}, {writers} writers, {line:10}: {rate:6.1} MiB/s; MiB written {on_disks:?}"
                );
                points.add(line, writers.into(), rate);
            }
        }
    }
    drop(lab);
    points.write(&report, "summary.csv", "writers")?;
    for writers in plan.writers() {
        let of = |n: usize| points.mean(LINES[n].0, writers.into());
        let Some((one, two)) = of(0).zip(of(1)) else { continue };
        let part = two / one;
        let what = format!(
            "{writers} writers: {two:.1} MiB/s of two copies on {} disks, {:.1} % of {one:.1} of one copy on {columns} (aim {:.0} %)",
            2 * columns,
            part * 100.0,
            AIM * 100.0
        );
        report.verdict(part >= AIM, &what);
    }
    let title = format!("Writers of {} MiB each, one copy and two", plan.file >> 20);
    let labels = Labels { title: &title, x: "writers", y: "MiB/s, all writers" };
    let series = points.series(&LINES.map(|(line, _)| line), 1.0);
    plot::lines(&report.path("second-copies.svg"), &labels, &series)?;
    report.finish()
}

/// Each writes a file through a mount of its own, until it is durable.
fn round(
    lab: &Lab,
    input: &str,
    file_bytes: u64,
    (writers, copies): (usize, u32),
) -> Result<Written> {
    let layout = layout(copies, lab.disks.len() / 2);
    let layout: Vec<&str> = layout.iter().map(String::as_str).collect();
    let name = |n: usize| format!("w{n}");
    (0..writers).try_for_each(|n| lab.cluster.make_file(&name(n), &layout))?;
    let mount = |n: usize| lab.cluster.mount(n, lab.place(&format!("m{n}")), "rw");
    let mounts = (0..writers).map(mount).collect::<Result<Vec<_>>>()?;
    let path = |n: usize| mounts[n].path().join(name(n));
    let written = at_once(lab, writers, |n| lab.copy(input, &path(n), CALL_BYTES))?;
    // It counts only if both copies were written.
    let all = written.disk_bytes.iter().sum::<u64>();
    let least = file_bytes * writers as u64 * u64::from(copies);
    if all < least {
        return Err(Error::other(format!("the disks wrote {all} bytes of {least}")));
    }
    drop(mounts);
    let remove = |n| lab.cluster.weir(&["rm", &format!("weir:/{}", name(n))]).map(drop);
    (0..writers).try_for_each(remove)?;
    Ok(written)
}
