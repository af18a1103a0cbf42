//! Points in time, and how long the server waits for what.

use weir_types::Timestamp;

/// A longer time between two ticks (there is one each second) means that the process was stopped.
pub(crate) const LONG_TICK_MS: u64 = 2_000;

/// Time limits of a metadata server, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A session ends after this time of silence.
    pub session_timeout_ms: u64,
    /// A target is offline after this time of silence.
    pub target_timeout_ms: u64,
    /// Time for clients to report their open files after a start.
    pub grace_ms: u64,
    /// What a session holds may be revoked after this time of silence.
    pub lease_ms: u64,
    /// Validity of capabilities.
    pub capability_ms: u64,
    /// Validity of tickets.
    pub ticket_ms: u64,
    /// Interval of data servers' reports.
    pub heartbeat_ms: u32,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            session_timeout_ms: 30_000,
            // With a second between two looks: missed within less than five.
            target_timeout_ms: 3_750,
            grace_ms: 10_000,
            lease_ms: 10_000,
            capability_ms: 3_600_000,
            ticket_ms: 3_600_000,
            heartbeat_ms: 500,
        }
    }
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// For intervals: milliseconds since an arbitrary start.
    pub monotonic_ms: u64,
    /// Wall clock, for users and files.
    pub unix: Timestamp,
}

impl Moment {
    /// Wall clock, milliseconds; 0 before 1970.
    pub(super) fn unix_ms(self) -> u64 {
        u64::try_from(self.unix.0 / 1_000_000).unwrap_or(0)
    }
}
