//! As many readers as disks, each of a file of its own with two copies on neighbouring disks, or with
//! three; disks side by side are perturbed. With two, the readers among them have too little.

use crate::args::{AdjacentFaults, Line};
use crate::compare::Compared;
use crate::course::{Course, Group, Key, Point, adjacent, mean};
use crate::even_reads::own_files;
use crate::lab::Lab;
use crate::proof::Proof;
use crate::report::Report;
use crate::statistics::Spread;
use std::io::{Error, Result};
use std::time::Duration;

/// So near to what is possible the default is to be.
const NEAR: f64 = 0.95;
/// Where the bounds of two numbers of copies are nearer than this, neither has to be better.
const APART: f64 = 1.05;
const USUAL: [u32; 3] = [1, 2, 3];

pub fn run(plan: &AdjacentFaults) -> Result<()> {
    let readers = &plan.readers;
    let most = plan.copies.iter().copied().max().unwrap_or_default();
    if u32::from(most) > readers.disks {
        let what = format!("{most} copies need as many disks: --disks {most}, or fewer --copies");
        return Err(Error::other(what));
    }
    let mut report = Report::new(&readers.common.out, "adjacent-faults")?;
    let copies: u64 = plan.copies.iter().map(|copies| u64::from(*copies)).sum();
    let lab = Lab::new(&readers.common, readers.disks as usize, copies * readers.file)?;
    let group = |copies: &u8| {
        let group = own_files(&lab, readers.disks, usize::from(*copies), readers.file)?;
        Ok::<_, Error>(Group { name: format!("{copies} copies"), ..group })
    };
    let groups = plan.copies.iter().map(group).collect::<Result<Vec<_>>>()?;
    lab.slow_down()?;
    let course = Course {
        trials: readers.common.trials(),
        disks: readers.disks,
        groups: &groups,
        calls: readers.calls(),
        faults: if readers.faults.is_empty() { USUAL.to_vec() } else { readers.faults() },
        lines: &plan.lines,
        perturbed: adjacent,
        turn: Duration::ZERO,
        job: true,
    };
    let points = course.run(&lab, Proof::default(), &mut report)?;
    drop(lab);
    let ideal = |point: &Point<'_>| Some(Spread::of(&point.bound).mean);
    let (course, points, of) = (&course, &points[..], "what is possible");
    Compared { course, points, ideal: &ideal, of, near: NEAR, stated: &[] }
        .conclude(&mut report)?;
    judge_copies(course, points, &mut report);
    report.finish()
}

/// Where more copies allow more, there is to be more.
fn judge_copies(course: &Course<'_>, points: &[Point<'_>], report: &mut Report) {
    for pair in course.groups.windows(2) {
        for point in points.iter().filter(|point| point.key.group == pair[0].name) {
            let more = Key { group: &pair[1].name, ..point.key };
            let (few, few_allow) = (Spread::of(&point.slowest).mean, Spread::of(&point.bound).mean);
            let (Some(many), Some(many_allow)) =
                (mean(points, more, |p| &p.slowest), mean(points, more, |p| &p.bound))
            else {
                continue;
            };
            if point.key.line != Line::Proportional || many_allow < few_allow * APART {
                continue;
            }
            let what = format!(
                "{} KiB, {} perturbed side by side: {many:.2} MiB/s of {}, {few:.2} of {}: {:.2} times \
                 (possible: {:.2})",
                point.key.call_bytes >> 10,
                point.key.faults,
                pair[1].name,
                pair[0].name,
                many / few,
                many_allow / few_allow
            );
            report.verdict(many > few, &what);
        }
    }
}
