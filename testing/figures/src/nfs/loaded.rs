//! The paper's other way to cold caches: a program on each node reads a file as large as its memory.

use super::cells::{Cell, System, Workload};
use super::machines::Lab;
use super::measure::{Cold, measure};
use crate::args::Nfs;
use crate::report::Report;
use std::io::Result;
use weir_testbed::Memory;

/// What all servers have together.
const BYTES: u64 = 1 << 30;
/// Caches were cold if disks gave so much of what was read.
const COLD: f64 = 0.99;

/// A cell of each, of what servers have read before.
pub fn judge(report: &mut Report, plan: &Nfs, lab: &Lab) -> Result<()> {
    let name = format!("weir-figures-memory{}", std::process::id());
    let Some(memory) = Memory::new(&name, BYTES)? else {
        println!("skipped: needs the memory controller of cgroup v1");
        return Ok(());
    };
    lab.server_pids()?.into_iter().try_for_each(|pid| memory.add(pid))?;
    let records = plan.records().into_iter().max().unwrap_or(1);
    for system in [System::Nfs, System::Pvfs] {
        let cell = Cell { system, workload: Workload::Whole, records, readers: 1 };
        let mounted = measure(lab, plan, &cell, Cold::Dropped)?;
        let loaded = measure(lab, plan, &cell, Cold::Loaded(&memory))?;
        let what = format!(
            "{}: cold by a file of {} MiB in the servers' memory: disks gave {} bytes of {}, {:.2} \
             MB/s; else {:.2}",
            system.name(),
            BYTES >> 20,
            loaded.disk_bytes,
            loaded.bytes,
            loaded.rate(),
            mounted.rate()
        );
        report.verdict(loaded.disk_bytes as f64 >= COLD * loaded.bytes as f64, &what);
    }
    Ok(())
}
