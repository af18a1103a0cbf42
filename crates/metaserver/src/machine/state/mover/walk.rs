//! Scans of all files, and the work that they find.

use crate::mover::coding::Coding;
use crate::ops::move_copies::Look;
use crate::schema::key;
use weir_types::FileId;

/// Work found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Number of files.
    pub files: u64,
    /// Copies to be filled.
    pub copies: u64,
    /// Their approximate bytes.
    pub bytes: u64,
    /// Segments without a target for a copy, or without a source.
    pub stuck: u64,
    /// Segments that get parities.
    pub coding: Coding,
}

impl Survey {
    /// Adds the work of a file.
    pub fn add(&mut self, look: &Look) {
        let filling: u64 = look.filling.iter().map(|copy| copy.bytes).sum();
        let bytes = look.missing.1.saturating_add(filling);
        self.files += 1;
        self.copies += look.missing.0 + look.filling.len() as u64;
        self.bytes = self.bytes.saturating_add(bytes);
        self.stuck += look.stuck;
        self.coding.add(&look.coding);
    }

    /// Subtracts a filled copy.
    pub fn done(&mut self, bytes: u64) {
        self.copies = self.copies.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A scan over all files.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Key of the next file, or of the present one.
    pub next: Vec<u8>,
    /// First byte to look at in that file.
    pub from: u64,
    /// Whether a file could not be changed.
    pub skipped: bool,
}

impl Walk {
    /// A scan from the first file on.
    pub fn new() -> Self {
        Self { next: key::inode(FileId(0)), from: 0, skipped: false }
    }

    /// Whether the scan has not begun.
    pub fn is_new(&self) -> bool {
        (&*self.next, self.from) == (&*key::inode(FileId(0)), 0)
    }
}
