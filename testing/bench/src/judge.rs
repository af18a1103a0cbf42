//! Judges the results: against limits of the same run, and against reference figures of one machine
//! (two cores of an AMD EPYC, Linux 6.18).

use crate::sample::{Results, Sample, Series};
use crate::ways::{Row, Via};
use serde::Serialize;

/// A ratio and its bound.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The row.
    pub row: Row,
    /// The two compared quantities.
    pub what: String,
    /// The ratio.
    pub value: f64,
    /// The bound.
    pub bound: Bound,
}

/// The bound of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// No bound; the ratio is only shown.
    None,
}

impl Ratio {
    /// Whether the bound is kept; `None` without a bound.
    pub fn passes(&self) -> Option<bool> {
        match self.bound {
            Bound::AtMost(most) => Some(self.value <= most),
            Bound::AtLeast(least) => Some(self.value >= least),
            Bound::None => None,
        }
    }
}

/// A series compared with its reference figures.
#[derive(Clone, Debug, Serialize)]
pub struct Orientation {
    /// The row.
    pub row: Row,
    /// The way.
    pub via: Via,
    /// Measured speed: GB/s or calls per second.
    pub speed: f64,
    /// Minimum speed.
    pub speed_aim: f64,
    /// Measured CPU time: s/GB or µs per call.
    pub cpu: f64,
    /// Maximum CPU time, if there is a figure.
    pub cpu_aim: Option<f64>,
}

impl Orientation {
    /// The worse of both as a multiple of the reference; at most 1 is good.
    pub fn worst(&self) -> f64 {
        let cpu = self.cpu_aim.map_or(0.0, |aim| self.cpu / aim);
        cpu.max(self.speed_aim / self.speed)
    }

    /// The verdict in words.
    pub fn verdict(&self) -> &'static str {
        match self.worst() {
            worst if worst <= 1.0 => "reached",
            worst if worst <= 2.0 => "within half",
            _ => "BELOW HALF",
        }
    }
}

/// All verdicts on a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verdicts {
    /// Ratios to the limits of the run.
    pub ratios: Vec<Ratio>,
    /// Comparisons with the reference figures.
    pub orientations: Vec<Orientation>,
}

/// Row, way, minimum speed, maximum CPU time.
const ORIENTATION: &[(Row, Via, f64, Option<f64>)] = &[
    (Row::Read1, Via::Library, 4.1, Some(0.36)),
    (Row::Read1, Via::Mount, 2.4, Some(0.75)),
    (Row::Read1, Via::MountDirect, 3.2, Some(0.55)),
    (Row::Read4, Via::Library, 5.8, Some(0.34)),
    (Row::Read4, Via::Mount, 2.6, Some(0.72)),
    (Row::Rewrite1, Via::Library, 2.0, Some(0.50)),
    (Row::Rewrite1, Via::Mount, 1.0, Some(1.0)),
    (Row::Rewrite4, Via::Library, 2.0, Some(0.50)),
    (Row::Rewrite4, Via::Mount, 1.0, Some(1.0)),
    (Row::Random, Via::Library, 60_000.0, Some(28.0)),
    (Row::Random, Via::Mount, 35_000.0, Some(50.0)),
    (Row::Create1, Via::Library, 12_000.0, None),
    (Row::Create1, Via::Mount, 6_000.0, None),
    (Row::Create4, Via::Library, 25_000.0, None),
    (Row::Create4, Via::Mount, 12_000.0, None),
    (Row::Stat, Via::Mount, 20_000.0, None),
    (Row::Unlink, Via::Mount, 8_000.0, None),
    // Three times the write and create speed of GlusterFS 2x2 on such a machine (0.22 GB/s, 5.8 CPU
    // s/GB, 580 files/s), and 1.5 times its read speed (0.81 GB/s, 1.39).
    (Row::Read1, Via::MountTwo, 1.22, Some(0.93)),
    (Row::Rewrite1, Via::MountTwo, 0.66, Some(1.93)),
    (Row::Create1, Via::MountTwo, 1_740.0, None),
];

