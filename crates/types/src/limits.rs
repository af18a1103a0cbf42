//! All limits of the protocol. The relations between them are checked at compile time.

/// The unit of checksums: one CRC-32C for each block of this size in an object.
pub const BLOCK_BYTES: usize = 4096;
/// The same as a length within a file. Leases cover whole blocks, too.
pub const BLOCK: u64 = BLOCK_BYTES as u64;
/// The most data bytes one frame carries.
pub const MAX_PAYLOAD_BYTES: usize = 4 << 20;
/// The most bytes of a message body.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// The most checksums of one frame: one for each block, and two partial blocks for each piece of a
/// strided request.
pub const MAX_CHECKSUMS: usize = MAX_PAYLOAD_BYTES / BLOCK_BYTES + 2 * MAX_PIECES;
/// The most elements of any list in a message.
pub const MAX_LIST_LEN: usize = 65_536;
/// The most strided regions that one request may name.
pub const MAX_REGIONS: usize = 256;
/// The most contiguous pieces of one object that one request may touch.
pub const MAX_PIECES: usize = 4096;
/// The longest name of a directory entry.
pub const MAX_NAME_BYTES: usize = 255;
/// The longest name of a machine.
pub const MAX_HOST_BYTES: usize = 255;
/// The longest name of a failure domain.
pub const MAX_DOMAIN_BYTES: usize = 64;
/// The longest target of a symbolic link.
pub const MAX_SYMLINK_BYTES: usize = 4095;
/// The longest value of an extended attribute (as on Linux).
pub const MAX_XATTR_BYTES: usize = 65_536;
/// The most hard links to a file.
pub const MAX_LINKS: u32 = 1_000_000;
/// The largest file size, and so the largest offset plus length.
pub const MAX_FILE_BYTES: u64 = 1 << 62;
/// The smallest stripe unit: a block, so that no block spans two columns.
pub const MIN_STRIPE_UNIT_BYTES: u32 = BLOCK_BYTES as u32;
/// The largest stripe unit.
pub const MAX_STRIPE_UNIT_BYTES: u32 = 1 << 30;
/// The most columns of one segment.
pub const MAX_COLUMNS: usize = 1024;
/// The fewest columns of a segment with parities.
pub const MIN_CODED_COLUMNS: usize = 2;
/// The most columns of a segment with parities.
pub const MAX_CODED_COLUMNS: usize = 32;
/// The most parities of a segment.
pub const MAX_PARITIES: usize = 8;
/// The value of a delay, in seconds, that turns parities off.
pub const NEVER_S: u32 = u32::MAX;
/// The most segments of one file.
pub const MAX_SEGMENTS: usize = 1 << 20;
/// Segments in one page of a layout message.
pub const SEGMENT_PAGE: usize = 64;
/// The most mutations that one session has in flight.
pub const MAX_SLOTS: u16 = 256;
/// Requests that a server accepts on one connection before it stops reading.
pub const MAX_IN_FLIGHT_PER_CONNECTION: usize = 64;
/// The most supplementary groups of a caller (Linux allows 65,536; NFS 16).
pub const MAX_GROUPS: usize = 1024;
/// Segments for which one request reports the written columns.
pub const MAX_WRITTEN_SEGMENTS: usize = 32;
/// The most ranges of written bytes in a report of a size.
pub const MAX_WRITTEN_RANGES: usize = 16;
/// Files for which one request reports read times.
pub const MAX_ACCESSED: usize = 32;
/// Objects in one page of a listing, or in one request to remove them.
pub const MAX_OBJECT_PAGE: usize = 4096;
/// The most bytes that one request verifies, so that other requests get the disk in between.
pub const MAX_SCRUB_BYTES: u32 = 4 << 20;
/// The most bytes of an object that one request preallocates.
pub const MAX_ALLOCATE_BYTES: u64 = 1 << 30;
/// The most bytes that one request copies, so that it takes no longer than a write.
pub const MAX_COPY_BYTES: u64 = MAX_PAYLOAD_BYTES as u64;
/// The most pieces that one request copies.
pub const MAX_COPY_PIECES: usize = 1024;
/// Number of past online periods of a target that are remembered.
pub const MAX_PAST: usize = 4;
/// Number of targets whose speed is sent with an open file.
pub const MAX_LOADS: usize = 1024;
/// Objects for which one request asks where their copies are.
pub const MAX_FIND_COPIES: usize = 256;
/// The most bytes of an object in one request to repair rotted blocks.
pub const MAX_REPAIR_BYTES: u64 = 1 << 20;
/// Ranges of an object in one reply to a request for the bytes that a copy lacks.
pub const MAX_LACKING_RANGES: usize = 256;
/// Objects in one reply to a request for the bytes that copies lack.
pub const MAX_LACKING_OBJECTS: usize = 64;

/// Directory entries in one readdir reply.
pub const MAX_READDIR_ENTRIES: usize = 1024;
/// Bytes of layouts in one readdir reply.
pub const MAX_READDIR_LAYOUT_BYTES: usize = 256 << 10;
/// More than a directory entry has without a layout, bytes.
pub const MAX_ENTRY_BYTES: usize = 512;

const _: () = {
    assert!(MAX_PAYLOAD_BYTES.is_multiple_of(BLOCK_BYTES));
    assert!((MIN_STRIPE_UNIT_BYTES as usize).is_multiple_of(BLOCK_BYTES));
    assert!(MAX_XATTR_BYTES + 4096 < MAX_BODY_BYTES);
    assert!(MAX_REGIONS <= MAX_PIECES);
    assert!(MAX_READDIR_ENTRIES * MAX_ENTRY_BYTES + MAX_READDIR_LAYOUT_BYTES < MAX_BODY_BYTES);
    assert!(MAX_CHECKSUMS * 4 <= MAX_BODY_BYTES);
};
