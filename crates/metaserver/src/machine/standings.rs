//! What targets are good for, over time: pure.
//!
//! A target that was away may have missed writes; those who were there have
//! noted what ([gap](weir_wire::peer::TargetReport::gaps)). It is online again
//! when nobody has a gap for it left.
//!
//! Invariants
//! - A target is declared away only when its lease to serve has run out, or its
//!   server has said itself that it is out of service.
//! - It is online again only when every target that may have noted a gap for it
//!   has said, knowing that it takes writes again, that there is none.

use crate::schema::TargetRecord;
use std::collections::BTreeMap;
use weir_types::{Epoch, ServerId, TargetId};
use weir_wire::map::TargetState;

/// How much of the time until a target is declared away its server may serve
/// without being heard: the rest is for clocks that run unevenly.
const SERVE_SHARE: (u64, u64) = (4, 5);

/// The lease of a data server, milliseconds.
pub fn serve_ms(target_timeout_ms: u64) -> u32 {
    u32::try_from(target_timeout_ms * SERVE_SHARE.0 / SERVE_SHARE.1).unwrap_or(u32::MAX)
}

/// What a target becomes by what its server says of it. `mirrored`: there are
/// files with several copies. `next`: the epoch at which it would be so.
pub fn after_report(
    record: TargetRecord,
    in_trouble: bool,
    mirrored: bool,
    next: Epoch,
) -> TargetRecord {
    let was_online = record.state == TargetState::Online;
    let state = match (in_trouble, was_online, mirrored) {
        (true, ..) => TargetState::OutOfService,
        (false, true, _) | (false, false, false) => TargetState::Online,
        (false, false, true) => TargetState::Syncing,
    };
    let changes_sides = was_online != (state == TargetState::Online);
    TargetRecord { state, since: if changes_sides { next } else { record.since }, ..record }
}

/// What a target becomes when it has been silent for too long.
pub fn after_silence(record: TargetRecord, next: Epoch) -> TargetRecord {
    let since = if record.state == TargetState::Online { next } else { record.since };
    TargetRecord { state: TargetState::Offline, since, ..record }
}

/// What the servers have said of gaps, and under which epoch.
#[derive(Debug, Default)]
pub struct Hearsay {
    acting: BTreeMap<ServerId, Epoch>,
    gaps: BTreeMap<TargetId, Vec<(TargetId, u64)>>,
    /// From which epoch on all were told that a target takes writes again.
    syncing_from: BTreeMap<TargetId, Epoch>,
    /// For targets that were syncing when this process began.
    began_at: Epoch,
}

impl Hearsay {
    /// Nothing was heard yet; the map is at this epoch.
    pub fn new(began_at: Epoch) -> Self {
        Self { began_at, ..Self::default() }
    }

    /// A server acts under this epoch.
    pub fn acts(&mut self, server: ServerId, epoch: Epoch) {
        self.acting.insert(server, epoch);
    }

    /// A target has noted these gaps for others.
    pub fn noted(&mut self, target: TargetId, gaps: &[(TargetId, u64)]) {
        self.gaps.insert(target, gaps.iter().filter(|(_, count)| *count > 0).copied().collect());
    }

    /// States have changed.
    pub fn changed<'a>(&mut self, targets: impl Iterator<Item = &'a TargetRecord>, epoch: Epoch) {
        for record in targets {
            if record.state == TargetState::Syncing {
                self.syncing_from.entry(record.target).or_insert(epoch);
            } else {
                self.syncing_from.remove(&record.target);
            }
        }
    }

    /// Gaps noted for a target, by all.
    pub fn gaps_for(&self, target: TargetId) -> u64 {
        let of = |gaps: &Vec<(TargetId, u64)>| {
            gaps.iter().find(|(t, _)| *t == target).map_or(0, |(_, count)| *count)
        };
        self.gaps.values().map(of).sum()
    }

    /// The epoch that every server that may serve acts under, at the least.
    pub fn in_effect(&self, serving: impl Iterator<Item = ServerId>, now: Epoch) -> Epoch {
        let acting = |server| self.acting.get(&server).copied().unwrap_or_default();
        serving.map(acting).min().unwrap_or(now).min(now)
    }

    /// Whether a target that is syncing has all that it missed.
    pub fn is_complete<'a>(
        &self,
        record: &TargetRecord,
        others: impl Iterator<Item = (ServerId, &'a TargetRecord)>,
    ) -> bool {
        let told = self.syncing_from.get(&record.target).copied().unwrap_or(self.began_at);
        others.filter(|(_, other)| may_have_noted(other, record)).all(|(server, other)| {
            self.acting.get(&server).is_some_and(|acting| *acting >= told)
                && self
                    .gaps
                    .get(&other.target)
                    .is_some_and(|gaps| gaps.iter().all(|(behind, _)| *behind != record.target))
        })
    }
}

