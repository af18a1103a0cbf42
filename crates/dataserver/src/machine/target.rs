//! A target as the machine knows it.

use super::load::Load;
use super::own_keys::OwnKeys;
use std::sync::atomic::AtomicU32;
use weir_audit::Log;
use weir_types::TargetId;
use weir_wire::Key;

/// A served target.
#[derive(Debug)]
pub struct ServedTarget {
    /// Id of the target.
    pub id: TargetId,
    /// Keys from which the working keys follow that sign its capabilities.
    pub keys: OwnKeys,
    /// The lowest generation of working keys that counts.
    pub oldest_key: AtomicU32,
    /// Its load.
    pub load: Load,
    /// Why it could not be opened, so that nothing of it can be served.
    pub unopened: Option<String>,
    /// Who did what on it.
    pub audit: Log,
}

impl ServedTarget {
    /// A target of which every generation of working keys counts, until it is told otherwise.
    pub fn new(id: TargetId, key: Key, unopened: Option<String>) -> Self {
        let (oldest_key, load, audit) = <_>::default();
        let keys = OwnKeys::new(key);
        Self { id, keys, oldest_key, load, unopened, audit }
    }
}
