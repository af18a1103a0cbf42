//! Experiments with as many readers as disks.

use super::lab::Common;
use super::line::Line;
use super::ratio::{Ratio, ratios};
use super::series::{faults, two_calls};
use super::size::size;
use clap::Args;

/// What they have in common.
#[derive(Args, Clone)]
pub struct Readers {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server; as many readers
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Bytes that each reads, or that they read on average
    #[arg(long, value_parser = size, default_value = "80MiB")]
    pub file: u64,
    /// Bytes of a call [default: 64KiB,1MiB, with --quick 1MiB]
    #[arg(long, value_parser = size, value_delimiter = ',')]
    pub calls: Vec<u64>,
    /// Numbers of perturbed disks [default: 0, 1, 2, 4, ... all, with --quick 0, 1, all;
    /// adjacent-faults: 1, 2, 3]
    #[arg(long, value_delimiter = ',')]
    pub faults: Vec<u32>,
}

impl Readers {
    pub fn calls(&self) -> Vec<u64> {
        two_calls(&self.calls, self.common.quick)
    }

    pub fn faults(&self) -> Vec<u32> {
        faults(&self.faults, self.disks, self.common.quick)
    }
}

#[derive(Args, Clone)]
pub struct EvenReads {
    #[command(flatten)]
    pub readers: Readers,
    /// Policies
    #[arg(long, value_enum, value_delimiter = ',',
        default_values = ["primary", "graduated", "graduated-primary", "proportional"])]
    pub lines: Vec<Line>,
    /// Readers know nothing of each other; else they are processes of one job
    #[arg(long)]
    pub no_job: bool,
    /// Perturbers come and go every so many seconds; 0: they stay
    #[arg(long, default_value_t = 0)]
    pub turn: u64,
    /// On machines of this profile (`weir testbed profiles`), whose links readers are behind
    #[arg(long)]
    pub profile: Option<String>,
}

/// Readers of a file each on disks whose inner tracks give less.
#[derive(Args, Clone)]
pub struct ZonedReads {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server: equal parts of a drive, from outside to inside
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Bytes of each reader's file
    #[arg(long, value_parser = size, default_value = "48MiB")]
    pub file: u64,
    /// What the innermost track gives of the outermost, per cent; the default is River's
    #[arg(long, default_value_t = 58, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub inner: u64,
}

#[derive(Args, Clone)]
pub struct Partitions {
    #[command(flatten)]
    pub readers: Readers,
    /// Policies
    #[arg(long, value_enum, value_delimiter = ',',
        default_values = ["primary", "graduated", "graduated-primary", "proportional"])]
    pub lines: Vec<Line>,
    /// What readers of even and of odd numbers read [default: 1:1,1:1.5,1:2, with --quick 1:1,1:2]
    #[arg(long, value_delimiter = ',')]
    pub ratios: Vec<Ratio>,
}

impl Partitions {
    pub fn ratios(&self) -> Vec<Ratio> {
        ratios(&self.ratios, self.readers.common.quick)
    }
}

#[derive(Args, Clone)]
pub struct AdjacentFaults {
    #[command(flatten)]
    pub readers: Readers,
    /// Policies
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["proportional"])]
    pub lines: Vec<Line>,
    /// Numbers of copies
    #[arg(long, value_delimiter = ',', default_values_t = [2, 3],
        value_parser = clap::value_parser!(u8).range(1..=8))]
    pub copies: Vec<u8>,
}