/// Whether a target was there at some time while the other was away.
fn may_have_noted(other: &TargetRecord, away: &TargetRecord) -> bool {
    other.target != away.target && (other.state == TargetState::Online || other.since > away.since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(target: u32, state: TargetState, since: u64) -> TargetRecord {
        TargetRecord { target: TargetId(target), state, since: Epoch(since) }
    }

    #[test]
    fn a_target_that_was_away_is_behind_until_it_has_been_brought_up_to_date() {
        use TargetState::{Offline, Online, OutOfService, Syncing};
        let online = record(1, Online, 3);
        let away = after_silence(online, Epoch(7));
        assert_eq!(away, record(1, Offline, 7));
        assert_eq!(after_silence(away, Epoch(9)), away, "since the first time");
        let back = after_report(away, false, true, Epoch(10));
        assert_eq!(back, record(1, Syncing, 7));
        assert_eq!(after_report(back, true, true, Epoch(11)), record(1, OutOfService, 7));
        assert_eq!(after_report(away, false, false, Epoch(10)), record(1, Online, 10));
        assert_eq!(after_report(online, false, true, Epoch(10)), online);
        assert_eq!(after_report(online, true, true, Epoch(10)), record(1, OutOfService, 10));
    }

    #[test]
    fn who_was_there_meanwhile_has_to_say_that_nothing_is_missing() {
        use TargetState::{Offline, Online, Syncing};
        let back = record(1, Syncing, 7);
        let others = [
            (ServerId(2), record(2, Online, 1)),
            // It went before, and did not come back since.
            (ServerId(3), record(3, Offline, 6)),
            (ServerId(4), record(4, Offline, 7)),
        ];
        let complete =
            |hearsay: &Hearsay| hearsay.is_complete(&back, others.iter().map(|(s, r)| (*s, r)));
        let mut hearsay = Hearsay::new(Epoch(1));
        hearsay.changed([back].iter(), Epoch(10));
        assert!(!complete(&hearsay), "nothing was heard");
        hearsay.acts(ServerId(2), Epoch(9));
        hearsay.noted(TargetId(2), &[]);
        assert!(!complete(&hearsay), "it may note another one yet");
        hearsay.acts(ServerId(2), Epoch(10));
        hearsay.noted(TargetId(2), &[(TargetId(1), 5)]);
        assert!(!complete(&hearsay));
        assert_eq!(hearsay.gaps_for(TargetId(1)), 5);
        hearsay.noted(TargetId(2), &[(TargetId(1), 0), (TargetId(9), 4)]);
        assert!(complete(&hearsay));
        // One that went after it may have noted something, and has to come back.
        let later = [(ServerId(5), record(5, Offline, 8))];
        assert!(!hearsay.is_complete(&back, later.iter().map(|(s, r)| (*s, r))));
        // After a restart everybody has to say it again.
        assert!(!complete(&Hearsay::new(Epoch(12))));
    }

    #[test]
    fn an_epoch_is_in_effect_when_all_who_serve_act_under_it() {
        let mut hearsay = Hearsay::new(Epoch(1));
        let serving = || [ServerId(1), ServerId(2)].into_iter();
        assert_eq!(hearsay.in_effect(serving(), Epoch(5)), Epoch(0));
        hearsay.acts(ServerId(1), Epoch(5));
        hearsay.acts(ServerId(2), Epoch(3));
        assert_eq!(hearsay.in_effect(serving(), Epoch(5)), Epoch(3));
        assert_eq!(hearsay.in_effect([ServerId(1)].into_iter(), Epoch(5)), Epoch(5));
        assert_eq!(hearsay.in_effect(std::iter::empty(), Epoch(5)), Epoch(5), "nobody serves");
    }

    #[test]
    fn a_lease_ends_before_its_holder_is_given_up() {
        for timeout in [2, 1000, 5000, u64::from(u32::MAX)] {
            assert!(u64::from(serve_ms(timeout)) < timeout);
        }
    }
}
