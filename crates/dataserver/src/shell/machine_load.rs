//! The load of the machine between reports.

use std::time::Duration;
use weir_host::load::MachineCounts;
use weir_wire::targets::MachineLoad;

/// Shortest period. The kernel counts processor time in hundredths of a second, so less says
/// little.
const SHORTEST: Duration = Duration::from_millis(400);

/// The last counters, and the resulting load.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    counted: Option<(Duration, MachineCounts)>,
    load: MachineLoad,
}

impl Machine {
    /// The load since the last report, or just before.
    pub(crate) fn load(&mut self, now: Duration, counts: Option<MachineCounts>) -> MachineLoad {
        let Some(counts) = counts else { return MachineLoad::default() };
        match self.counted {
            Some((at, _)) if now.saturating_sub(at) < SHORTEST => return self.load,
            Some((at, before)) => self.load = between(&before, &counts, now - at),
            None => {}
        }
        self.counted = Some((now, counts));
        self.load
    }
}

fn between(before: &MachineCounts, after: &MachineCounts, time: Duration) -> MachineLoad {
    // An interface that went takes its counts with it.
    let since = |of: fn(&MachineCounts) -> u64| of(after).saturating_sub(of(before));
    let (busy, all) = (since(|c| c.busy_ticks), since(|c| c.ticks).max(1));
    let per_s = |bytes: u64| (bytes as f64 / time.as_secs_f64()) as u64;
    MachineLoad {
        cpu_permille: (busy * 1000 / all).min(1000) as u16,
        received_bytes_per_s: per_s(since(|c| c.received_bytes)),
        sent_bytes_per_s: per_s(since(|c| c.sent_bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(n: u64) -> Option<MachineCounts> {
        let (busy_ticks, ticks) = (50 * n, 200 * n);
        let (received_bytes, sent_bytes) = (3_000 * n, 1_000 * n);
        Some(MachineCounts { busy_ticks, ticks, received_bytes, sent_bytes })
    }

    #[test]
    fn it_is_the_time_between_two_reports_that_counts() {
        let mut machine = Machine::default();
        let s = Duration::from_secs;
        assert_eq!(machine.load(s(10), counts(5)), MachineLoad::default(), "nothing to compare");
        let load = machine.load(s(12), counts(9));
        let (received_bytes_per_s, sent_bytes_per_s) = (6_000, 2_000);
        let busy = MachineLoad { cpu_permille: 250, received_bytes_per_s, sent_bytes_per_s };
        assert_eq!(load, busy);
        let soon = s(12) + Duration::from_millis(10);
        assert_eq!(machine.load(soon, counts(100)), busy, "too short to say anything new");
        assert_eq!(machine.load(s(14), counts(9)), MachineLoad::default());
        assert_eq!(machine.load(s(14), None), MachineLoad::default());
    }
}
