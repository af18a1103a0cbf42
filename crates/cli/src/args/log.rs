//! Command line of `weir log`.

use super::choices::ClientChoice;
use crate::log::since::Since;
use clap::Args;

/// Show the logs of the daemons and mounts on this machine
#[derive(Args)]
#[command(
    after_help = "Without names: all daemons of the cluster on this machine, and its mounts. With \
        --credential: all mounts on this machine of clusters elsewhere. Times are UTC. `weir log \
        -f -n 0` shows only new lines."
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
}
