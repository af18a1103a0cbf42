//! Sorts records of 100 bytes by all of their bytes; the first 10 are the key of the usual sort
//! benchmark.
//!
//! The phases are those of NOW-Sort. Each process reads, and sends each record to the process of
//! its range of keys. Each process sorts what it received, in runs as large as its memory. It
//! merges the runs, and writes them to its part of the output. Ranges are chosen from a sample, so
//! that they have about equal numbers of records.
//!
//! Records with equal keys are ordered by their other bytes, so the output depends on the records
//! alone.

use crate::merge::{Ends, Output, merge};
use crate::options::Run;
use crate::report::Report;
use crate::tree::Tree;
use weir_types::{Error, ErrorKind, Result};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 100;
/// Bytes of a key.
pub const KEY_BYTES: usize = 10;
/// Sampled records: for each process, and at most in all.
const SAMPLED: (u64, u64) = (200, 20_000);
/// Smallest buffer for records to one process.
const LEAST_BUFFER_BYTES: usize = 4 << 10;

type Record = [u8; RECORD_BYTES];

/// Sorts all inputs into the output.
///
/// # Errors
/// Those of the files, and of other processes.
pub fn sort(run: &Run, output: &str, report: &mut Report) -> Result<()> {
    let ranges = ranges(run)?;
    if run.job.rank == 0 {
        run.tree.create(output)?.finish()?;
    }
    report.phase("sample");
    let got = read_and_send(run, &ranges, report)?;
    report.phase("read and send");
    // Offset of this process's part of the output.
    let begin: u64 = got.iter().take(run.job.rank).map(|from| from.iter().sum::<u64>()).sum();
    let own = &got[run.job.rank];
    let own_bytes: u64 = own.iter().sum();
    let in_memory = own_bytes <= run.memory_bytes as u64;
    let sent: Vec<String> = (0..run.job.ranks)
        .filter(|from| own[*from] > 0)
        .map(|from| run.job.path(&fragment(from, run.job.rank)))
        .collect();
    let mut out = Output::within(&run.tree, output, begin)?;
    if in_memory {
        let mut records = Vec::with_capacity(own_bytes as usize / RECORD_BYTES);
        for path in &sent {
            records_of(&run.tree, path, run.memory_bytes, &mut |more| {
                records.push(*more);
                Ok(())
            })?;
        }
        records.sort_unstable();
        report.phase("sort");
        records.iter().try_for_each(|record| out.add(record))?;
    } else {
        let runs = runs(run, &sent)?;
        report.phase("sort");
        let each = &mut |record: &[u8]| out.add(record);
        merge(&run.tree, (&runs, Ends::After(RECORD_BYTES)), run.memory_bytes, each)?;
    }
    out.finish_durably()?;
    report.phase("merge and write");
    report.count("records", own_bytes / RECORD_BYTES as u64);
    report.count("output_bytes", own_bytes);
    run.job.exchange("sorted", b"").map(drop)
}

/// The first record of each process's range, without the first process's range, which begins with
/// zeros.
fn ranges(run: &Run) -> Result<Vec<Record>> {
    let mut mine = Vec::new();
    if run.job.rank == 0 && run.job.ranks > 1 {
        let ranks = run.job.ranks as u64;
        let sampled = (SAMPLED.0 * ranks).min(SAMPLED.1);
        let sample = run.inputs.sample(sampled, RECORD_BYTES as u64)?;
        let mut sample = sample.as_chunks::<RECORD_BYTES>().0.to_vec();
        sample.sort_unstable();
        let splitter = |rank: usize| sample.get(rank * sample.len() / run.job.ranks);
        mine = (1..run.job.ranks).filter_map(splitter).flatten().copied().collect();
    }
    let told = run.job.exchange("ranges", &mine)?;
    Ok(told[0].as_chunks::<RECORD_BYTES>().0.to_vec())
}

/// The process whose range contains a record.
fn owner(ranges: &[Record], record: &Record) -> usize {
    ranges.partition_point(|first| first <= record)
}

fn fragment(from: usize, to: usize) -> String {
    format!("sort.{from}.{to}")
}

