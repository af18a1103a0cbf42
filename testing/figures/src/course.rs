//! The rounds of an experiment with as many readers as disks, some of which are perturbed, and
//! what came of them. What is compared is measured one after another.

use crate::args::Line;
use crate::lab::Lab;
use crate::outcome::Outcome;
use crate::proof::Proof;
use crate::records::Records;
use crate::report::Report;
use crate::round::{Load, Round};
use crate::statistics::Spread;
use std::io::Result;
use std::ops::Range;
use std::time::Duration;

/// What readers read.
pub struct Group {
    /// What it is called in tables.
    pub name: String,
    /// The file of each,
    pub files: Vec<String>,
    /// and what of it; empty: all.
    pub ranges: Vec<Range<u64>>,
    /// Of each byte, chained.
    pub copies: usize,
}

/// All rounds.
pub struct Course<'a> {
    pub trials: u32,
    pub disks: u32,
    pub groups: &'a [Group],
    pub calls: Vec<u64>,
    pub faults: Vec<u32>,
    pub lines: &'a [Line],
    /// Which disks are perturbed, if so many of so many are.
    pub perturbed: fn(u32, u32) -> Vec<usize>,
    /// Perturbers come and go after so long; zero: they stay.
    pub turn: Duration,
    /// Readers are the processes of one job.
    pub job: bool,
}

/// What a point of a plot is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key<'a> {
    pub group: &'a str,
    pub call_bytes: u64,
    pub line: Line,
    pub faults: u32,
}

/// All trials of one, MiB/s of each reader.
pub struct Point<'a> {
    pub key: Key<'a>,
    /// By when the last one had ended.
    pub slowest: Vec<f64>,
    pub mean: Vec<f64>,
    /// What perturbers left for each,
    pub left: Vec<f64>,
    /// and what that allows with these copies at best.
    pub bound: Vec<f64>,
}

impl<'a> Course<'a> {
    /// Of a trial.
    fn keys(&self) -> Vec<(&'a Group, Key<'a>)> {
        let mut keys = Vec::new();
        for (call_bytes, faults) in
            self.calls.iter().flat_map(|call| self.faults.iter().map(|faults| (*call, *faults)))
        {
            for line in self.lines {
                let key = |group: &'a Group| {
                    (group, Key { group: &group.name, call_bytes, line: *line, faults })
                };
                keys.extend(self.groups.iter().map(key));
            }
        }
        keys
    }

    /// Does all of them, and writes down what was measured.
    pub fn run(&self, lab: &Lab, mut proof: Proof, report: &mut Report) -> Result<Vec<Point<'a>>> {
        let mut records = Records::new(report, "trial,group,call_bytes,policy,faults")?;
        let mut points: Vec<Point<'a>> = Vec::new();
        for trial in 1..=self.trials {
            for (group, key) in self.keys() {
                let perturbed = (self.perturbed)(key.faults, self.disks);
                let round = Round {
                    ranges: &group.ranges,
                    call_bytes: key.call_bytes,
                    perturbed: &perturbed,
                    load: Load::Reads { turn: self.turn },
                    job: self.job,
                    ..Round::of(key.line.policy(), &group.files)
                };
                let outcome = proof.round(lab, &round)?;
                records.write(&key.columns(trial), &perturbed, &outcome)?;
                let at = points.iter().position(|point| point.key == key).unwrap_or_else(|| {
                    points.push(Point::new(key));
                    points.len() - 1
                });
                points[at].add(&outcome, lab.rate, group.copies);
                println!("trial {trial}, {}", points[at].text(&outcome));
            }
        }
        proof.conclude(report);
        Ok(points)
    }
}

impl Key<'_> {
    fn columns(&self, trial: u32) -> Vec<String> {
        let (call, faults) = (self.call_bytes.to_string(), self.faults.to_string());
        vec![trial.to_string(), self.group.into(), call, self.line.policy().into(), faults]
    }
}

impl<'a> Point<'a> {
    fn new(key: Key<'a>) -> Self {
        let (slowest, mean, left, bound) = Default::default();
        Self { key, slowest, mean, left, bound }
    }

    fn add(&mut self, outcome: &Outcome, rate: u64, copies: usize) {
        let rates = outcome.rates();
        self.slowest.push(outcome.together());
        self.mean.push(rates.iter().sum::<f64>() / rates.len() as f64);
        self.left.push(outcome.left_for_each(rate));
        self.bound.extend(outcome.bound(rate, copies));
    }

    fn text(&self, outcome: &Outcome) -> String {
        let last = |values: &[f64]| values.last().copied().unwrap_or_default();
        let served: Vec<u64> = outcome.disks.iter().map(|disk| disk.served_bytes() >> 20).collect();
        let Key { group, call_bytes, line, faults } = self.key;
        format!(
            "{group}, {} KiB, {faults} faults, {:12}: slowest {:6.2} MiB/s of {:.2} that are possible, \
             mean {:6.2}; MiB that the disks served {served:?}",
            call_bytes >> 10,
            line.policy(),
            last(&self.slowest),
            last(&self.bound),
            last(&self.mean),
        )
    }
}

/// The mean of what `what` says of a point.
pub fn mean(
    points: &[Point<'_>],
    key: Key<'_>,
    what: for<'a> fn(&'a Point<'_>) -> &'a [f64],
) -> Option<f64> {
    let point = points.iter().find(|point| point.key == key)?;
    Some(Spread::of(what(point)).mean)
}

/// So many perturbed disks, as evenly spread as possible.
pub fn spread(faults: u32, disks: u32) -> Vec<usize> {
    (0..faults).map(|n| (n * disks / faults) as usize).collect()
}

/// So many side by side.
pub fn adjacent(faults: u32, _disks: u32) -> Vec<usize> {
    (0..faults as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perturbed_disks_are_as_far_from_each_other_as_they_can_be_or_side_by_side() {
        assert!(spread(0, 8).is_empty());
        assert_eq!(spread(1, 8), [0]);
        assert_eq!(spread(2, 8), [0, 4]);
        assert_eq!(spread(3, 8), [0, 2, 5]);
        assert_eq!(spread(8, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(adjacent(3, 8), [0, 1, 2]);
    }
}
