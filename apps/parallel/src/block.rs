//! The whole records of a block of a file, as in Hadoop: each record belongs to one block.

use crate::invalid;
use crate::tree::Open;
use std::ops::Range;
use weir_jobs::Record;
use weir_jobs::records::{MAX_RECORD_BYTES, More};
use weir_types::{Error, ErrorKind, Result};

/// First number of bytes that are read beyond a block to find the end of its last line.
const MORE_BYTES: u64 = 4096;

/// The records of block `at` of a file with `size` bytes. A last line without a newline gets one.
///
/// # Errors
/// Those of reading; a record that is too long.
pub fn records(file: &Open, size: u64, at: Range<u64>, record: Record) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (at.end - at.start) as usize];
    read(file, at.start, &mut bytes)?;
    let Some(owned) = record.owned(&at, size, &bytes) else { return Ok(Vec::new()) };
    bytes.drain(..owned.skip);
    match owned.more {
        More::Nothing => {}
        More::Bytes(more) => {
            let mut rest = vec![0; more as usize];
            read(file, at.end, &mut rest)?;
            bytes.extend(rest);
        }
        More::Line => end_line(file, size, at.end, &mut bytes)?,
    }
    if record == Record::Line && bytes.last().is_some_and(|last| *last != b'\n') {
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// Appends the bytes from `at` on, up to the end of a line.
fn end_line(file: &Open, size: u64, mut at: u64, bytes: &mut Vec<u8>) -> Result<()> {
    let (begun, mut step) = (at, MORE_BYTES);
    while at < size {
        let mut more = vec![0; step.min(size - at) as usize];
        read(file, at, &mut more)?;
        if let Some(end) = memchr::memchr(b'\n', &more) {
            bytes.extend(&more[..=end]);
            return Ok(());
        }
        at += more.len() as u64;
        bytes.extend(more);
        if at - begun > MAX_RECORD_BYTES {
            return Err(invalid("a line of more than 64 MiB"));
        }
        step = (step * 2).min(1 << 20);
    }
    Ok(())
}

fn read(file: &Open, at: u64, bytes: &mut [u8]) -> Result<()> {
    match file.read_at(at, bytes)? == bytes.len() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Stale, "it was cut while it was read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_in_one_block_whatever_the_size_of_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let text: String = (0..200).map(|n| format!("{n}{}\n", "x".repeat(n % 37))).collect();
        for text in [text.trim_end(), &text, "", "\n", "one"] {
            std::fs::write(&path, text).unwrap();
            let (file, size) =
                (Open::Local(std::fs::File::open(&path).unwrap()), text.len() as u64);
            for block in [1, 7, 64, 1000, 1 << 20] {
                let blocks = (0..size).step_by(block).map(|at| at..(at + block as u64).min(size));
                let all: Vec<u8> =
                    blocks.flat_map(|at| records(&file, size, at, Record::Line).unwrap()).collect();
                let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                assert_eq!(String::from_utf8(all).unwrap(), format!("{text}{end}"), "{block}");
            }
        }
    }

    #[test]
    fn every_record_is_in_one_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records");
        let bytes: Vec<u8> = (0..=255).cycle().take(5_000).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = Open::Local(std::fs::File::open(&path).unwrap());
        for block in [33, 100, 128, 4096] {
            let blocks = (0..5_000).step_by(block).map(|at| at..(at + block as u64).min(5_000));
            let all: Vec<u8> = blocks
                .flat_map(|at| records(&file, 5_000, at, Record::Bytes(100)).unwrap())
                .collect();
            assert_eq!(all, bytes, "{block}");
        }
    }
}
