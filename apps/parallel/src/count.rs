//! Counts words: prints the number of occurrences of each word, sorted by word. Words are separated
//! by blanks, tabs and newlines.
//!
//! Each process counts its part of the input, and sends each word with its count to the process
//! that the word's hash selects. That process adds the counts. The first process merges all
//! results.

use crate::merge::{Ends, Output, merge};
use crate::options::Run;
use crate::report::Report;
use crate::sink::Sink;
use std::collections::HashMap;
use weir_types::{Error, ErrorKind, Result};

/// Approximate bytes of an entry of the table, without its word.
const ENTRY_BYTES: usize = 64;

type Table = HashMap<Vec<u8>, u64>;

/// Counts the words of all inputs.
///
/// # Errors
/// Those of the files, and of other processes.
pub fn count(run: &Run, report: &mut Report) -> Result<()> {
    let (rank, ranks) = (run.job.rank, run.job.ranks);
    let (mut table, mut held, mut words) = (Table::new(), 0usize, 0u64);
    // Number of times that this process has sent its table.
    let mut rounds = 0u64;
    let totals = run.inputs.read(&run.job, &mut |block| {
        for word in block.split(|byte| b" \t\n\r\x0b\x0c".contains(byte)) {
            if word.is_empty() {
                continue;
            }
            words += 1;
            match table.get_mut(word) {
                Some(number) => *number += 1,
                None => {
                    held += word.len() + ENTRY_BYTES;
                    table.insert(word.to_vec(), 1);
                }
            }
        }
        if held > run.memory_bytes {
            send(run, &mut table, rounds)?;
            (held, rounds) = (0, rounds + 1);
        }
        Ok(())
    })?;
    report.read(totals);
    report.count("words", words);
    send(run, &mut table, rounds)?;
    report.phase("read and count");
    let told = run.job.exchange("rounds", &(rounds + 1).to_le_bytes())?;
    let rounds = told.iter().map(|bytes| bytes.first_chunk().map_or(0, |n| u64::from_le_bytes(*n)));
    let mut paths = Vec::new();
    for (from, rounds) in rounds.enumerate() {
        paths.extend((0..rounds).map(|round| run.job.path(&fragment(from, rank, round))));
    }
    let part = run.job.path(&format!("words.{rank}"));
    let mut out = Output::create(&run.tree, &part)?;
    let different = add_up(run, &paths, &mut |line| out.add(line))?;
    out.finish()?;
    report.count("different_words", different);
    report.phase("add up");
    run.job.exchange("counted", b"")?;
    if rank == 0 {
        let parts: Vec<String> =
            (0..ranks).map(|rank| run.job.path(&format!("words.{rank}"))).collect();
        let mut result = Sink::open(run)?;
        merge(&run.tree, (&parts, Ends::Line), run.memory_bytes, &mut |line| {
            let (word, number) = entry(line)?;
            result.add(number.to_string().as_bytes())?;
            result.add(b"\t")?;
            result.add(word)?;
            result.add(b"\n")
        })?;
        result.finish()?;
    }
    report.phase("merge and write");
    Ok(())
}

fn fragment(from: usize, to: usize, round: u64) -> String {
    format!("words.{from}.{to}.{round}")
}

/// The process that adds up the counts of a word (FNV-1a).
fn owner(word: &[u8], ranks: usize) -> usize {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    (word.iter().fold(0xcbf2_9ce4_8422_2325, mix) % ranks as u64) as usize
}

/// Writes a sorted file for each process, with its words.
fn send(run: &Run, table: &mut Table, round: u64) -> Result<()> {
    let mut lines: Vec<Vec<Vec<u8>>> = vec![Vec::new(); run.job.ranks];
    for (word, number) in table.drain() {
        lines[owner(&word, run.job.ranks)].push(line(&word, number));
    }
    for (to, mut lines) in lines.into_iter().enumerate() {
        // Lines of one word become adjacent when files are merged, because no word has a tab.
        lines.sort_unstable();
        let mut out = Output::create(&run.tree, &run.job.path(&fragment(run.job.rank, to, round)))?;
        lines.iter().try_for_each(|line| out.add(line))?;
        out.finish()?;
    }
    Ok(())
}

fn line(word: &[u8], number: u64) -> Vec<u8> {
    [word, b"\t", number.to_string().as_bytes(), b"\n"].concat()
}

/// The word and the count of a line.
fn entry(line: &[u8]) -> Result<(&[u8], u64)> {
    let parse = || {
        let tab = memchr::memrchr(b'\t', line)?;
        let number = std::str::from_utf8(line[tab + 1..].strip_suffix(b"\n")?).ok()?;
        Some((&line[..tab], number.parse().ok()?))
    };
    let what = "a file of the job has been changed by somebody else";
    parse().ok_or_else(|| Error::new(ErrorKind::Corrupt, what))
}

/// Merges sorted files, and adds the counts of equal words. Returns the number of different words.
fn add_up(run: &Run, paths: &[String], each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<u64> {
    let (mut word, mut sum, mut different) = (Vec::new(), 0u64, 0u64);
    merge(&run.tree, (paths, Ends::Line), run.memory_bytes, &mut |line_of| {
        let (next, number) = entry(line_of)?;
        if next != word {
            if different > 0 {
                each(&line(&word, sum))?;
            }
            different += 1;
            (word, sum) = (next.to_vec(), 0);
        }
        sum += number;
        Ok(())
    })?;
    if different > 0 {
        each(&line(&word, sum))?;
    }
    Ok(different)
}
