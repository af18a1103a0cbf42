//! The command line.

use crate::failure::{Done, Failure};
use crate::ways::{Row, Via};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Measure Weir beside the limits of this machine
#[derive(Parser)]
#[command(version, about)]
pub struct Arguments {
    /// Smaller and fewer runs: less than four minutes in all
    #[arg(long)]
    pub quick: bool,
    /// Only these rows (can be repeated)
    #[arg(long, value_enum, value_name = "ROW")]
    pub only: Vec<Row>,
    /// Only these ways, for example for a profile (can be repeated)
    #[arg(long, value_enum, value_name = "WAY")]
    pub way: Vec<Via>,
    /// Only the machine's limits, without a cluster
    #[arg(long)]
    pub limits: bool,
    /// Bytes of the file [default: 2GiB, with --quick 512MiB]
    #[arg(long, value_parser = parse_size)]
    pub size: Option<u64>,
    /// Measured rounds of each series [default: 5, with --quick 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: Option<u32>,
    /// Files created, stated and removed in each round [default: 10000, with --quick 2000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(4..=1_000_000))]
    pub files: Option<u32>,
    /// Directory for cluster and local files, on the disk to measure
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub dir: PathBuf,
    /// The `weir` program [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    pub weir: Option<PathBuf>,
    /// Also write all results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the tables as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    #[command(subcommand)]
    pub other: Option<Other>,
}

/// Measurements that are not in the table, and programs that the benchmark starts itself.
#[derive(Subcommand)]
pub enum Other {
    /// Time until everything has two copies again after a server is lost
    Redundancy(Redundancy),
    /// Speed of computing parities with one core
    Coding {
        /// Also write the results as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Small pieces of a large file: a call for each, lists, data sieving and hints; TCP and Unix
    /// sockets
    Pieces(Pieces),
    /// The effect of each hint: reads with and without it
    Hints(Pieces),
    /// Sequential calls of one record, and a file that is read again
    Small(Small),
    /// What a request and its reply cost between two threads, over sockets and in memory
    Messages(Messages),
    /// Files made per second by many clients, with one metadata server and with several, beside a
    /// commit of etcd
    Creates(Creates),
    /// Small files: created, stated and removed, by one process and by four; common operations on
    /// trees of them, as root and as an ordinary user; then as `entries`
    Names(Trees),
    /// Latencies of create, stat and unlink beside many entries, in one directory and in a tree, by
    /// 1 to 64 clients of the library
    Entries(Entries),
    /// A load generator
    #[command(hide = true)]
    Worker,
    /// The trivial FUSE server
    #[command(hide = true)]
    FuseLimit {
        /// Where to mount
        mountpoint: PathBuf,
    },
    /// Runs a command in a control group
    #[command(hide = true)]
    InGroup {
        /// The group's list of processes
        group: PathBuf,
        /// The command
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<std::ffi::OsString>,
    },
}

/// The data that is written before a server is lost.
#[derive(Args)]
pub struct Redundancy {
    /// Bytes of big files; 0: none
    #[arg(long, value_parser = weir_types::size::parse_size, default_value = "10GiB")]
    pub size: u64,
    /// Number of small files
    #[arg(long, default_value_t = 100_000)]
    pub files: u64,
    /// Data servers, with one target each
    #[arg(long, value_parser = clap::value_parser!(u8).range(3..=64), default_value_t = 6)]
    pub targets: u8,
    /// Placement of copies: `random` or `chained`. With `chained`, the neighbours of the lost
    /// server have all of its data
    #[arg(long, default_value = "random", value_parser = ["chained", "groups", "random"])]
    pub placement: String,
    /// Clients that write and read meanwhile, with one stream each
    #[arg(long, default_value_t = 0)]
    pub clients: u8,
    /// Share of the servers' time for the rebuild while clients have requests [default: theirs]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub busy_percent: Option<u8>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The file whose pieces are read or written.
#[derive(Args)]
pub struct Pieces {
    /// Bytes of the file
    #[arg(long, value_parser = parse_size, default_value = "256MiB")]
    pub size: u64,
    /// Measured rounds of each way
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99), default_value_t = 5)]
    pub rounds: u32,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The file that is read in small calls and read again.
#[derive(Args)]
pub struct Small {
    /// Bytes of the file, in whole MiB up to 4 GiB
    #[arg(long, value_parser = whole_mib, default_value = "64MiB")]
    pub size: u64,
    /// Measured rounds of each way
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99), default_value_t = 5)]
    pub rounds: u32,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Requests and replies between two threads.
#[derive(Args)]
pub struct Messages {
    /// Bytes of a reply
    #[arg(long, default_value_t = 4096)]
    pub reply: usize,
    /// Exchanges of a round
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), default_value_t = 100_000)]
    pub exchanges: u32,
    /// Measured rounds of each way
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99), default_value_t = 5)]
    pub rounds: u32,
}

