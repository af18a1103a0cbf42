//! What was measured, cell by cell: a table, and a plot for each figure.

use super::cells::{COMPARED, Cell, System, Workload, of_figure};
use super::measure::Measured;
use crate::args::Nfs;
use crate::plot::{self, Labels, Series};
use crate::report::{Report, Table};
use crate::statistics::Spread;
use std::collections::BTreeMap;
use std::io::Result;

const HEAD: &str = "system,workload,records,readers,trial,bytes,seconds,mb_per_s,disk_bytes,\
    link_bytes";
/// What a stream of TCP carries of a frame on Ethernet as links count it: 1448 of 1514 bytes.
const PAYLOAD: f64 = 1448.0 / 1514.0;

pub struct Grid {
    cells: BTreeMap<Cell, Vec<Measured>>,
    table: Table,
    /// Bytes a second of a link.
    link: u64,
}

impl Grid {
    pub fn new(report: &Report, link: u64) -> Result<Self> {
        Ok(Self { cells: BTreeMap::new(), table: report.table("cells.csv", HEAD)?, link })
    }

    pub fn add(&mut self, trial: u32, cell: Cell, measured: Measured) -> Result<()> {
        let Cell { system, workload, records, readers } = cell;
        let name = system.name().replace(',', "");
        let Measured { bytes, seconds, disk_bytes, link_bytes } = measured;
        self.table.row(&[
            name,
            workload.word().to_owned(),
            records.to_string(),
            readers.to_string(),
            trial.to_string(),
            bytes.to_string(),
            format!("{seconds:.3}"),
            format!("{:.3}", measured.rate()),
            disk_bytes.to_string(),
            link_bytes.to_string(),
        ])?;
        self.cells.entry(cell).or_default().push(measured);
        Ok(())
    }

    /// MB/s of a file's contents that a reader on a node of a cluster can have: what is on its own
    /// node comes over no link.
    pub fn striped(&self) -> f64 {
        let nodes = f64::from(super::machines::NODES);
        self.link() * nodes / (nodes - 1.0)
    }

    /// MB/s of a file's contents that one link carries.
    pub fn link(&self) -> f64 {
        self.link as f64 * PAYLOAD / 1e6
    }

    /// MB/s that a cell's readers got, if it was measured.
    pub fn rate(
        &self,
        system: System,
        workload: Workload,
        records: u64,
        readers: u32,
    ) -> Option<f64> {
        Some(self.spread(&Cell { system, workload, records, readers })?.mean)
    }

    /// Bytes that came over links for each that readers got.
    pub fn amplification(&self, cell: &Cell) -> Option<f64> {
        let all: Vec<f64> = self.cells.get(cell)?.iter().map(Measured::amplification).collect();
        Some(Spread::of(&all).mean)
    }

    /// By whichever size of calls is best for these readers.
    pub fn best(&self, system: System, workload: Workload, readers: u32) -> Option<f64> {
        let own = self.cells.keys().filter(|cell| {
            (cell.system, cell.workload, cell.readers) == (system, workload, readers)
        });
        own.filter_map(|cell| Some(self.spread(cell)?.mean)).reduce(f64::max)
    }

    fn spread(&self, cell: &Cell) -> Option<Spread> {
        let all: Vec<f64> = self.cells.get(cell)?.iter().map(Measured::rate).collect();
        Some(Spread::of(&all))
    }

    /// A line for each size of calls, or for each system by its best.
    pub fn plot(&self, report: &Report, plan: &Nfs, figure: u8) -> Result<()> {
        let cells = of_figure(plan, figure);
        let series = match figure {
            3 => self.best_lines(plan, Workload::Whole),
            6 => self.best_lines(plan, Workload::Part),
            _ => self.lines(&cells),
        };
        let title = format!("Figure {figure}: {}", TITLES[usize::from(figure) - 1]);
        let labels = Labels { title: &title, x: "readers", y: "MB/s, all readers" };
        plot::lines(&report.path(&format!("figure-{figure}.svg")), &labels, &series)
    }

    fn lines(&self, cells: &[Cell]) -> Vec<Series> {
        let mut lines: Vec<(String, Vec<(f64, Spread)>)> = Vec::new();
        for cell in cells {
            let Some(spread) = self.spread(cell) else { continue };
            let (system, workload) = (cell.system.name(), cell.workload.word());
            let name = format!("{system}, {workload}, {}", cell.records);
            let point = (f64::from(cell.readers), spread);
            match lines.iter_mut().find(|(other, _)| *other == name) {
                Some((_, points)) => points.push(point),
                None => lines.push((name, vec![point])),
            }
        }
        lines.into_iter().map(|(name, points)| Series::new(name, points)).collect()
    }

    fn best_lines(&self, plan: &Nfs, workload: Workload) -> Vec<Series> {
        let line = |system: System| {
            let point = |readers: u32| {
                let mean = self.best(system, workload, readers)?;
                Some((f64::from(readers), Spread { mean, deviation: 0.0 }))
            };
            let points = plan.readers().into_iter().filter_map(point).collect();
            Series::new(system.name().to_owned(), points)
        };
        let paper: &[(f64, f64)] = match workload {
            Workload::Whole => &[(7.0, 11.76), (7.0, 48.23), (1.0, 9.45)],
            _ => &[(7.0, 9.09), (7.0, 50.06)],
        };
        let stated = Series::stated("NFS, PVFS", paper.iter().copied());
        COMPARED.into_iter().map(line).chain(stated).collect()
    }
}

const TITLES: [&str; 11] = [
    "NFS, whole file",
    "as PVFS, whole file",
    "whole file, best of each",
    "NFS, a part each",
    "as PVFS, a part each",
    "a part each, best of each",
    "single records at random",
    "NFS and Weir at random",
    "as PVFS at random",
    "as PVFS, all workloads",
    "NFS in order",
];
