//! Command lines of the commands for clusters of several machines.

use super::choices::ClusterChoice;
use crate::text::parse_domain;
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;

/// Print what another machine needs to join this cluster
#[derive(Args)]
#[command(after_help = "The invitation is one line for one machine, and a secret: whoever has it \
    can use the cluster and be that data server. Pass it on safely, such as\n  weir invite | ssh \
    node2 weir join --data /disk\n`weir server remove` removes the server and its key from the \
    cluster again. To replace a failed disk of a machine in the cluster:\n  weir invite --replace \
    3 | ssh node2 weir join --data /newdisk\nThe command waits until the new target is there, and \
    removes the old one. After an interruption, repeat it.")]
pub struct Invite {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of targets (disks) of the machine; 0: it only mounts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=256))]
    pub targets: u32,
    /// Replace this target of a machine in the cluster, because its disk has failed
    #[arg(long, value_name = "TARGET", conflicts_with = "targets")]
    pub replace: Option<u32>,
    /// With --replace: do not ask, although files may lose their last copy with the target
    #[arg(long, short, requires = "replace")]
    pub yes: bool,
    /// Address at which the machine reaches this one [default: that of `weir up --listen`, unless
    /// it is a loopback address]
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// Write the invitation to this file (mode 0600) [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Join a cluster whose metadata server is on another machine, with disks of this one
#[derive(Args)]
#[command(
    after_help = "The invitation that `weir invite` has printed there is read from standard \
    input. Afterwards `weir mount`, `weir status`, `weir up` and `weir down` work here as there. \
    On a machine that is in the cluster already, it takes the invitation of `weir invite \
    --replace`: a new target for one whose disk has failed."
)]
pub struct Join {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// A directory for each target of the invitation, on a disk of its own; it is made
    #[arg(long, value_name = "DIR")]
    pub data: Vec<PathBuf>,
    /// Read the invitation from this file [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub invitation: Option<PathBuf>,
    /// Listen on this address of this machine [default: the one from which it reaches the cluster]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<IpAddr>,
    /// Listen on this TCP port [default: the one after the metadata server's, or a free one if
    /// that is taken]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Failure domain of this machine: the name of what fails together with it, such as its rack
    #[arg(long, value_parser = parse_domain, value_name = "NAME")]
    pub domain: Option<String>,
    /// Serve metrics for Prometheus at this address of this machine [default if given without an
    /// address: 127.0.0.1], on the port after that of the data server
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1")]
    pub metrics: Option<IpAddr>,
}
