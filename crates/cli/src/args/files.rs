//! Command lines of the commands for files, named as on every Unix.

use super::choices::ClientChoice;
use crate::text::{ByteSize, parse_size};
use clap::builder::ArgAction;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// What cp keeps of a file besides its bytes
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kept {
    /// All mode bits
    Mode,
    /// Owner and group, if run as root
    Ownership,
    /// Times of last access and last change
    Timestamps,
    /// Hard links among the copied files
    Links,
    /// Extended attributes and access control lists, if both file systems support them
    Xattr,
    /// All of these
    All,
}

/// Copy files into, out of, or within the cluster
#[derive(Args)]
#[command(after_help = "Names in the cluster are written weir:/path, or weir://NAME/path for \
    another cluster on this machine; `-` is standard input or output. Holes stay holes. A file \
    gets its name, and replaces an existing file, only when it is complete; until then it is \
    called .weir-cp-... in the same directory.\n\n  weir cp -r data weir:/data\n  weir cp -aT \
    --resume data weir:/data\n  weir cp weir:/data/a.csv - | head")]
pub struct Cp {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The sources, and last the destination
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... DESTINATION")]
    pub paths: Vec<OsString>,
    /// Copy directories with their contents
    #[arg(long, short, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Keep these attributes; -p, or without a list: mode, ownership and timestamps
    #[arg(long, short, num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    #[arg(default_missing_value = "mode,ownership,timestamps", value_name = "LIST")]
    pub preserve: Vec<Kept>,
    /// The same as -r --preserve=all
    #[arg(long, short)]
    pub archive: bool,
    /// Continue an interrupted copy: skip files that exist with the same size and time, and compare
    /// the existing bytes of others; sets times, so that the next run can continue too
    #[arg(long, visible_alias = "continue")]
    pub resume: bool,
    /// Make the destination a copy of the source even if it is an existing directory
    #[arg(long, short = 'T')]
    pub no_target_directory: bool,
    /// Make each file durable before it gets its name, and everything at the end
    #[arg(long)]
    pub fsync: bool,
    /// Number of files copied at the same time
    #[arg(long, short, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Show no progress bar, and do not report what --resume found
    #[arg(long, short)]
    pub quiet: bool,
}

/// Write records, in any order, to those disks that accept them first
#[derive(Args)]
#[command(
    after_help = "The output is a directory of plain files (fragments), each on one disk. Every \
        disk gets as much as it can write, so a slow disk delays nobody. Together the fragments \
        have each record once. Several processes can write to one directory; each is identified by \
        its rank in the job, or by --writer. A process has at most 64 batches and 512 MiB in \
        flight; with more disks than that, it uses a random selection of them.\n\n  zcat logs/*.gz \
        | weir spread weir:/logs\n  mpirun -n 8 sh -c './simulate | weir spread --record 64 \
        weir:/states'"
)]
pub struct Spread {
    /// Directory for the fragments; it is made if it is missing
    pub directory: OsString,
    /// Files to write; `-`, or none: standard input
    pub files: Vec<PathBuf>,
    /// Bytes of each record [default: records are lines]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub record: Option<ByteSize>,
    /// NAME in the names of its fragments, part-NAME-0000 and so on [default: the rank, or 0]
    #[arg(long, value_name = "NAME")]
    pub writer: Option<String>,
    /// Number of batches being written to each disk
    #[arg(long, default_value_t = 2, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    pub credits: u32,
    /// Bytes of a batch; a batch counts as written when it is durable
    #[arg(long, default_value = "1M", value_name = "SIZE", value_parser = parse_size)]
    pub batch: ByteSize,
    /// No progress bar
    #[arg(long, short)]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub client: ClientChoice,
}

/// Print those parts of files that no other process of the job prints
#[derive(Args)]
#[command(
    after_help = "The processes of a job read the files together: each block is printed by exactly \
        one of them, in no particular order. Each process reads from the disks of its own machine. \
        Blocks that a slow disk cannot deliver in time are read from other copies, so that all \
        processes end together. A directory stands for the files in it. The rank and the number of \
        processes come from a launcher or from `weir run`. The taken blocks are recorded in a file \
        .weir-take-NUMBER, which the last process removes.\n\n  weir run -n 4 -- sh -c 'weir take \
        weir:/in | sort > part.$WEIR_RANK'\n  mpirun -n 8 sh -c 'weir take --record 64 \
        weir:/states | ./train'"
)]
pub struct Take {
    /// Files to read, and directories of files
    #[arg(required = true)]
    pub files: Vec<OsString>,
    /// A name for this reading, if a job reads several times [default: the job]
    #[arg(long, short, value_name = "NAME")]
    pub job: Option<String>,
    /// Bytes that a process takes at a time, rounded to beginnings of records
    #[arg(long, default_value = "4M", value_name = "SIZE", value_parser = parse_size)]
    pub block: ByteSize,
    /// Bytes of each record [default: records are lines]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub record: Option<ByteSize>,
    /// Directory for the record of what is taken [default: that of the first file]
    #[arg(long, value_name = "DIR")]
    pub state: Option<OsString>,
    /// At the end, print on standard error what was taken, as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub client: ClientChoice,
}

/// Print files
#[derive(Args)]
pub struct Cat {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The files
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// List directories
#[derive(Args)]
pub struct Ls {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Files and directories to list
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
    /// Show kind, mode, links, owner, size and time of each file
    #[arg(short)]
    pub long: bool,
    /// Also show names that begin with a dot
    #[arg(short, long)]
    pub all: bool,
    /// Also list subdirectories
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// List directories themselves instead of their contents
    #[arg(short, long)]
    pub directory: bool,
    /// Show sizes as 1.5K, 20M, 3G
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: (),
}

/// Show the attributes of files
#[derive(Args)]
pub struct Stat {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The files
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Remove files
#[derive(Args)]
pub struct Rm {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Files to remove
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Remove directories with their contents
    #[arg(long, short, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Ignore files that do not exist
    #[arg(long, short)]
    pub force: bool,
}

/// Make directories
#[derive(Args)]
pub struct Mkdir {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The directories
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Also make missing parents; no error if a directory exists
    #[arg(long, short)]
    pub parents: bool,
    /// Permissions, octal
    #[arg(long, short, value_parser = parse_mode, default_value = "755")]
    pub mode: u16,
}

fn parse_mode(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("not an octal mode: try 755".to_owned()),
    }
}
