//! What was measured beside what is ideal: a table, PASS or FAIL, plots.

use crate::args::Line;
use crate::course::{Course, Point};
use crate::plot::{self, Labels, Series};
use crate::report::Report;
use crate::statistics::Spread;
use std::io::Result;

const HEAD: &str = "group,call_bytes,policy,faults,slowest_mib_per_s,slowest_deviation,\
    mean_mib_per_s,mean_deviation,ideal_mib_per_s";

/// What a paper states, as a part of what the slowest reader of the first copies alone has when
/// nothing is perturbed.
pub struct Stated {
    pub name: &'static str,
    /// Of calls of so many bytes; `None`: of all.
    pub call_bytes: Option<u64>,
    pub faults: u32,
    pub part: f64,
}

/// The points of an experiment, and the ideal of each.
pub struct Compared<'a> {
    pub course: &'a Course<'a>,
    pub points: &'a [Point<'a>],
    pub ideal: &'a dyn Fn(&Point<'_>) -> Option<f64>,
    /// What the ideal is called.
    pub of: &'a str,
    /// So near to it the default is to be.
    pub near: f64,
    /// Drawn beside what was measured.
    pub stated: &'a [Stated],
}

impl Compared<'_> {
    pub fn conclude(&self, report: &mut Report) -> Result<()> {
        self.write(report)?;
        for call_bytes in &self.course.calls {
            let of_call = |p: &&Point<'_>| p.key.call_bytes == *call_bytes;
            self.points.iter().filter(of_call).for_each(|point| self.judge(point, report));
            self.draw(*call_bytes, report)?;
        }
        Ok(())
    }

    fn write(&self, report: &Report) -> Result<()> {
        let mut table = report.table("summary.csv", HEAD)?;
        for point in self.points {
            let (slowest, mean) = (Spread::of(&point.slowest), Spread::of(&point.mean));
            let ideal = (self.ideal)(point).map_or(String::new(), |ideal| format!("{ideal:.3}"));
            let key = point.key;
            let (call, faults) = (key.call_bytes.to_string(), key.faults.to_string());
            let key = [key.group.to_owned(), call, key.line.policy().into(), faults];
            let values = [slowest.mean, slowest.deviation, mean.mean, mean.deviation];
            table.row(&[&key[..], &values.map(|v| format!("{v:.3}")), &[ideal]].concat())?;
        }
        Ok(())
    }

    fn judge(&self, point: &Point<'_>, report: &mut Report) {
        let ideal = (self.ideal)(point).filter(|_| point.key.line == Line::Proportional);
        let Some(ideal) = ideal else { return };
        let rate = Spread::of(&point.slowest).mean;
        let part = rate / ideal;
        let what = format!(
            "{}, {} KiB, {} perturbed: by default the slowest is within {:.0} % of {}: {rate:.2} of \
             {ideal:.2} MiB/s, {:.1} %",
            point.key.group,
            point.key.call_bytes >> 10,
            point.key.faults,
            100.0 - self.near * 100.0,
            self.of,
            part * 100.0
        );
        report.verdict(part >= self.near, &what);
    }

    /// Of one group a plot with all policies; of several a plot for each policy.
    fn draw(&self, call_bytes: u64, report: &Report) -> Result<()> {
        let kib = call_bytes >> 10;
        let lines = self.course.lines;
        if self.course.groups.len() == 1 {
            return self.plot(call_bytes, lines, &report.path(&format!("slowest-{kib}k.svg")));
        }
        lines.iter().try_for_each(|line| {
            let name = format!("slowest-{kib}k-{}.svg", line.policy());
            self.plot(call_bytes, &[*line], &report.path(&name))
        })
    }

    fn plot(&self, call_bytes: u64, lines: &[Line], path: &std::path::Path) -> Result<()> {
        let groups = self.course.groups;
        let mut series = Vec::new();
        for group in groups {
            let name = |what: &str| match groups.len() {
                1 => what.to_owned(),
                _ => format!("{}, {what}", group.name),
            };
            let of = |line: &Line| {
                let is_of = |p: &&Point<'_>| {
                    (p.key.group, p.key.call_bytes, p.key.line) == (&*group.name, call_bytes, *line)
                };
                self.points.iter().filter(is_of).collect::<Vec<_>>()
            };
            let x = |point: &Point<'_>| f64::from(point.key.faults);
            for line in lines {
                let points = of(line).iter().map(|p| (x(p), Spread::of(&p.slowest))).collect();
                series.push(Series::new(name(line.policy()), points));
            }
            let ideal = |p: &&Point<'_>| {
                let mean = (self.ideal)(p)?;
                Some((x(p), Spread { mean, deviation: 0.0 }))
            };
            let points: Vec<_> = lines.last().map(of).iter().flatten().filter_map(ideal).collect();
            if !points.is_empty() {
                series.push(Series::new(name(self.of), points));
            }
        }
        series.extend(self.stated_for(call_bytes));
        let kib = call_bytes >> 10;
        let title = format!("The slowest of {} readers, calls of {kib} KiB", self.course.disks);
        let labels = Labels { title: &title, x: "perturbed disks", y: "MiB/s" };
        plot::lines(path, &labels, &series)
    }

    fn stated_for(&self, call_bytes: u64) -> Vec<Series> {
        let is_whole = |p: &&Point<'_>| {
            (p.key.call_bytes, p.key.line, p.key.faults) == (call_bytes, Line::Primary, 0)
        };
        let whole = self.points.iter().find(is_whole).map(|p| Spread::of(&p.slowest).mean);
        let of = self.stated.iter().filter(|s| s.call_bytes.is_none_or(|of| of == call_bytes));
        let value = |s: &Stated| Series::stated(s.name, [(s.faults.into(), whole? * s.part)]);
        of.filter_map(value).collect()
    }
}
