//! What the benchmark tells a worker and what it answers: lines of JSON.
//!
//! ```text
//! bench: Order      worker: prepares (opens, connects), answers Ready
//! bench: "go"       worker: does it, answers Finished
//! ```

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Bytes of one call of sequential work.
pub const CALL_BYTES: usize = 1 << 20;
/// Bytes of one random read.
pub const BLOCK_BYTES: usize = 4096;

/// Through what a worker reaches files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Place {
    /// POSIX calls below a directory.
    Posix {
        /// The directory.
        root: PathBuf,
        /// Drop what the kernel caches of a file at open.
        cold: bool,
        /// Open with `O_DIRECT`.
        direct: bool,
        /// In the name of this user; a directory that is made becomes his. Needs root.
        user: Option<u32>,
    },
    /// The client library.
    Library {
        /// The credential file.
        credential: PathBuf,
        /// Check data against its checksums.
        verify: bool,
    },
}

/// How a rewrite ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncKind {
    /// `fdatasync`.
    Data,
    /// `fsync`.
    Full,
}

/// A task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Read a range of a file from its beginning to its end.
    Read { place: Place, path: String, from: u64, to: u64, check: bool },
    /// Write a range of a file, made if it is missing, and sync it.
    Rewrite { place: Place, path: String, from: u64, to: u64, sync: SyncKind },
    /// Read blocks at random, each at the most once, for some time.
    Random {
        place: Place,
        path: String,
        blocks: u64,
        job: u64,
        jobs: u64,
        ms: u64,
        seed: u64,
        check: bool,
    },
    /// Read or write a file from its beginning to its end again and again, for some time.
    Steady { place: Place, path: String, bytes: u64, ms: u64, write: bool },
    /// Make a directory.
    MakeDir { place: Place, dir: String },
    /// Create empty files `PREFIX000000`...
    Create { place: Place, names: Names },
    /// Get the attributes of files, not in order.
    Stat { place: Place, names: Names },
    /// Remove files.
    Unlink { place: Place, names: Names },
    /// Send bytes to one TCP connection: from memory, or from a file.
    StreamSend { bytes: u64, file: Option<PathBuf>, from: u64 },
    /// Take bytes from a TCP connection, with or without their CRC-32C.
    StreamReceive { port: u16, bytes: u64, crc: bool },
    /// Answer small requests on some TCP connections until all are closed.
    PingServe { request_bytes: usize, reply_bytes: usize, connections: usize },
    /// Ask servers in random order, one at a time.
    PingAsk { ports: Vec<u16>, request_bytes: usize, reply_bytes: usize, ms: u64, seed: u64 },
}

/// Some files of a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Names {
    /// The directory.
    pub dir: String,
    /// What their names begin with.
    pub prefix: String,
    /// The number of the first.
    pub from: u32,
    /// The number after the last.
    pub to: u32,
}

impl Names {
    /// The name of a file.
    pub fn name(&self, number: u32) -> String {
        format!("{}{number:06}", self.prefix)
    }
}

/// What a worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Prepared; a server listens here.
    Ready { port: Option<u16> },
    /// Done.
    Finished(Work),
    /// It did not work.
    Failed(String),
}

/// What was done. Times are of the monotonic clock.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// When it began.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Calls.
    pub ops: u64,
    /// Rewrites: when all was written and nothing synced.
    pub written_ns: u64,
    /// Rewrites: CPU of the worker until then.
    pub written_cpu_ns: u64,
    /// Steady work: its longest call.
    pub longest_ns: u64,
}
