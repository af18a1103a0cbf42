//! One cell: cold caches, clients, one pass, and what the kernel has counted meanwhile.

use super::cells::Cell;
use super::machines::Lab;
use crate::args::Mining;
use crate::cluster::said;
use crate::stop;
use serde_json::Value;
use std::io::{Error, Result};

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// What clients got: the file, once.
    pub bytes: u64,
    pub seconds: f64,
    /// What disks gave.
    pub disk_bytes: u64,
    /// What left the NFS server.
    pub link_bytes: u64,
    /// For how long threads of the NFS server could have run but for its share of a core.
    pub waited_seconds: f64,
}

impl Measured {
    /// MB/s of all clients.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }
}

pub fn measure(lab: &Lab, plan: &Mining, cell: &Cell) -> Result<Measured> {
    stop::check()?;
    lab.processor.limit(None)?;
    let mut clients = lab.clients(cell)?;
    lab.forget()?;
    if cell.is_capped {
        lab.processor.limit(Some(plan.server_cpu))?;
    }
    let counts = || {
        let (disks, waited) = (lab.disk_bytes(cell.system)?, lab.processor.waited_seconds()?);
        Ok::<_, Error>((disks, lab.server_link()?.out_bytes, waited))
    };
    let before = counts()?;
    // The items that all have bought: no rule follows.
    clients.command.args(["--json", "--passes", "1", "--support", "100%"]);
    clients.command.args(["--producers", &cell.producers.to_string()]);
    let text = said(&mut clients.command)?;
    let after = counts()?;
    lab.processor.limit(None)?;
    clients.end()?;
    let report: Value = serde_json::from_str(&text)?;
    let pass = &report["passes"][0];
    let unknown = || Error::other(format!("weir-mining: {text}"));
    let measured = Measured {
        bytes: pass["bytes"].as_u64().ok_or_else(unknown)?,
        seconds: pass["seconds"].as_f64().ok_or_else(unknown)?,
        disk_bytes: after.0 - before.0,
        link_bytes: after.1 - before.1,
        waited_seconds: after.2 - before.2,
    };
    match measured.disk_bytes >= measured.bytes {
        true => Ok(measured),
        false => Err(Error::other(format!(
            "{cell}: caches were not cold: disks gave {} bytes of {}",
            measured.disk_bytes, measured.bytes
        ))),
    }
}
