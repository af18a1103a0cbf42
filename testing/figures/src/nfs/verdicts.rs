//! What the paper says of each figure, and whether it is so here.

use super::cells::{Cell, System, Workload};
use super::grid::Grid;
use crate::args::Nfs;
use crate::report::Report;
use System::{Nfs as NFS, Pvfs};
use Workload::{Part, Random, Whole};

/// Lines that the paper calls insensitive lie within this of each other.
const LITTLE: f64 = 1.10;
/// And where it calls them relatively so, within this: those of PVFS differ by several times.
const RELATIVELY: f64 = 1.25;
/// What varies from run to run.
const NOISE: f64 = 0.97;
/// Records of a call from which on a line of PVFS is flat.
const FLAT: u64 = 150;

/// Rates of one system and workload.
struct Lines<'a> {
    grid: &'a Grid,
    plan: &'a Nfs,
}

pub fn judge(report: &mut Report, plan: &Nfs, grid: &Grid, figure: u8) {
    let lines = Lines { grid, plan };
    let said = match figure {
        1 => lines.nfs_whole(),
        2 => lines.rises(Whole),
        3 => lines.best(Whole),
        4 => lines.nfs_parts(),
        5 => lines.rises(Part),
        6 => lines.best(Part),
        7 => lines.single_records(),
        8 => lines.nfs_random(),
        9 => lines.rises(Random),
        10 => lines.pvfs_workloads(),
        _ => lines.nfs_workloads(),
    };
    for (passes, what) in said {
        report.verdict(passes, &format!("figure {figure}: {what}"));
    }
}

type Said = Vec<(bool, String)>;

