//! Experiments with sets of erasure codes.

use super::lab::Common;
use super::size::size;
use clap::Args;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Args, Clone)]
pub struct Reduce {
    #[command(flatten)]
    pub common: Common,
    /// Nodes, each with a disk: each writes eight files, which two others have copies of
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(10..=64))]
    pub disks: u32,
    /// Bytes of a file [default: 16MiB, with --quick 4MiB]
    #[arg(long, value_parser = size)]
    pub file: Option<u64>,
}

impl Reduce {
    pub fn file(&self) -> u64 {
        self.file.unwrap_or(if self.common.quick { 4 << 20 } else { 16 << 20 })
    }
}

#[derive(Args, Clone)]
pub struct Deletion {
    #[command(flatten)]
    pub common: Common,
    /// Nodes, each with a disk as fast as the machine
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(10..=64))]
    pub disks: u32,
    /// Files that are made, and removed, in a round
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(8..=64))]
    pub files: u32,
    /// Rounds in which files are removed
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Bytes of a file [default: 2MiB, with --quick 512KiB]
    #[arg(long, value_parser = size)]
    pub file: Option<u64>,
    /// What `--clean-at` of `weir reduce` is set to, percent, besides 0, 50 and 100
    /// [default: 0,13,25,38,50,63,75,88,100, with --quick 0,25,50,75,100]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(..=100))]
    pub clean_at: Vec<u8>,
}

impl Deletion {
    pub fn file(&self) -> u64 {
        self.file.unwrap_or(if self.common.quick { 512 << 10 } else { 2 << 20 })
    }

    pub fn percents(&self) -> Vec<u8> {
        let wanted = match (&*self.clean_at, self.common.quick) {
            ([], true) => &[25, 75][..],
            ([], false) => &[13, 25, 38, 63, 75, 88],
            (percents, _) => percents,
        };
        // At once, the default, and never: these are compared.
        let all: BTreeSet<u8> = wanted.iter().chain(&[0, 50, 100]).copied().collect();
        all.into_iter().collect()
    }
}

/// Files that get parities after a while. Here `--trials` is 1 if nothing is said, and `--rate` 2 MiB.
#[derive(Args, Clone)]
pub struct EncodeDelay {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(6..=64))]
    pub disks: u32,
    /// Processes that read, one file after another
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub readers: u32,
    /// Bytes of a file
    #[arg(long, value_parser = size, default_value = "8MiB")]
    pub file: u64,
    /// Seconds from one file to the next
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub period: u64,
    /// Seconds that stand for an hour: the mean age at which new files are read
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub hour: u64,
    /// Seconds of a run [default: 150, with --quick 90]
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    pub run: Option<u64>,
    /// Seconds until files are encoded [default: 0,15,30,60,3600, with --quick 0,60,3600]
    #[arg(long, value_delimiter = ',')]
    pub delays: Vec<u64>,
}

impl EncodeDelay {
    pub fn trials(&self) -> u32 {
        self.common.trials.unwrap_or(1)
    }

    /// What a disk gives.
    pub fn rate(&self) -> u64 {
        self.common.rate.unwrap_or(2 << 20)
    }

    pub fn file(&self) -> u64 {
        self.file
    }

    pub fn period(&self) -> Duration {
        Duration::from_secs(self.period)
    }

    pub fn hour(&self) -> Duration {
        Duration::from_secs(self.hour)
    }

    pub fn run(&self) -> Duration {
        Duration::from_secs(self.run.unwrap_or(if self.common.quick { 90 } else { 150 }))
    }

    pub fn delays(&self) -> Vec<Duration> {
        let seconds = match (&*self.delays, self.common.quick) {
            ([], true) => &[0, 60, 3600][..],
            ([], false) => &[0, 15, 30, 60, 3600],
            (delays, _) => delays,
        };
        seconds.iter().copied().map(Duration::from_secs).collect()
    }

    /// When files are encoded with each delay that ends within a run: what is read from then on
    /// counts.
    pub fn counted_from(&self) -> Duration {
        let run = self.run();
        self.delays().into_iter().filter(|delay| *delay < run).max().unwrap_or_default()
    }
}

/// Copies and parities side by side. Here `--trials` is 1 if nothing is said, and `--rate` 8 MiB.
#[derive(Args, Clone)]
pub struct Redundancy {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(7..=64))]
    pub disks: u32,
    /// Bytes of the file [default: 128MiB, with --quick 48MiB]
    #[arg(long, value_parser = size)]
    pub file: Option<u64>,
}

impl Redundancy {
    pub fn trials(&self) -> u32 {
        self.common.trials.unwrap_or(1)
    }

    /// What a disk gives, and takes.
    pub fn rate(&self) -> u64 {
        self.common.rate.unwrap_or(8 << 20)
    }

    pub fn file(&self) -> u64 {
        self.file.unwrap_or(if self.common.quick { 48 << 20 } else { 128 << 20 })
    }
}
