//! Command lines of the commands for data servers and targets.

use super::choices::{ClientChoice, ClusterChoice};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Add, drain and remove data servers
#[derive(Subcommand)]
pub enum Server {
    /// Show the data servers with their targets
    #[command(visible_alias = "ls")]
    List(ServerList),
    /// Add a data server on this machine to a cluster of `weir up`
    Add(ServerAdd),
    /// Put nothing new on the targets of a server, and move away what they have
    Drain(ServerDrain),
    /// Use the targets of a server again
    Undrain(ServerChoice),
    /// Take a server with its targets out of the cluster for good
    #[command(visible_alias = "rm")]
    Remove(ServerRemove),
}

#[derive(Args)]
pub struct ServerList {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = "Of another machine: `weir key server`. If it is interrupted, the next \
    `weir up`, `weir server add` or `weir target add` finishes it or takes it back.")]
pub struct ServerAdd {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Directory of one of its targets, once for each; made if it is missing
    #[arg(long = "target-dir", value_name = "DIR", conflicts_with = "targets")]
    pub target_dirs: Vec<PathBuf>,
    /// Number of targets in the state directory [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub targets: Option<u32>,
    /// Listen on this TCP port [default: a free one; the next one in a cluster that listens for other
    /// machines]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

#[derive(Args)]
pub struct ServerChoice {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Number of the server, as `weir server list` shows it
    pub server: u32,
}

#[derive(Args)]
pub struct ServerDrain {
    #[command(flatten)]
    pub choice: ServerChoice,
    /// Wait until no file has a copy there, and show the progress
    #[arg(long)]
    pub wait: bool,
}

#[derive(Args)]
pub struct ServerRemove {
    #[command(flatten)]
    pub choice: ServerChoice,
    /// Remove it although files have copies there, which are lost: `weir fsck` lists the losses
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// Show, make, add, drain, remove and replace targets
#[derive(Subcommand)]
pub enum Target {
    /// Show the targets, as `weir targets` does
    #[command(visible_alias = "ls")]
    List(Targets),
    /// Make a directory a target
    Create(TargetCreate),
    /// Give a data server another target
    Add(TargetAdd),
    /// Put nothing new on a target, and move away what it has
    Drain(TargetDrain),
    /// Use a target again that was drained
    Undrain(TargetChoice),
    /// Take a target out of the cluster for good
    #[command(visible_alias = "rm")]
    Remove(TargetRemove),
    /// Replace a target whose disk has failed by a new one
    Replace(TargetReplace),
}

#[derive(Args)]
#[command(
    after_help = "A server of this machine is started anew with it. If that is interrupted, \
    the next `weir up`, `weir server add` or `weir target add` finishes it or takes it back. For \
    one of another machine keys are written, and what to do there is printed."
)]
pub struct TargetAdd {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of the server, as `weir server list` shows it
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub server: u32,
    /// Its directory; made if it is missing. Several: as many targets [default: one in the
    /// state directory]
    #[arg(long = "target-dir", value_name = "DIR")]
    pub target_dirs: Vec<PathBuf>,
    /// Directory to write keys for a server of another machine to; it is made
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

#[derive(Args)]
pub struct TargetDrain {
    #[command(flatten)]
    pub choice: TargetChoice,
    /// Wait until no file has a copy there, and show the progress
    #[arg(long)]
    pub wait: bool,
}

#[derive(Args)]
#[command(after_help = "The new one gets another number. What the old one had is made anew from \
    other copies; what only it had is lost, and is named first. One whose disk has not failed is \
    drained instead.")]
pub struct TargetReplace {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of the target whose disk has failed
    pub target: u32,
    /// Directory of the new one; made if it is missing [default: one in the state directory]
    #[arg(long, value_name = "DIR")]
    pub target_dir: Option<PathBuf>,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Args)]
pub struct TargetChoice {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Number of the target, as `weir targets` shows it
    pub target: u32,
}

#[derive(Args)]
pub struct TargetRemove {
    #[command(flatten)]
    pub choice: TargetChoice,
    /// Remove it although files have copies there, which are lost: `weir fsck` lists the losses
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// Show what each disk does now, and which disk delays the others
#[derive(Args)]
#[command(
    after_help = "READ/S and WRITE/S: bytes for clients in a second; QUEUE: requests that wait for the \
    disk; MS/MIB: how long the disk takes for a MiB while it has something to read. On a terminal, and \
    without -n, keys: q ends it, t, r, w and s order disks by target, what is read and written, and \
    slowness, space stops it, arrows scroll. Below are the processes of jobs that read."
)]
pub struct Top {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Seconds between two samples
    #[arg(long, short = 'd', default_value_t = 1.0, value_name = "SECONDS", value_parser = interval)]
    pub interval: f64,
    /// End after this many samples [default: continue until Ctrl-C]
    #[arg(long, short = 'n', value_name = "N")]
    pub count: Option<u32>,
    /// Print JSON, an array for each sample
    #[arg(long)]
    pub json: bool,
}

/// The time between two samples.
pub(super) fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds, from 0.1 to 3600".to_owned()),
    }
}

/// Show the targets with their states and what they lack
#[derive(Args)]
pub struct Targets {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct TargetCreate {
    /// The directory; it is made if it is missing
    pub dir: PathBuf,
    /// Number of the target
    #[arg(long)]
    pub target: u32,
    /// Number of the server that will serve it
    #[arg(long)]
    pub server: u32,
    /// The cluster's identity: 32 hexadecimal digits, as `weir key server` prints them
    #[arg(long, value_name = "ID")]
    pub cluster_id: String,
}
