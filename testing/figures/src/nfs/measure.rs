//! One cell: cold caches, clients, readers, and what the kernel has counted meanwhile.

use super::cells::{Cell, Workload};
use super::machines::Lab;
use crate::args::Nfs;
use crate::cluster::said;
use crate::programs::beside;
use crate::stop;
use serde_json::Value;
use std::io::{Error, Result};
use weir_testbed::Memory;

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// What readers got.
    pub bytes: u64,
    pub seconds: f64,
    /// What disks gave.
    pub disk_bytes: u64,
    /// What came to the readers' nodes, as the kernel counts it.
    pub link_bytes: u64,
}

impl Measured {
    /// MB/s of all readers.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }

    /// Bytes on links for each that a reader got.
    pub fn amplification(&self) -> f64 {
        self.link_bytes as f64 / self.bytes as f64
    }
}

/// How it comes that servers have nothing in memory; clients are always mounted anew.
#[derive(Clone, Copy)]
pub enum Cold<'a> {
    /// The kernel is told to drop it.
    Dropped,
    /// A file as large as its memory takes its place on each node.
    Loaded(&'a [Memory]),
}

pub fn measure(lab: &Lab, plan: &Nfs, cell: &Cell, cold: Cold<'_>) -> Result<Measured> {
    stop::check()?;
    let clients = lab.clients(cell)?;
    match cold {
        Cold::Dropped => lab.forget(cell.system)?,
        Cold::Loaded(nodes) => {
            nodes.iter().try_for_each(|memory| memory.fill(&lab.place("own")))?;
        }
    }
    let before = counts(lab, cell)?;
    let mut command = beside("weir-records")?;
    command.args(["read", cell.file(), "--json", "--workload", cell.workload.word()]);
    let mut number = |flag: &str, value: u64| _ = command.arg(flag).arg(value.to_string());
    number("--records", cell.records);
    number("--first", cell.file_records(plan.share));
    number("--chunks", cell.chunks());
    command.args(&clients.words);
    clients.vias.iter().for_each(|via| _ = command.args(["--via", via]));
    let text = said(&mut command)?;
    let after = counts(lab, cell)?;
    clients.end()?;
    let report: Value = serde_json::from_str(&text)?;
    let unknown = || Error::other(format!("weir-records: {text}"));
    let measured = Measured {
        bytes: report["bytes"].as_u64().ok_or_else(unknown)?,
        seconds: report["seconds"].as_f64().ok_or_else(unknown)?,
        disk_bytes: after.0 - before.0,
        link_bytes: after.1 - before.1,
    };
    // What a file in memory leaves there is what is to be found out.
    if matches!(cold, Cold::Dropped) {
        require_cold(cell, plan, &measured)?;
    }
    Ok(measured)
}

/// What disks have given, and what has come to the readers' nodes.
fn counts(lab: &Lab, cell: &Cell) -> Result<(u64, u64)> {
    let disks = lab.disks(cell.system).into_iter().map(|disk| disk.read_bytes());
    let network = &lab.machines()?.network;
    let links = Lab::nodes(cell).map(|node| Ok(network.counts(node)?.in_bytes));
    Ok((disks.sum::<Result<_>>()?, links.sum::<Result<_>>()?))
}

/// Nothing was in memory: what was read in order, disks have given.
fn require_cold(cell: &Cell, plan: &Nfs, measured: &Measured) -> Result<()> {
    let least = match cell.workload {
        Workload::Random => 1,
        Workload::Whole | Workload::Part => cell.file_bytes(plan.share) - super::cells::RECORD,
    };
    match measured.disk_bytes >= least {
        true => Ok(()),
        false => Err(Error::other(format!(
            "{cell}: caches were not cold: disks gave {} bytes of {least}",
            measured.disk_bytes
        ))),
    }
}
