//! Upkeep of leases: requests that wait for sessions which do not answer, polls, and files whose
//! writers have ended.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::leases::Poll;
use std::collections::BTreeSet;
use weir_metastore::Engine;
use weir_types::{Result, SessionId};

/// Files fenced at each tick whose writers have ended.
const FENCES_PER_TICK: usize = 256;

impl<E: Engine> MetaMachine<E> {
    /// Lets requests go on that wait for sessions which do not answer, and ends polls in time.
    pub(in crate::machine) fn tick_leases(&mut self, now: Moment) -> Result<()> {
        if now.monotonic_ms.saturating_sub(self.started_ms) >= self.times.grace_ms {
            self.end_grace();
        }
        let late: BTreeSet<SessionId> = self
            .leases
            .waiting
            .events()
            .into_iter()
            .filter(|(who, number)| self.is_overdue(*who, *number, now))
            .map(|(who, _)| who)
            .collect();
        for who in late {
            self.leases.waiting.session_changed(who);
        }
        // Who waits for room asks for other files if the first are not given up.
        self.leases.waiting.others_changed();
        let due = |(session, poll): (&SessionId, &Poll)| {
            (poll.until_ms <= now.monotonic_ms).then_some(*session)
        };
        let due: Vec<SessionId> = self.leases.polls.iter().filter_map(due).collect();
        for session in due {
            self.answer_poll(session, true);
        }
        self.tell_of_late(now);
        self.fence_orphaned()
    }

    /// Fences files whose writer has ended, unless another session writes and would be stopped by
    /// that: those files are fenced when a request needs them.
    fn fence_orphaned(&mut self) -> Result<()> {
        for _ in 0..FENCES_PER_TICK.min(self.leases.orphaned.len()) {
            let Some((who, file)) = self.leases.orphaned.pop_front() else { break };
            if !self.leases.ranges.writes(who, file) {
                self.leases.ranges.drop_file(who, file);
                continue;
            }
            if !self.leases.ranges.other_writers(who, file).is_empty() {
                self.leases.orphaned.push_back((who, file));
                continue;
            }
            self.fence(who, file)?;
            self.leases.waiting.file_changed(file);
        }
        Ok(())
    }
}
