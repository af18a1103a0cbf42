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
    /// Put nothing new on the targets of a server, and move their data away
    Drain(ServerDrain),
    /// Use the targets of a server again
    Undrain(ServerChoice),
    /// Remove a server with its targets from the cluster for good
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
#[command(after_help = "For another machine: `weir key server`. After an interruption, the next \
    `weir up`, `weir server add` or `weir target add` completes or undoes the change.")]
pub struct ServerAdd {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Directory of a target; it is made if it is missing; can be repeated
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
    /// Remove the server even if files have copies there, which are lost: `weir fsck` lists the
    /// losses
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
    /// Add a target to a data server
    Add(TargetAdd),
    /// Put nothing new on a target, and move its data away
    Drain(TargetDrain),
    /// Use a drained target again
    Undrain(TargetChoice),
    /// Remove a target from the cluster for good
    #[command(visible_alias = "rm")]
    Remove(TargetRemove),
    /// Replace a target whose disk has failed
    Replace(TargetReplace),
}

#[derive(Args)]
#[command(after_help = "A server of this machine is restarted with the new target. After an \
        interruption, the next `weir up`, `weir server add` or `weir target add` completes or \
        undoes the change. For a server of another machine, keys are written, and the steps to \
        take there are printed.")]
pub struct TargetAdd {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of the server, as `weir server list` shows it
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub server: u32,
    /// Directory of the target; it is made if it is missing; can be repeated [default: one in the
    /// state directory]
    #[arg(long = "target-dir", value_name = "DIR")]
    pub target_dirs: Vec<PathBuf>,
    /// Directory for the keys of a server on another machine; it is made
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
#[command(after_help = "The new target gets another number. Data of the old one is rebuilt from \
    other copies. Data without other copies is lost, and is listed first. If the disk has not \
    failed, drain the target instead.")]
pub struct TargetReplace {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of the target whose disk has failed
    pub target: u32,
    /// Directory of the new target; it is made if it is missing [default: one in the state
    /// directory]
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
    /// Remove the target even if files have copies there, which are lost: `weir fsck` lists the
    /// losses
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// Show the present work of each disk, and which disk delays the others
#[derive(Args)]
#[command(
    after_help = "READ/S and WRITE/S: bytes per second for clients; QUEUE: requests that wait for \
        the disk; MS/MIB: milliseconds per MiB while the disk has something to read. On a \
        terminal, and without -n, keys: q quits; t, r, w and s sort the disks by target, bytes \
        read, bytes written and slowness; space pauses; arrows scroll. Below are the processes of \
        jobs that are reading."
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
