//! The command line of `weir reliability`.

use super::units::{parse_annual_rate, parse_code, parse_hours, parse_probability, parse_speed};
use crate::text::{ByteSize, parse_size};
use clap::{Args, ValueEnum};
use weir_reliability::{Cluster, Duplication, Layout, Redundancy, mttf_of_annual_rate};

/// The arguments that describe the cluster and choose the rows. They exclude `--paper`, which has
/// its own.
const CHOICES: [&str; 19] = [
    "nodes",
    "disks_per_node",
    "layout",
    "copies",
    "code",
    "protocol",
    "mttf",
    "afr",
    "node_mttf",
    "node_repair",
    "capacity",
    "rebuild",
    "detect",
    "segment",
    "unreadable",
    "write_every",
    "write_size",
    "duplicate_in",
    "mission",
];

/// Compute how long data lasts, for layouts, codes, protocols and rebuild speeds
#[derive(Args)]
#[command(after_help = "Lists are separated by commas; each combination is a row. Durations are \
    written 40ms, 5s, 10m, 2h, 3d, 1y.\n\n  \
    weir reliability --nodes 100 --disks-per-node 12 --layout random --copies 2,3 --code 8+2\n  \
    weir reliability --layout mirrored --rebuild 50MB/s,200MB/s --detect 5s\n  \
    weir reliability --layout mirrored --protocol server-sync,server-async --write-every 100ms\n\n\
    docs/reliability.md has the models and what they leave out.")]
pub struct Reliability {
    /// Data nodes
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub nodes: u32,
    /// Disks (targets) of each node
    #[arg(long, default_value_t = 4, value_name = "D")]
    pub disks_per_node: u32,
    /// Layouts [default: a choice to compare]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub layout: Vec<LayoutChoice>,
    /// Copies, the first included, of mirrored, chained and random layouts
    #[arg(long, value_delimiter = ',', value_name = "R")]
    pub copies: Vec<u32>,
    /// Codes of striped and random layouts: data and parity fragments, as in 8+2, or a code of
    /// `weir reduce`, as raid6, raid5-mirror or rs:8+3
    #[arg(long, value_delimiter = ',', value_name = "CODE", value_parser = parse_code)]
    pub code: Vec<Redundancy>,
    /// When a write with copies is acknowledged [default: server-sync]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub protocol: Vec<Protocol>,
    /// Mean time until a disk loses its data
    #[arg(long, value_parser = parse_hours, value_name = "TIME", conflicts_with = "afr")]
    pub mttf: Option<f64>,
    /// The fraction of disks that fail in a year
    #[arg(long, value_parser = parse_annual_rate, value_name = "PERCENT", default_value = "4%")]
    pub afr: f64,
    /// Mean time until a node stops (its disks keep their data)
    #[arg(long, value_parser = parse_hours, value_name = "TIME", default_value = "180d")]
    pub node_mttf: f64,
    /// Mean time until a stopped node is back
    #[arg(long, value_parser = parse_hours, value_name = "TIME", default_value = "1h")]
    pub node_repair: f64,
    /// Data on each disk that has to be rebuilt
    #[arg(long, value_parser = parse_size, value_name = "SIZE", default_value = "4TB")]
    pub capacity: ByteSize,
    /// Speed at which a disk reads or writes in a rebuild, as in 100MB/s
    #[arg(long, value_delimiter = ',', value_parser = parse_speed, value_name = "SPEED", default_value = "100MB/s")]
    pub rebuild: Vec<ByteSize>,
    /// Time from a failure to the start of the rebuild
    #[arg(long, value_parser = parse_hours, value_name = "TIME", default_value = "5s")]
    pub detect: f64,
    /// What a random layout places as one: each copy or fragment of a segment
    #[arg(long, value_parser = parse_size, value_name = "SIZE", default_value = "64M")]
    pub segment: ByteSize,
    /// Probability that a bit needed for a rebuild cannot be read, as in 1e-15
    #[arg(long, value_parser = parse_probability, value_name = "P", default_value = "0")]
    pub unreadable: f64,
    /// Asynchronous protocols: mean time between two writes to a primary disk
    #[arg(long, value_parser = parse_hours, value_name = "TIME", default_value = "1s")]
    pub write_every: f64,
    /// Asynchronous protocols: mean size of a write to one disk
    #[arg(long, value_parser = parse_size, value_name = "SIZE", default_value = "4MB")]
    pub write_size: ByteSize,
    /// Asynchronous protocols: how much later the second copy is written
    #[arg(long, value_parser = parse_hours, value_name = "TIME", default_value = "40ms")]
    pub duplicate_in: f64,
    /// The time for which the probability of loss is given
    #[arg(long, value_parser = parse_hours, value_name = "TIME", default_value = "1y")]
    pub mission: f64,
    /// The paper's model and its rows (CEFT-PVFS, 2003) instead
    #[arg(long, conflicts_with_all = CHOICES)]
    pub paper: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How the disks with parts of the same data are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayoutChoice {
    /// Columns on all disks; with a code, on fixed sets of disks
    Striped,
    /// Groups of nodes that are copies of each other
    Mirrored,
    /// Copies on the nodes that follow
    Chained,
    /// Each segment on distinct nodes drawn for it; all disks rebuild
    Random,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// The server writes the copies, then acknowledges
    ServerSync,
    /// The client writes all copies and waits for all
    ClientSync,
    /// The server acknowledges, then writes the copies
    ServerAsync,
    /// The client writes all copies and waits for one
    ClientAsync,
}

impl LayoutChoice {
    /// The layout of the model.
    pub fn layout(self) -> Layout {
        match self {
            Self::Striped => Layout::Striped,
            Self::Mirrored => Layout::Mirrored,
            Self::Chained => Layout::Chained,
            Self::Random => Layout::Random,
        }
    }
}

impl Protocol {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ServerSync => "server-sync",
            Self::ClientSync => "client-sync",
            Self::ServerAsync => "server-async",
            Self::ClientAsync => "client-async",
        }
    }

    /// How long data is on one disk only. If two writes begin together and each takes an
    /// exponentially distributed time, they end apart by the mean of one on average. So the window
    /// is the same for both asynchronous protocols.
    pub fn duplication(self, asked: &Reliability) -> Duplication {
        match self {
            Self::ServerSync | Self::ClientSync => Duplication::Synchronous,
            Self::ServerAsync | Self::ClientAsync => Duplication::Asynchronous {
                write_every_hours: asked.write_every,
                duplicate_hours: asked.duplicate_in,
                write_bytes: asked.write_size.0 as f64,
            },
        }
    }
}

impl Reliability {
    /// The cluster to compute, with this rebuild speed.
    pub fn cluster(&self, rebuild: ByteSize) -> Cluster {
        Cluster {
            nodes: self.nodes,
            disks_per_node: self.disks_per_node,
            disk_mttf_hours: self.mttf.unwrap_or_else(|| mttf_of_annual_rate(self.afr)),
            node_mttf_hours: self.node_mttf,
            node_repair_hours: self.node_repair,
            disk_bytes: self.capacity.0 as f64,
            rebuild_bytes_per_s: rebuild.0 as f64,
            detect_hours: self.detect,
            segment_bytes: self.segment.0 as f64,
            unreadable_per_bit: self.unreadable,
        }
    }
}
