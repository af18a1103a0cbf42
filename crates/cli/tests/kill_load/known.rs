//! What a load knows of a file that it alone changes.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;

/// Contents as they were acknowledged, and what of them an error leaves certain.
#[derive(Default)]
pub struct Known {
    pub bytes: Vec<u8>,
    /// What the last `fsync` that succeeded has made durable.
    synced: Vec<u8>,
    /// What was changed since, also by calls that failed.
    unsynced: Vec<Range<usize>>,
    /// An error may still come of what was written while disks failed.
    pub risky: bool,
    /// Since an error only what was synced is certain.
    pub damaged: bool,
    pub open: Option<File>,
    /// The last calls, to explain a failure.
    pub history: VecDeque<String>,
}

/// So many calls are remembered.
const HISTORY: usize = 24;

impl Known {
    /// A file that was just made.
    pub fn new(file: File) -> Self {
        Self { open: Some(file), ..Self::default() }
    }

    pub fn remember(&mut self, call: &str) {
        self.history.truncate(HISTORY - 1);
        self.history.push_front(call.to_owned());
    }

    /// A call that changes this range begins.
    pub fn will_change(&mut self, range: Range<usize>) {
        match self.unsynced.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.unsynced.push(range),
        }
    }

    pub fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(data);
    }

    pub fn is_synced(&mut self) {
        self.synced.clone_from(&self.bytes);
        self.unsynced.clear();
    }

    pub fn synced_len(&self) -> usize {
        self.synced.len()
    }

    pub fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// The first byte of `found` that cannot be, after an error.
    pub fn contradiction(&self, found: &[u8]) -> Option<usize> {
        let may_differ = |at: usize| self.unsynced.iter().any(|range| range.contains(&at));
        let is_wrong = |at: &usize| found.get(*at) != self.synced.get(*at) && !may_differ(*at);
        (0..found.len().max(self.synced.len())).find(is_wrong)
    }
}
