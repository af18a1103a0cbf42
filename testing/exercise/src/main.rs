//! `weir-exercise`: the exercises, by hand, on any directory.

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_exercise::concurrent::{self, Kind, Launcher, Plan};
use weir_exercise::{Outcome, fsx, seed_of_run, tree};

/// Exercises for a POSIX file system, on one directory or on several that are
/// mounts of the same
#[derive(Parser)]
#[command(name = "weir-exercise", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One file against an array of bytes
    Fsx {
        /// Seed that repeats the steps of a run
        #[arg(long)]
        seed: Option<u64>,
        /// Number of calls
        #[arg(long, default_value_t = 2000)]
        steps: u64,
        /// Require that writes through mmap are seen by other mounts before msync
        #[arg(long)]
        unsynced_maps: bool,
        /// Mounts of one file system
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
    },
    /// A tree of names against a model and a local directory
    Tree {
        /// Seed that repeats the calls of a run
        #[arg(long)]
        seed: Option<u64>,
        /// Number of calls
        #[arg(long, default_value_t = 2000)]
        steps: u64,
        /// A directory on another file system, for comparison
        #[arg(long, default_value = "/tmp")]
        local: PathBuf,
        /// Mounts of one file system
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
    },
    /// Many concurrent callers: blocks, appends, names and sizes
    Concurrent {
        /// Seed that repeats the choices of a run
        #[arg(long)]
        seed: Option<u64>,
        /// Number of processes
        #[arg(long, default_value_t = 2)]
        processes: u32,
        /// Threads of each process
        #[arg(long, default_value_t = 3)]
        threads: u32,
        /// Operations of each thread
        #[arg(long, default_value_t = 300)]
        operations: u32,
        /// Longest rest after an operation, microseconds
        #[arg(long, default_value_t = 200)]
        rest_us: u64,
        /// Mounts of one file system
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    let done = match concurrent::run_worker_if_asked() {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => run(Arguments::parse().command),
        Err(e) => Err(e),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Fsx { seed, steps, unsynced_maps, dirs } => {
            let seed = seed.unwrap_or_else(seed_of_run);
            let options = fsx::Options { unsynced_maps, ..fsx::Options::new(seed) };
            println!("seed {seed}");
            let report = fsx::run(&dirs, &format!("fsx-{seed}"), &options, |n| n < steps)?;
            println!("{} calls, {} not supported", report.steps, report.refused);
        }
        Command::Tree { seed, steps, local, dirs } => {
            let seed = seed.unwrap_or_else(seed_of_run);
            println!("seed {seed}");
            let name = format!("tree-{seed}");
            let calls = tree::run(&dirs, &local, &name, seed, |n| n < steps)?;
            println!("{calls} calls");
        }
        Command::Concurrent { seed, processes, threads, operations, rest_us, dirs } => {
            let seed = seed.unwrap_or_else(seed_of_run);
            println!("seed {seed}");
            let program = std::env::current_exe().map_err(|e| e.to_string())?;
            let scratch = std::env::temp_dir();
            let launcher =
                Launcher { program, arguments: Vec::new(), environment: Vec::new(), scratch };
            let plan = Plan { seed, processes, threads, operations, rest_us };
            for kind in Kind::ALL {
                let name = format!("{kind:?}-{seed}").to_lowercase();
                let report = concurrent::run(kind, &dirs, &name, &plan, &launcher)?;
                println!("{kind:?}: {report:?}");
            }
        }
    }
    Ok(())
}
