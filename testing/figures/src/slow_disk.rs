//! The demonstration of `make quickstart`: the four processes of a job read a file each, and one
//! of the four disks becomes slow.

use crate::args::SlowDisk;
use crate::lab::Lab;
use crate::outcome::Outcome;
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
    let round = |policy| Round { job: true, ..Round::of(policy, &files) };
    let seconds = |policy| Ok::<_, Error>(slowest(&lab.round(&round(policy))?));
    println!("all disks are well:                             {:.1} s", seconds("proportional")?);
    lab.throttle.limit(&lab.disks[0], lab.rate / SLOWER)?;
    let (held_up, top) = lab.round_beside(&round("primary"), || {
        thread::sleep(LOOK);
        lab.cluster.weir(&["top", "-n", "1"])
    })?;
    println!("disk 1 gives a quarter, first copies are read:  {:.1} s", slowest(&held_up));
    println!("the same, as Weir reads by default:             {:.1} s", seconds("proportional")?);
    println!("while first copies were read `weir top` said:\n{}", top?.trim_end());
    Ok(())
}

/// How long the slowest process took.
fn slowest(outcome: &Outcome) -> f64 {
    let slowest = outcome.rates().iter().copied().min_by(f64::total_cmp).unwrap_or_default();
    (FILE_BYTES >> 20) as f64 / slowest
}