/// Reads the inputs, and sends each record to the process of its range. Returns the bytes from each
/// process to each.
fn read_and_send(run: &Run, ranges: &[Record], report: &mut Report) -> Result<Vec<Vec<u64>>> {
    let (rank, ranks) = (run.job.rank, run.job.ranks);
    let limit = (run.memory_bytes / ranks).max(LEAST_BUFFER_BYTES);
    let mut outputs: Vec<Option<Output>> = (0..ranks).map(|_| None).collect();
    let mut buffers: Vec<Vec<u8>> = vec![Vec::new(); ranks];
    let mut bytes = vec![0u64; ranks];
    let send = |to: usize, buffer: &mut Vec<u8>, output: &mut Option<Output>| {
        let output = match output {
            Some(output) => output,
            None => output.insert(Output::create(&run.tree, &run.job.path(&fragment(rank, to)))?),
        };
        output.add(buffer)?;
        buffer.clear();
        Ok::<(), Error>(())
    };
    let limit = limit.min(1 << 20);
    let totals = run.inputs.read(&run.job, &mut |block| {
        for record in block.as_chunks::<RECORD_BYTES>().0 {
            let to = owner(ranges, record);
            buffers[to].extend(record);
            bytes[to] += RECORD_BYTES as u64;
            if buffers[to].len() >= limit {
                send(to, &mut buffers[to], &mut outputs[to])?;
            }
        }
        Ok(())
    })?;
    for (to, mut buffer) in buffers.into_iter().enumerate() {
        if !buffer.is_empty() {
            send(to, &mut buffer, &mut outputs[to])?;
        }
    }
    outputs.into_iter().flatten().try_for_each(Output::finish)?;
    report.read(totals);
    let mine: Vec<u8> = bytes.iter().flat_map(|bytes| bytes.to_le_bytes()).collect();
    let told = run.job.exchange("sent", &mine)?;
    let of = |from: usize, to: usize| {
        let number = told[from].as_chunks::<8>().0.get(to).copied();
        u64::from_le_bytes(number.unwrap_or_default())
    };
    Ok((0..ranks).map(|to| (0..ranks).map(|from| of(from, to)).collect()).collect())
}

fn records_of(
    tree: &Tree,
    path: &str,
    memory_bytes: usize,
    each: &mut dyn FnMut(&Record) -> Result<()>,
) -> Result<()> {
    let ends = Ends::After(RECORD_BYTES);
    let mut records = crate::merge::Records::of(tree, path, ends, memory_bytes)?;
    while let Some(record) = records.next_record()? {
        if let Some(record) = record.first_chunk() {
            each(record)?;
        }
    }
    Ok(())
}

/// Writes the records that this process received in sorted runs, as large as its memory.
fn runs(run: &Run, sent: &[String]) -> Result<Vec<String>> {
    let limit = (run.memory_bytes / RECORD_BYTES).max(1);
    let (mut records, mut runs) = (Vec::with_capacity(limit), Vec::new());
    let mut write = |records: &mut Vec<Record>| {
        records.sort_unstable();
        let path = run.job.path(&format!("run.{}.{}", run.job.rank, runs.len()));
        let mut out = Output::create(&run.tree, &path)?;
        records.iter().try_for_each(|record| out.add(record))?;
        records.clear();
        runs.push(path);
        out.finish()
    };
    for path in sent {
        records_of(&run.tree, path, run.memory_bytes, &mut |record| {
            records.push(*record);
            if records.len() == limit { write(&mut records) } else { Ok(()) }
        })?;
    }
    if !records.is_empty() {
        write(&mut records)?;
    }
    Ok(runs)
}

/// The result of a check of sorted records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Number of records.
    pub records: u64,
    /// Sum of a hash of each record: equal for the same records in any order.
    pub sum: u64,
    /// Number of the first record that is smaller than the one before it.
    pub unsorted_at: Option<u64>,
}

/// Checks the records of a file.
///
/// # Errors
/// Those of reading; `Corrupt`: the file ends within a record.
pub fn check(tree: &Tree, path: &str) -> Result<Checked> {
    if tree.stat(path)?.is_none() {
        return Err(Error::new(ErrorKind::NotFound, format!("{path}: no such file")));
    }
    let (mut checked, mut before) = (Checked::default(), [0; RECORD_BYTES]);
    records_of(tree, path, 1 << 20, &mut |record| {
        if checked.unsorted_at.is_none() && *record < before {
            checked.unsorted_at = Some(checked.records);
        }
        before = *record;
        checked.records += 1;
        let mixed = record.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        checked.sum = checked.sum.wrapping_add(mixed);
        Ok(())
    })?;
    Ok(checked)
}

/// Writes a file of random records of letters and digits. Equal seeds give equal files.
///
/// # Errors
/// Those of the file system.
pub fn generate(tree: &Tree, path: &str, records: u64, seed: u64) -> Result<()> {
    let mut out = Output::create(tree, path)?;
    let mut state = seed;
    for number in 0..records {
        let mut record = [b' '; RECORD_BYTES];
        for byte in &mut record[..KEY_BYTES] {
            // A step of SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *byte = b"0123456789abcdefghijklmnopqrstuv"[(z >> 59) as usize];
        }
        let digits = format!(" {number:020} ");
        record[KEY_BYTES..KEY_BYTES + digits.len()].copy_from_slice(digits.as_bytes());
        let letter = b'a' + (number % 26) as u8;
        record[KEY_BYTES + digits.len()..RECORD_BYTES - 1].fill(letter);
        record[RECORD_BYTES - 1] = b'\n';
        out.add(&record)?;
    }
    out.finish_durably()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_belongs_to_the_last_range_that_begins_before_it() {
        let record = |byte: u8| [byte; RECORD_BYTES];
        let ranges = [record(10), record(20)];
        let owners = [0, 9, 10, 19, 20, 255].map(|byte| owner(&ranges, &record(byte)));
        assert_eq!(owners, [0, 0, 1, 1, 2, 2]);
        assert_eq!(owner(&[], &record(5)), 0);
    }
}
