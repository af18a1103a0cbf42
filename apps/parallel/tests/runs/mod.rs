//! Inputs, expected results, and running the programs.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub const GREP: &str = env!("CARGO_BIN_EXE_weir-grep");
pub const COUNT: &str = env!("CARGO_BIN_EXE_weir-wordcount");
pub const SORT: &str = env!("CARGO_BIN_EXE_weir-sort");

/// The text that [`GREP`] looks for.
pub const NEEDLE: &str = "needle";

/// Lines of words: some longer than a block of 4 KiB, some with the needle twice, and the last one
/// without a newline.
pub fn text(lines: usize) -> String {
    let mut text = String::new();
    for n in 0..lines {
        let words = if n % 1_000 == 77 { 3_000 } else { n % 13 };
        (0..words).for_each(|w| write!(text, "w{} ", (n * 31 + w * 17) % 997).unwrap());
        if n % 400 == 3 {
            write!(text, "{NEEDLE} {n} {NEEDLE}\tö").unwrap();
        }
        text.push('\n');
    }
    text + "the end"
}

/// The expected result of `grep -F` and `sort`.
pub fn found(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().filter(|line| line.contains(NEEDLE)).collect();
    lines.sort_unstable();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The expected counts of words.
pub fn counted(text: &str) -> String {
    let mut all = std::collections::BTreeMap::<&str, u64>::new();
    text.split_ascii_whitespace().for_each(|word| *all.entry(word).or_default() += 1);
    all.iter().map(|(word, number)| format!("{number}\t{word}\n")).collect()
}

/// Records with many equal keys, and some that are identical.
pub fn records(number: usize) -> Vec<u8> {
    let record = |n: usize| {
        let mut record = format!("{:010}", (n * 7_919) % (number / 3 + 1)).into_bytes();
        record.extend(format!("{:089}\n", n % (number - number / 10)).into_bytes());
        record
    };
    (0..number).flat_map(record).collect()
}

pub fn sorted(records: &[u8]) -> Vec<u8> {
    let mut all: Vec<&[u8]> = records.chunks(100).collect();
    all.sort_unstable();
    all.concat()
}

/// A program without environment variables that name a job or a cluster.
pub fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["WEIR_", "OMPI_", "PMI", "SLURM_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs as many processes as a job, and returns the output of each.
pub fn job((name, ranks): (&str, u32), mut command: impl FnMut(u32) -> Command) -> Vec<Output> {
    let start = |rank| {
        let mut command = command(rank);
        if ranks > 1 {
            command.env("WEIR_JOB", name);
            command.env("WEIR_RANK", rank.to_string()).env("WEIR_RANKS", ranks.to_string());
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..ranks).map(start).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

pub fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a job that must have succeeded.
pub fn printed(outputs: &[Output]) -> String {
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "process {rank}: {output:?}");
    }
    outputs.iter().map(|output| said(&output.stdout)).collect()
}

/// Leftovers in a directory, besides the inputs and the output of the programs.
pub fn left(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name());
    names.map(|n| n.into_string().unwrap()).filter(|n| n.starts_with('.')).collect()
}
