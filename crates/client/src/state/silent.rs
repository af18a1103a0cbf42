//! Targets that gave no reply about allocated space.

use crate::core::kept::DOUBTFUL;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_host::sync::Mutex;
use weir_types::TargetId;

/// Targets that gave no reply lately.
#[derive(Debug, Default)]
pub(crate) struct Silent(Mutex<BTreeMap<TargetId, Duration>>);

impl Silent {
    /// Records that a target gave no reply.
    pub(crate) fn note(&self, target: TargetId, now: Duration) {
        let mut all = self.0.lock();
        all.retain(|_, until| now < *until);
        all.insert(target, now + DOUBTFUL);
    }

    /// Whether a target gave no reply lately.
    pub(crate) fn has(&self, target: TargetId, now: Duration) -> bool {
        self.0.lock().get(&target).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_is_not_asked_for_a_while() {
        let (silent, now) = (Silent::default(), Duration::from_secs(100));
        silent.note(TargetId(1), now);
        assert!(silent.has(TargetId(1), now) && !silent.has(TargetId(2), now));
        assert!(!silent.has(TargetId(1), now + DOUBTFUL));
        silent.note(TargetId(2), now + DOUBTFUL);
        assert_eq!(silent.0.lock().len(), 1);
    }
}
