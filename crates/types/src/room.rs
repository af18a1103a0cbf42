//! How much of a disk is kept free, and for what.

/// A part of a disk that is kept for something.
#[derive(Clone, Copy, Debug)]
pub struct DiskPart {
    /// One part in so many of the disk,
    one_in: u64,
    /// but so many bytes at least, if that is no more than an eighth,
    least_bytes: u64,
    /// and so many at most.
    most_bytes: u64,
}

impl DiskPart {
    /// How many bytes of a disk of this size.
    pub const fn of(self, total_bytes: u64) -> u64 {
        let eighth = total_bytes / 8;
        let least = if self.least_bytes < eighth { self.least_bytes } else { eighth };
        let part = total_bytes / self.one_in;
        let part = if part < least { least } else { part };
        if part < self.most_bytes { part } else { self.most_bytes }
    }
}

/// Data servers take no data that needs room when less than this is free: the rest is for what
/// they note about data, and for the metadata server if it is on that disk.
pub const KEPT_FROM_DATA: DiskPart =
    DiskPart { one_in: 64, least_bytes: 8 << 20, most_bytes: 1 << 30 };
/// The metadata server does nothing that needs room when less than this is free: the rest is for
/// removals.
pub const KEPT_FOR_REMOVALS: DiskPart =
    DiskPart { one_in: 128, least_bytes: 4 << 20, most_bytes: 64 << 20 };
/// What the metadata server takes for a reserve, which it gives up piece by piece when others
/// have filled the disk.
pub const METADATA_RESERVE: DiskPart =
    DiskPart { one_in: 64, least_bytes: 8 << 20, most_bytes: 64 << 20 };

/// Data servers make no more objects when a file system can take no more files than these (or an
/// eighth of all, if that is less): the rest is for what they note, and for the metadata server if
/// it is on that disk.
pub const FILES_KEPT_FROM_DATA: u64 = 64;
/// The metadata server does nothing that needs room when its file system can take no more files
/// than these.
pub const FILES_KEPT_FOR_REMOVALS: u64 = 16;

const _: () = {
    assert!(FILES_KEPT_FOR_REMOVALS < FILES_KEPT_FROM_DATA);
    // Data servers stop first.
    assert!(KEPT_FOR_REMOVALS.one_in > KEPT_FROM_DATA.one_in);
    assert!(KEPT_FOR_REMOVALS.least_bytes < KEPT_FROM_DATA.least_bytes);
    assert!(KEPT_FOR_REMOVALS.most_bytes < KEPT_FROM_DATA.most_bytes);
};
