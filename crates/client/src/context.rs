//! On whose behalf a call is made, and what ends it early.

use std::os::fd::RawFd;
use weir_types::{Caller, JobId, Rank};

/// Stands with every call.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// User and groups.
    pub caller: Caller,
    /// The job that the caller belongs to; 0: none.
    pub job: JobId,
    /// The rank within the job.
    pub rank: Rank,
    /// A descriptor that becomes readable when the call should end with
    /// `Interrupted`; it must stay open during the call.
    pub interrupt: Option<RawFd>,
}

impl Context {
    /// In the name of the superuser, not interruptible.
    pub fn root() -> Self {
        Self::default()
    }

    /// In the name of a caller, not interruptible.
    pub fn of(caller: Caller) -> Self {
        Self { caller, ..Self::default() }
    }
}
