//! State that all threads of a server share. It knows nothing of what they do with it.

pub(crate) mod copies;
pub(crate) mod locks;
pub(crate) mod removed;
pub(crate) mod resting;
pub(crate) mod staged;
mod status;
pub(crate) mod suspects;

use crate::attempts::Attempts;
use crate::counters::Counters;
use crate::disk::{Disk, Unopened};
use crate::machine::Revoked;
use crate::peers::protection::Protection;
use copies::Copies;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Instant;
use weir_metrics::Histogram;
use weir_types::{ServerId, TargetId};
use weir_wire::{Key, Op};

/// Durations of requests to a target.
#[derive(Debug, Default)]
pub(crate) struct RequestTimes {
    pub(crate) read: Histogram,
    pub(crate) write: Histogram,
    pub(crate) sync: Histogram,
    pub(crate) other: Histogram,
}

impl RequestTimes {
    /// The histogram of an operation.
    pub(crate) fn of(&self, op: Op) -> &Histogram {
        match op {
            Op::Read => &self.read,
            Op::Write => &self.write,
            Op::Sync => &self.sync,
            _ => &self.other,
        }
    }
}

/// State that all loops share.
pub(crate) struct Shared {
    pub(crate) server: ServerId,
    pub(crate) server_key: Key,
    pub(crate) cluster: [u8; 16],
    /// As long as that of a target is the same, nothing that it confirmed was lost.
    pub(crate) runs: Vec<(TargetId, u64)>,
    pub(crate) started: Instant,
    /// The files of the keys of targets.
    pub(crate) key_files: BTreeMap<TargetId, PathBuf>,
    /// Sorted by target id.
    pub(crate) disks: Vec<Arc<Disk>>,
    /// Targets of the configuration that could not be opened.
    pub(crate) unopened: Vec<Unopened>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) times: RequestTimes,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) revoked: Arc<Revoked>,
    pub(crate) copies: Copies,
    /// The highest rate of bringing other copies up to date, bytes per second; 0 for no limit.
    pub(crate) resync_bytes_per_s: u64,
    /// Share of the time for that while clients have requests, as set by the metadata server,
    /// percent.
    pub(crate) busy_percent: AtomicU8,
    pub(crate) protection: Arc<Protection>,
    /// Whether the server has to restart after it has stopped.
    pub(crate) anew: AtomicBool,
}

impl Shared {
    pub(crate) fn disk(&self, target: TargetId) -> Option<&Arc<Disk>> {
        let at = self.disks.binary_search_by_key(&target, |d| d.served.id).ok()?;
        self.disks.get(at)
    }
}
