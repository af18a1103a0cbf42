//! As many readers as disks, which all read a part of one file with a fragment on each disk, in two
//! copies; those of odd numbers read more than those of even ones. What does that cost?

use crate::args::{Line, Partitions, Ratio};
use crate::compare::Compared;
use crate::course::{Course, Group, Key, Point, mean, spread};
use crate::even_reads::own_files;
use crate::files::fragments;
use crate::lab::Lab;
use crate::proof::Proof;
use crate::report::Report;
use crate::statistics::Spread;
use std::io::{Error, Result};
use std::ops::Range;
use std::time::Duration;

/// So near to what is possible the default is to be.
const NEAR: f64 = 0.97;
/// What is to be the same differs by less: the means of two trials of the same differ by so much.
const SAME: f64 = 0.05;
const COPIES: usize = 2;
/// Ranges begin at multiples of it.
const UNIT: u64 = 1 << 20;

pub fn run(plan: &Partitions) -> Result<()> {
    let readers = &plan.readers;
    if !readers.disks.is_multiple_of(2) || readers.file < UNIT {
        let what = "readers are taken in pairs, of 1 MiB at least: say an even --disks, and --file";
        return Err(Error::other(what));
    }
    let mut report = Report::new(&readers.common.out, "partitions")?;
    let room = 2 * COPIES as u64 * readers.file;
    let lab = Lab::new(&readers.common, readers.disks as usize, room)?;
    let disks = readers.disks as usize;
    let file = fragments(&lab, disks, COPIES, readers.file)?;
    let mut groups = vec![own_files(&lab, readers.disks, COPIES, readers.file)?];
    groups.extend(plan.ratios().iter().map(|ratio| Group {
        name: ratio.to_string(),
        files: vec![file.clone(); disks],
        ranges: (0..disks).map(|n| part(n as u64, readers.file, *ratio)).collect(),
        copies: COPIES,
    }));
    lab.slow_down()?;
    let course = Course {
        trials: readers.common.trials(),
        disks: readers.disks,
        groups: &groups,
        calls: readers.calls(),
        faults: readers.faults(),
        lines: &plan.lines,
        perturbed: spread,
        turn: Duration::ZERO,
        job: true,
    };
    let points = course.run(&lab, Proof::default(), &mut report)?;
    drop(lab);
    let ideal = |point: &Point<'_>| Some(Spread::of(&point.bound).mean);
    let (course, points, of) = (&course, &points[..], "what is possible");
    Compared { course, points, ideal: &ideal, of, near: NEAR, stated: &[] }
        .conclude(&mut report)?;
    judge_ratios(course, points, &mut report);
    report.finish()
}

/// Each pair of readers, or of writers, has a pair of fragments, one after the other.
pub fn part(reader: u64, fragment: u64, ratio: Ratio) -> Range<u64> {
    let share = ratio.even / (ratio.even + ratio.odd);
    let units = (2 * fragment / UNIT) as f64 * share;
    // Each reads something.
    let even = (units.round() as u64 * UNIT).clamp(UNIT, 2 * fragment - UNIT);
    let begin = reader / 2 * 2 * fragment;
    if reader.is_multiple_of(2) { begin..begin + even } else { begin + even..begin + 2 * fragment }
}

/// By default the ratio makes no difference, nor do parts of one file beside files.
fn judge_ratios(course: &Course<'_>, points: &[Point<'_>], report: &mut Report) {
    for pair in course.groups.windows(2) {
        // Files beside the first ratio; that one beside all others.
        let with = if pair[0].ranges.is_empty() { &pair[0] } else { &course.groups[1] };
        let of_group =
            |p: &&Point<'_>| p.key.group == pair[1].name && p.key.line == Line::Proportional;
        for point in points.iter().filter(of_group) {
            let before = Key { group: &with.name, ..point.key };
            let Some(before) = mean(points, before, |p| &p.slowest) else { continue };
            let times = Spread::of(&point.slowest).mean / before;
            let what = format!(
                "{} KiB, {} perturbed: {} is {:.1} % of {} (aim within {:.0} %)",
                point.key.call_bytes >> 10,
                point.key.faults,
                pair[1].name,
                times * 100.0,
                with.name,
                SAME * 100.0
            );
            report.verdict((times - 1.0).abs() <= SAME, &what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_pair_are_as_the_ratio_says_and_all_is_read_once() {
        const MIB: u64 = 1 << 20;
        let all = |odd| -> Vec<Range<u64>> {
            (0..4).map(|n| part(n, 60 * MIB, Ratio { even: 1.0, odd })).collect()
        };
        assert_eq!(all(1.0)[1], 60 * MIB..120 * MIB);
        assert_eq!(all(2.0)[..2], [0..40 * MIB, 40 * MIB..120 * MIB]);
        assert_eq!(all(1.5)[2..], [120 * MIB..168 * MIB, 168 * MIB..240 * MIB]);
        assert_eq!(all(1e9)[0], 0..MIB, "nobody reads nothing");
    }
}
