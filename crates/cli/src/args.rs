//! The command line: names and flags follow cp, ls, df, mount and kubectl.

use crate::output::{ByteSize, parse_size};
use clap::builder::ArgAction;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

/// Weir: a parallel file system that keeps its pace
#[derive(Parser)]
#[command(name = "weir", version = crate::version::LINE, propagate_version = true)]
#[command(after_help = "Start with: weir up --mount /tmp/weir")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a cluster on this machine, or what of it does not run
    Up(Up),
    /// Stop the cluster of `weir up`
    Down(Down),
    /// Show servers, targets, space, and what is wrong
    Status(Status),
    /// Run a data server in the foreground
    Data(Daemon),
    /// Run a metadata server in the foreground; save and restore what it keeps
    Meta(Meta),
    /// Mount the file system
    Mount(Mount),
    /// Unmount it
    #[command(alias = "unmount")]
    Umount(Umount),
    /// Copy files into, out of, or within the cluster
    Cp(Cp),
    /// Print files
    Cat(Cat),
    /// List directories
    #[command(disable_help_flag = true)]
    Ls(Ls),
    /// Show what is known of files
    Stat(Stat),
    /// Remove files
    Rm(Rm),
    /// Make directories
    Mkdir(Mkdir),
    /// Show where the bytes of a file lie
    Layout(Layout),
    /// Show the space of each target
    #[command(disable_help_flag = true)]
    Df(Df),
    /// Make an empty file with a layout of its own
    Mkfile(MkFile),
    /// Set the default layout of a directory or the layout of an empty file; without a layout, show it
    Setlayout(SetLayout),
    /// Verify all data and metadata against their checksums
    Scrub(Scrub),
    /// Check that names, files and objects belong together
    Fsck(Fsck),
    /// Run whole clusters on simulated machines, and make go wrong what can
    Sim(Sim),
    /// Compute how long data lasts, for layouts, codes, protocols and rebuild speeds
    Reliability(Box<crate::reliability::arguments::Reliability>),
    /// Make keys for clients and servers
    #[command(subcommand)]
    Key(Key),
    /// Make targets for data servers that `weir up` did not make
    #[command(subcommand)]
    Target(Target),
}

/// Which cluster. Flags win over the environment, which wins over the
/// configuration file.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which cluster")]
pub struct ClusterChoice {
    /// Name of a cluster made by `weir up` on this machine [default: default]
    #[arg(long = "name", visible_alias = "cluster", env = "WEIR_CLUSTER", value_name = "NAME")]
    pub name: Option<String>,
    /// Its state directory [default: /var/lib/weir/NAME, or ~/.local/state/weir/NAME]
    #[arg(long, env = "WEIR_DIR", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Configuration file [default: ~/.config/weir/config.toml, then /etc/weir/config.toml]
    #[arg(long, env = "WEIR_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Which cluster, for clients: by name, directory or credential.
#[derive(Args, Clone, Debug, Default)]
pub struct ClientChoice {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Credential file of a client, for clusters elsewhere
    #[arg(long, env = "WEIR_CREDENTIAL", value_name = "FILE", help_heading = "Which cluster")]
    pub credential: Option<PathBuf>,
}

/// Run whole clusters on simulated machines, and make go wrong what can
#[derive(Args)]
pub struct Sim {
    /// The (first) seed [default: a random one, which is shown]
    #[arg(long, env = "WEIR_SEED")]
    pub seed: Option<u64>,
    /// Run so many seeds, one after the other, in processes of their own
    #[arg(long, value_name = "N")]
    pub seeds: Option<u64>,
    /// How long things go wrong in each run, simulated: 20s, 500ms, 2m
    #[arg(long, default_value = "20s", value_parser = crate::sim::parse_duration)]
    pub duration: std::time::Duration,
    /// Run each seed twice: both must do the same
    #[arg(long)]
    pub verify_determinism: bool,
    /// Plant a bug (in builds with debug assertions)
    #[arg(long, value_name = "BUG")]
    pub plant: Option<String>,
    /// List the bugs that can be planted
    #[arg(long)]
    pub list_bugs: bool,
    /// Run the plan in this file, as a failing run has written it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds"])]
    pub plan: Option<PathBuf>,
    /// Show a failure as it is, without making it smaller
    #[arg(long)]
    pub no_shrink: bool,
    /// Go on with the other seeds after a failure
    #[arg(long)]
    pub keep_going: bool,
    /// Processes at a time
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub jobs: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Run the seeds in this process and print a line of JSON for each
    #[arg(long, hide = true)]
    pub child: bool,
}

/// Start a cluster on this machine, or what of it does not run
#[derive(Args)]
pub struct Up {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of targets [default: 4]
    #[arg(long, env = "WEIR_TARGETS", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub targets: Option<u32>,
    /// Targets that one data server process serves [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub targets_per_server: Option<u32>,
    /// Mount the file system here; the directory is made if it is missing
    #[arg(long, env = "WEIR_MOUNT", value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Listen on this address of this machine; other machines can connect if it
    /// is not a loopback address
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub listen: IpAddr,
    /// Listen on this TCP port and the ones after it [default: free ones]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
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
    /// Also delete the cluster with all its files
    #[arg(long)]
    pub purge: bool,
    /// Do not ask before deleting
    #[arg(long, short)]
    pub yes: bool,
    /// Unmount even if the mount is in use, and kill what does not stop
    #[arg(long, short)]
    pub force: bool,
}

/// Show servers, targets, space, and what is wrong
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

/// Run a server in the foreground
#[derive(Args)]
pub struct Daemon {
    /// Its configuration (docs/operating.md describes it)
    #[arg(long, env = "WEIR_CONFIG", value_name = "FILE")]
    pub config: PathBuf,
    #[command(flatten)]
    pub detach: Detach,
}

/// Run a metadata server in the foreground; save and restore what it keeps
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

/// What there is to do with metadata.
#[derive(Subcommand)]
pub enum MetaCommand {
    /// Save all metadata to a file, while the cluster runs
    Export(MetaExport),
    /// Make a metadata directory from a saved file
    Import(MetaImport),
}

/// Save all metadata to a file, while the cluster runs
#[derive(Args)]
#[command(after_help = "It holds names, attributes and layouts as they were at one moment; no \
    data and no keys. It needs an administrator's credential, such as the one that `weir up` made.")]
pub struct MetaExport {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Where to; `-`: standard output
    #[arg(default_value = "-")]
    pub file: PathBuf,
}

/// Make a metadata directory from a saved file
#[derive(Args)]
#[command(after_help = "The new directory takes the place of the lost one (`dir` in the \
    configuration of the metadata server); the master key stays the same.")]
