//! Samples, and their medians.

use crate::accounting::Group;
use crate::ways::{Row, Via};
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Duration.
    pub seconds: f64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Number of calls.
    pub ops: u64,
    /// CPU seconds of each group of processes involved.
    pub cpu_s: BTreeMap<Group, f64>,
    /// CPU time of all other processes, including kernel threads, as a share of the machine.
    pub others_share: f64,
    /// Bytes that came over the loopback interface.
    pub loopback_bytes: u64,
    /// Bytes that the data servers read from their disks.
    pub disk_read_bytes: u64,
    /// Seconds until everything was written, if a sync followed; otherwise 0.
    pub written_s: f64,
    /// The longest call of each load generator, if measured.
    pub longest_s: Vec<f64>,
}

impl Sample {
    /// CPU seconds over all processes.
    pub fn total_cpu_s(&self) -> f64 {
        self.cpu_s.values().sum()
    }

    /// Throughput.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e9 / self.seconds
    }

    /// Throughput without the sync.
    pub fn written_gb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e9 / self.written_s
    }

    /// CPU s/GB.
    pub fn cpu_s_per_gb(&self) -> f64 {
        self.total_cpu_s() / (self.bytes as f64 / 1e9)
    }

    /// Calls per second.
    pub fn ops_per_s(&self) -> f64 {
        self.ops as f64 / self.seconds
    }

    /// CPU of a call.
    pub fn cpu_us_per_op(&self) -> f64 {
        self.total_cpu_s() * 1e6 / self.ops as f64
    }
}

/// All runs of one way of a row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// The measured runs.
    pub samples: Vec<Sample>,
    /// Why runs are missing.
    pub failure: Option<String>,
}

impl Series {
    /// The median of a value.
    pub fn median(&self, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        let mut values: Vec<f64> = self.samples.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// The minimum and maximum of a value.
    pub fn range(&self, of: impl Fn(&Sample) -> f64) -> (f64, f64) {
        self.samples
            .iter()
            .map(of)
            .fold((f64::INFINITY, 0.0), |(low, high), value| (value.min(low), value.max(high)))
    }

    /// Speed in the row's unit: GB/s, or calls per second.
    pub fn speed(&self, row: Row) -> Option<f64> {
        self.median(|s| if row.counts_calls() { s.ops_per_s() } else { s.gb_per_s() })
    }

    /// CPU in the row's unit: s/GB, or µs per call.
    pub fn cpu(&self, row: Row) -> Option<f64> {
        self.median(|s| if row.counts_calls() { s.cpu_us_per_op() } else { s.cpu_s_per_gb() })
    }

    /// CPU of one group in the row's unit.
    pub fn cpu_of(&self, row: Row, group: Group) -> Option<f64> {
        let unit = |s: &Sample| {
            if row.counts_calls() { s.ops as f64 / 1e6 } else { s.bytes as f64 / 1e9 }
        };
        self.median(|s| s.cpu_s.get(&group).copied().unwrap_or(0.0) / unit(s))
    }
}

/// All results.
#[derive(Debug, Default)]
pub struct Results {
    /// How CPU time was measured.
    pub accounting: String,
    /// Each row's series, in order of display.
    pub rows: Vec<(Row, Vec<(Via, Series)>)>,
    /// Rows that were left out, with the reason.
    pub left_out: Vec<(Row, String)>,
}

impl Results {
    /// One series.
    pub fn series(&self, row: Row, via: Via) -> Option<&Series> {
        let (_, list) = self.rows.iter().find(|(r, _)| *r == row)?;
        list.iter().find(|(v, _)| *v == via).map(|(_, series)| series)
    }

    /// Fails if something could not be measured.
    pub fn outcome(&self) -> crate::failure::Done {
        let failed = self.rows.iter().flat_map(|(_, list)| list).any(|(_, s)| s.failure.is_some());
        if failed {
            return Err(crate::failure::Failure::other("not everything could be measured"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_stand_in_the_middle() {
        let sample = |seconds| Sample { seconds, bytes: 1_000_000_000, ..Sample::default() };
        let series = Series { samples: [4.0, 1.0, 2.0].map(sample).to_vec(), failure: None };
        assert_eq!(series.median(Sample::gb_per_s), Some(0.5));
        assert_eq!(series.range(Sample::gb_per_s), (0.25, 1.0));
        assert_eq!(Series::default().median(Sample::gb_per_s), None);
    }
}
