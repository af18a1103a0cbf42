//! Targets that have to take changes and are unreachable, for the reports to the metadata server.
//! Every waiting change reports its target again and again. A target that is not reported any more
//! is forgotten.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_types::TargetId;

/// A target without a reply for this long is reported to the metadata server.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a report is kept: longer than a step of a wait, than the time to the next heartbeat,
/// and than the interval of attempts to reach a silent target.
pub(crate) const KEPT: Duration = Duration::from_millis(3_500);

/// Pairs of a target that orders (or passes on) and one that does not reply to it. Bounded by the
/// pairs of targets on the map.
#[derive(Debug, Default)]
pub(crate) struct Unreachable(Mutex<BTreeMap<(TargetId, TargetId), Instant>>);

impl Unreachable {
    /// Records that `own` waits for `target`.
    pub(crate) fn add(&self, own: TargetId, target: TargetId) {
        self.0.lock().insert((own, target), clock::now());
    }

    /// Records a reply.
    pub(crate) fn answered(&self, own: TargetId, target: TargetId) {
        self.0.lock().remove(&(own, target));
    }

    /// Targets that `own` cannot reach.
    pub(crate) fn of(&self, own: TargetId) -> Vec<TargetId> {
        let mut all = self.0.lock();
        all.retain(|_, said| clock::elapsed(*said) < KEPT);
        all.keys().filter(|(of, _)| *of == own).map(|(_, target)| *target).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_one_change_is_not_reported_and_nobody_else_is_forgotten_for_it() {
        let (own, b, c) = (TargetId(1), TargetId(2), TargetId(3));
        let unreachable = Unreachable::default();
        unreachable.add(own, b);
        unreachable.add(own, c);
        unreachable.add(TargetId(9), c);
        unreachable.answered(own, b);
        assert_eq!(unreachable.of(own), [c]);
        assert_eq!(unreachable.of(TargetId(9)), [c]);
    }
}
