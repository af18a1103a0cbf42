//! What was measured: a table, and the figure.

use super::cells::{Cell, SYSTEMS, System};
use super::measure::Measured;
use crate::plot::{self, Labels, Series};
use crate::report::{Report, Table};
use crate::statistics::Spread;
use std::collections::BTreeMap;
use std::io::Result;

const HEAD: &str = "system,processor,drives,clients,producers,trial,bytes,seconds,mb_per_s,\
    disk_bytes,server_link_bytes,server_waited_s";
/// What the paper's figure states, by drives: 8 NASD, and the most of NFS.
const PAPER: [(f64, f64); 4] = [(1.0, 6.2), (8.0, 45.0), (8.0, 20.2), (8.0, 22.5)];

pub struct Results {
    cells: BTreeMap<Cell, Vec<Measured>>,
    table: Table,
}

impl Results {
    /// Of one set of machines, in a table of this name.
    pub fn new(report: &Report, table: &str) -> Result<Self> {
        Ok(Self { cells: BTreeMap::new(), table: report.table(table, HEAD)? })
    }

    pub fn add(&mut self, trial: u32, cell: Cell, measured: Measured) -> Result<()> {
        let Cell { system, is_capped, drives, clients, producers } = cell;
        let Measured { bytes, seconds, disk_bytes, link_bytes, waited_seconds } = measured;
        self.table.row(&[
            system.name().to_owned(),
            if is_capped { "share" } else { "whole" }.to_owned(),
            drives.to_string(),
            clients.to_string(),
            producers.to_string(),
            trial.to_string(),
            bytes.to_string(),
            format!("{seconds:.3}"),
            format!("{:.3}", measured.rate()),
            disk_bytes.to_string(),
            link_bytes.to_string(),
            format!("{waited_seconds:.3}"),
        ])?;
        self.cells.entry(cell).or_default().push(measured);
        Ok(())
    }

    /// All that was measured of a cell.
    pub fn of(&self, cell: &Cell) -> &[Measured] {
        self.cells.get(cell).map_or(&[], Vec::as_slice)
    }

    pub fn all(&self) -> impl Iterator<Item = &Measured> {
        self.cells.values().flatten()
    }

    /// MB/s of all clients, of all trials.
    pub fn spread(&self, cell: &Cell) -> Spread {
        Spread::of(&self.of(cell).iter().map(Measured::rate).collect::<Vec<_>>())
    }

    pub fn rate(&self, cell: &Cell) -> f64 {
        self.spread(cell).mean
    }

    /// The figure, of machines that are slower than the paper's by a scale.
    pub fn plot(&self, report: &Report, drives: &[u32], scale: f64) -> Result<()> {
        let line = |system: System| {
            let point = |n: &u32| (f64::from(*n), self.spread(&Cell::of(system, *n)));
            Series::new(system.name().to_owned(), drives.iter().map(point).collect())
        };
        let paper = PAPER.map(|(drives, rate)| (drives, rate / scale));
        let stated = Series::stated("NASD, NFS, NFS-parallel", paper);
        let series: Vec<Series> = SYSTEMS.into_iter().map(line).chain(stated).collect();
        let labels = Labels {
            title: "Mining of association rules, first pass",
            x: "drives and clients",
            y: "MB/s, all clients",
        };
        plot::lines(&report.path("mining.svg"), &labels, &series)
    }
}