impl Lines<'_> {
    fn readers(&self) -> (u32, u32) {
        let all = self.plan.readers();
        (all.iter().copied().min().unwrap_or(1), all.iter().copied().max().unwrap_or(1))
    }

    /// Of all sizes of calls, for these readers.
    fn sizes(&self, system: System, workload: Workload, readers: u32) -> Vec<(u64, f64)> {
        let rate =
            |records: u64| Some((records, self.grid.rate(system, workload, records, readers)?));
        let mut sizes: Vec<(u64, f64)> = self.plan.records().into_iter().filter_map(rate).collect();
        sizes.sort_unstable_by_key(|(records, _)| *records);
        sizes
    }

    /// The greatest by the least over sizes of calls, of whichever number of readers has most.
    fn spread(&self, system: System, workload: Workload) -> f64 {
        let spread =
            |readers: u32| ratio(self.sizes(system, workload, readers).iter().map(|s| s.1));
        self.plan.readers().into_iter().map(spread).fold(1.0, f64::max)
    }

    fn best_by_readers(&self, system: System, workload: Workload) -> Option<(f64, f64)> {
        let (few, many) = self.readers();
        self.grid.best(system, workload, few).zip(self.grid.best(system, workload, many))
    }

    fn nfs_whole(&self) -> Said {
        let Some((one, all)) = self.best_by_readers(NFS, Whole) else { return Vec::new() };
        let (spread, share) = (self.spread(NFS, Whole), one.max(all) / self.grid.link());
        vec![
            (
                spread < LITTLE,
                format!("NFS varies by {:.1} % with the size of calls", pc(spread - 1.0)),
            ),
            (
                (1.0 / LITTLE..LITTLE).contains(&(all / one)),
                format!("one reader {one:.2} MB/s, all {all:.2} (paper 10.66, 11.77)"),
            ),
            (share > 0.94, format!("that is {:.1} % of what the server's link carries", pc(share))),
        ]
    }

    fn nfs_parts(&self) -> Said {
        let Some((one, all)) = self.best_by_readers(NFS, Part) else { return Vec::new() };
        let spread = self.spread(NFS, Part);
        vec![
            (
                spread < RELATIVELY,
                format!("NFS varies by {:.1} % with the size of calls", pc(spread - 1.0)),
            ),
            (all < one * 0.95, format!("NFS goes from {one:.2} to {all:.2} MB/s (paper 9.09)")),
        ]
    }

    /// Rates rise with the size of calls, and then no more.
    fn rises(&self, workload: Workload) -> Said {
        let mut said = Vec::new();
        for readers in self.plan.readers() {
            let sizes = self.sizes(Pvfs, workload, readers);
            let below: Vec<f64> = sizes.iter().filter(|s| s.0 <= FLAT).map(|s| s.1).collect();
            let above = sizes.iter().filter(|s| s.0 >= FLAT).map(|s| s.1);
            let (rises, flat) = (below.windows(2).all(|two| two[1] > two[0] * NOISE), ratio(above));
            let all: Vec<String> =
                sizes.iter().map(|(n, rate)| format!("{n}: {rate:.2}")).collect();
            let flat_says = format!("then varies by {:.1} %", pc(flat - 1.0));
            let what =
                format!("{readers} readers: {} MB/s by records; {flat_says}", all.join(", "));
            said.push((rises && flat < 1.15, what));
        }
        said
    }

    fn best(&self, workload: Workload) -> Said {
        let mut said = Vec::new();
        for readers in self.plan.readers() {
            let rate = |system| self.grid.best(system, workload, readers);
            let Some((nfs, pvfs)) = rate(NFS).zip(rate(Pvfs)) else { continue };
            let weir = rate(System::Weir).unwrap_or_default();
            let times = pvfs / nfs;
            let (holds, paper) = match (readers, workload) {
                (1, _) => (times > 0.75, "about as fast"),
                (7, Whole) => (times >= 4.0, "4.1 times"),
                (7, _) => (times >= 5.0, "5.5 times"),
                _ => (times > 1.3, "far before"),
            };
            let what = format!(
                "{readers} readers: NFS {nfs:.2}, as PVFS {pvfs:.2}: {times:.2} times (paper: \
                 {paper}), Weir {weir:.2}: {:.2} times",
                weir / nfs
            );
            said.push((holds, what));
        }
        said
    }

    fn single_records(&self) -> Said {
        let mut said = Vec::new();
        for readers in self.plan.readers() {
            let rate = |system| self.grid.rate(system, Random, 1, readers);
            let Some((nfs, pvfs)) = rate(NFS).zip(rate(Pvfs)) else { continue };
            let uncached = rate(System::NfsUncached).unwrap_or_default();
            let weir = rate(System::Weir).unwrap_or_default();
            let times = |system| {
                let cell = Cell { system, workload: Random, records: 1, readers };
                self.grid.amplification(&cell).unwrap_or_default()
            };
            let what = format!(
                "{readers} readers: NFS {nfs:.3} MB/s with {:.1} bytes on links for each, as PVFS \
                 {pvfs:.3} with {:.1}, Weir {weir:.3} with {:.1}; NFS told not to cache {uncached:.3} \
                 with {:.1}",
                times(NFS),
                times(Pvfs),
                times(System::Weir),
                times(System::NfsUncached)
            );
            said.push((pvfs > nfs && times(NFS) > 2.0 * times(Pvfs), what));
        }
        said
    }

    fn nfs_random(&self) -> Said {
        let mut said = Vec::new();
        for readers in self.plan.readers() {
            let sizes = self.sizes(NFS, Random, readers);
            let rises = sizes.windows(2).all(|two| two[1].1 > two[0].1 * NOISE);
            let all: Vec<String> =
                sizes.iter().map(|(n, rate)| format!("{n}: {rate:.2}")).collect();
            said.push((rises, format!("{readers} readers: {} MB/s by records", all.join(", "))));
        }
        let (_, many) = self.readers();
        let best = |workload| self.grid.best(NFS, workload, many);
        if let Some((random, whole)) = best(Random).zip(best(Whole)) {
            let what = format!("{many} readers: {random:.2} MB/s at random, {whole:.2} in order");
            said.push((random > whole, what));
        }
        said
    }

    fn pvfs_workloads(&self) -> Said {
        let (_, many) = self.readers();
        let of = |records: u64| {
            let rate = |workload| self.grid.rate(Pvfs, workload, records, many);
            [Whole, Part, Random].into_iter().filter_map(rate).collect::<Vec<f64>>()
        };
        let records: Vec<u64> = self.plan.records().into_iter().filter(|n| *n <= FLAT).collect();
        let by_workload = |records: &u64| ratio(of(*records).into_iter());
        let most = records.iter().map(by_workload).fold(1.0, f64::max);
        let large = records.iter().max().map_or(1.0, by_workload);
        let sizes = [Whole, Part, Random].map(|workload| {
            ratio(self.sizes(Pvfs, workload, many).into_iter().filter(|s| s.0 <= FLAT).map(|s| s.1))
        });
        let least = sizes.into_iter().fold(f64::INFINITY, f64::min);
        let what = format!(
            "{many} readers: sizes of calls differ by {least:.1} times, workloads by {most:.1} at \
             most, and with the largest calls by {large:.2}"
        );
        vec![(least > most, what)]
    }

    fn nfs_workloads(&self) -> Said {
        let mut said = Vec::new();
        for readers in self.plan.readers().into_iter().filter(|n| *n > 2) {
            let of = |workload| self.sizes(NFS, workload, readers).into_iter().map(|size| size.1);
            let (least, most) =
                (of(Whole).fold(f64::INFINITY, f64::min), of(Part).fold(0.0, f64::max));
            let what = format!(
                "{readers} readers: whole file at least {least:.2}, parts at most {most:.2}"
            );
            said.push((least > most, what));
        }
        said
    }
}

fn ratio(values: impl Iterator<Item = f64>) -> f64 {
    let (mut least, mut most) = (f64::INFINITY, 0.0);
    values.for_each(|value| (least, most) = (value.min(least), value.max(most)));
    if most > 0.0 { most / least } else { 1.0 }
}

fn pc(share: f64) -> f64 {
    share * 100.0
}
