//! Cold caches: what the kernel says of them, also over all rounds with perturbed disks.

use crate::lab::Lab;
use crate::outcome::Outcome;
use crate::report::Report;
use crate::round::{Load, Round};
use std::io::{Error, Result};
use std::path::Path;
use std::time::Duration;
use weir_testbed::forget_whole;

/// Rounds that are tried until
const ATTEMPTS: usize = 3;
/// each perturber has this share of what its disk gives meanwhile.
const SHARE: std::ops::RangeInclusive<f64> = 0.42..=0.58;

/// What is read ahead is there within this time, and can be dropped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Nothing is in memory of the files of a disk.
pub fn nothing_in_memory(disk: &Path) -> Result<()> {
    match forget_whole(disk, PATIENCE)? {
        0 => Ok(()),
        left => Err(Error::other(format!("{left} bytes of {} stay in memory", disk.display()))),
    }
}

/// Of all rounds.
#[derive(Default)]
pub struct Proof {
    /// Disks have heads: what these lose by moves is nobody's, and not to be set.
    pub has_heads: bool,
    rounds: usize,
    left_out: usize,
    shares: Vec<f64>,
}

impl Proof {
    pub fn new(has_heads: bool) -> Self {
        Self { has_heads, ..Self::default() }
    }

    /// Does a round; once more if a perturber did not have its share, as on a machine that
    /// others keep busy.
    pub fn round(&mut self, lab: &Lab, round: &Round<'_>) -> Result<Outcome> {
        // One that comes and goes has what it has.
        let stays = matches!(round.load, Load::Reads { turn: Duration::ZERO });
        for _ in 0..ATTEMPTS {
            let outcome = lab.round(round)?;
            let share = |disk: &usize| {
                let disk = &outcome.disks[*disk];
                disk.perturbers_part(match self.has_heads {
                    true => disk.meanwhile_disk_bytes as f64,
                    false => lab.rate as f64 * outcome.seconds,
                })
            };
            let shares: Vec<f64> = round.perturbed.iter().filter(|_| stays).map(share).collect();
            if self.has_heads || shares.iter().all(|share| SHARE.contains(share)) {
                self.rounds += 1;
                self.shares.extend(shares);
                return Ok(outcome);
            }
            println!("left out: perturbers had {shares:.2?} of their disks");
            self.left_out += 1;
        }
        Err(Error::other("perturbers do not get their share: what else does the machine do?"))
    }

    pub fn conclude(&self, report: &mut Report) {
        let Self { rounds, left_out, shares, .. } = self;
        let what = format!("caches were cold in {rounds} rounds, by the kernel's counts");
        report.verdict(true, &what);
        if shares.is_empty() {
            return;
        }
        let low = shares.iter().copied().fold(f64::INFINITY, f64::min) * 100.0;
        let high = shares.iter().copied().fold(0.0, f64::max) * 100.0;
        let less = format!("{left_out} rounds left out in which one had not");
        let what = format!("perturbers had {low:.0} to {high:.0} % of their disks ({less})");
        report.verdict(true, &what);
    }
}
