//! What targets hold.

use std::collections::BTreeMap;
use weir_types::{ObjectId, TargetId};

/// What the targets hold when all servers have ended.
#[derive(Default)]
pub(crate) struct Held {
    pub objects: BTreeMap<(TargetId, ObjectId), Vec<u8>>,
    /// What is noted that others lack.
    pub gaps: Vec<String>,
}
