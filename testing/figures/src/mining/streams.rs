//! Several streams in one file: what is left of a disk with a head, by NFS and by Weir.

use super::cells::{Cell, System};
use super::machines::{Lab, Wanted};
use super::results::Results;
use super::verdicts;
use crate::args::Mining;
use crate::report::Report;
use std::io::Result;

/// The file is such a part of that of the figure.
const PART: u64 = 4;
/// Clients that read it at once.
const CLIENTS: u32 = 4;
/// With several streams a file is read at this part of the rate of one, at least, if what is read
/// ahead follows all of them.
const FOLLOWS: f64 = 0.9;

pub fn run(plan: &Mining, report: &mut Report) -> Result<()> {
    // The same cells are in the figure, on other disks.
    let mut results = Results::new(report, "streams.csv")?;
    let drives = [1];
    let bytes = plan.file() / PART;
    // A head moves as slowly however slow the disk is: so that is as fast as it is.
    let (profile, clients, scale) = (&*plan.streams_profile, CLIENTS, 1);
    let wanted = Wanted { profile, drives: &drives, clients, bytes, scale };
    let lab = Lab::new(plan, &wanted)?;
    let cells: Vec<Cell> = [System::Weir, System::Nfs].into_iter().flat_map(of_system).collect();
    super::trials(plan, &lab, &cells, &mut results)?;
    let rates = lab.rates()?;
    drop(lab);
    for (system, disk) in [(System::Weir, rates.drive), (System::Nfs, rates.nfs_disk)] {
        let [one, several, clients] = of_system(system).map(|cell| results.rate(&cell));
        let part = several / one;
        let what = format!(
            "{}: a disk with a head of {:.2} MB/s gives one stream {one:.2}, four of a client \
             {several:.2} ({:.0} %), 16 of {CLIENTS} clients {clients:.2} ({:.0} %)",
            system.name(),
            disk as f64 / 1e6,
            100.0 * part,
            100.0 * clients / one
        );
        // The paper: it fails for NFS.
        report.verdict((part >= FOLLOWS) == (system == System::Weir), &what);
    }
    verdicts::cold(report, &results);
    Ok(())
}

/// One thread that reads, as many as a client has, and as many of several clients.
fn of_system(system: System) -> [Cell; 3] {
    // Processors are not what is compared.
    let four = Cell::of(system, 1).whole();
    [Cell { producers: 1, ..four }, four, Cell { clients: CLIENTS, ..four }]
}
