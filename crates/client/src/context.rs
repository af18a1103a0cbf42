//! The caller of a request, and what interrupts the request.

use crate::core::job::JobReader;
use std::os::fd::RawFd;
use std::sync::{Arc, LazyLock};
use weir_types::Caller;
use weir_wire::Header;

/// Groups that are looked up once, when they are needed.
type Found = LazyLock<Vec<u32>, Box<dyn FnOnce() -> Vec<u32> + Send>>;

/// The supplementary groups of a caller. They are looked up only when a request is sent in its
/// name: a reply from a cache needs none.
#[derive(Clone, Debug)]
pub struct LateGroups(Arc<Found>);

impl LateGroups {
    /// Groups that `find` looks up.
    pub fn new(find: impl FnOnce() -> Vec<u32> + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(find))))
    }
}

/// Accompanies every call.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// User and groups.
    pub caller: Caller,
    /// Supplementary groups of the caller that are not known yet.
    pub groups: Option<LateGroups>,
    /// The user whose quota the written bytes count for, if that is not the caller.
    pub writer: Option<u32>,
    /// The process of a job that reads or writes, with its progress; `None` outside of jobs.
    pub reader: Option<Arc<JobReader>>,
    /// A descriptor that becomes readable when the call should end with
    /// `Interrupted`; it must stay open during the call.
    pub interrupt: Option<RawFd>,
    /// The longest wait for bytes of a read, if it is shorter than the configured one.
    pub patience_ms: Option<u64>,
    /// Whether to wait a moment for the end of a change after an interrupt, because its effect on
    /// the server has to be known.
    pub learns_end: bool,
}

impl Context {
    /// The superuser as caller, without interruption.
    pub fn root() -> Self {
        Self::default()
    }

    /// Timeout of a step of a read, where `configured_ms` is configured.
    pub(crate) fn read_ms(&self, configured_ms: u64) -> u64 {
        self.patience_ms.map_or(configured_ms, |patience_ms| patience_ms.min(configured_ms))
    }

    /// Sets the job fields of a request.
    pub(crate) fn sign(&self, request: &mut Header) {
        if let Some(reader) = &self.reader {
            reader.sign(request);
        }
    }

    /// The caller in whose name a message is sent.
    pub(crate) fn signer(&self) -> Caller {
        match &self.groups {
            Some(late) => Caller { groups: late.0.to_vec(), ..self.caller },
            None => self.caller.clone(),
        }
    }

    /// A caller without interruption.
    pub fn of(caller: Caller) -> Self {
        Self { caller, ..Self::default() }
    }
}
