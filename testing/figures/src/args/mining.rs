//! The experiment that mines association rules.

use super::lab::Common;
use super::size::size;
use clap::Args;

#[derive(Args, Clone)]
pub struct Mining {
    /// Here `--trials` is 1 if nothing is said
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "nasd")]
    pub profile: String,
    /// Those on which several streams of one file are compared
    #[arg(long, default_value = "nasd-heads")]
    pub streams_profile: String,
    /// Numbers of drives and clients [default: 1,2,4,6,8, with --quick 1,4,8]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=8))]
    pub drives: Vec<u32>,
    /// Bytes of the file [default: 288MiB, with --quick 96MiB; of several streams a quarter]
    #[arg(long, value_parser = size)]
    pub file: Option<u64>,
    /// Disks and links are slower than those of the machines by this
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub scale: u64,
    /// What the NFS server has of one core, in thousandths
    #[arg(long, default_value_t = 33, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub server_cpu: u32,
}

impl Mining {
    /// In ascending order.
    pub fn drives(&self) -> Vec<u32> {
        let mut drives = match (&*self.drives, self.common.quick) {
            ([], true) => vec![1, 4, 8],
            ([], false) => vec![1, 2, 4, 6, 8],
            (drives, _) => drives.to_vec(),
        };
        drives.sort_unstable();
        drives.dedup();
        drives
    }

    pub fn file(&self) -> u64 {
        self.file.unwrap_or(if self.common.quick { 96 << 20 } else { 288 << 20 })
    }

    pub fn trials(&self) -> u32 {
        self.common.trials.unwrap_or(1)
    }
}
