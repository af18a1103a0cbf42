//! Command lines of the daemons in the foreground, of mounts and of metadata backups.

use super::choices::{ClientChoice, ClusterChoice};
use crate::mount_options::KNOWN;
use crate::text::{ByteSize, parse_size};
use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Run a server in the foreground
#[derive(Args)]
pub struct Daemon {
    /// Its configuration (docs/operating.md describes it)
    #[arg(long, env = "WEIR_CONFIG", value_name = "FILE")]
    pub config: PathBuf,
    #[command(flatten)]
    pub detach: Detach,
}

/// Run a metadata server in the foreground; save and restore its metadata
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Meta {
    /// Its configuration (docs/operating.md describes it)
    #[arg(long, env = "WEIR_CONFIG", value_name = "FILE", required = true)]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub detach: Detach,
    #[command(subcommand)]
    pub command: Option<MetaCommand>,
}

/// The subcommands of `weir meta`.
#[derive(Subcommand)]
pub enum MetaCommand {
    /// Save all metadata to a file, while the cluster runs
    Export(MetaExport),
    /// Make a metadata directory from a saved file
    Import(MetaImport),
    /// Add metadata servers, which take over when the one that leads dies
    Add(MetaAdd),
    /// Set up the metadata server that `weir meta add --on` has added for this machine
    Join(MetaJoin),
    /// Remove a metadata server
    Remove(MetaRemove),
}

/// Add metadata servers, which take over when the one that leads dies
#[derive(Args)]
#[command(
    after_help = "The cluster must be down (`weir down`). Several metadata servers share a journal \
        on etcd (docs/high-availability.md). Without --on they are on this machine, and etcd, which \
        must be installed, is started with them. With --on they are on other machines: the line that \
        is printed is for `weir meta join` on each, and has the master key."
)]
pub struct MetaAdd {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of metadata servers to add
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=6))]
    pub count: u32,
    /// Add one on another machine, which listens at this address there; several: by commas
    #[arg(long, value_name = "ADDRESS:PORT", value_delimiter = ',', conflicts_with = "count")]
    pub on: Vec<SocketAddr>,
    /// With --on: addresses of etcd on several machines, by commas: http://HOST:PORT
    #[arg(long, value_name = "URLS", value_delimiter = ',', requires = "on")]
    pub etcd: Vec<String>,
    /// With --on: write the line to this file (mode 0600) [default: standard output]
    #[arg(long, short, value_name = "FILE", requires = "on")]
    pub output: Option<PathBuf>,
}

/// Set up the metadata server that `weir meta add --on` has added for this machine
#[derive(Args)]
#[command(
    after_help = "The line that `weir meta add --on` has printed is read from standard input. A \
        machine that has joined the cluster already has to be down (`weir down`). Afterwards `weir \
        up` starts the metadata server with everything else."
)]
pub struct MetaJoin {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Read the line from this file [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub invitation: Option<PathBuf>,
}

/// Remove a metadata server
#[derive(Args)]
#[command(
    after_help = "The cluster must be down (`weir down`). When only the first metadata server is \
        left, the cluster no longer needs etcd."
)]
pub struct MetaRemove {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of the metadata server: 2 for meta-2
    #[arg(value_name = "NUMBER")]
    pub server: u32,
}

/// Save all metadata to a file, while the cluster runs
#[derive(Args)]
#[command(
    after_help = "The file has names, attributes and layouts as they were at one moment, but \
    no data and no keys. Needs an administrator's credential, such as the one that `weir up` made."
)]
pub struct MetaExport {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The file to write; `-`: standard output
    #[arg(default_value = "-")]
    pub file: PathBuf,
}

/// Make a metadata directory from a saved file
#[derive(Args)]
#[command(
    after_help = "The new directory replaces the lost one (`dir` in the configuration of the \
    metadata server); the master key stays the same."
)]
pub struct MetaImport {
    /// The directory to make; it must be missing or empty
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// The saved file; `-`: standard input
    pub file: PathBuf,
}

/// How `weir` starts one of its daemons in the background, and where that daemon logs.
#[derive(Args, Clone, Debug)]
pub struct Detach {
    /// Leave the terminal's session, begin when told to on standard input, and report on
    /// standard output
    #[arg(long, hide = true)]
    pub detached: bool,
    /// Log to this file instead of standard error; it is renamed to FILE.1 when it gets long
    #[arg(long, value_name = "FILE", help_heading = "Log")]
    pub log: Option<PathBuf>,
    /// Maximum size of the log file and FILE.1 together
    #[arg(long, help_heading = "Log", env = "WEIR_LOG_LIMIT", value_name = "SIZE")]
    #[arg(value_parser = parse_size, default_value = "256M")]
    pub log_limit: ByteSize,
}

/// Mount the file system
#[derive(Args)]
#[command(after_help = format!("Mount options: {KNOWN}; and those that /etc/fstab has for every \
    file system. Policies: proportional, primary, halves, skip-hot, graduated, graduated-primary."))]
pub struct Mount {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The directory to mount on; it is made if it is missing
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas: ro, allow_other, nocache, ...
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Stay in the foreground
    #[arg(long, short)]
    pub foreground: bool,
    #[command(flatten)]
    pub detach: Detach,
}

/// Unmount the file system
#[derive(Args)]
pub struct Umount {
    /// The mountpoint
    pub mountpoint: PathBuf,
    /// Detach it now even if it is in use, and clean up when it no longer is
    #[arg(long, short)]
    pub lazy: bool,
}
