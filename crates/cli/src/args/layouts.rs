//! Command lines of the commands for layouts.

use super::choices::ClientChoice;
use super::reduce::parse_after;
use crate::reliability::units::parse_speed;
use crate::text::{ByteSize, parse_size};
use clap::builder::{ArgAction, ArgPredicate};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::time::Duration;
use weir_layout::set::SetCode;

/// Show where the bytes of a file are
#[derive(Args)]
pub struct Layout {
    #[command(flatten)]
    pub client: ClientChoice,
    /// A file of a mounted Weir, or weir:/path
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show the space of each target, and of all disks
#[derive(Args)]
pub struct Df {
    #[command(flatten)]
    pub client: ClientChoice,
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

/// The families of layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// Round robin over targets (PVFS)
    Striped,
    /// One piece per target, in order (River)
    Fragments,
    /// Pieces of equal size on random targets (HDFS)
    Chunked,
}

/// The flags that describe a layout.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Layout")]
pub struct LayoutFlags {
    /// The family
    #[arg(long, value_enum)]
    pub layout: Option<Family>,
    /// Striped: the stripe unit, a multiple of 4K [default: 64K]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub unit: Option<ByteSize>,
    /// Number of targets [default: all]
    #[arg(long)]
    pub count: Option<u16>,
    /// Index of the first target in target order [default: chosen for balance]
    #[arg(long)]
    pub base: Option<u32>,
    /// Chunked: bytes of a chunk. Fragments: bytes of each [default: 64M; graduated: 1M]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub chunk: Option<ByteSize>,
    /// Fragments: the size of each, in order, as in 1M,2M,4M
    #[arg(long, value_parser = parse_size, value_delimiter = ',', value_name = "SIZE,...")]
    pub sizes: Vec<ByteSize>,
    /// Number of copies, each on a server of its own [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..), value_name = "N")]
    pub copies: Option<u8>,
    /// Who writes the copies, and when a write is acknowledged [default: server-sync]
    #[arg(long, value_enum)]
    pub duplication: Option<Protocol>,
    /// Placement of the copies [default: chained; chunked: random]
    #[arg(long, value_enum)]
    pub placement: Option<Places>,
    /// Parities that replace the copies of a striped file that is no longer written: raid6 (two),
    /// raid6:K or rs:K+M (M parities of K columns), raid5-mirror or raid5-mirror:K (one beside two
    /// copies), or none
    #[arg(long, value_parser = parse_reduce, value_name = "CODE")]
    pub reduce: Option<Reduced>,
    /// With --reduce: a file gets parities when it was not written for this long, as in 30m or 7d
    #[arg(long, value_parser = parse_after, value_name = "TIME", requires = "reduce",
          default_value_if("reduce", ArgPredicate::IsPresent, "1h"))]
    pub after: Option<Duration>,
}

/// The parities that replace copies of files which are no longer written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduced {
    /// Number of parities; 0: copies stay.
    pub parities: u8,
    /// Whether two copies stay.
    pub mirrors: bool,
    /// Number of columns, if given.
    pub columns: Option<u16>,
}

fn parse_reduce(text: &str) -> Result<Reduced, String> {
    let usual = |parities, mirrors| Ok(Reduced { parities, mirrors, columns: None });
    match text {
        "none" => return usual(0, false),
        "raid6" => return usual(2, false),
        "raid5-mirror" => return usual(1, true),
        _ => {}
    }
    let code = text.parse::<SetCode>().map_err(|e| e.to_string())?;
    Ok(Reduced {
        parities: code.parities() as u8,
        mirrors: matches!(code, SetCode::Raid5Mirror { .. }),
        columns: Some(code.members() as u16),
    })
}

/// The placement of a file's copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Places {
    /// On the servers after that of the first copy (chained declustering)
    Chained,
    /// Two copies, on two groups of servers: one mirrors the other (CEFT-PVFS)
    Groups,
    /// On random servers (HDFS)
    Random,
    /// Each chunk of a chunked file on the server that is predicted to write it first; further
    /// copies on the servers after it (graduated writing)
    Graduated,
}

