//! As many readers as disks, each of a file of its own with two copies on neighbouring disks;
//! some disks are perturbed. How fast is the slowest?

use crate::args::{EvenReads, Line, faults};
use crate::bed::Bed;
use crate::lab::Lab;
use crate::plot::{self, Labels, Series};
use crate::records::Records;
use crate::report::Report;
use crate::round::{Load, Outcome, Round};
use crate::statistics::Spread;
use std::io::{Error, Result};
use std::time::Duration;

/// So near to the ideal the default is to be.
const NEAR: f64 = 0.97;
/// And while perturbers come and go.
const NEAR_IN_TURNS: f64 = 0.95;
/// Rounds that are tried until
const ATTEMPTS: usize = 3;
/// each perturber has this share of what its disk gives meanwhile.
const SHARE: std::ops::RangeInclusive<f64> = 0.42..=0.58;

/// All trials of one point.
struct Point {
    call_bytes: u64,
    line: Line,
    faults: u32,
    slowest: Vec<f64>,
    mean: Vec<f64>,
    /// What perturbers left for each.
    left: Vec<f64>,
}

pub fn run(plan: &EvenReads) -> Result<()> {
    let name = if plan.turn == 0 { "even-reads" } else { "even-reads-turns" };
    let mut report = Report::new(&plan.common.out, name)?;
    let disks = plan.disks as usize;
    let lab = match &plan.profile {
        Some(profile) => Lab::on(&plan.common, &Bed::new(profile, plan.disks), 2 * plan.file)?,
        None => Lab::new(&plan.common, disks, 2 * plan.file)?,
    };
    let files = write_files(&lab, disks, plan.file)?;
    lab.slow_down()?;
    let mut records = Records::new(&report, "trial,call_bytes,policy,faults")?;
    let (mut points, mut proof) = (Vec::new(), Proof::default());
    for trial in 1..=plan.common.trials() {
        for (call_bytes, faults, line) in plan.rounds() {
            let perturbed = spread(faults, plan.disks);
            let round = Round {
                policy: line.policy(),
                files: &files,
                call_bytes,
                perturbed: &perturbed,
                load: Load::Reads { turn: Duration::from_secs(plan.turn) },
                job: !plan.no_job,
                is_hot: false,
            };
            let outcome = proof.round(&lab, plan, &round)?;
            let numbers = [u64::from(trial), call_bytes].map(|n| n.to_string());
            let key = [&numbers[..], &[line.policy().into(), faults.to_string()]].concat();
            records.write(&key, &perturbed, &outcome)?;
            let point = point(&mut points, call_bytes, line, faults);
            point.add(&outcome.rates());
            point.left.push(outcome.left_for_each(lab.rate));
            println!("trial {trial}, {}", point.text(&outcome));
        }
    }
    drop(lab);
    proof.conclude(&mut report);
    conclude(plan, &points, &mut report)?;
    report.finish()
}

impl EvenReads {
    fn calls(&self) -> Vec<u64> {
        match (&*self.calls, self.common.quick) {
            ([], true) => vec![1 << 20],
            ([], false) => vec![64 << 10, 1 << 20],
            (calls, _) => calls.to_vec(),
        }
    }

    fn faults(&self) -> Vec<u32> {
        faults(&self.faults, self.disks, self.common.quick)
    }

    /// Of a trial: what is compared is measured one after another.
    fn rounds(&self) -> Vec<(u64, u32, Line)> {
        let (calls, faults) = (self.calls(), self.faults());
        let of_call = |call| {
            let of_faults = move |n| self.lines.iter().map(move |line| (call, n, *line));
            faults.clone().into_iter().flat_map(of_faults).collect::<Vec<_>>()
        };
        calls.into_iter().flat_map(of_call).collect()
    }
}

/// File i has its copies on disks i and i + 1, counted around.
pub fn write_files(lab: &Lab, disks: usize, bytes: u64) -> Result<Vec<String>> {
    let write = |n: usize| {
        let (name, base) = (format!("f{n}"), n.to_string());
        let column = ["--layout", "striped", "--count", "1", "--base", &base];
        let layout = [&column[..], &["--copies", "2", "--placement", "chained"]].concat();
        lab.write(&name, &layout, bytes)?;
        let places = lab.cluster.places(&name)?;
        if places == [n, (n + 1) % disks] {
            return Ok(name);
        }
        Err(Error::other(format!("the copies of file {n} are on disks {places:?}")))
    };
    (0..disks).map(write).collect()
}

