//! As many writers as disks, which all write a part of one file; those of odd numbers write more than
//! those of even ones. Each fragment of the file is on a disk of its own, or each chunk where it is
//! written first. Some disks give half.

use crate::args::{PartWrites, Ratio};
use crate::lab::Lab;
use crate::partitions::part;
use crate::plot::{self, Labels, Series};
use crate::points::Points;
use crate::report::Report;
use crate::writing::{Tables, Written, at_once, with_slow_disks};
use std::fs;
use std::io::{Error, Result};
use std::ops::Range;

/// Where the bytes of the file are.
const LINES: [&str; 2] = ["fragments", GRADUATED];
const GRADUATED: &str = "graduated";
/// What all disks give, for each writer.
const DISKS: &str = "disks";
const UNIT: u64 = 1 << 20;
/// By graduated writing each has so much of what disks give.
const NEAR: f64 = 0.9;
/// What is to be the same differs by less.
const SAME: f64 = 0.05;
const FILE: &str = "parts";
const MIB: f64 = (1 << 20) as f64;

/// Of a ratio and a size of calls.
struct Measured {
    ratio: Ratio,
    call_bytes: u64,
    /// By the number of slow disks.
    points: Points,
}

pub fn run(plan: &PartWrites) -> Result<()> {
    let common = &plan.writers.common;
    if !plan.writers.disks.is_multiple_of(2) || plan.file < UNIT {
        let what = "writers are taken in pairs, of 1 MiB at least: say an even --disks, and --file";
        return Err(Error::other(what));
    }
    let mut report = Report::new(&common.out, "part-writes")?;
    let (disks, faults) = (plan.writers.disks as usize, plan.writers.faults());
    // A graduated file is nowhere bound to be even, and what was written before may not be gone yet.
    let lab = Lab::new(common, disks, 6 * plan.file)?;
    let input = lab.input("input", 2 * plan.file)?;
    let mut tables = Tables::new(&report, "trial,ratio,call_bytes,line,slow_disks")?;
    let groups = || {
        plan.calls().into_iter().flat_map(|call| plan.ratios().into_iter().map(move |r| (call, r)))
    };
    let new = |(call_bytes, ratio)| Measured { ratio, call_bytes, points: Points::default() };
    let mut all: Vec<Measured> = groups().map(new).collect();
    with_slow_disks(&lab, common.trials(), &faults, |trial, slow, rates| {
        for Measured { ratio, call_bytes, points } in &mut all {
            for line in LINES {
                let written = round(&lab, plan, &input, (line, *ratio, *call_bytes))?;
                let key = [trial.to_string(), ratio.to_string(), call_bytes.to_string()];
                let key = [&key[..], &[line.into(), slow.to_string()]].concat();
                tables.write(&key, rates, &written)?;
                let rate = plan.file as f64 / MIB / written.seconds();
                let on_disks: Vec<u64> = written.disk_bytes.iter().map(|n| n >> 20).collect();
                println!(
                    "trial {trial}, {ratio}, {:4} KiB, {line:9} {slow} slow: {rate:5.2} MiB/s for each; MiB written {on_disks:?}",
                    *call_bytes >> 10
                );
                points.add(line, slow.into(), rate);
            }
            points.add(DISKS, slow.into(), rates.iter().sum::<f64>() / disks as f64 / MIB);
        }
        Ok(())
    })?;
    drop(lab);
    for Measured { ratio, call_bytes, points } in &all {
        let name = format!("{}k-{}", call_bytes >> 10, ratio.to_string().replace(':', "-"));
        points.write(&report, &format!("summary-{name}.csv"), "slow_disks")?;
    }
    for slow in &faults {
        all.iter().for_each(|measured| judge(&mut report, measured, &all, (*slow).into()));
    }
    for call_bytes in plan.calls() {
        draw(&report, &all, (disks, call_bytes))?;
    }
    report.finish()
}

/// All write, each through a mount of its own, until it is durable.
fn round(
    lab: &Lab,
    plan: &PartWrites,
    input: &str,
    (line, ratio, call_bytes): (&str, Ratio, u64),
) -> Result<Written> {
    let writers = lab.disks.len();
    let (count, bytes) = (writers.to_string(), plan.file.to_string());
    let layout: &[&str] = match line {
        GRADUATED => &["--layout", "chunked", "--placement", "graduated", "--count", &count],
        _ => &["--layout", "fragments", "--base", "0", "--count", &count, "--chunk", &bytes],
    };
    lab.cluster.make_file(FILE, layout)?;
    let mount = |n: usize| lab.cluster.mount(n, lab.place(&format!("m{n}")), "rw");
    let mounts = (0..writers).map(mount).collect::<Result<Vec<_>>>()?;
    let range = |n: usize| -> Range<u64> { part(n as u64, plan.file, ratio) };
    let write = |n: usize| lab.copy_part(input, &mounts[n].path().join(FILE), call_bytes, range(n));
    let written = at_once(lab, writers, write)?;
    let bytes = fs::metadata(mounts[0].path().join(FILE))?.len();
    if bytes != plan.file * writers as u64 {
        return Err(Error::other(format!("the file has {bytes} bytes")));
    }
    drop(mounts);
    lab.cluster.weir(&["rm", &format!("weir:/{FILE}")])?;
    Ok(written)
}

/// Near to what disks give, and as with equal parts.
fn judge(report: &mut Report, measured: &Measured, all: &[Measured], slow: u64) {
    let Measured { ratio, call_bytes, points } = measured;
    let (Some(rate), Some(disks)) = (points.mean(GRADUATED, slow), points.mean(DISKS, slow)) else {
        return;
    };
    let fragments = points.mean(LINES[0], slow).unwrap_or_default();
    let what = format!(
        "{ratio}, {} KiB, {slow} slow: {rate:.2} MiB/s for each by graduated writing, {:.1} % of {disks:.2} that disks give (aim {:.0} %); fragments {fragments:.2}",
        call_bytes >> 10,
        rate / disks * 100.0,
        NEAR * 100.0
    );
    report.verdict(rate / disks >= NEAR, &what);
    let first = all.iter().find(|first| first.call_bytes == *call_bytes);
    let Some(first) = first.filter(|first| first.ratio != *ratio) else { return };
    let Some(equal) = first.points.mean(GRADUATED, slow) else { return };
    let what = format!(
        "{} KiB, {slow} slow: {ratio} is {:.1} % of {} (aim within {:.0} %)",
        call_bytes >> 10,
        rate / equal * 100.0,
        first.ratio,
        SAME * 100.0
    );
    report.verdict((rate / equal - 1.0).abs() <= SAME, &what);
}

fn draw(report: &Report, all: &[Measured], (disks, call_bytes): (usize, u64)) -> Result<()> {
    let kib = call_bytes >> 10;
    let named = |measured: &Measured| {
        let mut of = measured.points.series(&LINES, 1.0);
        of.iter_mut()
            .for_each(|series| series.name = format!("{}, {}", measured.ratio, series.name));
        of
    };
    let of_calls = all.iter().filter(|measured| measured.call_bytes == call_bytes);
    let series: Vec<Series> = of_calls.flat_map(named).collect();
    let title = format!("{disks} writers of parts of one file, calls of {kib} KiB");
    let labels = Labels { title: &title, x: "slow disks", y: "MiB/s for each, by the last" };
    plot::lines(&report.path(&format!("part-writes-{kib}k.svg")), &labels, &series)
}