/// The duplication protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// The first copy's server writes the others; acknowledged when all copies are written
    ServerSync,
    /// The first copy's server writes the others; acknowledged before they are written
    ServerAsync,
    /// The client writes all copies at once; acknowledged when all are written
    ClientSync,
    /// The client writes all copies at once; acknowledged when the first is written
    ClientAsync,
    /// server-sync if a group has more servers than the file has writers, else client-async
    Hybrid,
}

/// Make an empty file with a layout of its own
#[derive(Args)]
pub struct MkFile {
    #[command(flatten)]
    pub client: ClientChoice,
    /// The new files
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    #[command(flatten)]
    pub layout: LayoutFlags,
}

/// Set the default layout of a directory, the layout of an empty file, or the copies of any file
#[derive(Args)]
pub struct SetLayout {
    #[command(flatten)]
    pub client: ClientChoice,
    /// Directories or files; a file with data accepts only --copies, --duplication, --placement,
    /// --reduce and --after
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    #[command(flatten)]
    pub layout: LayoutFlags,
    /// Use the default layout of the parent directory again
    #[arg(long)]
    pub inherit: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Recommend a stripe unit and a number of targets for the way in which a file is read
#[derive(Args)]
#[command(after_help = "If the rates of link and disks are not given, they are measured with a \
    temporary file of 32 MiB, which the servers have in memory. Give --disk for files that are \
    larger than their memory, and --seek for hard disks.\n\n  weir advise weir:/data --record 838 \
    --records 350 --readers 7 --random\n  weir advise weir:/data/customers.dat --readers 7 \
    --random --try\n\ndocs/jobs.md explains how the advice is computed.")]
pub struct Advise {
    #[command(flatten)]
    pub client: ClientChoice,
    /// A directory, or a file of records; if its lines have equal length, that is the record size
    pub path: OsString,
    /// Bytes of a record [default: those found in the file]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub record: Option<ByteSize>,
    /// Number of records that one call reads
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub records: u32,
    /// Number of concurrent readers
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub readers: u32,
    /// Each call reads at a random place [default: sequentially]
    #[arg(long)]
    pub random: bool,
    /// Readers without read-ahead, as with `weir mount -o read_ahead=0`
    #[arg(long)]
    pub no_cache: bool,
    /// Maximum number of targets to stripe the file over [default: all of the cluster]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub targets: Option<u16>,
    /// Bandwidth of one machine's link, as in 125MB/s [default: measured]
    #[arg(long, value_parser = parse_speed, value_name = "SPEED")]
    pub link: Option<ByteSize>,
    /// Sequential bandwidth of one disk, as in 150MB/s [default: measured]
    #[arg(long, value_parser = parse_speed, value_name = "SPEED")]
    pub disk: Option<ByteSize>,
    /// Seek time of a disk in milliseconds; about 8 for a hard disk
    #[arg(long, default_value_t = 0.0, value_name = "MS", value_parser = parse_milliseconds)]
    pub seek: f64,
    /// Milliseconds from a small request to its reply [default: measured]
    #[arg(long, value_name = "MS", value_parser = parse_milliseconds)]
    pub round_trip: Option<f64>,
    /// Measure the workload on files of the default and the advised layout
    #[arg(long = "try")]
    pub try_it: bool,
    /// Bytes of each file that --try makes
    #[arg(long, value_parser = parse_size, default_value = "64M", value_name = "SIZE",
          requires = "try_it")]
    pub size: ByteSize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn parse_milliseconds(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches("ms").parse() {
        Ok(ms) if (0.0..=60_000.0).contains(&ms) => Ok(ms),
        _ => Err("not a number of milliseconds: try 0.2 or 8".to_owned()),
    }
}
