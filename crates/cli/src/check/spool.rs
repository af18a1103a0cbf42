//! Facts, divided into parts that each fit into memory. A small part stays in memory, a large one
//! goes to a temporary file without a name.

use crate::failure::{Done, Failure};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use weir_metaserver::audit::Fact;
use weir_types::{Decode, Encode, FileId};

/// The number of parts. For a file system of a hundred million records a part has some 100 MB.
const PARTS: u64 = 256;
/// How many bytes of a part are kept in memory before they are written.
const PART_BUFFER_BYTES: usize = 256 << 10;
/// The most bytes of one fact: a page of segments with very many columns.
const MAX_FACT_BYTES: usize = 16 << 20;

#[derive(Default)]
struct SpooledPart {
    buffer: Vec<u8>,
    file: Option<File>,
}

/// All facts.
pub struct Spool {
    parts: Vec<SpooledPart>,
    /// The first failure. After it no further facts are stored.
    failure: Option<std::io::Error>,
}

impl Spool {
    /// Makes an empty spool.
    pub fn new() -> Self {
        let parts = (0..PARTS).map(|_| SpooledPart::default()).collect();
        Self { parts, failure: None }
    }

    /// The range of part numbers.
    pub fn parts(&self) -> std::ops::Range<usize> {
        0..self.parts.len()
    }

    /// The part with the facts about a file, except the records of its names.
    pub fn part_of(file: FileId) -> usize {
        (Fact::unit_of(file) % PARTS) as usize
    }

    /// Adds a fact. [`Spool::check`] reports a failure.
    pub fn add(&mut self, fact: &Fact) {
        if self.failure.is_some() {
            return;
        }
        let part = &mut self.parts[(fact.unit() % PARTS) as usize];
        let at = part.buffer.len();
        part.buffer.extend_from_slice(&[0; 4]);
        fact.encode(&mut part.buffer);
        let len = (part.buffer.len() - at - 4) as u32;
        part.buffer[at..at + 4].copy_from_slice(&len.to_le_bytes());
        if part.buffer.len() >= PART_BUFFER_BYTES {
            self.failure = part.write_out().err();
        }
    }

    /// Fails if a fact was not stored.
    pub fn check(&mut self) -> Done {
        match self.failure.take() {
            None => Ok(()),
            Some(error) => {
                let dir = std::env::temp_dir();
                Err(Failure::file(&dir, error).hint("set TMPDIR to a directory with more room"))
            }
        }
    }

    /// Calls `visit` for every fact of a part, in the order in which they were added.
    pub fn read(&mut self, part: usize, mut visit: impl FnMut(Fact)) -> Done {
        let part = &mut self.parts[part];
        let failed = |e| Failure::file(&std::env::temp_dir(), e);
        if let Some(file) = &mut part.file {
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
            each(BufReader::with_capacity(1 << 20, file), &mut visit)?;
        }
        each(part.buffer.as_slice(), &mut visit)
    }
}

impl SpooledPart {
    fn write_out(&mut self) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(nameless_file()?),
        };
        file.seek(SeekFrom::End(0))?;
        file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Opens a temporary file that vanishes with this process.
fn nameless_file() -> std::io::Result<File> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|e| std::io::Error::other(e.to_string()))?;
    let name = format!("weir-check-{:016x}", u64::from_le_bytes(random));
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    // The file contains file names, which are private.
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn each(mut from: impl Read, visit: &mut impl FnMut(Fact)) -> Done {
    let damaged = || Failure::new("a temporary file of this check was damaged");
    let mut bytes = Vec::new();
    loop {
        let mut len = [0; 4];
        match from.read_exact(&mut len) {
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other.map_err(|e| Failure::file(&std::env::temp_dir(), e))?,
        }
        let len = u32::from_le_bytes(len) as usize;
        if len > MAX_FACT_BYTES {
            return Err(damaged());
        }
        bytes.resize(len, 0);
        from.read_exact(&mut bytes).map_err(|_| damaged())?;
        visit(Fact::from_bytes(&bytes).map_err(|_| damaged())?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_for_its_owner_alone() {
        use std::os::unix::fs::MetadataExt;
        let file = nameless_file().unwrap().metadata().unwrap();
        assert_eq!((file.mode() & 0o7777, file.nlink()), (0o600, 0));
    }

    #[test]
    fn what_is_added_is_read_again_also_from_files() {
        let mut spool = Spool::new();
        let file = FileId(7);
        let fact = |n: u64| Fact::Link { file, len: n };
        // Each fact has 17 bytes, so these exceed the limit of one part.
        let count = 3 * PART_BUFFER_BYTES as u64 / 16;
        (0..count).for_each(|n| spool.add(&fact(n)));
        spool.add(&Fact::Orphan { file: FileId(8) });
        spool.check().unwrap();
        let mut next = 0;
        let part = Spool::part_of(file);
        assert!(spool.parts[part].file.is_some());
        for _ in 0..2 {
            next = 0;
            let visit = |found| {
                if found != (Fact::Orphan { file: FileId(8) }) {
                    assert_eq!(found, fact(next));
                    next += 1;
                }
            };
            spool.read(part, visit).unwrap();
        }
        assert_eq!(next, count);
        let mut all = 0;
        spool.parts().for_each(|part| spool.read(part, |_| all += 1).unwrap());
        assert_eq!(all, count + 1);
    }
}
