//! Command lines of the commands for keys of clients and servers.

use super::choices::ClusterChoice;
use crate::text::parse_domain;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Make keys for clients and servers
#[derive(Subcommand)]
pub enum Key {
    /// Write a new client credential, restricted if asked for
    #[command(visible_alias = "create")]
    New(KeyNew),
    /// List the keys of clients and what they may do
    #[command(visible_alias = "ls")]
    List(KeyList),
    /// Refuse a client's key from this moment on
    #[command(visible_aliases = ["remove", "rm"])]
    Revoke(KeyRevoke),
    /// Sign capabilities with new working keys from this moment on
    Rotate(KeyRotate),
    /// Write keys and configuration for another data server, on this machine or elsewhere
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
    /// Address on which it will listen
    #[arg(long, default_value = "0.0.0.0:7701", value_name = "ADDRESS:PORT")]
    pub listen: String,
    /// Failure domain of the server: the name of what fails together with it, such as its rack
    #[arg(long, value_parser = parse_domain, value_name = "NAME")]
    pub domain: Option<String>,
    /// Directory to write to; it is made
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
}

#[derive(Args)]
pub struct KeyNew {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Name of the key, for `list` and `revoke`
    #[arg(value_name = "NAME")]
    pub key_name: Option<String>,
    /// Permit no changes
    #[arg(long)]
    pub read_only: bool,
    /// Directory of the cluster that is the root for this key; nothing else can be reached
    #[arg(long, value_name = "PATH")]
    pub subtree: Option<String>,
    /// Users that are mapped to the anonymous user: root, or all
    #[arg(long, value_enum)]
    pub squash: Option<SquashChoice>,
    /// The anonymous user [default: 65534]
    #[arg(long, value_name = "UID", requires = "squash")]
    pub anon_uid: Option<u32>,
    /// The anonymous group [default: 65534]
    #[arg(long, value_name = "GID", requires = "squash")]
    pub anon_gid: Option<u32>,
    /// File to write (mode 0600) [default: clients/NAME.toml in the state directory]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Purpose of the key, for people
    #[arg(long, default_value = "")]
    pub note: String,
}

/// The users that are mapped to the anonymous user.
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
    /// Name of the key, or number of its client
    pub key: String,
}

#[derive(Args)]
pub struct KeyRotate {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Number of the target whose earlier keys become invalid
    #[arg(long, value_name = "N", required_unless_present = "all", conflicts_with = "all")]
    pub target: Option<u32>,
    /// The earlier keys of all targets become invalid
    #[arg(long)]
    pub all: bool,
    /// Replace the own key of the target, too, from which its working keys follow: its data server
    /// gets a new one, and then the rotation follows
    #[arg(long)]
    pub own: bool,
    /// Invalidate the earlier keys at once, as after a theft, and not when the capabilities that
    /// they signed have expired
    #[arg(long)]
    pub now: bool,
}

#[derive(Args)]
pub struct KeyList {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
