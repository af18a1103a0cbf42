//! Experiments on machines of a profile.

use super::lab::Common;
use super::line::Line;
use super::series::many_calls;
use super::size::size;
use clap::Args;

#[derive(Args, Clone)]
pub struct CallSize {
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "now")]
    pub profile: String,
    /// Nodes, each with a disk and a reader
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Bytes of each reader's file
    #[arg(long, value_parser = size, default_value = "16MiB")]
    pub file: u64,
    /// Bytes of a call [default: 4KiB,16KiB,64KiB,256KiB,1MiB,4MiB, with --quick 4KiB,64KiB,1MiB]
    #[arg(long, value_parser = size, value_delimiter = ',')]
    pub calls: Vec<u64>,
    /// Policies
    #[arg(long, value_enum, value_delimiter = ',',
        default_values = ["primary", "graduated", "graduated-primary", "proportional"])]
    pub lines: Vec<Line>,
}

impl CallSize {
    pub fn calls(&self) -> Vec<u64> {
        many_calls(&self.calls, self.common.quick)
    }
}

/// Clients of what is in the servers' memory, each on a node of its own.
#[derive(Args, Clone)]
pub struct HotClients {
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "prairiefire")]
    pub profile: String,
    /// Nodes with a disk: half of them mirror the others
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// What a link carries each way in a second; the default is a sixteenth of PrairieFire's
    #[arg(long, value_parser = size, default_value = "7720KiB")]
    pub link_rate: u64,
    /// Numbers of clients [default: 1,2,4,8,16, with --quick 1,4,16; mirrored-hot: 1,16]
    #[arg(long, value_delimiter = ',')]
    pub clients: Vec<u32>,
}

impl HotClients {
    /// Those that were asked for; or all, or with `--quick` these.
    pub fn clients(&self, quick: &[u32]) -> Vec<u32> {
        match (&*self.clients, self.common.quick) {
            ([], true) => quick.to_vec(),
            ([], false) => vec![1, 2, 4, 8, 16],
            (clients, _) => clients.to_vec(),
        }
    }
}

#[derive(Args, Clone)]
pub struct MirroredHot {
    #[command(flatten)]
    pub hot: HotClients,
    /// Bytes that each client reads
    #[arg(long, value_parser = size, default_value = "16MiB")]
    pub file: u64,
}

#[derive(Args, Clone)]
pub struct HotNetwork {
    #[command(flatten)]
    pub hot: HotClients,
    /// Bytes that each client reads
    #[arg(long, value_parser = size, default_value = "32MiB")]
    pub file: u64,
    /// Per cent of the loaded link that the perturber sends
    #[arg(long, default_value_t = 75, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub share: u64,
}

/// A client behind a link with a delay.
#[derive(Args, Clone)]
pub struct Delay {
    #[command(flatten)]
    pub common: Common,
    /// Nodes with a disk
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub disks: u32,
    /// What a link carries each way in a second; the default is 1 Gbit/s
    #[arg(long, value_parser = size, default_value = "125000000")]
    pub link_rate: u64,
    /// Bytes of the file
    #[arg(long, value_parser = size, default_value = "512MiB")]
    pub file: u64,
    /// Milliseconds there and back [default: 0,1,10,50,100, with --quick 0,50]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(..=1000))]
    pub round_trips: Vec<u64>,
    /// What the kernel reads ahead
    #[arg(long, value_parser = size, value_delimiter = ',', default_value = "4MiB,8MiB,16MiB")]
    pub windows: Vec<u64>,
    /// By which rule all nodes send, as `bbr` [default: that of this machine]
    #[arg(long)]
    pub congestion: Option<String>,
}

#[derive(Args, Clone)]
pub struct Advice {
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "arkansas")]
    pub profile: String,
    /// What a link carries each way in a second [default: that of the machines]
    #[arg(long, value_parser = size)]
    pub link_rate: Option<u64>,
    /// Nodes with a disk; all but the first read
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Bytes of the file of records
    #[arg(long, value_parser = size, default_value = "32MiB")]
    pub file: u64,
    /// Records of a call [default: 1,10,50,150,350, with --quick 10,150,350]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=350))]
    pub records: Vec<u64>,
    /// Calls of each reader at random (paper: 100,000)
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunks: u64,
}

impl Advice {
    pub fn records(&self) -> Vec<u64> {
        match (&*self.records, self.common.quick) {
            ([], true) => vec![10, 150, 350],
            ([], false) => vec![1, 10, 50, 150, 350],
            (records, _) => records.to_vec(),
        }
    }

    pub fn readers(&self) -> u32 {
        self.disks - 1
    }
}

/// HDFS and Weir on the same nodes.
#[derive(Args, Clone)]
pub struct Hdfs {
    /// Here `--trials` is 1 if nothing is said
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "disc")]
    pub profile: String,
    /// Nodes, each with a disk, servers of both, and a process that searches
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(3..=64))]
    pub nodes: u32,
    /// Bytes of the file for each node (paper: 2 GiB)
    #[arg(long, value_parser = size, default_value = "64MiB")]
    pub share: u64,
    /// Chunks of the file for each node, as in the paper
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub chunks: u64,
    /// What links carry in a second: that of Gigabit Ethernet by the scale of the machines, as
    /// much as disks give, and that of the paper's 10 Gb/s
    #[arg(long, value_delimiter = ',', value_parser = size,
        default_values = ["3571000", "12000000", "35714000"])]
    pub links: Vec<u64>,
    /// Chunks of each node, of further files; none: those are left out
    #[arg(long, num_args = 0.., value_delimiter = ',', default_values_t = [1, 4, 16])]
    pub sweep: Vec<u64>,
}

impl Hdfs {
    pub fn trials(&self) -> u32 {
        self.common.trials.unwrap_or(1)
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.share * u64::from(self.nodes)
    }

    pub fn chunk_bytes(&self) -> u64 {
        self.share / self.chunks
    }

    /// What the slowest links carry: these are the limit.
    pub fn slow_link(&self) -> u64 {
        self.links.iter().copied().min().unwrap_or_default()
    }

    pub fn fast_link(&self) -> u64 {
        self.links.iter().copied().max().unwrap_or_default()
    }
}
