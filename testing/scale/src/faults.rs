//! Disks and their faults.
//!
//! Published: how often a disk is more than twice as slow as its peers (0.2 % of the time of hard
//! disks and 0.6 % of that of SSDs: Hao et al., The Tail at Store, FAST 2016). Assumed: slow
//! periods last between a tenth of the job and ten times as long, and by how much more than twice a
//! disk is slow.

use crate::Speed;
use fastrand::Rng;

/// Properties of a good disk, and its use. The amount that a job reads grows with the seek time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// Transfer rate, bytes per microsecond.
    pub bytes_per_us: f64,
    /// Seek time.
    pub seek_us: f64,
    /// Duration of a job without faults.
    pub job_us: f64,
    /// Size of a request.
    pub block_bytes: u64,
    /// Bytes that a disk serves one reader before the next: several times what it could read during
    /// a seek.
    pub run_bytes: u64,
}

impl Hardware {
    /// 128 MiB/s, 8 ms: a seek costs as much as a MiB.
    pub const HDD: Self = Self {
        bytes_per_us: 134.217_728,
        seek_us: 8_000.0,
        job_us: 20e6,
        block_bytes: 4 << 20,
        run_bytes: 16 << 20,
    };
    /// 256 MiB/s, 100 µs, as when the study was made: a seek costs as much as 26 KiB.
    pub const SSD: Self = Self {
        bytes_per_us: 268.435_456,
        seek_us: 100.0,
        job_us: 5e6,
        block_bytes: 2 << 20,
        run_bytes: 1 << 20,
    };

    /// Bytes that a rank reads if this many jobs share the disks, in whole requests.
    pub fn work_bytes(&self, jobs: usize) -> u64 {
        let bytes = self.bytes_per_us * self.job_us / jobs as f64;
        bytes as u64 / self.block_bytes * self.block_bytes
    }
}

/// The fault of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault, and all disks are equal.
    None,
    /// One disk has half its speed.
    Half,
    /// Three adjacent disks have half their speed.
    Adjacent,
    /// One disk dies when about half of the job is done.
    Dies,
    /// Hard disks differ by 5 %, and are slow 0.2 % of the time.
    SlowHdd,
    /// SSDs differ by 5 %, and are slow 0.6 % of the time.
    SlowSsd,
}

/// The disks of a ring, drawn at random.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The speed of each node's disk.
    pub disks: Vec<Speed>,
    /// Seek time of all disks.
    pub seek_us: f64,
}

impl Fault {
    /// The hardware of the scenario.
    pub fn hardware(self) -> Hardware {
        if self == Self::SlowSsd { Hardware::SSD } else { Hardware::HDD }
    }

    /// Share of time in which a disk is more than twice as slow.
    fn slow_share(self) -> f64 {
        match self {
            Self::SlowHdd => 0.002,
            Self::SlowSsd => 0.006,
            _ => 0.0,
        }
    }

    /// Draws the speeds of `nodes` disks during a job.
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

/// Relative difference of disks of one kind.
const SPREAD: f64 = 0.05;
/// Shortest slow period, in jobs.
const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 10.0;
/// Largest slow-down of a disk.
const SLOWEST: f64 = 20.0;
/// Speeds are drawn for this many jobs: the longest possible duration.
const JOBS: f64 = SLOWEST + 1.0;

/// A disk that alternates between good and slow.
fn fail_slow(well: f64, slow_share: f64, job_us: f64, random: &mut Rng) -> Speed {
    let well = well * (1.0 + SPREAD * (2.0 * random.f64() - 1.0));
    let mut speed = Speed::steady(well);
    // Mean of a distribution that is uniform in the logarithm.
    let mean_slow_us = job_us * (LONGEST - SHORTEST) / (LONGEST / SHORTEST).ln();
    let mean_well_us = mean_slow_us * (1.0 - slow_share) / slow_share;
    // Starts long before the job, so that the job begins at a random moment of the disk.
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

/// Draws a slow-down of more than two, seldom much more: half of them are below three.
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