/// Judges all results.
pub fn judge(results: &Results) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for (row, _) in &results.rows {
        ratios(results, *row, &mut verdicts.ratios);
    }
    for &(row, via, speed_aim, cpu_aim) in ORIENTATION {
        let Some(series) = results.series(row, via) else { continue };
        let (Some(speed), Some(cpu)) = (series.speed(row), series.cpu(row)) else { continue };
        verdicts.orientations.push(Orientation { row, via, speed, speed_aim, cpu, cpu_aim });
    }
    verdicts
}

fn ratios(results: &Results, row: Row, out: &mut Vec<Ratio>) {
    let cpu = |via| results.series(row, via).and_then(|s| s.cpu(row));
    let speed = |via| results.series(row, via).and_then(|s| s.speed(row));
    let mut cpu_ratio = |via: Via, limits: &[Via], bound| {
        let limit: Option<f64> = limits.iter().map(|limit| cpu(*limit)).sum();
        let (Some(value), Some(limit)) = (cpu(via), limit) else { return };
        let names: Vec<&str> = limits.iter().map(|l| l.title()).collect();
        let what = match names.as_slice() {
            [one] => format!("CPU: {} / {one}", via.title()),
            many => format!("CPU: {} / ({})", via.title(), many.join(" + ")),
        };
        out.push(Ratio { row, what, value: value / limit, bound });
    };
    match row {
        Row::Read1 | Row::Read4 => {
            cpu_ratio(Via::Library, &[Via::PreadSendCrc], Bound::AtMost(1.2));
            cpu_ratio(Via::Library, &[Via::PreadSend], Bound::None);
            cpu_ratio(Via::LibraryUnchecked, &[Via::PreadSend], Bound::AtMost(1.05));
            cpu_ratio(Via::Mount, &[Via::PreadSend, Via::Fuse], Bound::AtMost(1.2));
            cpu_ratio(Via::MountDirect, &[Via::PreadSend, Via::FuseDirect], Bound::AtMost(1.2));
            cpu_ratio(Via::LibraryTwo, &[Via::Library], Bound::AtMost(1.05));
            cpu_ratio(Via::MountTwo, &[Via::Mount], Bound::AtMost(1.05));
        }
        Row::Protocols1 | Row::Protocols4 => {
            for &via in &row.ways()[1..] {
                cpu_ratio(via, &[Via::Library], two_copies(via));
            }
        }
        Row::Rewrite1 | Row::Rewrite4 => {
            cpu_ratio(Via::LibraryTwo, &[Via::Library], Bound::AtMost(WRITE_TWO));
            cpu_ratio(Via::MountTwo, &[Via::Mount], Bound::AtMost(WRITE_TWO));
            cpu_ratio(Via::Library, &[Via::Tcp, Via::PageCache], Bound::AtMost(1.3));
            cpu_ratio(Via::Library, &[Via::Tcp, Via::Disk], Bound::None);
            cpu_ratio(Via::Mount, &[Via::Tcp, Via::PageCache, Via::Fuse], Bound::AtMost(1.3));
            cpu_ratio(Via::Mount, &[Via::Tcp, Via::Disk, Via::Fuse], Bound::None);
        }
        Row::Random => {
            cpu_ratio(Via::Library, &[Via::PingPong], Bound::AtMost(1.5));
            cpu_ratio(Via::Mount, &[Via::PingPong, Via::Fuse], Bound::None);
        }
        Row::Kill => {}
        Row::Create1 | Row::Create4 | Row::Stat | Row::Stat4 | Row::Unlink | Row::Unlink4 => {
            cpu_ratio(Via::Mount, &[Via::Fuse, Via::RoundTrip], Bound::AtMost(1.5));
            cpu_ratio(Via::Library, &[Via::RoundTrip], Bound::None);
            cpu_ratio(Via::MountUser, &[Via::Mount], Bound::AtMost(1.1));
        }
    }
    if row == Row::Kill {
        for &via in row.ways() {
            let Some(series) = results.series(row, via) else { continue };
            for (i, whose) in ["reads", "writes"].into_iter().enumerate() {
                let longest = series.median(|s| s.longest_s.get(i).copied().unwrap_or(0.0));
                let Some(value) = longest else { continue };
                let what = format!("s: {}, the longest call that {whose}", via.title());
                out.push(Ratio { row, what, value, bound: Bound::AtMost(MISSED_S + 1.0) });
            }
        }
    }
    if let Row::Protocols1 | Row::Protocols4 = row {
        for &via in &row.ways()[1..] {
            // The paper's servers kept writes in their caches.
            let written = |via| results.series(row, via)?.median(Sample::written_gb_per_s);
            let (Some(value), Some(one)) = (written(via), written(Via::Library)) else { continue };
            let what = format!("GB/s before sync: {} / one copy{}", via.title(), paper(via));
            out.push(Ratio { row, what, value: value / one, bound: Bound::None });
        }
    }
    let (vias, limit, bound): (&[Via], Via, f64) = match row {
        Row::Read1 | Row::Read4 => (&[Via::Library], Via::PreadSendCrc, 0.9),
        Row::Rewrite1 | Row::Rewrite4 => (&[Via::Library, Via::Mount], Via::Disk, 0.8),
        _ => return,
    };
    for via in vias {
        let (Some(value), Some(limit_speed)) = (speed(*via), speed(limit)) else { continue };
        let what = format!("GB/s: {} / {}", via.title(), limit.title());
        out.push(Ratio { row, what, value: value / limit_speed, bound: Bound::AtLeast(bound) });
    }
}