/// As evenly as possible.
fn spread(faults: u32, disks: u32) -> Vec<usize> {
    (0..faults).map(|n| (n * disks / faults) as usize).collect()
}

/// What the kernel's counts say of all rounds.
#[derive(Default)]
struct Proof {
    rounds: usize,
    left_out: usize,
    shares: Vec<f64>,
}

impl Proof {
    /// Does a round; once more if a perturber did not have its share, as on a machine that
    /// others keep busy.
    fn round(&mut self, lab: &Lab, plan: &EvenReads, round: &Round<'_>) -> Result<Outcome> {
        for _ in 0..ATTEMPTS {
            let outcome = lab.round(round)?;
            // One that comes and goes has what it has.
            let steady = round.perturbed.iter().filter(|_| plan.turn == 0);
            let share = |disk: &usize| {
                let disk = &outcome.disks[*disk];
                // Of what it gave: moves of a head are nobody's.
                disk.perturbers_part(match plan.profile {
                    Some(_) => disk.meanwhile_disk_bytes as f64,
                    None => lab.rate as f64 * outcome.seconds,
                })
            };
            let shares: Vec<f64> = steady.map(share).collect();
            // What a head loses by moves is not to be set.
            if plan.profile.is_some() || shares.iter().all(|share| SHARE.contains(share)) {
                self.rounds += 1;
                self.shares.extend(shares);
                return Ok(outcome);
            }
            println!("left out: perturbers had {shares:.2?} of their disks");
            self.left_out += 1;
        }
        Err(Error::other("perturbers do not get their share: what else does the machine do?"))
    }

    fn conclude(&self, report: &mut Report) {
        let Self { rounds, left_out, shares } = self;
        let what = format!("caches were cold in {rounds} rounds, by the kernel's counts");
        report.verdict(true, &what);
        if shares.is_empty() {
            return;
        }
        let low = shares.iter().copied().fold(f64::INFINITY, f64::min) * 100.0;
        let high = shares.iter().copied().fold(0.0, f64::max) * 100.0;
        let less = format!("{left_out} rounds left out in which one had not");
        let what = format!("perturbers had {low:.0} to {high:.0} % of their disks ({less})");
        report.verdict(true, &what);
    }
}

fn point(points: &mut Vec<Point>, call_bytes: u64, line: Line, faults: u32) -> &mut Point {
    let at = points.iter().position(|p| p.is(call_bytes, line, faults));
    let at = at.unwrap_or_else(|| {
        let (slowest, mean, left) = Default::default();
        points.push(Point { call_bytes, line, faults, slowest, mean, left });
        points.len() - 1
    });
    &mut points[at]
}

impl Point {
    fn is(&self, call_bytes: u64, line: Line, faults: u32) -> bool {
        (self.call_bytes, self.line, self.faults) == (call_bytes, line, faults)
    }

    fn add(&mut self, rates: &[f64]) {
        self.slowest.push(rates.iter().copied().fold(f64::INFINITY, f64::min));
        self.mean.push(rates.iter().sum::<f64>() / rates.len() as f64);
    }

    fn text(&self, outcome: &Outcome) -> String {
        let last = self.slowest.len() - 1;
        let served: Vec<u64> = outcome.disks.iter().map(|disk| disk.served_bytes() >> 20).collect();
        format!(
            "{} KiB, {} faults, {:12}: slowest {:6.2} MiB/s, mean {:6.2}; MiB that the disks served {served:?}",
            self.call_bytes >> 10,
            self.faults,
            self.line.policy(),
            self.slowest[last],
            self.mean[last],
        )
    }
}

/// While perturbers stay: of the means of all readers by the first copies alone, from no fault to
/// faults everywhere. If they come and go, what they left while the default was measured: nobody
/// knows beforehand how much they have of their turns.
fn ideal(plan: &EvenReads, points: &[Point], call_bytes: u64, faults: u32) -> Option<f64> {
    if plan.turn > 0 {
        let point = points.iter().find(|p| p.is(call_bytes, Line::Proportional, faults))?;
        return Some(Spread::of(&point.left).mean);
    }
    let mean = |faults| {
        let point = points.iter().find(|p| p.is(call_bytes, Line::Primary, faults))?;
        Some(Spread::of(&point.mean).mean)
    };
    let (left, right) = (mean(0)?, mean(plan.disks)?);
    Some(left + (right - left) * f64::from(faults) / f64::from(plan.disks))
}

