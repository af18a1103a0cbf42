//! The read workloads of paper 0 on NFS, on Weir as PVFS was, and on Weir as it is: figures 1 to 11.
//!
//! ```text
//! cells      who reads what how: one grid, from which all figures are cut
//! machines   the cluster, and the NFS server beside it
//! measure    one cell
//! loaded     the paper's other way to cold caches
//! grid       what was measured, cell by cell
//! verdicts   what the paper says of each figure;  aims: what Weir is to reach
//! ```

mod aims;
mod cells;
mod grid;
mod loaded;
mod machines;
mod measure;
mod verdicts;

use crate::args::Nfs;
use crate::report::Report;
use cells::{Cell, System, Workload, of_figure};
use grid::Grid;
use machines::Lab;
use measure::{Cold, measure};
use std::collections::BTreeSet;
use std::io::Result;

pub fn run(plan: &Nfs) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "nfs")?;
    let figures = plan.figures();
    let cells: BTreeSet<Cell> =
        figures.iter().flat_map(|figure| of_figure(plan, *figure)).collect();
    let lab = Lab::new(plan, &cells)?;
    let link = lab.cluster.link_rate()?;
    let mut grid = Grid::new(&report, link)?;
    for trial in 1..=plan.trials() {
        for cell in &cells {
            let measured = measure(&lab, plan, cell, Cold::Dropped)?;
            println!("trial {trial}: {cell}: {:.2} MB/s", measured.rate());
            grid.add(trial, *cell, measured)?;
        }
    }
    let reads_whole =
        |system| cells.iter().any(|cell| cell.workload == Workload::Whole && cell.system == system);
    if reads_whole(System::Nfs) && reads_whole(System::Pvfs) {
        loaded::judge(&mut report, plan, &lab)?;
    }
    drop(lab);
    for figure in figures {
        grid.plot(&report, plan, figure)?;
        verdicts::judge(&mut report, plan, &grid, figure);
    }
    aims::judge(&mut report, plan, &grid);
    report.finish()
}
