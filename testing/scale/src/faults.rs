//! Disks, and what happens to them.
//!
//! How often a disk is more than twice as slow as its peers is published (0.2 % of the time of
//! disks and 0.6 % of that of SSDs: Hao et al., The Tail at Store, FAST 2016); that it lasts
//! between a tenth and ten times as long as the job, and by how much more it is slow, is assumed.

use crate::Speed;
use fastrand::Rng;

/// What all disks are, when they are well, and how they are used: what a job reads grows with
/// the time that a disk needs to turn to another place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// Bytes per microsecond.
    pub bytes_per_us: f64,
    /// Time to turn to another place.
    pub seek_us: f64,
    /// A job takes so long if all is well.
    pub job_us: f64,
    /// A request.
    pub block_bytes: u64,
    /// What a disk serves one reader before another has its turn; several times as much as it
    /// would read while it turns.
    pub run_bytes: u64,
}

impl Hardware {
    /// 128 MiB/s, 8 ms: a MiB for each turn.
    pub const HDD: Self = Self {
        bytes_per_us: 134.217_728,
        seek_us: 8_000.0,
        job_us: 20e6,
        block_bytes: 4 << 20,
        run_bytes: 16 << 20,
    };
    /// 256 MiB/s, 100 µs, as in the time of the study: 26 KiB for each turn.
    pub const SSD: Self = Self {
        bytes_per_us: 268.435_456,
        seek_us: 100.0,
        job_us: 5e6,
        block_bytes: 2 << 20,
        run_bytes: 1 << 20,
    };

    /// What a rank of one of so many jobs reads, in whole requests.
    pub fn work_bytes(&self, jobs: usize) -> u64 {
        let bytes = self.bytes_per_us * self.job_us / jobs as f64;
        bytes as u64 / self.block_bytes * self.block_bytes
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing, and all disks are alike.
    None,
    /// One disk has half its speed.
    Half,
    /// Three side by side have.
    Adjacent,
    /// One dies when about half of the job is done.
    Dies,
    /// Disks differ by a twentieth, and are slow 0.2 % of the time.
    SlowHdd,
    /// The same of SSDs, 0.6 %.
    SlowSsd,
}

/// Disks of a ring, drawn.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// One for each node.
    pub disks: Vec<Speed>,
    /// Of all.
    pub seek_us: f64,
}

impl Fault {
    /// The disks it happens to.
    pub fn hardware(self) -> Hardware {
        if self == Self::SlowSsd { Hardware::SSD } else { Hardware::HDD }
    }

    /// The share of time in which a disk is more than twice as slow.
    fn slow_share(self) -> f64 {
        match self {
            Self::SlowHdd => 0.002,
            Self::SlowSsd => 0.006,
            _ => 0.0,
        }
    }

    /// Draws what happens to `nodes` disks while a job runs.
    pub fn draw(self, nodes: usize, hardware: Hardware, random: &mut Rng) -> Cluster {
        let Hardware { bytes_per_us, seek_us, job_us, .. } = hardware;
        let mut disks = vec![Speed::steady(bytes_per_us); nodes];
        let first = random.usize(0..nodes);
        match self {
            Self::None => {}
            Self::Half => disks[first].then(0.0, bytes_per_us / 2.0),
            Self::Adjacent => {
                (first..first + 3).for_each(|n| disks[n % nodes].then(0.0, bytes_per_us / 2.0));
            }
            Self::Dies => disks[first].then(job_us * (0.3 + 0.4 * random.f64()), 0.0),
            Self::SlowHdd | Self::SlowSsd => {
                for disk in &mut disks {
                    *disk = fail_slow(bytes_per_us, self.slow_share(), job_us, random);
                }
            }
        }
        Cluster { disks, seek_us }
    }
}

/// Disks of one kind are not quite alike.
const SPREAD: f64 = 0.05;
/// How long a slow time lasts, in jobs.
const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 10.0;
/// No disk is slower than by this.
const SLOWEST: f64 = 20.0;
/// So many jobs are drawn: as the slowest may take.
const JOBS: f64 = SLOWEST + 1.0;

/// A disk that is well and slow in turn.
fn fail_slow(well: f64, slow_share: f64, job_us: f64, random: &mut Rng) -> Speed {
    let well = well * (1.0 + SPREAD * (2.0 * random.f64() - 1.0));
    let mut speed = Speed::steady(well);
    // The mean of what is drawn with an even logarithm.
    let mean_slow_us = job_us * (LONGEST - SHORTEST) / (LONGEST / SHORTEST).ln();
    let mean_well_us = mean_slow_us * (1.0 - slow_share) / slow_share;
    // Long before the job, so that it finds the disk in the middle of whatever it does.
    let mut at = -mean_well_us * (1.0 + random.f64());
    loop {
        at += -mean_well_us * (1.0 - random.f64()).ln();
        if at > JOBS * job_us {
            return speed;
        }
        let slow_us = job_us * SHORTEST * (LONGEST / SHORTEST).powf(random.f64());
        let end = at + slow_us;
        if end > 0.0 {
            speed.then(at, well / slower_by(random));
            speed.then(end, well);
        }
        at = end;
    }
}

/// More than twice, and seldom by much more: half of them by less than three times.
fn slower_by(random: &mut Rng) -> f64 {
    (2.0 * (1.0 - random.f64()).powf(-0.585)).min(SLOWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_slow_for_the_published_share_of_time() {
        let nodes = 20_000;
        for fault in [Fault::SlowHdd, Fault::SlowSsd] {
            let mut random = Rng::with_seed(3);
            let hardware = fault.hardware();
            let cluster = fault.draw(nodes, hardware, &mut random);
            let well = hardware.bytes_per_us;
            let at = |disk: &Speed, us: f64| disk.bytes_until(us + 1.0) - disk.bytes_until(us);
            let times = [0.0, 0.3, 1.0, 4.0, 9.0].map(|jobs| jobs * hardware.job_us);
            let slow = |us: f64| {
                let is_slow = |disk: &&Speed| at(disk, us) < well * (1.0 + SPREAD) / 2.0;
                cluster.disks.iter().filter(is_slow).count() as f64 / nodes as f64
            };
            let share = times.map(slow).iter().sum::<f64>() / times.len() as f64;
            let published = fault.slow_share();
            assert!((share / published - 1.0).abs() < 0.2, "{fault:?}: {share} of {published}");
        }
    }
}
