//! Options of every experiment on disks.

use super::size::size;
use clap::Args;
use std::io::{Error, Result};
use std::path::PathBuf;

/// What each experiment on disks needs.
#[derive(Args, Clone)]
pub struct Common {
    /// Fewer and smaller rounds
    #[arg(long)]
    pub quick: bool,
    /// Repetitions [default: 5, with --quick 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub trials: Option<u32>,
    /// What a disk gives in a second [default: 20MiB; on machines of a profile, what theirs give]
    #[arg(long, value_parser = size)]
    pub rate: Option<u64>,
    /// What the kernel reads ahead of a disk; the default is that of Linux for disks
    #[arg(long, value_name = "KIB", default_value_t = 128)]
    pub read_ahead_kib: u64,
    /// Where the disks' images are put meanwhile
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub scratch: PathBuf,
    /// Where the results are put
    #[arg(long, value_name = "DIR", default_value = "target/figures")]
    pub out: PathBuf,
    /// Mount options besides, as `tcp` or `consistency=none`
    #[arg(long, value_name = "OPTIONS")]
    pub mount_options: Option<String>,
    /// The `weir` program [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    pub weir: Option<PathBuf>,
}

impl Common {
    /// What a plain disk gives.
    pub fn rate(&self) -> u64 {
        self.rate.unwrap_or(20 << 20)
    }

    pub fn trials(&self) -> u32 {
        self.trials.unwrap_or(if self.quick { 2 } else { 5 })
    }

    /// The program that is measured.
    pub fn weir(&self) -> Result<PathBuf> {
        let path = match &self.weir {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("weir"),
        };
        path.canonicalize().map_err(|e| Error::other(format!("{}: {e}", path.display())))
    }
}
