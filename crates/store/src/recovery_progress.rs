//! Progress of a recovery, for threads that wait for it and for the next recovery if this one is
//! stopped.

use crate::intents::sector::SECTOR;
use rustix::io::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weir_host::fs::{Directory, OpenHow};
use weir_types::checksum::crc32c;
use weir_types::{Decode, Encode, ObjectId, Reader};

/// The file that holds the saved progress.
const FILE: &str = "recovery";
const MAGIC: [u8; 4] = *b"WRCV";
const FORMAT_VERSION: u32 = 1;

/// Shared by the thread that opens a target and threads that wait for it.
#[derive(Debug, Default)]
pub struct RecoveryProgress {
    total: AtomicU64,
    /// Sum of the weights of finished objects, bytes.
    done: AtomicU64,
    /// Finished bytes of the present object.
    at: AtomicU64,
    /// Number of objects found, and of other steps without bytes.
    steps: AtomicU64,
    stopped: AtomicBool,
    syncing: AtomicBool,
}

impl RecoveryProgress {
    /// Finished share of the recovery, percent; 0 before the amount of work is known.
    pub fn percent(&self) -> u8 {
        let total = u128::from(self.total.load(Relaxed).max(1));
        (u128::from(self.bytes()) * 100 / total).min(99) as u8
    }

    /// A number that changes with every step of progress.
    pub fn steps(&self) -> u64 {
        self.bytes().saturating_add(self.steps.load(Relaxed))
    }

    fn bytes(&self) -> u64 {
        self.done.load(Relaxed).saturating_add(self.at.load(Relaxed))
    }

    /// Asks the recovery to save its progress and stop.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Whether the whole file system is being synced. Only the device's counters show progress
    /// then.
    pub fn is_syncing(&self) -> bool {
        self.syncing.load(Relaxed)
    }

    pub(crate) fn syncs(&self, syncing: bool) {
        self.has_looked();
        self.syncing.store(syncing, Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Sets the total amount of work, bytes, and starts to count.
    pub(crate) fn begin(&self, total: u64) {
        self.has_looked();
        self.at.store(0, Relaxed);
        self.done.store(0, Relaxed);
        self.total.store(total, Relaxed);
    }

    pub(crate) fn has_looked(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    pub(crate) fn is_at(&self, bytes: u64) {
        self.at.store(bytes, Relaxed);
    }

    pub(crate) fn has_done(&self, bytes: u64) {
        self.has_looked();
        self.at.store(0, Relaxed);
        self.done.fetch_add(bytes, Relaxed);
    }
}

/// A point in a recovery: all objects before `id` are done, and `id` is done up to `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) id: ObjectId,
    pub(crate) offset: u64,
}

impl Cursor {
    /// The offset of an object that is finished.
    pub(crate) const ALL: u64 = u64::MAX;

    /// Saves the cursor for the intent log with this sequence number. The file need not be synced:
    /// damaged contents are ignored.
    pub(crate) fn save(&self, root: &Directory, sequence: u64) -> Result<()> {
        let file = root.open_file(FILE, OpenHow::CREATE)?;
        file.write_full(&self.to_disk(sequence), 0)
    }

    /// Loads the cursor that was saved for the intent log with this sequence number.
    pub(crate) fn load(root: &Directory, sequence: u64) -> Option<Self> {
        let mut bytes = [0; SECTOR];
        let file = root.open_file(FILE, OpenHow::READ).ok()?;
        file.read_full(&mut bytes, 0).ok()?;
        Self::from_disk(&bytes, sequence)
    }

    /// Removes the saved cursor.
    pub(crate) fn forget(root: &Directory) -> Result<()> {
        match root.unlink(FILE) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    fn to_disk(self, sequence: u64) -> [u8; SECTOR] {
        let mut fields = Vec::with_capacity(SECTOR);
        ((FORMAT_VERSION, 0u32), sequence).encode(&mut fields);
        (self.offset, self.id).encode(&mut fields);
        let mut bytes = [0; SECTOR];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[8..8 + fields.len()].copy_from_slice(&fields);
        let check = crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    fn from_disk(bytes: &[u8; SECTOR], sequence: u64) -> Option<Self> {
        let mut r = Reader::new(&bytes[8..]);
        let ((version, _), of) = <((u32, u32), u64)>::decode(&mut r).ok()?;
        let (offset, id) = Decode::decode(&mut r).ok()?;
        let cursor = Self { id, offset };
        let is_whole = cursor.to_disk(of) == *bytes;
        (is_whole && version == FORMAT_VERSION && of == sequence).then_some(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    const CURSOR: Cursor = Cursor {
        id: ObjectId {
            file: FileId(0x1122),
            segment: SegmentIndex(3),
            column: ColumnIndex(4),
            copy: CopyIndex(5),
        },
        offset: 0x77,
    };

    #[test]
    fn a_cursor_comes_back_for_its_log_alone_and_every_flipped_bit_is_noticed() {
        let bytes = CURSOR.to_disk(9);
        assert_eq!(Cursor::from_disk(&bytes, 9), Some(CURSOR));
        assert_eq!(Cursor::from_disk(&bytes, 10), None);
        assert_eq!(Cursor::from_disk(&[0; SECTOR], 0), None);
        for bit in 0..SECTOR * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Cursor::from_disk(&bytes, 9), None, "bit {bit}");
        }
    }

    #[test]
    fn the_fields_are_where_the_format_document_says() {
        let bytes = CURSOR.to_disk(9);
        assert_eq!(&bytes[..4], b"WRCV");
        assert_eq!(bytes[8..24], [1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..34], [0x77, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x11]);
    }

    #[test]
    fn progress_goes_from_nothing_to_nearly_all() {
        let progress = RecoveryProgress::default();
        assert_eq!((progress.percent(), progress.steps()), (0, 0));
        progress.begin(200);
        progress.is_at(50);
        assert_eq!(progress.percent(), 25);
        progress.has_done(100);
        assert_eq!(progress.percent(), 50);
        progress.has_done(100);
        assert_eq!((progress.percent(), progress.steps()), (99, 203));
    }
}
