//! What the daemons have said.

use super::ClientChoice;
use crate::log::since::Since;
use clap::Args;

/// Show what the daemons and mounts of this machine have logged
#[derive(Args)]
#[command(
    after_help = "Without names: all daemons of the cluster on this machine, with its mounts. With \
    --credential: all mounts here of clusters elsewhere. Times are UTC. `weir log -f -n 0` shows \
    what is said from now on."
)]
pub struct Log {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Of these only: meta, data-3, data (all data servers), mount (all mounts), or a mountpoint
    #[arg(value_name = "DAEMON")]
    pub daemons: Vec<String>,
    /// Go on, and show what is said from now on
    #[arg(long, short)]
    pub follow: bool,
    /// The last so many lines only
    #[arg(long, short = 'n', value_name = "NUMBER", visible_alias = "tail")]
    pub lines: Option<usize>,
    /// From then on: 10m, 2h, 3d (ago), 14:30 (today), YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SS
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    pub since: Option<Since>,
    /// Print each line as a JSON object
    #[arg(long)]
    pub json: bool,
}
