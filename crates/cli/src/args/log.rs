//! Command line of `weir log`.

use super::choices::ClientChoice;
use crate::log::since::Since;
use clap::Args;
use std::ffi::OsString;

/// Show the logs of the daemons and mounts on this machine
#[derive(Args)]
#[command(
    after_help = "Without names: all daemons of the cluster on this machine, and its mounts. With \
        --credential: all mounts on this machine of clusters elsewhere. Times are UTC. `weir log \
        -f -n 0` shows only new lines.\n\nAudit records are sums: requests of one kind, by one user \
        in one session, on one file. A server sums up for up to a minute, and has the latest \
        records only (`audit_records` in its configuration)."
)]
pub struct Log {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Only these: meta, data-3, data (all data servers), mount (all mounts), or a mountpoint
    #[arg(value_name = "DAEMON")]
    pub daemons: Vec<String>,
    /// Continue with new lines as they are written
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last lines, this many
    #[arg(long, short = 'n', value_name = "NUMBER", visible_alias = "tail")]
    pub lines: Option<usize>,
    /// Only lines since this time: 10m, 2h, 3d (ago), 14:30 (today), YYYY-MM-DD, or
    /// YYYY-MM-DDTHH:MM:SS
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    pub since: Option<Since>,
    /// Print each line as a JSON object
    #[arg(long)]
    pub json: bool,
    /// Show who did what on files instead: the audit records of all servers, wherever they are
    #[arg(long, conflicts_with_all = ["daemons", "follow"])]
    pub audit: bool,
    /// Only audit records of this file
    #[arg(long, value_name = "PATH", requires = "audit")]
    pub file: Option<OsString>,
    /// Only audit records of this client: the name of its key, or its number
    #[arg(long = "client", value_name = "NAME", requires = "audit")]
    pub by: Option<String>,
}
