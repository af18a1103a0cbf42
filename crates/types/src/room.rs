//! How much disk space is kept free, and for what.

/// A part of a disk that is kept free for a purpose.
#[derive(Clone, Copy, Debug)]
pub struct DiskPart {
    /// One part in this many of the disk.
    one_in: u64,
    /// At least this many bytes, but no more than an eighth of the disk.
    least_bytes: u64,
    /// At most this many bytes.
    most_bytes: u64,
}

impl DiskPart {
    /// Bytes of this part on a disk of this size.
    pub const fn of(self, total_bytes: u64) -> u64 {
        let eighth = total_bytes / 8;
        let least = if self.least_bytes < eighth { self.least_bytes } else { eighth };
        let part = total_bytes / self.one_in;
        let part = if part < least { least } else { part };
        if part < self.most_bytes { part } else { self.most_bytes }
    }
}

/// Data servers refuse data that needs space when less than this is free. The rest is for their own
/// records about data, and for the metadata server if it is on the same disk.
pub const KEPT_FROM_DATA: DiskPart =
    DiskPart { one_in: 64, least_bytes: 8 << 20, most_bytes: 1 << 30 };
/// The metadata server refuses operations that need space when less than this is free. The rest is
/// for removals.
pub const KEPT_FOR_REMOVALS: DiskPart =
    DiskPart { one_in: 128, least_bytes: 4 << 20, most_bytes: 64 << 20 };
/// Disk space that the metadata server reserves. It frees the reserve piece by piece when other
/// programs have filled the disk.
pub const METADATA_RESERVE: DiskPart =
    DiskPart { one_in: 64, least_bytes: 8 << 20, most_bytes: 64 << 20 };

/// Data servers create no more objects when fewer inodes than these are free (or than an eighth of
/// all, if that is less). The rest is for their own records, and for the metadata server if it is
/// on the same disk.
pub const FILES_KEPT_FROM_DATA: u64 = 64;
/// The metadata server refuses operations that need an inode when fewer than these are free.
pub const FILES_KEPT_FOR_REMOVALS: u64 = 16;

const _: () = {
    assert!(FILES_KEPT_FOR_REMOVALS < FILES_KEPT_FROM_DATA);
    // Data servers refuse first.
    assert!(KEPT_FOR_REMOVALS.one_in > KEPT_FROM_DATA.one_in);
    assert!(KEPT_FOR_REMOVALS.least_bytes < KEPT_FROM_DATA.least_bytes);
    assert!(KEPT_FOR_REMOVALS.most_bytes < KEPT_FROM_DATA.most_bytes);
};
