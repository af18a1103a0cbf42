//! Experiments on machines whose links or processors have little to spare.

use super::lab::Common;
use super::machines::HotClients;
use super::size::size;
use clap::{Args, ValueEnum};

/// Processes on the nodes of their disks, behind links of several speeds.
#[derive(Args, Clone)]
pub struct Congested {
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "modern")]
    pub profile: String,
    /// Nodes, each with a disk and a process
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(4..=64))]
    pub nodes: u32,
    /// Bytes that each process reads, and writes
    #[arg(long, value_parser = size, default_value = "24MiB")]
    pub file: u64,
    /// What links carry, in per cent of what a disk gives; of all nodes, and but for the greatest of
    /// one node alone [default: 400,100,50,25, with --quick 400,25]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub percents: Vec<u64>,
}

impl Congested {
    pub fn percents(&self) -> Vec<u64> {
        match (&*self.percents, self.common.quick) {
            ([], true) => vec![400, 25],
            ([], false) => vec![400, 100, 50, 25],
            (percents, _) => percents.to_vec(),
        }
    }
}

#[derive(Args, Clone)]
pub struct HotProcessor {
    #[command(flatten)]
    pub hot: HotClients,
    /// Bytes that each client reads
    #[arg(long, value_parser = size, default_value = "16MiB")]
    pub file: u64,
    /// Thousandths of a core that are left to one server
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub left: u32,
}

/// Clients on the nodes of servers, and on nodes of their own.
#[derive(Args, Clone)]
pub struct ServingClients {
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "prairiefire")]
    pub profile: String,
    /// Nodes with a server; as many clients
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    pub nodes: u32,
    /// Bytes that each client reads
    #[arg(long, value_parser = size, default_value = "32MiB")]
    pub file: u64,
    /// Thousandths of a core that each node has [default: 10,20,40,200, with --quick
    /// 20,200]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub processors: Vec<u32>,
}

impl ServingClients {
    pub fn processors(&self) -> Vec<u32> {
        match (&*self.processors, self.common.quick) {
            ([], true) => vec![20, 200],
            ([], false) => vec![10, 20, 40, 200],
            (processors, _) => processors.to_vec(),
        }
    }
}

/// Programs on files with two copies, of which one server is hot.
#[derive(Args, Clone)]
pub struct Applications {
    #[command(flatten)]
    pub common: Common,
    /// The machines (`weir testbed profiles`)
    #[arg(long, default_value = "modern")]
    pub profile: String,
    /// Nodes with a disk: half of them mirror the others
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Processes of a program, each on a node of its own (match: one, with four readers)
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub processes: u32,
    /// Bytes of each input (grep and match: they have two)
    #[arg(long, value_parser = size, default_value = "48MiB")]
    pub size: u64,
    /// Programs [default: all, with --quick grep,match]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub programs: Vec<Program>,
}

/// A program of `apps`.
#[derive(Clone, Copy, ValueEnum)]
pub enum Program {
    Grep,
    Sort,
    Mining,
    Match,
}

impl Applications {
    /// Their names.
    pub fn programs(&self) -> Vec<&'static str> {
        let all = [Program::Grep, Program::Match, Program::Sort, Program::Mining];
        let programs = match (&*self.programs, self.common.quick) {
            ([], true) => &all[..2],
            ([], false) => &all,
            (programs, _) => programs,
        };
        let name = |program: &Program| match program {
            Program::Grep => "grep",
            Program::Sort => "sort",
            Program::Mining => "mining",
            Program::Match => "match",
        };
        programs.iter().map(name).collect()
    }
}
