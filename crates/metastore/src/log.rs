//! The operation log as it is written: segments, appending, rotation.
//!
//! Invariant: room on the disk is set aside for a record before its commit changes anything, so
//! that the append does not find the disk full. (Not where the file system sets no room aside.)

use crate::directory::Home;
use crate::engine::{Sequence, Write};
use crate::record::{
    BootId, RECORDS_START, SegmentHeader, encode_mark, encode_record, max_record_bytes,
};
use crate::record::{NEXT_MARK_OFFSET, SYNCED_MARK_OFFSET};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_host::fs::{File, OpenHow};
use weir_types::{Error, Result};

/// Space is reserved this far ahead, so that few commits have to ask for it.
const AHEAD_BYTES: u64 = 256 << 10;

/// The name of the segment whose first record has this sequence.
pub(crate) fn segment_name(first: Sequence) -> String {
    format!("log.{:016x}", first.0)
}

/// The first sequence that a file name stands for, if it is a segment's.
pub(crate) fn segment_first(name: &str) -> Option<Sequence> {
    let digits = name.strip_prefix("log.")?;
    let canonical = digits.len() == 16 && !digits.bytes().any(|b| b.is_ascii_uppercase());
    if !canonical {
        return None;
    }
    u64::from_str_radix(digits, 16).ok().map(Sequence)
}

/// Id of this boot of the machine; zeros if the kernel does not tell.
pub(crate) fn boot_id() -> BootId {
    weir_host::boot_id().unwrap_or(0).to_be_bytes()
}

/// A segment of the log that is open for appending. Its owner writes records
/// and where the log goes on; the syncer writes how far it is durable.
pub(crate) struct SegmentFile {
    file: File,
    home: Home,
    name: String,
}

impl SegmentFile {
    /// Makes what was appended durable.
    pub fn sync(&self, site: &'static str) -> Result<(), Errno> {
        self.home.sync_file(&self.file, site)
    }

    /// Notes that every commit up to `synced` is durable. The note becomes
    /// durable with the next sync: whoever finds less in the log knows that
    /// something is missing.
    pub fn mark_synced(&self, synced: Sequence) -> Result<(), Errno> {
        let mark = encode_mark(SYNCED_MARK_OFFSET, synced);
        self.home.write(&self.file, &mark, SYNCED_MARK_OFFSET as u64)
    }

    /// Notes that the log goes on in the segment that begins with `next`.
    fn mark_next(&self, next: Sequence) -> Result<(), Errno> {
        let mark = encode_mark(NEXT_MARK_OFFSET, next);
        self.home.write(&self.file, &mark, NEXT_MARK_OFFSET as u64)
    }
}

/// The end of the log: takes commits into a buffer and appends them together.
pub(crate) struct LogWriter {
    home: Home,
    boot: BootId,
    file: Arc<SegmentFile>,
    segment_bytes: u64,
    /// Bytes of the segment that have space reserved on disk.
    set_aside_bytes: u64,
    buffer: Vec<u8>,
    /// The last records of the groups at the beginning of the buffer that were given to the journal,
    /// each with the number of the group's bytes.
    given: VecDeque<(Sequence, usize)>,
    /// Bytes of these groups.
    given_bytes: usize,
}

impl LogWriter {
    /// Starts a segment durably, replacing a file of its name.
    pub fn create(home: &Home, first: Sequence) -> Result<Self> {
        let boot = home.memory_run();
        let name = segment_name(first);
        let temporary = format!("{name}.new");
        let file = home.file(&temporary, OpenHow::REPLACE)?;
        let write = || {
            home.write(&file, &start_of_segment(first, boot), 0)?;
            home.sync_file(&file, "meta-log-start")
        };
        write().map_err(|e| home.error(&temporary, e))?;
        home.rename(&temporary, &name)?;
        home.sync("meta-log-start-name")?;
        Ok(Self {
            home: home.clone(),
            boot,
            file: Arc::new(SegmentFile { file, home: home.clone(), name }),
            segment_bytes: RECORDS_START as u64,
            set_aside_bytes: RECORDS_START as u64,
            buffer: Vec::new(),
            given: VecDeque::new(),
            given_bytes: 0,
        })
    }

    /// The file of the current segment.
    pub fn file(&self) -> &Arc<SegmentFile> {
        &self.file
    }

    /// Name of the current segment, and how many of its bytes are in the file.
    pub fn written(&self) -> (&str, u64) {
        (&self.file.name, self.segment_bytes)
    }