fn conclude(plan: &EvenReads, points: &[Point], report: &mut Report) -> Result<()> {
    let head = "call_bytes,policy,faults,slowest_mib_per_s,slowest_deviation,mean_mib_per_s,mean_deviation,ideal_mib_per_s";
    let mut table = report.table("summary.csv", head)?;
    for call_bytes in plan.calls() {
        for p in points.iter().filter(|p| p.call_bytes == call_bytes) {
            let (slowest, mean) = (Spread::of(&p.slowest), Spread::of(&p.mean));
            let ideal = ideal(plan, points, call_bytes, p.faults);
            let ideal = ideal.map_or(String::new(), |ideal| format!("{ideal:.3}"));
            let key = [call_bytes.to_string(), p.line.policy().into(), p.faults.to_string()];
            let values = [slowest.mean, slowest.deviation, mean.mean, mean.deviation]
                .map(|v| format!("{v:.3}"));
            table.row(&[&key[..], &values[..], &[ideal]].concat())?;
        }
        judge(plan, points, call_bytes, report);
        draw(plan, points, call_bytes, report)?;
    }
    Ok(())
}

fn judge(plan: &EvenReads, points: &[Point], call_bytes: u64, report: &mut Report) {
    let slowest = |line, faults| {
        let point = points.iter().find(|p| p.is(call_bytes, line, faults))?;
        Some(Spread::of(&point.slowest).mean)
    };
    let kib = call_bytes >> 10;
    if plan.turn == 0
        && let (Some(without), Some(with)) = (slowest(Line::Primary, 0), slowest(Line::Primary, 1))
    {
        let left = with / without;
        let what = format!(
            "{kib} KiB: one perturbed disk halves who reads the first copies: {:.0} % are left",
            left * 100.0
        );
        report.verdict((0.4..=0.6).contains(&left), &what);
    }
    let near = if plan.turn > 0 { NEAR_IN_TURNS } else { NEAR };
    for faults in plan.faults() {
        let of = slowest(Line::Proportional, faults).zip(ideal(plan, points, call_bytes, faults));
        let Some((rate, ideal)) = of else { continue };
        let part = rate / ideal;
        let what = format!(
            "{kib} KiB, {faults} perturbed: by default the slowest is within {:.0} % of the ideal: {rate:.2} of {ideal:.2} MiB/s, {:.1} %",
            100.0 - near * 100.0,
            part * 100.0
        );
        report.verdict(part >= near, &what);
    }
}

fn draw(plan: &EvenReads, points: &[Point], call_bytes: u64, report: &Report) -> Result<()> {
    let mut series = Vec::new();
    for line in &plan.lines {
        let of_line = points.iter().filter(|p| p.call_bytes == call_bytes && p.line == *line);
        let points = of_line.map(|p| (f64::from(p.faults), Spread::of(&p.slowest))).collect();
        series.push(Series { name: line.policy().into(), points });
    }
    let point = |faults: u32| {
        let mean = ideal(plan, points, call_bytes, faults)?;
        Some((f64::from(faults), Spread { mean, deviation: 0.0 }))
    };
    let points: Vec<_> = plan.faults().into_iter().filter_map(point).collect();
    if !points.is_empty() {
        series.push(Series { name: "ideal".into(), points });
    }
    let kib = call_bytes >> 10;
    let title = format!("The slowest of {} readers, calls of {kib} KiB", plan.disks);
    let labels = Labels { title: &title, x: "perturbed disks", y: "MiB/s" };
    plot::lines(&report.path(&format!("slowest-{kib}k.svg")), &labels, &series)
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn perturbed_disks_are_as_far_from_each_other_as_they_can_be() {
        assert!(spread(0, 8).is_empty());
        assert_eq!(spread(1, 8), [0]);
        assert_eq!(spread(2, 8), [0, 4]);
        assert_eq!(spread(3, 8), [0, 2, 5]);
        assert_eq!(spread(8, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
