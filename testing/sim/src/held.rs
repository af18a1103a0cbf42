//! The contents of targets.

use std::collections::BTreeMap;
use weir_types::{ObjectId, TargetId};

/// The contents of the targets after all servers have ended.
#[derive(Default)]
pub(crate) struct Held {
    pub objects: BTreeMap<(TargetId, ObjectId), Vec<u8>>,
    /// Noted gaps of other targets.
    pub gaps: Vec<String>,
}
