//! The flags that choose a cluster.

use clap::Args;
use std::path::PathBuf;

/// The flags that choose a cluster. Flags take precedence over the environment, and the environment
/// over the configuration file.
// Each flag has the heading itself: one for the struct would also apply to the flags after it.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterChoice {
    /// Name of a cluster made by `weir up` on this machine [default: default]
    #[arg(long = "name", visible_alias = "cluster", env = "WEIR_CLUSTER", value_name = "NAME")]
    #[arg(help_heading = "Which cluster")]
    pub name: Option<String>,
    /// The cluster's state directory [default: /var/lib/weir/NAME, or ~/.local/state/weir/NAME]
    #[arg(long, env = "WEIR_DIR", value_name = "DIR", help_heading = "Which cluster")]
    pub dir: Option<PathBuf>,
    /// Configuration file [default: ~/.config/weir/config.toml, then /etc/weir/config.toml]
    #[arg(long, env = "WEIR_CONFIG", value_name = "FILE", help_heading = "Which cluster")]
    pub config: Option<PathBuf>,
}

/// The flags that choose a cluster for clients: by name, directory or credential.
#[derive(Args, Clone, Debug, Default)]
pub struct ClientChoice {
    #[command(flatten)]
    pub cluster: ClusterChoice,
    /// Credential file of a client, for clusters elsewhere [default, if there is no cluster here:
    /// ~/.config/weir/client.toml, then /etc/weir/client.toml]
    #[arg(long, env = "WEIR_CREDENTIAL", value_name = "FILE", help_heading = "Which cluster")]
    pub credential: Option<PathBuf>,
}
