//! Options of the experiment with Spark.

use super::lab::Common;
use super::size::size;
use clap::Args;
use std::path::PathBuf;

/// Spark on the nodes of its data.
#[derive(Args, Clone)]
pub struct Spark {
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "disc")]
    pub profile: String,
    /// Nodes, each with a disk, a data server and a worker of Spark
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    pub nodes: u32,
    /// Bytes of the file for each node
    #[arg(long, value_parser = size, default_value = "64MiB")]
    pub share: u64,
    /// Chunks of the file for each node
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub chunks: u64,
    /// Copies of each chunk
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub copies: u8,
    /// What links carry in a second
    #[arg(long, value_parser = size, default_value = "3571000")]
    pub link: u64,
    /// A Python that has pyspark [default: that of `make test-spark`]
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,
}

impl Spark {
    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.share * u64::from(self.nodes)
    }

    pub fn chunk_bytes(&self) -> u64 {
        self.share / self.chunks
    }
}
