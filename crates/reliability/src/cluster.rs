//! The parts of a cluster and their failure rates.

use crate::scheme::Misfit;

/// Hours of a year of 365 days.
pub const HOURS_PER_YEAR: f64 = 8760.0;

/// Maximum number of nodes in a cluster, and of disks in a node.
const MAX_PARTS: u32 = 100_000;

/// Mean time to failure, hours, of disks with this annual failure rate (0.04 for an AFR of 4 %).
pub fn mttf_of_annual_rate(part: f64) -> f64 {
    -HOURS_PER_YEAR / f64::ln_1p(-part)
}

/// A cluster of equal nodes. Everything fails independently and at a constant
/// rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// Data nodes.
    pub nodes: u32,
    /// Disks (targets) of each node.
    pub disks_per_node: u32,
    /// Mean hours until a disk loses its data.
    pub disk_mttf_hours: f64,
    /// Mean hours until a node stops. Its disks keep their data.
    pub node_mttf_hours: f64,
    /// Mean hours until a stopped node is back.
    pub node_repair_hours: f64,
    /// Bytes on each disk that must be rebuilt when it fails.
    pub disk_bytes: f64,
    /// Bytes per second of a disk during a rebuild, reading or writing.
    pub rebuild_bytes_per_s: f64,
    /// Mean hours from a failure to the start of the rebuild.
    pub detect_hours: f64,
    /// Bytes of each copy or fragment of a segment, the unit of placement.
    pub segment_bytes: f64,
    /// Probability that a bit cannot be read during a rebuild.
    pub unreadable_per_bit: f64,
}

impl Cluster {
    /// Number of all disks.
    pub fn disks(&self) -> f64 {
        f64::from(self.nodes) * f64::from(self.disks_per_node)
    }

    /// Failure rate of one disk, per hour.
    pub fn disk_failures_per_hour(&self) -> f64 {
        1.0 / self.disk_mttf_hours
    }

    /// Hours in which `disks` disks read or write `bytes` bytes.
    pub fn hours_to_move(&self, bytes: f64, disks: f64) -> f64 {
        bytes / (self.rebuild_bytes_per_s * disks) / 3600.0
    }

    /// Probability that at least one of this many bytes cannot be read.
    pub fn unreadable(&self, bytes: f64) -> f64 {
        crate::odds::any(self.unreadable_per_bit, 8.0 * bytes)
    }

    /// Checks that every value is in its range.
    pub fn check(&self) -> Result<(), Misfit> {
        const TIME: &str = "from 1e-9 to 1e12 hours";
        const WAIT: &str = "from 0 to 1e9 hours";
        const BYTES: &str = "from 1 to 1e18 bytes";
        const PARTS: &str = "from 1 to 100000";
        const BITS: &str = "from 0 to 0.001";
        let parts = |count: u32| (1..=MAX_PARTS).contains(&count);
        let time = |hours: f64| (1e-9..=1e12).contains(&hours);
        let wait = |hours: f64| (0.0..=1e9).contains(&hours);
        let bytes = |bytes: f64| (1.0..=1e18).contains(&bytes);
        let checks = [
            (parts(self.nodes), "the number of nodes", PARTS),
            (parts(self.disks_per_node), "the disks of a node", PARTS),
            (time(self.disk_mttf_hours), "the mean time to failure of a disk", TIME),
            (time(self.node_mttf_hours), "the mean time to failure of a node", TIME),
            (wait(self.node_repair_hours), "the repair time of a node", WAIT),
            (wait(self.detect_hours), "the time until a failure is detected", WAIT),
            (bytes(self.disk_bytes), "what is on a disk", BYTES),
            (bytes(self.rebuild_bytes_per_s), "the rebuild speed", BYTES),
            (bytes(self.segment_bytes), "the size of a segment", BYTES),
            ((0.0..=1e-3).contains(&self.unreadable_per_bit), "the part of unreadable bits", BITS),
        ];
        match checks.into_iter().find(|(fits, ..)| !fits) {
            Some((_, what, range)) => Err(Misfit::Value(what, range)),
            None => Ok(()),
        }
    }
}
