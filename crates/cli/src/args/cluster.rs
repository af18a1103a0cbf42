//! Command lines of the commands for the cluster of this machine.

use super::choices::{ClientChoice, ClusterChoice};
use crate::text::{ByteSize, parse_domain, parse_size};
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;
use weir_wire::Level;

/// Start a cluster on this machine: make it, or start the daemons that are not running
#[derive(Args)]
pub struct Up {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of targets, in the state directory [default: 4; 1 with --listen on an address that
    /// other machines reach]
    #[arg(long, env = "WEIR_TARGETS", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub targets: Option<u32>,
    /// A directory for each target, on a disk of its own; it is made
    #[arg(long, value_name = "DIR")]
    pub data: Vec<PathBuf>,
    /// Copies of new files, each on a target of its own, unless a directory says otherwise
    /// [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=8), value_name = "N")]
    pub copies: Option<u8>,
    /// Targets that one data server process serves [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub targets_per_server: Option<u32>,
    /// Number of metadata servers. One of them leads; more than one share a journal on etcd, which
    /// must be installed and is started with them [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=7), value_name = "N")]
    pub meta: Option<u32>,
    /// Mount the file system here; the directory is made if it is missing
    #[arg(long, env = "WEIR_MOUNT", value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Listen on this address of this machine; other machines can connect if it
    /// is not a loopback address [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<IpAddr>,
    /// Listen on this TCP port and the ones after it [default: free ones; 7700 with --listen on an
    /// address that other machines reach]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Serve metrics for Prometheus at this address of this machine [default if given without an
    /// address: 127.0.0.1], each daemon and mount on a port of its own. The daemons of an existing
    /// cluster are restarted for it, one after the other
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1")]
    pub metrics: Option<IpAddr>,
    /// How much all connections are protected at least: args (requests against changes), data (file
    /// data, too) or private (everything encrypted) [default: args]. The metadata servers of an
    /// existing cluster are restarted for it
    #[arg(long, value_name = "LEVEL", value_parser = Level::parse)]
    pub protection: Option<Level>,
    /// Failure domain of this machine: the name of what fails together with it, such as its rack
    #[arg(long, value_parser = parse_domain, value_name = "NAME")]
    pub domain: Option<String>,
    /// Default stripe unit of new files [default: 64K]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub unit: Option<ByteSize>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Stop the cluster of `weir up`
#[derive(Args)]
pub struct Down {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Also delete the cluster with all its files; directories given with --data stay, and are
    /// listed
    #[arg(long)]
    pub purge: bool,
    /// Do not ask before deleting
    #[arg(long, short)]
    pub yes: bool,
    /// Unmount even if the mount is in use, and kill daemons that do not stop
    #[arg(long, short)]
    pub force: bool,
}

/// Move copies so that targets use space evenly
#[derive(Args)]
pub struct Rebalance {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Move copies until no target's use differs from the mean by more than this percentage of its
    /// space
    #[arg(long, value_name = "PERCENT", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    pub within: u8,
    /// Stop moving copies
    #[arg(long)]
    pub stop: bool,
    /// Show the progress, and wait until the moves have ended
    #[arg(long, conflicts_with = "stop")]
    pub wait: bool,
}

/// Show servers, targets, space and problems
#[derive(Args)]
pub struct Status {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Also show the counters of each server
    #[arg(long)]
    pub counters: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
