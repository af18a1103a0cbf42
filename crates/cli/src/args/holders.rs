//! Command lines of the commands that show connections and locks.

use super::choices::ClientChoice;
use clap::{Args, ValueEnum};
use std::ffi::OsString;

/// The state of a client's session
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StandingChoice {
    /// The client was heard from within the lease time
    Live,
    /// The client was not heard from; its locks and leases are revoked when another client needs
    /// them
    Silent,
    /// A lock or lease of the client was revoked, and the client does not know yet
    CutOff,
}

/// Show the connected mounts and programs
#[derive(Args)]
#[command(
    after_help = "One line for each mount and each running command. A killed one is `silent` after \
        10 s; its locks and leases are then free for others. It is gone after 30 s (`lease_ms` and \
        `session_timeout_ms` of the metadata server). For administrators."
)]
pub struct Clients {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Only those on this machine
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Only those with this number or name of the key, as `weir key list` shows them
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Only programs with this text in their name, such as `mount` or a mountpoint
    #[arg(long, value_name = "TEXT")]
    pub program: Option<String>,
    /// Only those in this state
    #[arg(long, value_name = "STANDING")]
    pub standing: Option<StandingChoice>,
    /// Show at most this many
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What is held on a file
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HoldChoice {
    /// A lock of fcntl(2)
    Posix,
    /// A lock of flock(2)
    Flock,
    /// A lease: the right to cache the file or to write it later
    Lease,
}

/// Show who holds, or waits for, which locks and leases on which files
#[derive(Args)]
#[command(after_help = "The process is the one that asked for the lock, on the machine of its \
    mount. Leases are the rights of mounts to cache files; they need no attention. For \
    administrators.\n\n  weir locks weir:/mail/inbox\n  weir locks --waiting")]
pub struct Locks {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Only on these files
    pub paths: Vec<OsString>,
    /// Only of this kind
    #[arg(long, value_name = "KIND")]
    pub kind: Option<HoldChoice>,
    /// Only locks that are waited for
    #[arg(long)]
    pub waiting: bool,
    /// Only those of clients on this machine
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Only those of this session, as `weir clients` shows it
    #[arg(long, value_name = "NUMBER")]
    pub session: Option<u64>,
    /// Show at most this many
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
