//! Commands for files, named as those of every Unix.

use super::ClientChoice;
use crate::output::{ByteSize, parse_size};
use clap::builder::ArgAction;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// What cp keeps of a file beside its bytes
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kept {
    /// All mode bits
    Mode,
    /// Owner and group, as root
    Ownership,
    /// Times of access and change
    Timestamps,
    /// Names of one file stay names of one file
    Links,
    /// Extended attributes and access control lists, where both ends have them
    Xattr,
    /// All of these
    All,
}

/// Copy files into, out of, or within the cluster
#[derive(Args)]
#[command(after_help = "Names in the cluster are written weir:/path, or weir://NAME/path for \
    another cluster on this machine; `-` is standard input or output. Holes stay holes. A file \
    has its name when it is complete, and replaces what has that name; until then it is called \
    .weir-cp-..., beside it.\n\n  \
    weir cp -r data weir:/data\n  weir cp -aT --resume data weir:/data\n  \
    weir cp weir:/data/a.csv - | head")]
pub struct Cp {
    #[command(flatten)]
    pub client: ClientChoice,
    /// What to copy, and last where to
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... DESTINATION")]
    pub paths: Vec<OsString>,
    /// Copy directories with all that is in them
    #[arg(long, short, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Keep these; -p, and without a list: mode, ownership and timestamps
    #[arg(long, short, num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    #[arg(default_missing_value = "mode,ownership,timestamps", value_name = "LIST")]
    pub preserve: Vec<Kept>,
    /// As -r --preserve=all
    #[arg(long, short)]
    pub archive: bool,
    /// Go on with a copy that came to no end: leave out files that are there with the same size
    /// and time, and compare what is there of others; sets times, so that the next run can, too
    #[arg(long, visible_alias = "continue")]
    pub resume: bool,
    /// The destination is what the source becomes, also if it is a directory that exists
    #[arg(long, short = 'T')]
    pub no_target_directory: bool,
    /// Make each file durable before it has its name, and in the end everything
    #[arg(long)]
    pub fsync: bool,
    /// Files copied at the same time
    #[arg(long, short, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// No progress bar, and nothing said of what --resume found
    #[arg(long, short)]
    pub quiet: bool,
}

/// Write records whose order does not matter to whichever disks take them
#[derive(Args)]
#[command(
    after_help = "The output is a directory of plain files, fragments, of one disk each. Every disk \
    gets as much as it can write, and a slow one holds nobody up; who reads all fragments has each \
    record once. Several processes may write to one directory: each is called by its rank in its \
    job, or by --writer. One has at most 64 batches, and 512 MiB, under way; of more disks than that \
    some are left out, by chance.\n\n  \
    zcat logs/*.gz | weir spread weir:/logs\n  \
    mpirun -n 8 sh -c './simulate | weir spread --record 64 weir:/states'"
)]
pub struct Spread {
    /// Where fragments are made; made itself if it is missing
    pub directory: OsString,
    /// What to write; `-`, or nothing: standard input
    pub files: Vec<PathBuf>,
    /// Records of so many bytes each [default: lines]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub record: Option<ByteSize>,
    /// What its fragments are called: part-NAME-0000 and so on [default: the rank, or 0]
    #[arg(long, value_name = "NAME")]
    pub writer: Option<String>,
    /// Batches under way to each disk
    #[arg(long, default_value_t = 2, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    pub credits: u32,
    /// Bytes of a batch, which is durable when it counts as written
    #[arg(long, default_value = "1M", value_name = "SIZE", value_parser = parse_size)]
    pub batch: ByteSize,
    /// No progress bar
    #[arg(long, short)]
    pub quiet: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub client: ClientChoice,
}

/// Print what nobody else of the job has printed, until all files are read
#[derive(Args)]
#[command(
    after_help = "The processes of a job read the files together: each block is printed by one of them, \
    in no order, and it does not matter by which. Each reads from the disks of its own machine; what \
    a slow disk cannot give in time comes from those that have copies of it, so that all end together. \
    A directory stands for the files in it. Which process of how many this is, a launcher says, or \
    `weir run`. What they have taken is kept in a file .weir-take-NUMBER, which the last one removes.\n\n  \
    weir run -n 4 -- sh -c 'weir take weir:/in | sort > part.$WEIR_RANK'\n  \
    mpirun -n 8 sh -c 'weir take --record 64 weir:/states | ./train'"
)]
pub struct Take {
    /// What to read: files, and directories of files
    #[arg(required = true)]
    pub files: Vec<OsString>,
    /// A name for what is read together, where one job reads several times [default: the job]
    #[arg(long, short, value_name = "NAME")]
    pub job: Option<String>,
    /// Bytes that are taken at once, rounded to where records begin
    #[arg(long, default_value = "4M", value_name = "SIZE", value_parser = parse_size)]
    pub block: ByteSize,
    /// Records of so many bytes each [default: lines]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub record: Option<ByteSize>,
    /// The directory for what is taken [default: that of the first file]
    #[arg(long, value_name = "DIR")]
    pub state: Option<OsString>,
    /// In the end say on standard error what was taken, as JSON
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
    /// What to list
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
    /// Kind, mode, links, owner, size and time of each
    #[arg(short)]
    pub long: bool,
    /// Also names that begin with a dot
    #[arg(short, long)]
    pub all: bool,
    /// Also what is in the directories below
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Directories themselves instead of what is in them
    #[arg(short, long)]
    pub directory: bool,
    /// Sizes as 1.5K, 20M, 3G
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: (),
}

/// Show what is known of files
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
    /// What to remove
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Remove directories with all that is in them
    #[arg(long, short, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Do not complain about what does not exist
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
    /// Make those above it too; no complaint if it exists
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
