//! Snapshots of the whole store that are being read.

use std::collections::BTreeMap;
use weir_metastore::Snapshot;
use weir_types::ClientId;

/// A snapshot without requests is dropped after this time.
const IDLE_MS: u64 = 60_000;
/// Every snapshot is dropped after this time.
const LIFETIME_MS: u64 = 3_600_000;

/// A snapshot that is being read.
pub struct Reading {
    /// The administrator who reads it; `None`: a metadata server.
    pub client: Option<ClientId>,
    pub snapshot: Box<dyn Snapshot>,
    pub begun_ms: u64,
    pub asked_ms: u64,
    /// Whether the last page was sent.
    pub finished: bool,
}

/// The snapshots that are being read.
#[derive(Default)]
pub struct Exports {
    pub readings: BTreeMap<u64, Reading>,
    /// Number of the last one.
    pub last: u64,
}

impl Exports {
    /// Drops expired snapshots.
    pub fn forget_old(&mut self, now_ms: u64) {
        self.readings.retain(|_, reading| {
            now_ms.saturating_sub(reading.asked_ms) < IDLE_MS
                && now_ms.saturating_sub(reading.begun_ms) < LIFETIME_MS
        });
    }
}
