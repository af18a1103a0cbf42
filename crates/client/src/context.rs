//! On whose behalf a call is made, and what ends it early.

use std::os::fd::RawFd;
use weir_policy::Progress;
use weir_types::{Caller, JobId, Rank};
use weir_wire::Header;

/// Stands with every call.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// User and groups.
    pub caller: Caller,
    /// The job that the caller belongs to; 0: none.
    pub job: JobId,
    /// The rank within the job.
    pub rank: Rank,
    /// How far that process is with its part of the job, if that is known.
    pub progress: Option<Progress>,
    /// A descriptor that becomes readable when the call should end with
    /// `Interrupted`; it must stay open during the call.
    pub interrupt: Option<RawFd>,
}

impl Context {
    /// In the name of the superuser, not interruptible.
    pub fn root() -> Self {
        Self::default()
    }

    /// Says in a request for whom it is.
    pub(crate) fn sign(&self, request: &mut Header) {
        request.job = self.job;
        request.rank = self.rank;
        if let Some(progress) = self.progress {
            let all = f64::from(u32::MAX);
            request.progress = (progress.share() * all) as u32;
            let mib = progress.work_bytes.div_ceil(1 << 20).clamp(1, u32::MAX.into());
            request.work = mib as u32;
        }
    }

    /// In the name of a caller, not interruptible.
    pub fn of(caller: Caller) -> Self {
        Self { caller, ..Self::default() }
    }
}
