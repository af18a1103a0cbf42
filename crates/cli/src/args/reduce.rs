//! Erasure codes over plain directories.

use crate::reliability::units::parse_hours;
use clap::{ArgGroup, Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use weir_layout::set::SetCode;

/// What there is to do with directories of copied files.
#[derive(Subcommand)]
pub enum Reduce {
    /// Join files to sets, write their parities, and remove copies
    #[command(after_help = "Files of one relative path in several directories are copies of each \
        other. raid6 and rs keep one copy of each file, raid5-mirror two; each needs as many \
        copies before. A set with files that were written since is made anew. It may be stopped \
        at any time, and goes on when it is run again.\n\n  \
        weir reduce encode --code raid6 /disk0 /disk1 .. /disk9\n  \
        weir reduce encode --after 1d /disk0 /disk1 .. /disk9    (each hour, from a timer)")]
    Encode(ReduceEncode),
    /// Remove files: their names at once, their bytes when enough of their set is removed
    #[command(
        after_help = "A file that is removed by other means looks like a lost one, and comes \
        back. The others of its set are decoded with its bytes: these stay until `weir reduce \
        encode` cleans the set. A file in no set is gone at once.\n\n  \
        weir reduce remove --file data/old /disk0 /disk1 .. /disk9\n  \
        weir reduce encode --clean-at 0% /disk0 /disk1 .. /disk9    (its bytes, now)"
    )]
    Remove(ReduceRemove),
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
#[command(group(ArgGroup::new("waits").args(["after", "clean_at"]).multiple(true)))]
pub struct ReduceEncode {
    /// raid6, raid6:16, raid5-mirror, raid5-mirror:16 or rs:8+3; sets have 8 files unless it says
    /// otherwise
    #[arg(long, value_name = "CODE", default_value = "raid6")]
    pub code: SetCode,
    /// A file of a set that was removed on purpose, by its path in the directories: it does not
    /// come back (may be given several times)
    #[arg(long, value_name = "FILE")]
    pub forget: Vec<String>,
    /// Leave files as copies that were changed within this time, as 30m, 12h or 7d: new files are
    /// read most. Those with too few copies to bear what the code does are encoded all the same
    #[arg(long, value_parser = parse_after, value_name = "TIME", default_value = "0s")]
    pub after: Duration,
    /// Clean sets of which so much was removed with `weir reduce remove`: what is left of them goes
    /// into new sets. Those with removed files that are lost besides are cleaned all the same
    #[arg(long, value_parser = parse_percent, value_name = "PERCENT", default_value = "50%")]
    pub clean_at: u8,
    /// With --after or --clean-at: but encode files, and clean sets, that have a part on a file
    /// system with less than this free
    #[arg(long, value_parser = parse_percent, value_name = "PERCENT", default_value = "10%",
          requires = "waits")]
    pub low: u8,
    #[command(flatten)]
    pub work: ReduceWork,
}

#[derive(Args)]
pub struct ReduceRemove {
    /// The file, by its path in the directories (may be given several times)
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
    /// All directories of the tree: each counts as a node, so give one for each disk or machine
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
