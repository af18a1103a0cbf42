//! The operation log as it is written: segments, appending, rotation.

use crate::engine::{Sequence, Write};
use crate::record::{BootId, SEGMENT_HEADER_BYTES, SegmentHeader, encode_record};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_types::{Error, Result};

/// The path of the segment whose first record has this sequence.
pub(crate) fn segment_path(dir: &Path, first: Sequence) -> PathBuf {
    dir.join(format!("log.{:016x}", first.0))
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

/// This run of the machine; zeros if the kernel does not say.
pub(crate) fn boot_id() -> BootId {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

/// The end of the log: takes commits into a buffer and appends them together.
pub(crate) struct LogWriter {
    dir: PathBuf,
    boot: BootId,
    path: PathBuf,
    file: Arc<File>,
    segment_bytes: u64,
    buffer: Vec<u8>,
}

impl LogWriter {
    /// Starts a segment durably, in place of whatever has its name.
    pub fn create(dir: &Path, first: Sequence) -> Result<Self> {
        let boot = boot_id();
        let path = segment_path(dir, first);
        let fail = |e: std::io::Error| Error::from(e).context(path.display());
        let header = SegmentHeader { first, boot }.encode();
        crate::directory::replace_durably(dir, &path, &header).map_err(fail)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(fail)?;
        Ok(Self {
            dir: dir.to_owned(),
            boot,
            path: path.clone(),
            file: Arc::new(file),
            segment_bytes: SEGMENT_HEADER_BYTES as u64,
            buffer: Vec::new(),
        })
    }

    /// The file of the current segment.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Bytes of the current segment, with what waits in the buffer.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes + self.buffer.len() as u64
    }

    /// Bytes that wait for [`LogWriter::flush`].
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Adds a commit to the buffer.
    pub fn append(&mut self, sequence: Sequence, synced: Sequence, writes: &[Write]) {
        encode_record(&mut self.buffer, sequence, synced, writes);
    }

    /// Appends the buffer to the segment in one write. After an error the
    /// segment may end in a torn record: nothing may be appended any more.
    pub fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        (&*self.file)
            .write_all(&self.buffer)
            .map_err(|e| Error::from(e).context(format!("append to {}", self.path.display())))?;
        self.segment_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Goes on in a new segment (the buffer is empty), which is not durable
    /// yet. Returns the path of the segment that is now complete. After an
    /// error the current segment goes on and there is no new one.
    pub fn rotate(&mut self, first: Sequence) -> Result<PathBuf> {
        let path = segment_path(&self.dir, first);
        let fail = |e: std::io::Error| Error::from(e).context(path.display());
        let file = OpenOptions::new().create_new(true).append(true).open(&path).map_err(fail)?;
        let header = SegmentHeader { first, boot: self.boot }.encode();
        if let Err(e) = (&file).write_all(&header) {
            // A segment without records before its turn would look like a gap.
            std::fs::remove_file(&path).map_err(fail)?;
            return Err(fail(e));
        }
        self.file = Arc::new(file);
        self.segment_bytes = SEGMENT_HEADER_BYTES as u64;
        Ok(std::mem::replace(&mut self.path, path))
    }

    /// Makes appends go elsewhere, for tests of failures.
    #[cfg(test)]
    pub fn redirect(&mut self, file: File) {
        self.file = Arc::new(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_sort_by_sequence_and_read_back() {
        let path = segment_path(Path::new("/d"), Sequence(0x1f));
        assert_eq!(path, Path::new("/d/log.000000000000001f"));
        assert_eq!(segment_first("log.000000000000001f"), Some(Sequence(0x1f)));
        for other in ["log.1f", "log.000000000000001F", "log.", "log.00000000000000zz", "tree.redb"]
        {
            assert_eq!(segment_first(other), None, "{other}");
        }
    }
}
