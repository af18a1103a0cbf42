//! The command line. Each experiment uses the options and values below it:
//!
//! ```text
//! readers  writers  machines  loaded  mining  nfs  servers  sets  spark    options of experiments
//! lab                                                               options of all of them
//! line  ratio  series  size                                         values of options
//! ```

mod lab;
mod line;
mod loaded;
mod machines;
mod mining;
mod nfs;
mod ratio;
mod readers;
mod series;
mod servers;
mod sets;
mod size;
mod spark;
mod writers;

pub use lab::Common;
pub use line::Line;
pub use loaded::{Applications, Congested, HotProcessor, ServingClients};
pub use machines::{Advice, CallSize, Delay, Hdfs, HotClients, HotNetwork, MirroredHot};
pub use mining::Mining;
pub use nfs::Nfs;
pub use ratio::Ratio;
pub use readers::{AdjacentFaults, EvenReads, Partitions, ZonedReads};
pub use servers::{Links, Match, Servers};
pub use sets::{Deletion, EncodeDelay, Reduce, Redundancy};
pub use spark::Spark;
pub use writers::{DistributedQueue, GraduatedWrite, PartWrites, SecondCopies, WriteSize};

use clap::{Args, Parser, Subcommand};
use size::size;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The experiments behind Weir's figures, on this machine; without one named, all of them with --quick
#[derive(Parser)]
#[command(version, about)]
pub struct Arguments {
    #[command(subcommand)]
    pub experiment: Option<Experiment>,
}

#[derive(Subcommand)]
pub enum Experiment {
    /// Readers of a file each, while some disks are perturbed: how fast is the slowest?
    EvenReads(EvenReads),
    /// The same, who each read a part of one file, every other one a larger part
    Partitions(Partitions),
    /// Readers of files with two copies, and with three, while disks side by side are perturbed
    AdjacentFaults(AdjacentFaults),
    /// The same while nothing is perturbed, of disks whose inner tracks give less
    ZonedReads(ZonedReads),
    /// Clients of files with one copy, and with two: what do two disks give for one?
    MirroredReads(MirroredReads),
    /// The same of files that are in the servers' memory: what do two links give for one?
    MirroredHot(MirroredHot),
    /// Clients of files with two copies, while one disk is written to without a pause
    HotSpot(Mirrored),
    /// Writers spread records over disks, some of which give half: what does each disk get?
    DistributedQueue(DistributedQueue),
    /// Writers of a file each, on one disk or on whichever of two has each chunk first
    GraduatedWrite(GraduatedWrite),
    /// The same while all disks are well, by the size of calls
    WriteSize(WriteSize),
    /// Writers of parts of one file, every other one of a larger part
    PartWrites(PartWrites),
    /// Writers of files with one copy, and of files with two on twice the disks
    SecondCopies(SecondCopies),
    /// Readers of a file each on disks with a head, by the size of their calls
    CallSize(CallSize),
    /// Clients of what is in the servers' memory, while the link of one server is loaded
    HotNetwork(HotNetwork),
    /// The same, while one server has next to no processor
    HotProcessor(HotProcessor),
    /// Clients of what is in memory, on the servers' nodes and on nodes of their own
    ServingClients(ServingClients),
    /// Readers and writers on the nodes of their disks, behind links with and without room to spare
    Congested(Congested),
    /// Programs on files with two copies, while nothing is hot, or one disk, or one link
    Applications(Applications),
    /// One client behind a link on which all takes a while
    Delay(Delay),
    /// Readers of records, on stripes of 8 KiB and on what `weir advise` says
    Advice(Advice),
    /// Readers of records, of NFS and of Weir: figures 1 to 11 of the paper on PVFS and NFS
    Nfs(Nfs),
    /// Mining of association rules, on Weir and on NFS: figure 1 of the paper on NASD
    Mining(Mining),
    /// A search on HDFS, and on Weir whose layout is hidden or exposed (needs java and mvn)
    Hdfs(Hdfs),
    /// Spark on the nodes of its data (needs the jar and pyspark)
    Spark(Spark),
    /// Nodes write files in three copies, which become sets: bytes on disk over time
    Reduce(Reduce),
    /// Files are made and removed, and sets cleaned: bytes read and written, against bytes held
    Deletion(Deletion),
    /// Files get parities after a while: what readers gain, and what it holds
    EncodeDelay(EncodeDelay),
    /// One file in copies and in parities: writing, reading, losses, repair, processor time
    Redundancy(Redundancy),
    /// Readers and writers by the number of servers, with one copy and with two
    Servers(Servers),
    /// Readers of records by what links carry: where disks become the limit
    Links(Links),
    /// weir-match with hints and without, by time
    Match(Match),
    /// Four processes read, and one of four disks becomes slow: for `make quickstart`
    SlowDisk(SlowDisk),
    /// A reader or a perturber
    #[command(hide = true)]
    Worker(Work),
}

