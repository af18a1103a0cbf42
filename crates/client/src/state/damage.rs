//! Copies that were found damaged while another copy was read instead. Each is logged once, so that
//! an administrator looks after the disk.

use std::collections::BTreeSet;
use weir_host::sync::Mutex;
use weir_types::{Error, ObjectId};

/// The most remembered objects. Beyond it all are forgotten and logged again.
const MAX_TOLD: usize = 1024;

/// Objects that were logged.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    told: Mutex<BTreeSet<ObjectId>>,
}

impl Damage {
    /// Logs that a copy was found damaged.
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
