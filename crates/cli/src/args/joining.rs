//! Command lines of the commands for clusters of several machines.

use super::choices::ClusterChoice;
use crate::text::parse_domain;
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;

/// Print what another machine needs to join this cluster
#[derive(Args)]
#[command(after_help = "It is one line, for one machine, and a secret: who has it can use the \
    cluster and be that data server. Hand it on over a safe way, such as\n  \
    weir invite | ssh node2 weir join --data /disk\n`weir server remove` takes the server out of \
    the cluster again, and its key. For a disk that has failed of a machine that has joined:\n  \
    weir invite --replace 3 | ssh node2 weir join --data /newdisk\nThat waits until the new target \
    is there, and takes the old one out. If it was interrupted, give it once more.")]
pub struct Invite {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of targets (disks) of the machine; 0: it only mounts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=256))]
    pub targets: u32,
    /// Replace this target of a machine that has joined, because its disk has failed
    #[arg(long, value_name = "TARGET", conflicts_with = "targets")]
    pub replace: Option<u32>,
    /// With --replace: do not ask, although files may lose their last bytes with the target
    #[arg(long, short, requires = "replace")]
    pub yes: bool,
    /// Address by which the machine reaches this one [default: the one of `weir up --listen`, if
    /// that is not a loopback address]
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// Write the invitation to this file (mode 0600) [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Join a cluster whose metadata server is on another machine, with disks of this one
#[derive(Args)]
#[command(after_help = "It reads what `weir invite` has printed there from standard input. \
    Afterwards `weir mount`, `weir status`, `weir up` and `weir down` work here as there. On a machine \
    that has joined it takes what `weir invite --replace` prints: a target in place of one whose disk \
    has failed.")]
pub struct Join {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// A directory for each target of the invitation, on a disk of its own; it is made
    #[arg(long, value_name = "DIR")]
    pub data: Vec<PathBuf>,
    /// Read the invitation from this file [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub invitation: Option<PathBuf>,
    /// Listen on this address of this machine [default: the one by which it reaches the cluster]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<IpAddr>,
    /// Listen on this TCP port [default: the one after the metadata server's, or a free one if
    /// that is taken]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Failure domain of this machine: what fails together with others, such as their rack
    #[arg(long, value_parser = parse_domain, value_name = "NAME")]
    pub domain: Option<String>,
    /// Serve metrics for Prometheus at this address of this machine [default if given without
    /// one: 127.0.0.1], on the port after that of the data server
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1")]
    pub metrics: Option<IpAddr>,
}
