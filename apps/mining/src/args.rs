//! The command line.

use crate::format::{CHUNK_BYTES, ITEM_LIMIT};
use crate::master::Support;
use crate::scan::{MAX_PRODUCERS, MIN_REQUEST_BYTES};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use weir_records::size::parse_size;

/// Find association rules: who buys milk and eggs buys bread too
///
/// Files are those of the SIO interface: `plain:DIRECTORY` or `weir:CLUSTER` (docs/sio.md).
#[derive(Parser)]
#[command(name = "weir-mining", version)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Write a file of transactions as the generator of IBM's Quest project makes them
    Generate(Generate),
    /// Convert text with market baskets to a file of transactions: one basket per line, or ARFF
    Import(Import),
    /// Count frequent itemsets, and print the rules that follow
    #[command(after_help = "Examples:\n  \
        weir-mining run sales --support 1% --clients 4\n  \
        weir-mining run sales --files weir:lab --via 'ssh node2' --via 'ssh node3'")]
    Run(Run),
    /// Count for a master, which speaks through standard input and output
    Client,
}

/// The file of a command.
#[derive(Args, Clone)]
pub struct Place {
    /// Name of the file
    pub file: String,
    /// Where it is: plain:DIRECTORY or weir:CLUSTER [default: plain files, here]
    #[arg(long, env = "SIO_FILES", value_name = "FILES")]
    pub files: Option<String>,
}

impl Place {
    /// The file system to attach.
    pub fn files(&self) -> String {
        match &self.files {
            Some(files) => files.clone(),
            None if self.file.starts_with('/') => "plain:/".into(),
            None => "plain:.".into(),
        }
    }
}

#[derive(Args)]
pub struct Generate {
    #[command(flatten)]
    pub place: Place,
    /// Number of transactions
    #[arg(long, default_value_t = 100_000, value_name = "N", conflicts_with = "size")]
    pub transactions: u64,
    /// Write as many transactions as take this many bytes, as in 300MB
    #[arg(long, value_parser = parse_size)]
    pub size: Option<u64>,
    /// Mean number of items of a transaction
    #[arg(long, default_value = "10", value_name = "N", value_parser = mean)]
    pub length: f64,
    /// Number of different items
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..i64::from(ITEM_LIMIT)))]
    pub items: u32,
    /// Number of patterns in which items are bought
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub patterns: u32,
    /// Mean number of items of a pattern
    #[arg(long, default_value = "4", value_name = "N", value_parser = mean)]
    pub pattern_length: f64,
    /// Mean share of a pattern's items that come from the previous pattern
    #[arg(long, default_value = "0.25", value_name = "PART", value_parser = part)]
    pub correlation: f64,
    /// Mean share of a pattern that is bought
    #[arg(long, default_value = "0.75", value_name = "PART", value_parser = part)]
    pub kept: f64,
    /// Decides the contents: equal arguments give equal files
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args)]
pub struct Import {
    #[command(flatten)]
    pub place: Place,
    /// The text file to read; the names of the items go to FILE.items
    #[arg(long, value_name = "TEXT")]
    pub from: PathBuf,
}

#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    pub place: Place,
    /// Number of transactions that must contain a frequent itemset: 1% of all, or 5000
    #[arg(long, default_value = "1%", value_parser = support)]
    pub support: Support,
    /// Share of the transactions with the left side that also have the right side
    #[arg(long, default_value = "0.9", value_name = "PART", value_parser = part)]
    pub confidence: f64,
    /// Number of clients on this machine, including the master
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: u32,
    /// Start one more client with this command, as in 'ssh node2'; can be repeated
    #[arg(long, value_name = "COMMAND")]
    pub via: Vec<String>,
    /// Number of reading threads of a client
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = producers)]
    pub producers: usize,
    /// Bytes per read request: a fraction of 2 MiB
    #[arg(long, default_value = "512K", value_name = "SIZE", value_parser = request)]
    pub request: usize,
    /// Maximum number of passes, and so of items in an itemset [default: until none is frequent]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub passes: Option<u32>,
    /// Number of rules to print
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub top: usize,
    /// Compare with the result of an independent method, with one thread and in memory
    #[arg(long)]
    pub verify: bool,
    /// Print JSON, with all itemsets and all rules
    #[arg(long)]
    pub json: bool,
}

fn mean(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n| (1.0..=1000.0).contains(n));
    number.ok_or_else(|| "a mean is a number from 1 to 1000".to_owned())
}

fn part(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n| (0.0..=1.0).contains(n));
    number.ok_or_else(|| "a part is a number from 0 to 1".to_owned())
}

fn support(text: &str) -> Result<Support, String> {
    let wrong = || "neither a part such as 1% nor a number of transactions".to_owned();
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent = percent.trim().parse().ok().filter(|n| (0.0..=100.0).contains(n));
            percent.map(Support::Percent).ok_or_else(wrong)
        }
        None => text.parse().map(Support::Count).map_err(|_| wrong()),
    }
}

fn producers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=MAX_PRODUCERS).contains(n));
    number.ok_or_else(|| format!("1 to {MAX_PRODUCERS} threads"))
}

fn request(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(parse_size(text)?).unwrap_or(usize::MAX);
    let fits = bytes >= MIN_REQUEST_BYTES && CHUNK_BYTES.is_multiple_of(bytes);
    if fits { Ok(bytes) } else { Err("a power of two from 4K to 2M".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn values_are_checked() {
        Arguments::command().debug_assert();
        assert_eq!(support("30%"), Ok(Support::Percent(30.0)));
        assert_eq!(support("1389"), Ok(Support::Count(1389)));
        for bad in ["", "%", "101%", "-1%", "x", "1.5", "nan%"] {
            assert!(support(bad).is_err(), "{bad}");
        }
        assert_eq!(request("512K"), Ok(512 << 10));
        for bad in ["0", "3M", "1000", "2K", "4M", "768K"] {
            assert!(request(bad).is_err(), "{bad}");
        }
        assert!(part("1.1").is_err() && part("nan").is_err() && mean("0.5").is_err());
        assert!(producers("0").is_err() && producers("65").is_err());
    }
}