    /// Bytes of the current segment, including the buffer.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes + self.buffer.len() as u64
    }

    /// Bytes that wait for [`LogWriter::flush`].
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The records that wait for [`LogWriter::flush`] and were not given to the journal.
    pub fn ungiven(&self) -> &[u8] {
        self.buffer.get(self.given_bytes..).unwrap_or_default()
    }

    /// Notes that [`LogWriter::ungiven`], of which `last` is the last record, was given to the
    /// journal.
    pub fn mark_given(&mut self, last: Sequence) {
        self.given.push_back((last, self.buffer.len() - self.given_bytes));
        self.given_bytes = self.buffer.len();
    }

    /// Reserves space for a commit, behind the buffered ones. After an error nothing has changed.
    ///
    /// Errors: `NoSpace`, though all of the reserve has been given up; those of the disk.
    pub fn set_aside(&mut self, writes: &[Write]) -> Result<()> {
        let end = self.segment_bytes() + max_record_bytes(writes) as u64;
        let set_aside = self.set_aside_bytes;
        if end <= set_aside {
            return Ok(());
        }
        if !self.home.reserve().has_room_for_log(end) {
            return Err(self.home.error(&self.file.name, Errno::NOSPC));
        }
        let allocate = |to: u64| self.file.file.allocate(set_aside, to - set_aside, true);
        let ahead = end + AHEAD_BYTES;
        let done = match allocate(ahead) {
            Ok(()) => Ok(ahead),
            // Takes no more from the reserve than needed.
            Err(Errno::NOSPC | Errno::DQUOT) => {
                self.home.reserve().make_room(|| allocate(end)).map(|()| end)
            }
            Err(e) => Err(e),
        };
        self.set_aside_bytes = match done {
            Ok(to) => to,
            Err(Errno::OPNOTSUPP) => u64::MAX,
            Err(e) => return Err(self.home.error(&self.file.name, e)),
        };
        Ok(())
    }

    /// Adds a commit to the buffer.
    pub fn append(&mut self, sequence: Sequence, synced: Sequence, writes: &[Write]) {
        encode_record(&mut self.buffer, sequence, synced, writes);
    }

    /// Appends the buffer to the segment in one write. After an error the
    /// segment may end in a torn record: nothing may be appended any more.
    pub fn flush(&mut self) -> Result<()> {
        self.given.clear();
        self.given_bytes = 0;
        self.flush_front(self.buffer.len())
    }

    /// As [`LogWriter::flush`], with the groups up to `upto` that were given to the journal. Returns
    /// the number of their bytes.
    pub fn flush_given(&mut self, upto: Sequence) -> Result<usize> {
        let mut bytes = 0;
        while let Some((_, of_group)) = self.given.front().filter(|(last, _)| *last <= upto) {
            bytes += of_group;
            self.given.pop_front();
        }
        self.given_bytes -= bytes;
        self.flush_front(bytes)?;
        Ok(bytes)
    }

    fn flush_front(&mut self, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let front = &self.buffer[..bytes];
        self.home.write(&self.file.file, front, self.segment_bytes).map_err(|e| {
            let file = self.home.display(&self.file.name);
            Error::from(std::io::Error::from(e)).context(format!("append to {file}"))
        })?;
        self.segment_bytes += bytes as u64;
        self.buffer.drain(..bytes);
        Ok(())
    }

    /// Starts a new segment, which is not durable yet. The buffer must be empty. Returns the name
    /// of the completed segment. After an error the current segment stays in use.
    pub fn rotate(&mut self, first: Sequence) -> Result<String> {
        let name = segment_name(first);
        let new = OpenHow { exclusive: true, ..OpenHow::CREATE };
        let file = self.home.file(&name, new)?;
        let begin = || {
            self.home.write(&file, &start_of_segment(first, self.boot), 0)?;
            self.file.mark_next(first)
        };
        if let Err(e) = begin() {
            // An empty segment before its turn would look like a gap.
            self.home.remove(&name)?;
            return Err(self.home.error(&name, e));
        }
        let next = Arc::new(SegmentFile { file, home: self.home.clone(), name });
        let complete = std::mem::replace(&mut self.file, next);
        self.segment_bytes = RECORDS_START as u64;
        self.set_aside_bytes = self.segment_bytes;
        Ok(complete.name.clone())
    }

    /// Makes appends go elsewhere, for tests of failures.
    #[cfg(test)]
    pub fn redirect(&mut self, file: File) -> Arc<SegmentFile> {
        let home = self.home.clone();
        self.file = Arc::new(SegmentFile { file, home, name: "elsewhere".into() });
        self.set_aside_bytes = u64::MAX;
        Arc::clone(&self.file)
    }
}

/// The header of a segment, without marks.
fn start_of_segment(first: Sequence, boot: BootId) -> [u8; RECORDS_START] {
    let mut bytes = [0; RECORDS_START];
    let header = SegmentHeader { first, boot }.encode();
    bytes[..header.len()].copy_from_slice(&header);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_sort_by_sequence_and_read_back() {
        assert_eq!(segment_name(Sequence(0x1f)), "log.000000000000001f");
        assert_eq!(segment_first("log.000000000000001f"), Some(Sequence(0x1f)));
        for other in ["log.1f", "log.000000000000001F", "log.", "log.00000000000000zz", "tree.redb"]
        {
            assert_eq!(segment_first(other), None, "{other}");
        }
    }
}
