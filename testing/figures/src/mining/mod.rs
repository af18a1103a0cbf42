//! Paper 4, figure 1: the first pass of the mining of association rules, on 1 to 8 drives.
//!
//! ```text
//! cells      who serves how many clients from how many drives
//! machines   the cluster, and the NFS server beside it with as many disks
//!   └ disks  those of the NFS server
//! measure    one cell
//! results    what was measured, cell by cell
//! verdicts   what the paper says of it
//! streams    several streams in one file, on a disk with a head
//! ```

mod cells;
mod disks;
mod machines;
mod measure;
mod results;
mod streams;
mod verdicts;

use crate::args::Mining;
use crate::report::Report;
use cells::{Cell, of_figure};
use machines::{Lab, Wanted};
use measure::measure;
use results::Results;
use std::io::Result;

pub fn run(plan: &Mining) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "mining")?;
    let mut results = Results::new(&report, "cells.csv")?;
    let drives = plan.drives();
    let clients = drives.last().copied().unwrap_or(1);
    let (bytes, scale) = (plan.file(), plan.scale);
    let wanted = Wanted { profile: &plan.profile, drives: &drives, clients, bytes, scale };
    let lab = Lab::new(plan, &wanted)?;
    trials(plan, &lab, &of_figure(&drives), &mut results)?;
    let rates = lab.rates()?;
    drop(lab);
    results.plot(&report, &drives, rates.scale)?;
    verdicts::judge(&mut report, &results, &drives, &rates);
    verdicts::cold(&mut report, &results);
    streams::run(plan, &mut report)?;
    report.finish()
}

fn trials(plan: &Mining, lab: &Lab, cells: &[Cell], results: &mut Results) -> Result<()> {
    for trial in 1..=plan.trials() {
        for cell in cells {
            let measured = measure(lab, plan, cell)?;
            println!("trial {trial}: {cell}: {:.2} MB/s", measured.rate());
            results.add(trial, *cell, measured)?;
        }
    }
    Ok(())
}
