//! Who is connected, and who holds what.

use super::ClientChoice;
use clap::{Args, ValueEnum};
use std::ffi::OsString;

/// What a client is good for
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StandingChoice {
    /// It was heard of within the lease time
    Live,
    /// It was not: what it holds is taken from it when somebody needs it
    Silent,
    /// Something was taken from it, and it does not know yet
    CutOff,
}

/// Show the mounts and programs that are connected
#[derive(Args)]
#[command(
    after_help = "One line for each mount and each command that runs. One that is killed is \
    `silent` after 10 s, when what it holds is free for who needs it, and gone after 30 s (`lease_ms` \
    and `session_timeout_ms` of the metadata server). For administrators."
)]
pub struct Clients {
    #[command(flatten)]
    pub client: ClientChoice,
    /// On this machine only
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// With this number or name of the key only, as `weir key list` shows them
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Of which the program has this in its name, as `mount`, or a mountpoint
    #[arg(long, value_name = "TEXT")]
    pub program: Option<String>,
    /// Of this standing only
    #[arg(long, value_name = "STANDING")]
    pub standing: Option<StandingChoice>,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What is held of a file
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HoldChoice {
    /// A lock of fcntl(2)
    Posix,
    /// A lock of flock(2)
    Flock,
    /// What a client may keep of the file, or write later
    Lease,
}

/// Show who holds, or waits for, which locks and leases on which files
#[derive(Args)]
#[command(after_help = "The process is the one that asked for the lock, on the machine of its \
    mount. Leases are what mounts keep of files; nobody has to do anything about them. For \
    administrators.\n\n  \
    weir locks weir:/mail/inbox\n  weir locks --waiting")]
pub struct Locks {
    #[command(flatten)]
    pub client: ClientChoice,
    /// On these files only
    pub paths: Vec<OsString>,
    /// Of this kind only
    #[arg(long, value_name = "KIND")]
    pub kind: Option<HoldChoice>,
    /// What is waited for only
    #[arg(long)]
    pub waiting: bool,
    /// Of clients on this machine only
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Of this client only: its session, as `weir clients` shows it
    #[arg(long, value_name = "NUMBER")]
    pub session: Option<u64>,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
