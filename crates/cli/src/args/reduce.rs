//! Arguments of `weir reduce`: erasure codes over plain directories.

use crate::reliability::units::parse_hours;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use weir_layout::set::SetCode;

/// The subcommands of `weir reduce`.
#[derive(Subcommand)]
pub enum Reduce {
    /// Join files to sets, write their parities, and remove extra copies
    #[command(
        after_help = "Files with the same relative path in several directories are copies of \
        each other. raid6 and rs keep one copy of each file, raid5-mirror two; each file must have \
        that many copies. A set with changed files is made again. The command can be stopped at \
        any time, and continues when it is run again.\n\n  weir reduce encode --code raid6 /disk0 \
        /disk1 .. /disk9\n  weir reduce encode --after 1d /disk0 /disk1 .. /disk9    (each hour, \
        from a timer)"
    )]
    Encode(ReduceEncode),
    /// Remove files: their names at once, their bytes when enough of their set is removed
    #[command(
        after_help = "A file that is removed by other means counts as lost, and is restored. The \
            bytes of a removed file stay until `weir reduce encode` cleans its set, because the \
            other files of the set are decoded with them. A file in no set is removed at \
            once.\n\n  weir reduce remove --file data/old /disk0 /disk1 .. /disk9\n  weir reduce \
            encode --clean-at 0% /disk0 /disk1 .. /disk9    (frees its bytes)"
    )]
    Remove(ReduceRemove),
    /// Show the number of files and sets and their space, without reading the files
    Status(ReduceShow),
    /// Read all sets, and compare them with what was encoded
    #[command(after_help = "Exit code: 0 everything is as it was encoded; 1 something is not.")]
    Verify(ReduceWork),
    /// Restore what is missing or rotten
    #[command(
        after_help = "Give an empty directory in place of a lost one: it takes the lost one's \
            number, so mount all disks first. Files that were written after they were encoded are \
            left as they are. Exit code: 0 nothing is wrong any longer; 1 problems are left."
    )]
    Repair(ReduceWork),
}

#[derive(Args)]
pub struct ReduceEncode {
    /// raid6, raid6:16, raid5-mirror, raid5-mirror:16 or rs:8+3; sets have 8 files unless given
    /// otherwise
    #[arg(long, value_name = "CODE", default_value = "raid6")]
    pub code: SetCode,
    /// A file of a set that was removed on purpose, by its path in the directories: it is not
    /// restored (can be repeated)
    #[arg(long, value_name = "FILE")]
    pub forget: Vec<String>,
    /// Keep files as copies that changed within this time, as 30m, 12h or 7d, because new files are
    /// read most. Files with too few copies to bear as many losses as the code are encoded anyway
    #[arg(long, value_parser = parse_after, value_name = "TIME", default_value = "0s")]
    pub after: Duration,
    /// Clean a set when this percentage of it was removed with `weir reduce remove`: the other
    /// files go into new sets. A set whose removed files are also lost is cleaned anyway
    #[arg(long, value_parser = parse_percent, value_name = "PERCENT", default_value = "50%")]
    pub clean_at: u8,
    /// When less than this percentage of a file system is free, also encode files that --after
    /// keeps, and clean sets that --clean-at keeps
    #[arg(long, value_parser = parse_percent, value_name = "PERCENT", default_value = "10%")]
    pub low: u8,
    #[command(flatten)]
    pub work: ReduceWork,
}

#[derive(Args)]
pub struct ReduceRemove {
    /// The file, by its path in the directories (can be repeated)
    #[arg(long, required = true, value_name = "FILE")]
    pub file: Vec<String>,
    #[command(flatten)]
    pub show: ReduceShow,
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
    /// All directories of the tree. Each counts as a node, so give one for each disk or machine
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub(super) fn parse_after(text: &str) -> Result<Duration, String> {
    let seconds = parse_hours(text)? * 3600.0;
    Duration::try_from_secs_f64(seconds).map_err(|_| "too long: try 7d".to_owned())
}

fn parse_percent(text: &str) -> Result<u8, String> {
    let number =
        text.trim().trim_end_matches('%').parse::<u8>().ok().filter(|number| *number <= 100);
    number.ok_or_else(|| "not a percentage from 0% to 100%: try 10%".to_owned())
}
