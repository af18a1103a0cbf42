//! On whose behalf a call is made, and what ends it early.

use crate::job::JobReader;
use std::os::fd::RawFd;
use std::sync::Arc;
use weir_types::Caller;
use weir_wire::Header;

/// Stands with every call.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// User and groups.
    pub caller: Caller,
    /// For whom bytes are written, where that is not the caller: whom quotas limit.
    pub writer: Option<u32>,
    /// The process of a job that reads or writes, and how far it is; `None`: of none.
    pub reader: Option<Arc<JobReader>>,
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
        if let Some(reader) = &self.reader {
            reader.sign(request);
        }
    }

    /// In the name of a caller, not interruptible.
    pub fn of(caller: Caller) -> Self {
        Self { caller, ..Self::default() }
    }
}
