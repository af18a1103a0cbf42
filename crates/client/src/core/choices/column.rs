//! What a reader has outstanding in a column of a file, and which copy it reads.

use super::Patience;
use super::look::Look;
use weir_policy::{Micros, ReadPolicy, Router, Watermarks};

/// Step of progress, bytes: about two pieces. (With one piece, a reader with small calls would be
/// helped without need while the kernel's read-ahead begins.)
const REQUEST_BYTES: u64 = 512 << 10;
/// The most outstanding requests of a reader at each copy. It is small, so that the copy of later
/// blocks is chosen late, and two, so that a disk has the next request when one is done.
const WINDOW_REQUESTS: u64 = 2;
/// The most bytes that large requests may have outstanding.
const MAX_WINDOW_BYTES: u64 = 2 << 20;

/// State of a reader in a column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) router: Router,
    /// Outstanding requests at each copy.
    pub(super) outstanding: Vec<Outstanding>,
    /// Last time at which a queueable request was sent to a copy or ended there.
    pub(super) moved: Micros,
    /// Speed of the reader.
    pub(super) look: Look,
}

/// Outstanding requests of one column at one copy, without read-ahead.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outstanding {
    pub(super) requests: u32,
    pub(super) bytes: u64,
    /// Number of queueable requests. Other requests are received in the order of their call, so no
    /// queued read waits for them.
    pub(super) waited_requests: u32,
    pub(super) waited_bytes: u64,
}

impl Outstanding {
    /// Whether the copy has enough requests to stay busy until the next can be sent.
    pub(super) fn is_full((requests, bytes): (u32, u64), len_bytes: u64, least_bytes: u64) -> bool {
        let window = (WINDOW_REQUESTS * len_bytes).clamp(least_bytes, MAX_WINDOW_BYTES);
        u64::from(requests) >= WINDOW_REQUESTS && bytes + len_bytes > window
    }
}

impl Column {
    pub(super) fn new(policy: ReadPolicy, copies: usize) -> Self {
        let marks = Watermarks { request_bytes: REQUEST_BYTES, ..Watermarks::default() };
        let router = Router::new(policy, copies, marks);
        Self {
            router,
            outstanding: vec![Outstanding::default(); copies],
            moved: 0,
            look: Look::default(),
        }
    }

    /// Whether a copy has enough requests of this reader. Up to `least_bytes` it never has.
    pub(super) fn is_full(
        &self,
        copy: usize,
        len_bytes: u64,
        (patience, least_bytes): (Patience, u64),
    ) -> bool {
        let of = self.outstanding[copy];
        match patience {
            Patience::Ahead => false,
            Patience::None => Outstanding::is_full((of.requests, of.bytes), len_bytes, least_bytes),
            Patience::Turn(_) => {
                let waited = (of.waited_requests, of.waited_bytes);
                Outstanding::is_full(waited, len_bytes, least_bytes)
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.iter().all(|of| of.requests == 0)
    }
}
