//! Messages between the benchmark and a worker: lines of JSON.
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

/// The way in which a worker accesses files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Place {
    /// POSIX calls below a directory.
    Posix {
        /// The directory.
        root: PathBuf,
        /// Drop a file's pages from the kernel's cache at open.
        cold: bool,
        /// Open with `O_DIRECT`.
        direct: bool,
        /// Work as this user; a new directory belongs to the user. Needs root.
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

/// The sync at the end of a rewrite.
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
    /// Read a range of a file sequentially.
    Read { place: Place, path: String, from: u64, to: u64, check: bool },
    /// Write a range of a file, which is created if it is missing, and sync it.
    Rewrite { place: Place, path: String, from: u64, to: u64, sync: SyncKind },
    /// Read random blocks, each at most once, for some time.
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
    /// Read or write a file sequentially and repeatedly for some time.
    Steady { place: Place, path: String, bytes: u64, ms: u64, write: bool },
    /// Make a directory.
    MakeDir { place: Place, dir: String },
    /// Create empty files `PREFIX000000`...
    Create { place: Place, names: Names },
    /// Get the attributes of files in pseudorandom order.
    Stat { place: Place, names: Names },
    /// Remove files.
    Unlink { place: Place, names: Names },
    /// Send bytes from memory or a file over one TCP connection.
    StreamSend { bytes: u64, file: Option<PathBuf>, from: u64 },
    /// Receive bytes from a TCP connection, with or without computing their CRC-32C.
    StreamReceive { port: u16, bytes: u64, crc: bool },
    /// Answer small requests on some TCP connections until all are closed.
    PingServe { request_bytes: usize, reply_bytes: usize, connections: usize },
    /// Send requests to servers in random order, one at a time.
    PingAsk { ports: Vec<u16>, request_bytes: usize, reply_bytes: usize, ms: u64, seed: u64 },
}

/// A range of numbered files in a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Names {
    /// The directory.
    pub dir: String,
    /// Prefix of their names.
    pub prefix: String,
    /// Number of the first file.
    pub from: u32,
    /// Number after the last file.
    pub to: u32,
}

impl Names {
    /// The name of a file.
    pub fn name(&self, number: u32) -> String {
        format!("{}{number:06}", self.prefix)
    }
}

/// A message from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The order is prepared; `port` is where a server listens.
    Ready { port: Option<u16> },
    /// The order is done.
    Finished(Work),
    /// The order failed.
    Failed(String),
}

/// Result of an order. Times are of the monotonic clock.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// Begin, nanoseconds.
    pub begin_ns: u64,
    /// End, nanoseconds.
    pub end_ns: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Number of calls.
    pub ops: u64,
    /// Rewrites: when everything was written, before the sync.
    pub written_ns: u64,
    /// Rewrites: CPU time of the worker at that moment.
    pub written_cpu_ns: u64,
    /// Steady work: the longest call.
    pub longest_ns: u64,
}
