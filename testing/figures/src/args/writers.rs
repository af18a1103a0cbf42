//! Experiments with writers on disks of which some are slow.

use super::lab::Common;
use super::ratio::{Ratio, ratios};
use super::series::{faults, many_calls, two_calls};
use super::size::size;
use clap::Args;

/// What they have in common.
#[derive(Args, Clone)]
pub struct Writers {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Numbers of disks that give half [default: 0, 1, 2, 4, ... all, with --quick 0, 1, all]
    #[arg(long, value_delimiter = ',')]
    pub faults: Vec<u32>,
}

impl Writers {
    pub fn faults(&self) -> Vec<u32> {
        faults(&self.faults, self.disks, self.common.quick)
    }
}

#[derive(Args, Clone)]
pub struct DistributedQueue {
    #[command(flatten)]
    pub writers: Writers,
    /// Processes that write at the same time
    #[arg(long = "writers", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub count: u32,
    /// Bytes that all of them write
    #[arg(long, value_parser = size, default_value = "1280MiB")]
    pub total: u64,
}

#[derive(Args, Clone)]
pub struct GraduatedWrite {
    #[command(flatten)]
    pub writers: Writers,
    /// Bytes that each of as many writers as disks writes
    #[arg(long, value_parser = size, default_value = "96MiB")]
    pub file: u64,
    /// Bytes of a call [default: 64KiB,1MiB, with --quick 1MiB]
    #[arg(long, value_parser = size, value_delimiter = ',')]
    pub calls: Vec<u64>,
}

impl GraduatedWrite {
    pub fn calls(&self) -> Vec<u64> {
        two_calls(&self.calls, self.writers.common.quick)
    }
}

#[derive(Args, Clone)]
pub struct WriteSize {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server; as many writers
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Bytes that each writes
    #[arg(long, value_parser = size, default_value = "96MiB")]
    pub file: u64,
    /// Bytes of a call [default: 4KiB,16KiB,64KiB,256KiB,1MiB,4MiB, with --quick 4KiB,64KiB,1MiB]
    #[arg(long, value_parser = size, value_delimiter = ',')]
    pub calls: Vec<u64>,
}

impl WriteSize {
    pub fn calls(&self) -> Vec<u64> {
        many_calls(&self.calls, self.common.quick)
    }
}

/// Writers of files with one copy, and of files with two on twice the disks.
#[derive(Args, Clone)]
pub struct SecondCopies {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server: half of them have second copies
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Numbers of processes that write at the same time [default: 1,4, with --quick 4]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub writers: Vec<u32>,
    /// Bytes that each writes
    #[arg(long, value_parser = size, default_value = "48MiB")]
    pub file: u64,
}

impl SecondCopies {
    pub fn writers(&self) -> Vec<u32> {
        match (&*self.writers, self.common.quick) {
            ([], true) => vec![4],
            ([], false) => vec![1, 4],
            (writers, _) => writers.to_vec(),
        }
    }
}

/// Writers of parts of one file.
#[derive(Args, Clone)]
pub struct PartWrites {
    #[command(flatten)]
    pub writers: Writers,
    /// Bytes that each of as many writers as disks writes on average
    #[arg(long, value_parser = size, default_value = "48MiB")]
    pub file: u64,
    /// Bytes of a call [default: 64KiB,1MiB, with --quick 1MiB]
    #[arg(long, value_parser = size, value_delimiter = ',')]
    pub calls: Vec<u64>,
    /// What writers of even and of odd numbers write [default: 1:1,1:1.5,1:2, with --quick 1:1,1:2]
    #[arg(long, value_delimiter = ',')]
    pub ratios: Vec<Ratio>,
}

impl PartWrites {
    pub fn calls(&self) -> Vec<u64> {
        two_calls(&self.calls, self.writers.common.quick)
    }

    pub fn ratios(&self) -> Vec<Ratio> {
        ratios(&self.ratios, self.writers.common.quick)
    }
}
