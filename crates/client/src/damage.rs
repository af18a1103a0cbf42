//! Copies that were found damaged while another one was read instead: each is told of in
//! the log once, so that somebody looks after the disk.

use std::collections::BTreeSet;
use weir_host::sync::Mutex;
use weir_types::{Error, ObjectId};

/// Objects that are remembered; when there are more, all are told of again.
const MAX_TOLD: usize = 1024;

/// Those that were told of.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    told: Mutex<BTreeSet<ObjectId>>,
}

impl Damage {
    /// A copy was found damaged.
    pub(crate) fn found(&self, object: ObjectId, error: &Error) {
        let fresh = {
            let mut told = self.told.lock();
            if told.len() >= MAX_TOLD {
                told.clear();
            }
            told.insert(object)
        };
        if fresh {
            tracing::warn!("a damaged copy is not used: {error}; object {object}");
        }
    }
}
