//! The paper's other way to cold caches: a program on each node loads a file as large as its
//! memory. Nodes have what the paper's have.

use super::cells::{Cell, System, Workload};
use super::machines::{Lab, NODES, SERVER};
use super::measure::{Cold, measure};
use crate::args::Nfs;
use crate::report::Report;
use std::io::Result;
use weir_testbed::Memory;

/// Memory of the nodes, in their order: four of each kind.
const BYTES: [u64; NODES as usize] =
    [256 << 20, 256 << 20, 256 << 20, 256 << 20, 128 << 20, 128 << 20, 128 << 20, 128 << 20];
/// Caches were cold if disks gave so much of what was read.
const COLD: f64 = 0.99;

/// A cell of each, of what servers have read before.
pub fn judge(report: &mut Report, plan: &Nfs, lab: &Lab) -> Result<()> {
    let mut memories = Vec::new();
    for ((node, bytes), pid) in (1..).zip(BYTES).zip(lab.data_pids()?) {
        let name = format!("weir-figures-memory{}-{node}", std::process::id());
        let Some(memory) = Memory::new(&name, bytes)? else {
            println!("skipped: needs the memory controller of cgroup v1");
            return Ok(());
        };
        memory.add(pid)?;
        if node == SERVER {
            memory.add(lab.nfs_pid())?;
        }
        memories.push(memory);
    }
    let records = plan.records().into_iter().max().unwrap_or(1);
    for system in [System::Nfs, System::Pvfs] {
        let cell = Cell { system, workload: Workload::Whole, records, readers: 1 };
        let mounted = measure(lab, plan, &cell, Cold::Dropped)?;
        let loaded = measure(lab, plan, &cell, Cold::Loaded(&memories))?;
        let what = format!(
            "{}: cold by a file as large as its memory on each node, 128 and 256 MiB: disks gave {} \
             bytes of {}, {:.2} MB/s; else {:.2}",
            system.name(),
            loaded.disk_bytes,
            loaded.bytes,
            loaded.rate(),
            mounted.rate()
        );
        report.verdict(loaded.disk_bytes as f64 >= COLD * loaded.bytes as f64, &what);
    }
    Ok(())
}
