//! Files of sorted records for a job: writing and merging them.

use crate::tree::{Open, Tree};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_types::{Error, ErrorKind, Result};

/// Bytes per read or write call.
const CALL_BYTES: usize = 1 << 20;
/// Bytes per read call when many files are merged.
const LEAST_BYTES: usize = 64 << 10;

/// Writes a file from an offset on, in large calls.
pub struct Output {
    file: Open,
    path: String,
    at: u64,
    buffer: Vec<u8>,
}

impl Output {
    /// Writes a new file, or empties an existing one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(tree: &Tree, path: &str) -> Result<Self> {
        let file = tree.create(path)?;
        Ok(Self { file, path: path.to_owned(), at: 0, buffer: Vec::new() })
    }

    /// Writes an existing file, from an offset on.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn within(tree: &Tree, path: &str, at: u64) -> Result<Self> {
        let file = tree.write(path)?;
        Ok(Self { file, path: path.to_owned(), at, buffer: Vec::new() })
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend(bytes);
        if self.buffer.len() >= CALL_BYTES {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.file.write_at(self.at, &self.buffer).map_err(|e| e.context(&self.path))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes buffered bytes, so that other processes see them.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn finish(mut self) -> Result<()> {
        self.send()?;
        self.file.finish().map_err(|e| e.context(&self.path))
    }

    /// As [`Output::finish`], but also makes the file durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn finish_durably(mut self) -> Result<()> {
        self.send()?;
        self.file.finish_durably().map_err(|e| e.context(&self.path))
    }
}

/// The end of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// A newline, which belongs to the record.
    Line,
    /// After this many bytes.
    After(usize),
}

/// The records of a file, one after another.
pub struct Records {
    file: Open,
    path: String,
    ends: Ends,
    next: u64,
    call_bytes: usize,
    buffer: Vec<u8>,
    at: usize,
}

impl Records {
    /// The records of a file, reading at most `memory_bytes` at a time (but at least 64 KiB).
    ///
    /// # Errors
    /// Those of the file system.
    pub fn of(tree: &Tree, path: &str, ends: Ends, memory_bytes: usize) -> Result<Self> {
        let call_bytes = memory_bytes.clamp(LEAST_BYTES, CALL_BYTES);
        let (file, path) = (tree.read(path)?, path.to_owned());
        Ok(Self { file, path, ends, next: 0, call_bytes, buffer: Vec::new(), at: 0 })
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// Those of reading; `Corrupt`: the file ends within a record.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>> {
        let mut looked = 0;
        let len = loop {
            let rest = &self.buffer[self.at..];
            let end = match self.ends {
                Ends::Line => memchr::memchr(b'\n', &rest[looked..]).map(|at| looked + at + 1),
                Ends::After(bytes) => (rest.len() >= bytes).then_some(bytes),
            };
            if let Some(len) = end {
                break len;
            }
            looked = rest.len();
            if !self.fill()? {
                let what = format!("{}: ends within a record", self.path);
                return match looked {
                    0 => Ok(None),
                    _ => Err(Error::new(ErrorKind::Corrupt, what)),
                };
            }
        };
        let begin = self.at;
        self.at += len;
        Ok(Some(&self.buffer[begin..begin + len]))
    }

    /// Reads more bytes; returns whether there were any.
    fn fill(&mut self) -> Result<bool> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let held = self.buffer.len();
        self.buffer.resize(held + self.call_bytes, 0);
        let read = self.file.read_at(self.next, &mut self.buffer[held..]);
        let read = read.map_err(|e| e.context(&self.path))?;
        self.buffer.truncate(held + read);
        self.next += read as u64;
        Ok(read > 0)
    }
}

/// Calls `each` with all records of sorted files, in order. Takes `memory_bytes`, or 64 KiB for
/// each file if that is more.
///
/// # Errors
/// Those of reading, and of `each`.
pub fn merge(
    tree: &Tree,
    (paths, ends): (&[String], Ends),
    memory_bytes: usize,
    each: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let share = memory_bytes / paths.len().max(1);
    let open = |path: &String| Records::of(tree, path, ends, share);
    let mut files = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
    let mut heap = BinaryHeap::new();
    for (number, file) in files.iter_mut().enumerate() {
        if let Some(first) = file.next_record()? {
            heap.push(Reverse((first.to_vec(), number)));
        }
    }
    while let Some(Reverse((mut record, number))) = heap.pop() {
        each(&record)?;
        if let Some(next) = files[number].next_record()? {
            record.clear();
            record.extend(next);
            heap.push(Reverse((record, number)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_records_are_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = |n: usize| dir.path().join(n.to_string()).to_str().unwrap().to_owned();
        let (mut all, mut paths) = (Vec::new(), Vec::new());
        for file in 0..5usize {
            // One of the files is empty.
            let mut lines: Vec<String> =
                (0..file * 1000).map(|n| format!("{}\n", (n * 7919 + file) % 10_007)).collect();
            lines.sort_unstable();
            let mut out = Output::create(&Tree::Local, &path(file)).unwrap();
            lines.iter().for_each(|line| out.add(line.as_bytes()).unwrap());
            out.finish().unwrap();
            all.extend(lines);
            paths.push(path(file));
        }
        all.sort_unstable();
        let mut found = Vec::new();
        let mut each = |line: &[u8]| {
            found.push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        };
        merge(&Tree::Local, (&paths, Ends::Line), 1 << 20, &mut each).unwrap();
        assert!(found == all);
    }

    #[test]
    fn a_file_that_ends_within_a_record_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f").to_str().unwrap().to_owned();
        std::fs::write(&path, "0123456789ab").unwrap();
        let mut records = Records::of(&Tree::Local, &path, Ends::After(10), 0).unwrap();
        assert_eq!(records.next_record().unwrap(), Some(&b"0123456789"[..]));
        assert_eq!(records.next_record().unwrap_err().kind, ErrorKind::Corrupt);
    }
}
