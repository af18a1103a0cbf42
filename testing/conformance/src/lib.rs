//! One suite for every client and every layout: the behaviour of a file, checked against an array
//! of bytes. A new client implements [`Subject`]; a new layout is an entry of [`layouts`].

mod library;
mod posix;
mod random;
mod suite;

pub use library::LibraryFile;
pub use posix::PosixFile;
pub use random::Random;
pub use suite::{Outcome, run_model, run_suite};

use weir_types::{LayoutKind, LayoutSpec, Placement};

/// A file under test.
pub trait Subject {
    /// Writes all of `data` at `offset`.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), String>;
    /// Reads up to `len` bytes at `offset`; fewer at the end of the file.
    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, String>;
    /// Truncates or extends the file.
    fn truncate(&mut self, len: u64) -> Result<(), String>;
    /// Punches a hole: makes a range zeros and frees its space. The size stays.
    fn punch(&mut self, offset: u64, len: u64) -> Result<(), String>;
    /// Preallocates space for a range. Unless `keep_size`, extends the file to the end of the
    /// range.
    fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> Result<(), String>;
    /// Makes a range zeros. Unless `keep_size`, extends the file to the end of the range.
    fn zero(&mut self, offset: u64, len: u64, keep_size: bool) -> Result<(), String>;
    /// The first data at or after `offset` (`SEEK_DATA`).
    fn next_data(&mut self, offset: u64) -> Result<Option<u64>, String>;
    /// The first hole at or after `offset`, or the end (`SEEK_HOLE`); `None`
    /// beyond the end.
    fn next_hole(&mut self, offset: u64) -> Result<Option<u64>, String>;
    /// Makes the file durable.
    fn sync(&mut self) -> Result<(), String>;
    /// The size from `stat`.
    fn size(&mut self) -> Result<u64, String>;
    /// Closes and reopens the file.
    fn reopen(&mut self) -> Result<(), String>;
}

/// Every layout, with units so small that short files span many columns and segments.
pub fn layouts() -> Vec<(&'static str, LayoutSpec)> {
    let striped = |unit, count| LayoutSpec {
        kind: LayoutKind::Striped,
        stripe_unit_bytes: unit,
        count,
        ..LayoutSpec::default()
    };
    vec![
        ("striped, 4 KiB units", striped(4096, 0)),
        ("striped, 64 KiB units", striped(65536, 0)),
        ("striped over 3 targets", striped(8192, 3)),
        ("one target", striped(65536, 1)),
        (
            "unequal fragments",
            LayoutSpec {
                kind: LayoutKind::Fragments,
                fragment_bytes: vec![100_000, 838 * 50, 4096, 300_001],
                ..LayoutSpec::default()
            },
        ),
        (
            "chunks of 64 KiB where they are written first",
            LayoutSpec {
                kind: LayoutKind::Chunked,
                segment_bytes: 64 << 10,
                count: 2,
                placement: Placement::Graduated,
                ..LayoutSpec::default()
            },
        ),
        (
            "chunks of 256 KiB",
            LayoutSpec {
                kind: LayoutKind::Chunked,
                segment_bytes: 256 << 10,
                ..LayoutSpec::default()
            },
        ),
    ]
}
