//! Experiments with numbers of servers, rates of links, and the match of paper 0. Each is done
//! once if nothing is said.

use super::lab::Common;
use super::size::size;
use clap::Args;

/// Here `--trials` is 1 if nothing is said, and `--rate` 4 MiB: what waits for more than a second
/// is read twice, where there are two copies.
#[derive(Args, Clone)]
pub struct Servers {
    #[command(flatten)]
    pub common: Common,
    /// Servers, each with a disk, and as many clients [default: 1,2,4,8]
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8],
        value_parser = clap::value_parser!(u32).range(1..=32))]
    pub servers: Vec<u32>,
    /// Bytes of each client's file [default: 48MiB, with --quick 16MiB]
    #[arg(long, value_parser = size)]
    pub file: Option<u64>,
}

impl Servers {
    pub fn trials(&self) -> u32 {
        self.common.trials.unwrap_or(1)
    }

    pub fn servers(&self) -> Vec<u32> {
        self.servers.clone()
    }

    /// What a disk gives, and takes.
    pub fn rate(&self) -> u64 {
        self.common.rate.unwrap_or(4 << 20)
    }

    pub fn file(&self) -> u64 {
        self.file.unwrap_or(if self.common.quick { 16 << 20 } else { 48 << 20 })
    }
}

/// Here `--trials` is 1 if nothing is said, and `--rate` 6 MB.
#[derive(Args, Clone)]
pub struct Links {
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "arkansas")]
    pub profile: String,
    /// Nodes with a disk; all but the first read
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// What links carry each way in a second [default: 1.25, 2.5, 5, 12.5, 50 and 125 MB/s, with
    /// --quick 2.5 and 50]
    #[arg(long, value_delimiter = ',', value_parser = size)]
    pub links: Vec<u64>,
    /// Bytes of the file
    #[arg(long, value_parser = size, default_value = "64MiB")]
    pub file: u64,
}

impl Links {
    pub fn trials(&self) -> u32 {
        self.common.trials.unwrap_or(1)
    }

    /// What a disk gives.
    pub fn rate(&self) -> u64 {
        self.common.rate.unwrap_or(6_000_000)
    }

    pub fn readers(&self) -> u32 {
        self.disks - 1
    }

    pub fn links(&self) -> Vec<u64> {
        match (&*self.links, self.common.quick) {
            ([], true) => vec![2_500_000, 50_000_000],
            ([], false) => {
                vec![1_250_000, 2_500_000, 5_000_000, 12_500_000, 50_000_000, 125_000_000]
            }
            (links, _) => links.to_vec(),
        }
    }
}

/// Here `--trials` is 1 if nothing is said, and `--rate` 5 MiB.
#[derive(Args, Clone)]
pub struct Match {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub disks: u32,
    /// Readers of the records
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub readers: u32,
    /// Customers that records are looked up among [default: 100000, with --quick 20000]
    #[arg(long)]
    pub customers: Option<u64>,
    /// Records [default: 4000, with --quick 1000]
    #[arg(long)]
    pub records: Option<u64>,
}

impl Match {
    pub fn trials(&self) -> u32 {
        self.common.trials.unwrap_or(1)
    }

    /// What a disk gives.
    pub fn rate(&self) -> u64 {
        self.common.rate.unwrap_or(5 << 20)
    }

    pub fn customers(&self) -> u64 {
        self.customers.unwrap_or(if self.common.quick { 20_000 } else { 100_000 })
    }

    pub fn records(&self) -> u64 {
        self.records.unwrap_or(if self.common.quick { 1_000 } else { 4_000 })
    }
}
