//! The experiment that has an NFS server.

use super::lab::Common;
use super::size::size;
use clap::Args;

#[derive(Args, Clone)]
pub struct Nfs {
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "arkansas-heads")]
    pub profile: String,
    /// Figures of the paper [default: all]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=11))]
    pub figures: Vec<u8>,
    /// Numbers of readers [default: 1,2,4,7, with --quick 1,2,7]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=7))]
    pub readers: Vec<u32>,
    /// Records of a call [default: 1,50,150,350]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=350))]
    pub records: Vec<u64>,
    /// Bytes that each reader of NFS reads in order; readers of Weir read twice as much
    #[arg(long, value_parser = size, default_value = "10MiB")]
    pub share: u64,
    /// What a link carries each way in a second [default: that of the machines]
    #[arg(long, value_parser = size)]
    pub link_rate: Option<u64>,
}

impl Nfs {
    pub fn figures(&self) -> Vec<u8> {
        if self.figures.is_empty() { (1..=11).collect() } else { self.figures.clone() }
    }

    pub fn readers(&self) -> Vec<u32> {
        match (&*self.readers, self.common.quick) {
            ([], true) => vec![1, 2, 7],
            ([], false) => vec![1, 2, 4, 7],
            (readers, _) => readers.to_vec(),
        }
    }

    pub fn records(&self) -> Vec<u64> {
        if self.records.is_empty() { vec![1, 50, 150, 350] } else { self.records.clone() }
    }

    /// Once unless said: the grid is large.
    pub fn trials(&self) -> u32 {
        self.common.trials.unwrap_or(1)
    }
}
