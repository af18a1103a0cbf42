//! The demonstration of `make quickstart`: the four processes of a job read a file each, and one
//! of the four disks becomes slow.

use crate::args::SlowDisk;
use crate::lab::Lab;
use crate::round::Round;
use std::io::{Error, Result};
use std::thread;
use std::time::Duration;

const DISKS: usize = 4;
const FILE_BYTES: u64 = 24 << 20;
/// The slow disk gives this share of what it gave.
const SLOWER: u64 = 4;
/// How long after the beginning it is looked who holds the others up.
const LOOK: Duration = Duration::from_millis(1_200);

pub fn run(plan: &SlowDisk) -> Result<()> {
    let lab = Lab::new(&plan.common, DISKS, 2 * FILE_BYTES)?;
    let write = |n: usize| {
        let name = format!("f{n}");
        lab.write(&name, &["--count", "4", "--copies", "2", "--placement", "chained"], FILE_BYTES)?;
        Ok::<_, Error>(name)
    };
    let files = (0..DISKS).map(write).collect::<Result<Vec<_>>>()?;
    lab.slow_down()?;
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "{DISKS} processes read {} MiB each, in two copies on {DISKS} disks of {} MiB/s",
        mib(FILE_BYTES),
        mib(lab.rate)
    );
    let seconds = |policy: &str| round(&lab, &files, policy).map(|(seconds, _)| seconds);
    let well = seconds("proportional")?;
    println!("all disks are well:                             {well:.1} s");
    lab.throttle.limit(&lab.disks[0], lab.rate / SLOWER)?;
    let (held_up, top) = round(&lab, &files, "primary")?;
    println!("disk 1 gives a quarter, first copies are read:  {held_up:.1} s");
    let spared = seconds("proportional")?;
    println!("the same, as Weir reads by default:             {spared:.1} s");
    println!("meanwhile `weir top` said:\n{}", top.trim_end());
    Ok(())
}

/// How long the slowest process took, and what `weir top` said while they read.
fn round(lab: &Lab, files: &[String], policy: &str) -> Result<(f64, String)> {
    let round = Round { job: true, ..Round::of(policy, files) };
    let (outcome, top) = lab.round_beside(&round, || {
        thread::sleep(LOOK);
        lab.cluster.weir(&["top", "-n", "1"])
    })?;
    let rates = outcome.rates();
    let slowest = rates.iter().copied().min_by(f64::total_cmp).unwrap_or_default();
    Ok(((FILE_BYTES >> 20) as f64 / slowest, top?))
}
