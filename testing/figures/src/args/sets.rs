//! Experiments with sets of erasure codes.

use super::{Common, size};
use clap::Args;

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