/// Files that clients make at the same time.
#[derive(Args)]
pub struct Creates {
    /// Clients, each with a session and a directory of its own
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=512), default_value_t = 64)]
    pub clients: u32,
    /// Files that each client makes in a round
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000), default_value_t = 300)]
    pub files: u32,
    /// Measured rounds
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99), default_value_t = 5)]
    pub rounds: u32,
    /// Numbers of metadata servers; more than one needs etcd
    #[arg(long, value_delimiter = ',', default_values_t = [1, 3])]
    pub metas: Vec<u32>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The tree of small files.
#[derive(Args)]
pub struct Trees {
    /// Files of the tree
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000), default_value_t = 1000)]
    pub files: u32,
    /// Measured rounds of each step
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99), default_value_t = 1)]
    pub rounds: u32,
    /// Only the trees
    #[arg(long)]
    pub trees: bool,
    /// Entries of the namespace in which latencies are measured last; 0: none
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=10_000_000), default_value_t = 1_000_000)]
    pub entries: u32,
    /// Also write the results for trees as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A namespace with many entries.
#[derive(Args)]
pub struct Entries {
    /// Entries that are there
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000), default_value_t = 1_000_000)]
    pub entries: u32,
    /// Calls of each kind, by all clients together
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000), default_value_t = 20_000)]
    pub calls: u32,
    /// Numbers of clients
    #[arg(long, value_delimiter = ',', default_values_t = CLIENTS,
          value_parser = clap::value_parser!(u32).range(1..=512))]
    pub clients: Vec<u32>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Numbers of clients whose latencies are measured.
const CLIENTS: [u32; 4] = [1, 4, 16, 64];

impl Trees {
    /// The namespace in which latencies are measured, if any.
    pub fn namespace(&self) -> Option<Entries> {
        let entries =
            Entries { entries: self.entries, calls: 20_000, clients: CLIENTS.to_vec(), json: None };
        (!self.trees && self.entries > 0).then_some(entries)
    }
}

/// What is measured, and how much of it.
#[derive(Debug)]
pub struct Plan {
    /// The rows.
    pub rows: Vec<Row>,
    /// The ways; empty: all.
    pub ways: Vec<Via>,
    /// Whether there is a cluster.
    pub with_weir: bool,
    /// The `weir` program.
    pub weir: PathBuf,
    /// Directory for everything.
    pub base_dir: PathBuf,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// Measured rounds.
    pub rounds: u32,
    /// Files per round.
    pub files: u32,
    /// Duration of a run of random reads, milliseconds.
    pub random_ms: u64,
    /// Rows that have not begun after this time are left out.
    pub patience: Duration,
}

impl Arguments {
    /// The `weir` program, and the directory for everything.
    pub fn places(&self) -> Done<(PathBuf, PathBuf)> {
        let weir = match &self.weir {
            Some(path) => path.clone(),
            None => std::env::current_exe()
                .map_err(|e| Failure::system("finding this program", e))?
                .with_file_name("weir"),
        };
        if !self.limits && !weir.is_file() {
            let path = weir.display();
            return Err(Failure::other(format!(
                "{path} is missing: `cargo build --release -p weir` makes it (or give --limits)"
            )));
        }
        let base_dir = self.dir.canonicalize().map_err(|e| Failure::file(&self.dir, e))?;
        Ok((weir, base_dir))
    }

    /// Checks the options and fills in defaults.
    pub fn plan(&self) -> Done<Plan> {
        let quick = self.quick;
        let default_size: u64 = if quick { 512 << 20 } else { 2 << 30 };
        // A whole number of calls for each of four streams.
        let size_bytes = self.size.unwrap_or(default_size).next_multiple_of(4 << 20);
        let (weir, base_dir) = self.places()?;
        Ok(Plan {
            rows: if self.only.is_empty() { Row::ALL.to_vec() } else { self.only.clone() },
            ways: self.way.clone(),
            with_weir: !self.limits,
            weir,
            base_dir,
            size_bytes,
            rounds: self.rounds.unwrap_or(if quick { 3 } else { 5 }),
            files: self.files.unwrap_or(if quick { 2_000 } else { 10_000 }).next_multiple_of(4),
            random_ms: if quick { 1_000 } else { 2_000 },
            patience: Duration::from_secs(if quick { 200 } else { 1_100 }),
        })
    }
}

/// Parses a size in whole MiB, up to 4 GiB, which fits in memory.
fn whole_mib(text: &str) -> Result<u64, String> {
    match weir_types::size::parse_size(text)? {
        bytes if bytes % (1 << 20) == 0 && (1..=4 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("a size in whole MiB, up to 4 GiB, is needed".into()),
    }
}

/// Parses a size that a benchmark can use.
fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = weir_types::size::parse_size(text)?;
    match (16 << 20..=1 << 40).contains(&bytes) {
        true => Ok(bytes),
        false => Err("must be 16MiB to 1TiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert!(parse_size("2TB").is_err());
        assert!(parse_size("1").is_err());
        assert_eq!(whole_mib("64M"), Ok(64 << 20));
        assert!(whole_mib("1000").is_err() && whole_mib("8G").is_err());
        assert!(parse_size("").is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
