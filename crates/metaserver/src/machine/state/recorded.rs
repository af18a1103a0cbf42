//! What is counted for the audit records.

use std::sync::Arc;
use weir_audit::{Event, Log, Sum, Tally};
use weir_wire::audit::AuditPage;

/// Counts requests, and adds them to a log.
#[derive(Debug, Default)]
pub struct Recorded {
    log: Arc<Log>,
    tally: Tally<()>,
}

impl Recorded {
    /// Adds to this log.
    pub fn in_log(log: Arc<Log>) -> Self {
        Self { log, tally: Tally::default() }
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.log.is_on()
    }

    /// Counts a request.
    pub fn note(&mut self, event: Event, now_unix_ms: u64) {
        if self.tally.note((), event, Sum::one(0, now_unix_ms)) {
            self.hand_over();
        }
    }

    /// Adds what was counted to the log.
    pub fn hand_over(&mut self) {
        if !self.tally.is_empty() {
            let mut sums: Vec<_> =
                self.tally.take().map(|((_, event), sum)| (event, sum)).collect();
            sums.sort_by_key(|(_, sum)| sum.first_unix_ms);
            self.log.add(sums);
        }
    }

    /// A page of the records.
    pub fn page(&mut self, after: u64) -> AuditPage {
        self.hand_over();
        self.log.page(after)
    }
}
