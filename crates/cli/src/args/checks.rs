//! Command lines of the commands that look for problems.

use super::choices::ClientChoice;
use crate::text::{ByteSize, parse_size};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Verify all data and metadata against their checksums
#[derive(Args)]
#[command(
    after_help = "Exit code: 0 everything is as it was written, or is repaired or being repaired \
        from other copies; 1 something else is wrong, or the verification is incomplete. Needs an \
        administrator's credential, such as the one that `weir up` made."
)]
pub struct Scrub {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Targets to verify, by number [default: all, the metadata, and parities against columns]
    pub targets: Vec<u32>,
    /// Verify at most this many bytes of each target in a second
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
#[command(after_help = "Exit codes are those of fsck(8) and add up: 0 no problems, 1 repaired, 4 \
    problems are left, 8 something could not be checked. Needs an administrator's credential, such \
    as the one that `weir up` made.")]
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

/// Make files usable again after the last current copy of some bytes is lost for good
#[derive(Args)]
#[command(
    after_help = "Shows what is lost and what is left (older bytes or zeros), and asks. Nothing is \
        given up while copies may come back: bring their targets back, or, if those are lost, \
        remove them from the cluster first (`weir target remove N --force`). `weir fsck` lists the \
        files. The servers log the acceptance. Needs an administrator's credential, such as the \
        one that `weir up` made."
)]
pub struct AcceptLoss {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Files: weir:/path, or paths in a mounted Weir
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Run whole clusters on simulated machines with random faults
#[derive(Args)]
pub struct Sim {
    /// The first seed [default: a random one, which is shown]
    #[arg(long, env = "WEIR_SEED")]
    pub seed: Option<u64>,
    /// Run this many seeds, one after the other, each in a process of its own
    #[arg(long, value_name = "N")]
    pub seeds: Option<u64>,
    /// Duration of the faults in each run, in simulated time: 20s, 500ms, 2m
    #[arg(long, default_value = "20s", value_parser = crate::text::parse_duration)]
    pub duration: std::time::Duration,
    /// Run each seed twice and check that both runs are equal
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
    /// Show a failure as it is, without shrinking its plan
    #[arg(long)]
    pub no_shrink: bool,
    /// Go on with the other seeds after a failure
    #[arg(long)]
    pub keep_going: bool,
    /// Number of processes at the same time
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub jobs: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Run the seeds in this process and print a line of JSON for each
    #[arg(long, hide = true)]
    pub child: bool,
}
