//! Command lines of `weir testbed`.

use super::daemons::Detach;
use crate::text::{ByteSize, parse_size};
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Emulate machines with disks and links of a set speed on this one, for experiments
#[derive(Subcommand)]
#[command(after_help = "Each node is a network namespace behind a link, with a disk and a data \
    server (docs/testbed.md). It needs root.")]
pub enum Testbed {
    /// List the profiles of machines
    Profiles {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make the machines, and start a cluster on them
    Up(TestbedUp),
    /// Show nodes, disks and links with the kernel's counters
    Status(TestbedStatus),
    /// Run a command in the network of a node
    Run(TestbedRun),
    /// Use a share of a disk or link, and report how much that was
    Perturb(TestbedPerturb),
    /// Drop cached file contents, and verify that they are gone
    Cold(TestbedCold),
    /// Remove the testbed
    Down(TestbedChoice),
    /// Serve a disk model
    #[command(hide = true)]
    Disk(TestbedDisk),
}

/// The flags that choose a testbed.
#[derive(Args, Clone, Debug)]
pub struct TestbedChoice {
    /// The directory of the testbed [default: /var/lib/weir/.testbed]
    #[arg(long, env = "WEIR_TESTBED", value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Make the machines, and start a cluster on them
#[derive(Args)]
pub struct TestbedUp {
    /// Name of the profile, as listed by `weir testbed profiles`
    #[arg(default_value = "arkansas")]
    pub profile: String,
    #[command(flatten)]
    pub choice: TestbedChoice,
    /// Nodes with a disk and a data server [default: those of the profile]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub nodes: Option<u32>,
    /// Number of further nodes for clients, without disk and data server; they are numbered after
    /// the others
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub clients: u32,
    /// Speed of each disk, in bytes per second [default: that of the profile]
    #[arg(long, value_parser = rate, value_name = "SIZE")]
    pub disk_rate: Option<ByteSize>,
    /// Speed of each link in each direction, in bytes per second [default: that of the profile]
    #[arg(long, value_parser = rate, value_name = "SIZE")]
    pub link_rate: Option<ByteSize>,
    /// Size of each disk
    #[arg(long, value_parser = parse_size, value_name = "SIZE", default_value = "1G")]
    pub disk_size: ByteSize,
    /// Limit the memory of each node's servers, including the page cache of their reads, to that of
    /// the profile's nodes
    #[arg(long)]
    pub memory: bool,
    /// The kernel's read-ahead for a disk, KiB; the default is Linux's for disks
    #[arg(long, value_name = "KIB", default_value_t = 128)]
    pub read_ahead_kib: u64,
}

/// Show nodes, disks and links with the kernel's counters
#[derive(Args)]
pub struct TestbedStatus {
    #[command(flatten)]
    pub choice: TestbedChoice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Run a command in the network of a node
#[derive(Args)]
#[command(after_help = "`weir` commands there use the testbed's cluster. Files and mounts are \
    shared with the host: weir testbed run 1 -- weir mount /mnt")]
pub struct TestbedRun {
    #[command(flatten)]
    pub choice: TestbedChoice,
    /// Number of the node, from 1
    pub node: u32,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    pub command: Vec<OsString>,
}

/// Use a share of a disk or link, and report how much that was
#[derive(Args)]
#[command(group(clap::ArgGroup::new("of").required(true).args(["disk", "link"])))]
pub struct TestbedPerturb {
    #[command(flatten)]
    pub choice: TestbedChoice,
    /// Read from the disk of this node, bypassing the page cache
    #[arg(long, value_name = "NODE")]
    pub disk: Option<u32>,
    /// Send from this node through its link
    #[arg(long, value_name = "NODE")]
    pub link: Option<u32>,
    /// Share of the rate to use
    #[arg(long, value_parser = share, default_value = "50%")]
    pub share: u64,
    /// Duration in seconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
}

/// Drop cached file contents, and verify that they are gone
#[derive(Args)]
#[command(
    after_help = "Each file is read once, sequentially, in the network of a node, bypassing \
    the page cache. The disks must deliver as many bytes as it has. Then it is dropped again."
)]
pub struct TestbedCold {
    #[command(flatten)]
    pub choice: TestbedChoice,
    /// Files of the cluster, as weir:/path, or `all`: everything on the disks
    #[arg(required = true)]
    pub files: Vec<String>,
    /// The node that reads them
    #[arg(long, default_value_t = 1)]
    pub node: u32,
}

/// Serve a disk model
#[derive(Args)]
pub struct TestbedDisk {
    /// The testbed
    #[arg(long)]
    pub dir: PathBuf,
    /// The number of the node
    #[arg(long)]
    pub node: u32,
    #[command(flatten)]
    pub detach: Detach,
}

fn rate(text: &str) -> Result<ByteSize, String> {
    let rate = parse_size(text)?;
    // A slower disk could not get a file system within an acceptable time.
    if rate.0 >= 100_000 { Ok(rate) } else { Err("no less than 100kB".into()) }
}

fn share(text: &str) -> Result<u64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent @ 1..=100) => Ok(percent),
        _ => Err("1% to 100%".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part_of_a_hundred() {
        assert_eq!((share("50%"), share("7")), (Ok(50), Ok(7)));
        assert!(share("0").is_err() && share("101%").is_err() && share("half").is_err());
    }
}