pub struct MetaImport {
    /// The directory to make; it must be missing or empty
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// The saved file; `-`: standard input
    pub file: PathBuf,
}

/// How a program of ours starts a daemon of ours.
#[derive(Args, Clone, Copy, Debug)]
pub struct Detach {
    /// Leave the terminal's session and report on standard output
    #[arg(long, hide = true)]
    pub detached: bool,
}

/// Mount the file system
#[derive(Args)]
pub struct Mount {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The directory to mount on
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
    /// Where it is mounted
    pub mountpoint: PathBuf,
    /// Detach it now even if it is in use, and clean up when it no longer is
    #[arg(long, short)]
    pub lazy: bool,
}

/// Copy files into, out of, or within the cluster
#[derive(Args)]
#[command(after_help = "Names in the cluster are written weir:/path, or weir://NAME/path for \
    another cluster on this machine; `-` is standard input or output.\n\n  \
    weir cp -r data weir:/data\n  weir cp weir:/data/a.csv - | head")]
pub struct Cp {
    #[command(flatten)]
    pub client: ClientChoice,
    /// What to copy, and last where to
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... DESTINATION")]
    pub paths: Vec<OsString>,
    /// Copy directories with all that is in them
    #[arg(long, short, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Keep mode, times and, as root, owners
    #[arg(long, short)]
    pub preserve: bool,
    /// Files copied at the same time
    #[arg(long, short, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// No progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// Print files
#[derive(Args)]
pub struct Cat {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The files
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// List directories
#[derive(Args)]
pub struct Ls {
    #[command(flatten)]
    pub client: ClientChoice,
    /// What to list
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
    /// Kind, mode, links, owner, size and time of each
    #[arg(short)]
    pub long: bool,
    /// Also names that begin with a dot
    #[arg(short, long)]
    pub all: bool,
    /// Also what is in the directories below
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Directories themselves instead of what is in them
    #[arg(short, long)]
    pub directory: bool,
    /// Sizes as 1.5K, 20M, 3G
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: (),
}

/// Show what is known of files
#[derive(Args)]
pub struct Stat {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The files
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Remove files
#[derive(Args)]
pub struct Rm {
    #[command(flatten)]
    pub client: ClientChoice,
    /// What to remove
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Remove directories with all that is in them
    #[arg(long, short, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Do not complain about what does not exist
    #[arg(long, short)]
    pub force: bool,
}

/// Make directories
#[derive(Args)]
pub struct Mkdir {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The directories
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Make those above it too; no complaint if it exists
    #[arg(long, short)]
    pub parents: bool,
    /// Permissions, octal
    #[arg(long, short, value_parser = parse_mode, default_value = "755")]
    pub mode: u16,
}

/// Show where the bytes of a file lie
#[derive(Args)]
pub struct Layout {
    #[command(flatten)]
    pub client: ClientChoice,
    /// A file of a mounted Weir, or weir:/path
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show the space of each target
#[derive(Args)]
pub struct Df {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Sizes as 1.5K, 20M, 3G
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: (),
}

/// The families of layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// Round robin over targets (PVFS)
    Striped,
    /// One piece per target, in order (River)
    Fragments,
    /// Pieces of equal size on random targets (HDFS)
    Chunked,
}

/// A layout, as flags.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Layout")]
pub struct LayoutFlags {
    /// The family
    #[arg(long, value_enum)]
    pub layout: Option<Family>,
    /// Striped: bytes on one target before the next; a multiple of 4K [default: 64K]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub unit: Option<ByteSize>,
    /// Number of targets [default: all]
    #[arg(long)]
    pub count: Option<u16>,
    /// Index of the first target in target order [default: chosen for balance]
    #[arg(long)]
    pub base: Option<u32>,
    /// Chunked: bytes of a chunk. Fragments: bytes of each [default: 64M]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub chunk: Option<ByteSize>,
    /// Fragments: the size of each, in order, as in 1M,2M,4M
    #[arg(long, value_parser = parse_size, value_delimiter = ',', value_name = "SIZE,...")]
    pub sizes: Vec<ByteSize>,
}

/// Make an empty file with a layout of its own
#[derive(Args)]
pub struct MkFile {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The new files
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    #[command(flatten)]
    pub layout: LayoutFlags,
}

/// Set the default layout of a directory or the layout of an empty file
#[derive(Args)]
pub struct SetLayout {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Directories or empty files
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    #[command(flatten)]
    pub layout: LayoutFlags,
    /// Back to what the directory above says
    #[arg(long)]
    pub inherit: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Verify all data and metadata against their checksums
#[derive(Args)]
#[command(
    after_help = "Exit code 1 if anything is wrong. It needs an administrator's credential, \
    such as the one that `weir up` made."
)]
pub struct Scrub {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Targets to verify, by number [default: all, and the metadata]
    pub targets: Vec<u32>,
    /// Verify at most so many bytes of each target in a second
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub limit: Option<ByteSize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// No progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// Check that names, files and objects belong together
#[derive(Args)]
#[command(after_help = "Exit codes are those of fsck(8) and add up: 0 all is well, 1 repaired, \
    4 something is wrong, 8 something could not be looked at. It needs an administrator's \
    credential, such as the one that `weir up` made.")]
pub struct Fsck {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Remove objects that no file has, and raise sizes to what the objects hold
    #[arg(long)]
    pub repair: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// No progress line
    #[arg(long, short)]
    pub quiet: bool,
}

/// Make keys for clients and servers
#[derive(Subcommand)]
pub enum Key {
    /// Write a new client credential, restricted if asked for
    #[command(visible_alias = "create")]
    New(KeyNew),
    /// List the keys of clients and what they may do
    List(KeyList),
    /// Refuse a client's key from now on
    Revoke(KeyRevoke),
    /// Write keys and configuration of a further data server, on this machine or another
    Server(KeyServer),
}

#[derive(Args)]
pub struct KeyServer {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of the new server
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub server: u32,
    /// Numbers of its targets, as in 5,6
    #[arg(long, required = true, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub targets: Vec<u32>,
    /// Where it will listen
    #[arg(long, default_value = "0.0.0.0:7701", value_name = "ADDRESS:PORT")]
    pub listen: String,
    /// Directory to write to; it is made
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
}

/// Make targets
#[derive(Subcommand)]
pub enum Target {
    /// Make a directory a target
    Create(TargetCreate),
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

#[derive(Args)]
pub struct KeyNew {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Its name, by which `list` shows it and `revoke` finds it
    #[arg(value_name = "NAME")]
    pub key_name: Option<String>,
    /// It may change nothing
    #[arg(long)]
    pub read_only: bool,
    /// Directory of the cluster that is its root; it can reach nothing else
    #[arg(long, value_name = "PATH")]
    pub subtree: Option<String>,
    /// Whose users count as the anonymous one: root's, or all
    #[arg(long, value_enum)]
    pub squash: Option<SquashChoice>,
    /// The anonymous user [default: 65534]
    #[arg(long, value_name = "UID", requires = "squash")]
    pub anon_uid: Option<u32>,
    /// The anonymous group [default: 65534]
    #[arg(long, value_name = "GID", requires = "squash")]
    pub anon_gid: Option<u32>,
    /// Where to write it (mode 0600) [default: clients/NAME.toml in the state directory]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What it is for, for people
    #[arg(long, default_value = "")]
    pub note: String,
}

/// Which callers are squashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SquashChoice {
    /// The superuser
    Root,
    /// Everyone
    All,
}

#[derive(Args)]
pub struct KeyRevoke {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Its name, or the number of its client
    pub key: String,
}

#[derive(Args)]
pub struct KeyList {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn parse_mode(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("not an octal mode: try 755".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
