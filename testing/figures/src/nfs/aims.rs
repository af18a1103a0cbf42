//! What Weir is to reach without flags: what links and disks allow, and never less than NFS.

use super::cells::{System, Workload};
use super::grid::Grid;
use crate::args::Nfs;
use crate::report::Report;

/// Of what is possible.
const AIM: f64 = 0.97;

pub fn judge(report: &mut Report, plan: &Nfs, grid: &Grid) {
    for (workload, name) in [(Workload::Whole, "whole file"), (Workload::Part, "a part each")] {
        for readers in plan.readers() {
            let Some(rate) = grid.best(System::Weir, workload, readers) else { continue };
            let links = f64::from(readers) * grid.striped();
            let what = format!(
                "aim: {name}, {readers} readers: Weir {rate:.2} MB/s, {:.1} % of what their links, and their own disks, allow",
                100.0 * rate / links
            );
            report.verdict(rate >= AIM * links, &what);
        }
    }
    let (mut cells, mut below) = (0, Vec::new());
    for workload in [Workload::Whole, Workload::Part, Workload::Random] {
        for records in plan.records() {
            for readers in plan.readers() {
                let rate = |system| grid.rate(system, workload, records, readers);
                let Some((nfs, weir)) = rate(System::Nfs).zip(rate(System::Weir)) else { continue };
                cells += 1;
                if weir < nfs * AIM {
                    below.push(format!(
                        "{}, {records} records, {readers} readers: {weir:.2} of {nfs:.2}",
                        workload.word()
                    ));
                }
            }
        }
    }
    if cells > 0 {
        let what = format!("aim: Weir is below NFS in {} of {cells} cells", below.len());
        let list: String = below.iter().map(|cell| format!("; {cell}")).collect();
        report.verdict(below.is_empty(), &format!("{what}{list}"));
    }
    if let Some(one) = grid.best(System::Pvfs, Workload::Whole, 1) {
        let what = format!(
            "one reader as PVFS has {one:.2} MB/s, {:.1} % of what its link allows (paper 9.45, 75.6 % of the link)",
            100.0 * one / grid.striped()
        );
        report.verdict(one > 0.756 * grid.striped(), &what);
    }
}