#[derive(Args, Clone)]
pub struct SlowDisk {
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args, Clone)]
pub struct Mirrored {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server: half of them mirror the others
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Numbers of clients (hot-spot: the greatest) [default: 1, 2, 4, 8, with --quick 1, 8]
    #[arg(long, value_delimiter = ',')]
    pub clients: Vec<u32>,
    /// Bytes that each client reads [default: 4MiB,16MiB,64MiB; hot-spot: 1MiB besides]
    #[arg(long, value_parser = size, value_delimiter = ',')]
    pub sizes: Vec<u64>,
    /// A disk goes to another place within so long, in microseconds (hot-spot: at once)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=100_000))]
    pub seek_us: u64,
}

#[derive(Args, Clone)]
pub struct MirroredReads {
    #[command(flatten)]
    pub mirrored: Mirrored,
    /// Per cent of what most clients read that is in the servers' memory, besides nothing
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=99))]
    pub memory: u64,
}

/// What this program does as one of many.
#[derive(Args)]
pub struct Work {
    #[command(subcommand)]
    pub kind: WorkKind,
}

#[derive(Subcommand)]
pub enum WorkKind {
    /// Reads a file from one offset to another, or to its end
    Read { file: PathBuf, call_bytes: u64, from: u64, to: u64 },
    /// Writes to a file again and again
    Write { file: PathBuf },
    /// Reads a file around and around
    Perturb { file: PathBuf, bytes_per_s: u64, turn_ms: u64 },
    /// Mounts an export of an NFS server
    Nfs {
        server: Ipv4Addr,
        export: PathBuf,
        at: PathBuf,
        #[arg(long)]
        uncached: bool,
    },
    /// Sends through the link of a node
    Send { network: String, node: u32, bytes_per_s: u64 },
}

/// Every experiment, as small as it makes sense.
pub fn all() -> Vec<Experiment> {
    let small = |name: &str| {
        let less: &[&str] = match name {
            "even-reads" | "adjacent-faults" | "mirrored-reads" => &[],
            "partitions" => &["--trials", "1", "--ratios", "1:2"],
            "call-size" => &["--trials", "1", "--calls", "4KiB,1MiB"],
            _ => &["--trials", "1"],
        };
        let words = ["weir-figures", name, "--quick"].into_iter().chain(less.iter().copied());
        Arguments::parse_from(words).experiment
    };
    let names = [
        "even-reads",
        "partitions",
        "adjacent-faults",
        "mirrored-reads",
        "mirrored-hot",
        "hot-spot",
        "distributed-queue",
        "graduated-write",
        "write-size",
        "call-size",
        "hot-network",
        "delay",
        "advice",
        "nfs",
        "mining",
        "reduce",
        "deletion",
        "encode-delay",
        "redundancy",
        "servers",
        "links",
        "match",
        "hdfs",
        "spark",
        "zoned-reads",
        "second-copies",
        "part-writes",
        "hot-processor",
        "serving-clients",
        "congested",
        "applications",
    ];
    names.iter().filter_map(|name| small(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_arguments_every_experiment_is_done() {
        assert_eq!(all().len(), 31);
    }
}
