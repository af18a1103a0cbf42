//! As many readers as disks, each of a file of its own with two copies on neighbouring disks;
//! some disks are perturbed. How fast is the slowest?

use crate::args::{EvenReads, Line};
use crate::bed::Bed;
use crate::compare::{Compared, Stated};
use crate::course::{Course, Group, Key, Point, mean, spread};
use crate::files::chained;
use crate::lab::Lab;
use crate::proof::Proof;
use crate::report::Report;
use std::io::Result;
use std::time::Duration;

/// So near to the ideal the default is to be.
const NEAR: f64 = 0.97;
/// And while perturbers come and go.
const NEAR_IN_TURNS: f64 = 0.95;
const COPIES: usize = 2;
/// So little more is none.
const TIE: f64 = 0.02;
/// River, figures 2 and 3: one perturbed disk of 16 halves who reads the first copies alone, and
/// costs Primary-Copies a quarter with small calls; with large ones Basic has 5 to 10 % less than
/// Primary-Copies without a fault.
const STATED: [Stated; 3] = [
    Stated { name: "Non-Robust, half", call_bytes: None, faults: 1, part: 0.5 },
    Stated { name: "Primary-Copies, -25 %", call_bytes: Some(64 << 10), faults: 1, part: 0.75 },
    Stated { name: "Basic, -5 to -10 %", call_bytes: Some(1 << 20), faults: 0, part: 0.925 },
];

pub fn run(plan: &EvenReads) -> Result<()> {
    let name = if plan.turn == 0 { "even-reads" } else { "even-reads-turns" };
    let readers = &plan.readers;
    let mut report = Report::new(&readers.common.out, name)?;
    let room = COPIES as u64 * readers.file;
    let lab = match &plan.profile {
        Some(profile) => Lab::on(&readers.common, &Bed::new(profile, readers.disks), room)?,
        None => Lab::new(&readers.common, readers.disks as usize, room)?,
    };
    let groups = [own_files(&lab, readers.disks, COPIES, readers.file)?];
    lab.slow_down()?;
    let course = Course {
        trials: readers.common.trials(),
        disks: readers.disks,
        groups: &groups,
        calls: readers.calls(),
        faults: readers.faults(),
        lines: &plan.lines,
        perturbed: spread,
        turn: Duration::from_secs(plan.turn),
        job: !plan.no_job,
    };
    let points = course.run(&lab, Proof::new(plan.profile.is_some()), &mut report)?;
    drop(lab);
    if plan.turn == 0 {
        judge_the_first_copies(&course, &points, &mut report);
        judge_the_shapes(&course, &points, &mut report);
    }
    let ideal = |point: &Point<'_>| ideal(plan, &points, point.key);
    let near = if plan.turn > 0 { NEAR_IN_TURNS } else { NEAR };
    let (course, points) = (&course, &points);
    let stated = if plan.turn > 0 { &[][..] } else { &STATED[..] };
    let of = "the ideal";
    Compared { course, points, ideal: &ideal, of, near, stated }.conclude(&mut report)?;
    report.finish()
}

/// A file for each reader.
pub fn own_files(lab: &Lab, disks: u32, copies: usize, bytes: u64) -> Result<Group> {
    let files = chained(lab, disks as usize, copies, bytes)?;
    Ok(Group { name: "own files".into(), files, ranges: Vec::new(), copies })
}

/// While perturbers stay: of the means of all readers by the first copies alone, from no fault to
/// faults everywhere. If they come and go, what they left while the default was measured: nobody
/// knows beforehand how much they have of their turns.
fn ideal(plan: &EvenReads, points: &[Point<'_>], key: Key<'_>) -> Option<f64> {
    if plan.turn > 0 {
        return mean(points, Key { line: Line::Proportional, ..key }, |point| &point.left);
    }
    let disks = plan.readers.disks;
    let first_copies =
        |faults| mean(points, Key { line: Line::Primary, faults, ..key }, |point| &point.mean);
    let (left, right) = (first_copies(0)?, first_copies(disks)?);
    Some(left + (right - left) * f64::from(key.faults) / f64::from(disks))
}

fn judge_the_first_copies(course: &Course<'_>, points: &[Point<'_>], report: &mut Report) {
    for (group, call_bytes) in
        course.groups.iter().flat_map(|g| course.calls.iter().map(move |call| (g, *call)))
    {
        let slowest = |faults| {
            let key = Key { group: &group.name, call_bytes, line: Line::Primary, faults };
            mean(points, key, |point| &point.slowest)
        };
        let Some((without, with)) = slowest(0).zip(slowest(1)) else { continue };
        let left = with / without;
        let what = format!(
            "{} KiB: one perturbed disk halves who reads the first copies: {:.0} % are left",
            call_bytes >> 10,
            left * 100.0
        );
        report.verdict((0.4..=0.6).contains(&left), &what);
    }
}

/// River, figures 2 and 3: Primary-Copies is before Basic however many disks are perturbed, and with
/// large calls, without a fault, not by much. A tie counts where all disks are alike.
fn judge_the_shapes(course: &Course<'_>, points: &[Point<'_>], report: &mut Report) {
    for (group, call_bytes) in
        course.groups.iter().flat_map(|g| course.calls.iter().map(move |call| (g, *call)))
    {
        let kib = call_bytes >> 10;
        for faults in &course.faults {
            let slowest = |line| {
                let key = Key { group: &group.name, call_bytes, line, faults: *faults };
                mean(points, key, |point| &point.slowest)
            };
            let both = slowest(Line::GraduatedPrimary).zip(slowest(Line::Graduated));
            let Some((primary_copies, basic)) = both else { continue };
            let part = basic / primary_copies;
            let is_alike = *faults == 0 || *faults == course.disks;
            let is_before = part < if is_alike { 1.0 + TIE } else { 1.0 };
            let what = format!(
                "{kib} KiB, {faults} perturbed: Basic has {:.0} % of what Primary-Copies has (aim: less)",
                part * 100.0
            );
            report.verdict(is_before, &what);
            if *faults == 0 && call_bytes >= 1 << 20 {
                let what = format!("{kib} KiB, none perturbed: Basic has 90 % of it or more");
                report.verdict(part >= 0.9, &format!("{what}: {:.0} %", part * 100.0));
            }
        }
    }
}