/// Maximum CPU time of a write of two copies that both have it before it is confirmed, relative to
/// one copy.
const WRITE_TWO: f64 = 2.1;

/// Usual time until a missing data server is noticed, seconds (`target_timeout_ms`, and the
/// interval of checks).
const MISSED_S: f64 = 4.0;

fn two_copies(via: Via) -> Bound {
    match via {
        Via::LibraryTwo | Via::ClientSync => Bound::AtMost(WRITE_TWO),
        _ => Bound::None,
    }
}

/// The peak write rate of CEFT-PVFS with 8, 16 and 32 servers in a group, relative to PVFS with as
/// many servers as a group has.
fn paper(via: Via) -> &'static str {
    match via {
        Via::LibraryTwo => " (paper: 0.68-0.75)",
        Via::ServerAsync => " (paper: 0.86-0.94)",
        Via::ClientSync => " (paper: 0.82-0.97)",
        Via::ClientAsync => " (paper: 1.01-1.06)",
        _ => "",
    }
}

/// The largest share of the machine that other processes used during a row.
pub fn disturbance(results: &Results) -> f64 {
    let of_row = |(_, list): &(Row, Vec<(Via, Series)>)| {
        let samples = || list.iter().flat_map(|(_, series)| &series.samples);
        let seconds: f64 = samples().map(|s| s.seconds).sum();
        let others: f64 = samples().map(|s| s.others_share * s.seconds).sum();
        if seconds > 0.0 { others / seconds } else { 0.0 }
    };
    results.rows.iter().map(of_row).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::Group;
    use crate::sample::Sample;

    fn series(seconds: f64, cpu: f64) -> Series {
        let cpu_s = [(Group::Data, cpu)].into();
        let sample = Sample { seconds, bytes: 1_000_000_000, cpu_s, ..Sample::default() };
        Series { samples: vec![sample], failure: None }
    }

    #[test]
    fn ratios_are_held_against_the_limits_of_the_same_run() {
        let list = vec![(Via::PreadSendCrc, series(0.25, 0.3)), (Via::Library, series(0.5, 0.33))];
        let results = Results { rows: vec![(Row::Read1, list)], ..Results::default() };
        let verdicts = judge(&results);
        let passes: Vec<_> = verdicts.ratios.iter().map(Ratio::passes).collect();
        assert_eq!(passes, [Some(true), Some(false)], "{verdicts:?}");
        assert_eq!(verdicts.orientations[0].verdict(), "BELOW HALF");
    }
}
