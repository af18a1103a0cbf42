//! On whose behalf a call is made, and what ends it early.

use crate::job::JobReader;
use std::os::fd::RawFd;
use std::sync::{Arc, LazyLock};
use weir_types::Caller;
use weir_wire::Header;

/// Groups that are found out when they are needed, and then once.
type Found = LazyLock<Vec<u32>, Box<dyn FnOnce() -> Vec<u32> + Send>>;

/// The supplementary groups of a caller, which are found out when a message is sent in its name:
/// what is answered from memory needs none.
#[derive(Clone, Debug)]
pub struct LateGroups(Arc<Found>);

impl LateGroups {
    /// To be found out so.
    pub fn new(find: impl FnOnce() -> Vec<u32> + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(find))))
    }
}

/// Stands with every call.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// User and groups.
    pub caller: Caller,
    /// The supplementary groups of the caller if they are not known yet.
    pub groups: Option<LateGroups>,
    /// For whom bytes are written, where that is not the caller: whom quotas limit.
    pub writer: Option<u32>,
    /// The process of a job that reads or writes, and how far it is; `None`: of none.
    pub reader: Option<Arc<JobReader>>,
    /// A descriptor that becomes readable when the call should end with
    /// `Interrupted`; it must stay open during the call.
    pub interrupt: Option<RawFd>,
    /// Bytes that are read are waited for so long at the most, if not as long as is configured.
    pub patience_ms: Option<u64>,
    /// After an interrupt the end of a change is still waited for, a moment: what it leaves at the
    /// server has to be known.
    pub learns_end: bool,
}

impl Context {
    /// In the name of the superuser, not interruptible.
    pub fn root() -> Self {
        Self::default()
    }

    /// So long a step of a read may take where so long is configured.
    pub(crate) fn read_ms(&self, configured_ms: u64) -> u64 {
        self.patience_ms.map_or(configured_ms, |patience_ms| patience_ms.min(configured_ms))
    }

    /// Says in a request for whom it is.
    pub(crate) fn sign(&self, request: &mut Header) {
        if let Some(reader) = &self.reader {
            reader.sign(request);
        }
    }

    /// Whose name a message bears.
    pub(crate) fn signer(&self) -> Caller {
        match &self.groups {
            Some(late) => Caller { groups: late.0.to_vec(), ..self.caller },
            None => self.caller.clone(),
        }
    }

    /// In the name of a caller, not interruptible.
    pub fn of(caller: Caller) -> Self {
        Self { caller, ..Self::default() }
    }
}
