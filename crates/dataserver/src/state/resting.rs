//! Targets that do not take the changes which they are given after the acknowledgement.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_types::TargetId;

/// A target that did not take a change gets none for this long: threads are for targets that
/// reply.
const REST: Duration = Duration::from_secs(2);

/// Targets that did not take a change, each with the target that sent it, and the end of their
/// rest.
#[derive(Debug, Default)]
pub(crate) struct Resting(Mutex<BTreeMap<TargetId, Instant>>);

impl Resting {
    /// Whether a target gets none of these changes now.
    pub(crate) fn is_resting(&self, target: TargetId) -> bool {
        let mut resting = self.0.lock();
        let rests = resting.get(&target).is_some_and(|until| clock::now() < *until);
        if !rests {
            resting.remove(&target);
        }
        rests
    }

    /// Begins the rest of a target that did not take one.
    pub(crate) fn rest(&self, target: TargetId) {
        self.0.lock().insert(target, clock::now() + REST);
    }
}
