//! All limits of the interface, and the relations between them.

/// Maximum number of open descriptors of a process.
pub const MAX_OPEN: usize = 256;
/// Maximum number of asynchronous operations that are running, or done and not asked for.
pub const MAX_ASYNC_OUTSTANDING: usize = 256;
/// Maximum number of entries of a list, and of elements of all its entries.
pub const MAX_COUNT: u32 = 65_536;
/// Maximum length of a label.
pub const MAX_LABEL_LEN: usize = 1024;
/// Maximum length of a name, without the final NUL.
pub const MAX_NAME_LEN: usize = 1023;
/// Maximum offset of the end of a file.
pub const MAX_OFFSET: u64 = 1 << 62;
/// The largest size of a file.
pub const MAX_SIZE: u64 = 1 << 62;
/// Maximum bytes of one call.
pub const MAX_TRANSFER_LEN: u64 = 1 << 30;
/// Maximum number of controls of one call.
pub const MAX_CONTROLS: u32 = 64;
/// Maximum bytes of a record in a hint.
pub const MAX_RECORD_BYTES: u64 = 4 << 20;
/// Maximum number of hints of one class on a descriptor.
pub const MAX_HINTS: usize = 1024;
/// Maximum number of files with hints by name.
pub const MAX_HINTED_NAMES: usize = 256;
/// Maximum number of defined collectives.
pub const MAX_COLLECTIVES: usize = 64;
/// Maximum number of participants of a collective.
pub const MAX_PARTICIPANTS: u32 = 256;
/// Maximum number of pieces of memory of all participants of a collective.
pub const MAX_COLLECTIVE_PIECES: usize = 1 << 20;
/// Maximum number of threads for asynchronous operations.
pub const MAX_WORKERS: usize = 8;

/// Maximum bytes of one call of a backend.
pub const BATCH_BYTES: u64 = 4 << 20;
/// Maximum number of contiguous file ranges in one call of a backend.
pub const BATCH_SPANS: usize = 2048;

const _: () = {
    assert!(MAX_OFFSET <= MAX_SIZE);
    assert!(BATCH_BYTES <= MAX_TRANSFER_LEN);
    assert!(MAX_RECORD_BYTES <= BATCH_BYTES);
    assert!(MAX_PARTICIPANTS as usize <= MAX_ASYNC_OUTSTANDING);
};
