//! The paper's other way to cold caches: a program on each node loads a file as large as its
//! memory. Nodes have what the paper's have.

use super::cells::{Cell, System, Workload};
use super::machines::{Lab, SERVER};
use super::measure::{Cold, measure};
use crate::args::Nfs;
use crate::report::Report;
use std::io::Result;
use weir_testbed::Memory;
use weir_testbed::profile::Profile;

/// Caches were cold if disks gave so much of what was read.
const COLD: f64 = 0.99;

/// A cell of each, of what servers have read before.
pub fn judge(report: &mut Report, plan: &Nfs, lab: &Lab) -> Result<()> {
    let mut memories = Vec::new();
    let sizes = Profile::of(&plan.profile).map_or(&[][..], |profile| profile.memory);
    if sizes.is_empty() {
        println!("skipped: profile {} says nothing of its nodes' memory", plan.profile);
        return Ok(());
    }
    for ((node, bytes), pid) in (1..).zip(sizes.iter().copied()).zip(lab.data_pids()?) {
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
            "{}: cold by a file as large as its memory on each node: disks gave {} bytes of {}, \
             {:.2} MB/s; else {:.2}",
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
