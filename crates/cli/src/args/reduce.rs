//! Erasure codes over plain directories.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use weir_layout::set::SetCode;

/// What there is to do with directories of copied files.
#[derive(Subcommand)]
pub enum Reduce {
    /// Join files to sets, write their parities, and remove copies
    #[command(after_help = "Files of one relative path in several directories are copies of each \
        other. raid6 and rs keep one copy of each file, raid5-mirror two; each needs as many \
        copies before. A set with files that were written since is made anew. It may be stopped \
        at any time, and goes on when it is run again.\n\n  \
        weir reduce encode --code raid6 /disk0 /disk1 .. /disk9")]
    Encode(ReduceEncode),
    /// Show how much there is, without reading it
    Status(ReduceShow),
    /// Read everything in sets, and compare it with what was encoded
    #[command(after_help = "Exit code: 0 all is as it was encoded; 1 something is not.")]
    Verify(ReduceWork),
    /// Make anew what is missing or rotten
    #[command(
        after_help = "Give an empty directory in place of one that is lost: it takes the number of \
        the lost one, so mount all disks before. Files that were written since they were encoded \
        are left as they are. Exit code: 0 nothing is wrong any more; 1 something is left."
    )]
    Repair(ReduceWork),
}

#[derive(Args)]
pub struct ReduceEncode {
    /// raid6, raid6:16, raid5-mirror, raid5-mirror:16 or rs:8+3; sets have 8 files unless it says
    /// otherwise
    #[arg(long, value_name = "CODE", default_value = "raid6")]
    pub code: SetCode,
    /// A file of a set that was removed on purpose, by its path in the directories: it does not
    /// come back (may be given several times)
    #[arg(long, value_name = "FILE")]
    pub forget: Vec<String>,
    #[command(flatten)]
    pub work: ReduceWork,
}

#[derive(Args)]
pub struct ReduceWork {
    #[command(flatten)]
    pub show: ReduceShow,
    /// No progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args)]
pub struct ReduceShow {
    /// All directories of the tree: each counts as a node, so give one for each disk or machine
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
