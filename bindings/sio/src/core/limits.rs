//! Every limit of the interface, and the relations between them.

/// Descriptors that a process has open at the most.
pub const MAX_OPEN: usize = 256;
/// Asynchronous operations that are under way, or done and not yet asked for.
pub const MAX_ASYNC_OUTSTANDING: usize = 256;
/// Entries of a list, and elements of all entries of a list together.
pub const MAX_COUNT: u32 = 65_536;
/// Bytes of a label.
pub const MAX_LABEL_LEN: usize = 1024;
/// Bytes of a name, without the final NUL.
pub const MAX_NAME_LEN: usize = 1023;
/// The offset behind the last byte that a file may have.
pub const MAX_OFFSET: u64 = 1 << 62;
/// The largest size of a file.
pub const MAX_SIZE: u64 = 1 << 62;
/// Bytes of one call.
pub const MAX_TRANSFER_LEN: u64 = 1 << 30;
/// Controls of one call.
pub const MAX_CONTROLS: u32 = 64;
/// Bytes of a record of a hint.
pub const MAX_RECORD_BYTES: u64 = 4 << 20;
/// Hints that a descriptor holds of one class.
pub const MAX_HINTS: usize = 1024;
/// Files that hints by name wait for.
pub const MAX_HINTED_NAMES: usize = 256;
/// Collectives that are defined at a time.
pub const MAX_COLLECTIVES: usize = 64;
/// Participants of a collective.
pub const MAX_PARTICIPANTS: u32 = 256;
/// Pieces of memory that all participants of a collective name together.
pub const MAX_COLLECTIVE_PIECES: usize = 1 << 20;
/// Threads that carry out asynchronous operations.
pub const MAX_WORKERS: usize = 8;

/// Bytes that a backend is given at once.
pub const BATCH_BYTES: u64 = 4 << 20;
/// Contiguous ranges of the file that a backend is given at once.
pub const BATCH_SPANS: usize = 2048;

const _: () = {
    assert!(MAX_OFFSET <= MAX_SIZE);
    assert!(BATCH_BYTES <= MAX_TRANSFER_LEN);
    assert!(MAX_RECORD_BYTES <= BATCH_BYTES);
    assert!(MAX_PARTICIPANTS as usize <= MAX_ASYNC_OUTSTANDING);
};
