//! Commands for jobs.

use super::choices::ClientChoice;
use super::members::interval;
use clap::Args;
use std::ffi::OsString;
use weir_client::job::Partition;

/// Run a program as a job, whose processes should finish at the same time
#[derive(Args)]
#[command(
    after_help = "The processes that mpirun, srun and torchrun start are recognised as a job with \
        ranks. `weir run` gives the job a name (the same on every node), or starts the processes \
        itself. Mounts notice the job when a file is opened; data servers then serve the process \
        first that is furthest behind.\n\n  weir run --job sort -n 4 -- sh -c 'wc \
        /mnt/weir/part.$WEIR_RANK'\n  mpirun -n 8 weir run --job train --shared -- ./train \
        /mnt/weir/all.bin"
)]
pub struct Run {
    /// Name of the job, the same on every node [default: a new one with -n, else that of the
    /// launcher]
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    /// Start this many processes and wait for all of them
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "rank",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub processes: Option<u32>,
    /// Rank of this process, if no launcher gives it
    #[arg(long, value_name = "RANK", requires_all = ["ranks", "job"])]
    pub rank: Option<u32>,
    /// Number of processes of the job
    #[arg(long, value_name = "N", requires = "rank",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// Each process reads only its share of a file
    #[arg(long)]
    pub shared: bool,
    /// This process reads only these ranges of a file, as offset+length
    #[arg(long, value_name = "0+64M,1G+64M", conflicts_with_all = ["shared", "processes"])]
    pub ranges: Option<Partition>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// Show the progress of the processes of jobs, and which disk delays them
#[derive(Args)]
#[command(
    after_help = "For each process: the share of its work that is done, its present speed, the \
        share of bytes from other copies than the first and from disks of its own machine, and its \
        expected end. Without a name, all \
        jobs that are reading.\n\n  weir explain\n  weir explain sort --json"
)]
pub struct Explain {
    /// Name of the job (of `weir run --job`, started by the same user), or its number
    #[arg(value_name = "JOB")]
    pub job: Option<String>,
    /// Seconds between the two samples from which speeds are computed
    #[arg(long, short = 'd', default_value_t = 1.0, value_name = "SECONDS", value_parser = interval)]
    pub interval: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub client: ClientChoice,
}
