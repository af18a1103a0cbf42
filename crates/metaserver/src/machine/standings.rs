//! What targets are good for, over time: pure.
//!
//! A target that was away may have missed writes; those who were there have
//! noted what ([gap](weir_wire::peer::TargetReport::gaps)). It is online again
//! when nobody has a gap for it left.
//!
//! Its own gaps are what it cannot vouch for: after an unclean stop, what was
//! under way. While another copy is online they are handed to that; else they
//! are no reason to wait, the target does not report them, and they become gaps
//! for the others once it is online.
//!
//! Invariants
//! - A target is declared away only when its lease to serve has run out, or its
//!   server has said itself that it is out of service, or has just started.
//! - It is online again only when every target that may have noted a gap for it
//!   has said, knowing that it takes writes again, that there is none; and that
//!   [`ROUNDS`] times in turn, since gaps are handed from one to another. If a gap
//!   is noted for it before everybody knows, it is not after all: until then
//!   nothing is read from it.
//! - Who cannot be reached by those whose changes it should take does not hold
//!   them up: it is syncing until it is reached.
//! - Own gaps, and being out of reach, take nobody away who is the last that
//!   is online.
//! - Nobody waits for itself: a target waits for those online, and for those that
//!   went later than it; of those that have own gaps one comes at a time.

use crate::schema::TargetRecord;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use weir_host::plant::{Bug, planted};
use weir_types::{Epoch, ServerId, TargetId};
use weir_wire::map::TargetState;
use weir_wire::peer::TargetReport;

/// How much of the time until a target is declared away its server may serve
/// without being heard: the rest is for clocks that run unevenly.
const SERVE_SHARE: (u64, u64) = (4, 5);

/// The lease of a data server, milliseconds.
pub fn serve_ms(target_timeout_ms: u64) -> u32 {
    u32::try_from(target_timeout_ms / SERVE_SHARE.1 * SERVE_SHARE.0).unwrap_or(u32::MAX)
}

/// How often everybody has to say that there are no gaps. A gap may be handed from
/// who has not reported yet to who has, and so be missed in the first round. A
/// report that comes in the third was made after the answer to one that came in
/// the second, so after all of the first: who got it says so then.
const ROUNDS: u8 = 3;

/// What a server says of a target of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// It is out of service.
    pub in_trouble: bool,
    /// It cannot vouch for all that it has, and its server has just started: so
    /// nothing is served under what was known before.
    pub lost_its_place: bool,
}

/// What is so around a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    /// There are files with several copies.
    pub mirrored: bool,
    /// Another target serves.
    pub others_serve: bool,
    /// The epoch at which a change would be so.
    pub next: Epoch,
}

/// What a target becomes by what its server says of it.
pub fn after_report(record: TargetRecord, said: Said, around: Around) -> TargetRecord {
    let was_online = record.state == TargetState::Online;
    let can_go = around.others_serve || planted(Bug::MarkLastCopy);
    let state = match (said.in_trouble, was_online, around.mirrored) {
        (true, ..) => TargetState::OutOfService,
        (false, true, true) if said.lost_its_place && can_go => TargetState::Syncing,
        (false, true, _) | (false, false, false) => TargetState::Online,
        (false, false, true) => TargetState::Syncing,
    };
    match (was_online, state == TargetState::Online) {
        (true, false) => leaves(record, state, around.next),
        (false, true) => TargetRecord { state, since: around.next, ..record },
        // It has nobody to take its place, and may have lost what was not synced:
        // clients go by the epoch since when it has been there.
        (true, true) if said.lost_its_place && around.mirrored => {
            TargetRecord { state, since: around.next, ..record }
        }
        _ => TargetRecord { state, ..record },
    }
}

/// A target is not online any more. If not everybody knew that it was, it never was
/// as good as one.
fn leaves(record: TargetRecord, state: TargetState, since: Epoch) -> TargetRecord {
    TargetRecord { state, since: record.joins.unwrap_or(since), joins: None, ..record }
}

/// What a target becomes that has all that it missed.
pub fn joins(record: TargetRecord, next: Epoch) -> TargetRecord {
    let (state, joins) = (TargetState::Online, Some(record.since));
    TargetRecord { state, since: next, joins, ..record }
}

/// What a target becomes when it has been silent for too long. Its server was
/// told of no epoch after `told`: under later ones it has noted nothing.
pub fn after_silence(record: TargetRecord, told: Epoch, next: Epoch) -> TargetRecord {
    match record.state {
        TargetState::Online => leaves(record, TargetState::Offline, next.min(Epoch(told.0 + 1))),
        _ => TargetRecord { state: TargetState::Offline, ..record },
    }
}

/// What a target becomes that others cannot reach, or that joined too early.
pub fn steps_back(record: TargetRecord, next: Epoch) -> TargetRecord {
    leaves(record, TargetState::Syncing, next)
}

/// What a target has said.
#[derive(Clone, Debug, Default)]
struct Word {
    /// Gaps that it has noted.
    gaps: Vec<(TargetId, u64)>,
    /// Whom it cannot reach.
    unreachable: Vec<TargetId>,
}

/// What the servers have said of gaps, and under which epoch.
#[derive(Debug, Default)]
pub struct Hearsay {
    acting: BTreeMap<ServerId, Epoch>,
    told: BTreeMap<ServerId, Epoch>,
    words: BTreeMap<TargetId, Word>,
    /// Those that cannot reach another one.
    accusing: BTreeSet<TargetId>,
    /// Those that had own gaps when they came back, and may have some yet that
    /// become gaps for others.
    doubtful: BTreeSet<TargetId>,
    /// Those that are syncing, and how often all have said that they lack nothing.
    syncing: BTreeMap<TargetId, Rounds>,
    /// Those that join.
    joining: BTreeMap<TargetId, Joining>,
    epoch: Epoch,
    /// What servers were told before this process began.
    began_at: Epoch,
}

/// How often all have said something.
#[derive(Clone, Debug, Default)]
struct Rounds {
    /// From when on the target was away.
    since: Epoch,
    done: u8,
    /// Who has said it in this round.
    heard: BTreeSet<TargetId>,
}

/// What was heard since a target joined.
#[derive(Clone, Copy, Debug)]
struct Joining {
    /// From when on it was away.
    since: Epoch,
    /// A gap was noted for it.
    missed: bool,
}

impl Hearsay {
    /// Nothing was heard yet; the map is at this epoch.
    pub fn new(began_at: Epoch) -> Self {
        Self { began_at, epoch: began_at, ..Self::default() }
    }

    /// A server acts under this epoch, and has nothing under way that it began
    /// under an older one.
    pub fn acts(&mut self, server: ServerId, epoch: Epoch) {
        self.acting.insert(server, epoch);
    }

    /// A server is told of this epoch.
    pub fn tell(&mut self, server: ServerId, epoch: Epoch) {
        self.told.insert(server, epoch);
    }

    /// The last epoch that a server may know of.
    pub fn told(&self, server: ServerId) -> Epoch {
        self.told.get(&server).copied().unwrap_or(self.began_at)
    }

    /// A target has said something. `started`: its server has just started.
    pub fn said(
        &mut self,
        server: ServerId,
        record: &TargetRecord,
        report: &TargetReport,
        started: bool,
    ) {
        let gaps: Vec<_> = report.gaps.iter().filter(|(_, count)| *count > 0).copied().collect();
        let own = gaps.iter().any(|(behind, _)| *behind == record.target);
        let online = record.state == TargetState::Online;
        if own && (started || !online) {
            self.doubtful.insert(record.target);
        } else if !own && online && self.acts_under(server, record.since) {
            self.doubtful.remove(&record.target);
        }
        let unreachable = report.unreachable.clone();
        match unreachable.is_empty() {
            true => self.accusing.remove(&record.target),
            false => self.accusing.insert(record.target),
        };
        self.count(server, record, &gaps);
        self.words.insert(record.target, Word { gaps, unreachable });
    }

    /// Counts what a target says of those that are syncing.
    fn count(&mut self, server: ServerId, record: &TargetRecord, gaps: &[(TargetId, u64)]) {
        let online = record.state == TargetState::Online;
        let is_all = !(online && self.doubtful.contains(&record.target));
        let counts = is_all && self.acts_under(server, self.epoch);
        for (target, rounds) in &mut self.syncing {
            let none = gaps.iter().all(|(behind, _)| behind != target);
            if !(record.target == *target || may_have_noted(record, *target, rounds.since)) {
                continue;
            }
            if !none && !planted(Bug::OnlineTooEarly) {
                *rounds = Rounds { since: rounds.since, ..Rounds::default() };
            } else if counts {
                rounds.heard.insert(record.target);
            }
        }
        for (target, joining) in &mut self.joining {
            let behind = gaps.iter().any(|(behind, _)| behind == target);
            joining.missed |= behind && may_have_noted(record, *target, joining.since);
        }
    }

    fn acts_under(&self, server: ServerId, epoch: Epoch) -> bool {
        self.acting.get(&server).is_some_and(|acting| *acting >= epoch)
    }

    /// Records have changed: under a new epoch all is asked anew.
    pub fn changed(&mut self, all: &[(ServerId, TargetRecord)], epoch: Epoch) {
        let mut counted = std::mem::take(&mut self.syncing);
        if epoch != self.epoch {
            counted.clear();
        }
        self.epoch = epoch;
        let joined = std::mem::take(&mut self.joining);
        let mut known = BTreeSet::new();
        for (_, record) in all {
            known.insert(record.target);
            if record.state == TargetState::Syncing {
                let since = record.since;
                let fresh = Rounds { since, ..Rounds::default() };
                let rounds = counted.remove(&record.target).unwrap_or(fresh);
                self.syncing.insert(record.target, rounds);
            }
            if let Some(since) = record.joins {
                // Who goes before it has said, knowing of it, what it noted until then,
                // may have noted something for it.
                let went_untold = |(server, other): &(ServerId, TargetRecord)| {
                    let gone =
                        matches!(other.state, TargetState::Offline | TargetState::OutOfService);
                    gone && may_have_noted(other, record.target, since)
                        && !self.acts_under(*server, record.since)
                };
                let missed = joined.get(&record.target).is_some_and(|joined| joined.missed)
                    || all.iter().any(went_untold);
                self.joining.insert(record.target, Joining { since, missed });
            }
        }
        self.words.retain(|target, _| known.contains(target));
        self.doubtful.retain(|target| known.contains(target));
        self.accusing.retain(|target| known.contains(target));
    }

    /// Gaps noted for a target, by all.
    pub fn gaps_for(&self, target: TargetId) -> u64 {
        let of = |word: &Word| {
            word.gaps.iter().find(|(t, _)| *t == target).map_or(0, |(_, count)| *count)
        };
        self.words.values().map(of).fold(0, u64::saturating_add)
    }

    /// Other servers that serve, and cannot reach a target.
    fn accusers(&self, target: TargetId, all: &[(ServerId, TargetRecord)]) -> BTreeSet<ServerId> {
        if self.accusing.is_empty() {
            return BTreeSet::new();
        }
        let own = all.iter().find(|(_, r)| r.target == target).map(|(server, _)| *server);
        let accuses = |(server, record): &&(ServerId, TargetRecord)| {
            record.serves()
                && Some(*server) != own
                && self.accusing.contains(&record.target)
                && self.words.get(&record.target).is_some_and(|w| w.unreachable.contains(&target))
        };
        all.iter().filter(accuses).map(|(server, _)| *server).collect()
    }

    /// A target that is online and cannot be reached by those that have changes
    /// for it: of all such the one that most servers cannot reach, or the last of
    /// those. What it says of others is void from then on, so of two that cannot
    /// reach each other one stays.
    pub fn cut_off(&self, all: &[(ServerId, TargetRecord)]) -> Option<TargetId> {
        if self.accusing.is_empty() {
            return None;
        }
        let online = || all.iter().filter(|(_, r)| r.state == TargetState::Online);
        let accused = online().filter_map(|(_, record)| {
            let count = self.accusers(record.target, all).len();
            (count > 0).then_some((count, record.target))
        });
        let (_, worst) = accused.max()?;
        let mut others = online().filter(|(_, r)| r.target != worst);
        others.any(|(_, r)| r.serves()).then_some(worst)
    }

    /// The epoch that every server that may serve acts under, at the least.
    pub fn in_effect(&self, serving: impl Iterator<Item = ServerId>, now: Epoch) -> Epoch {
        let acting = |server| self.acting.get(&server).copied().unwrap_or_default();
        serving.map(acting).min().unwrap_or(now).min(now)
    }

    /// Whether there is anything to be decided.
    pub fn is_settled(&self) -> bool {
        self.syncing.is_empty() && self.accusing.is_empty() && self.joining.is_empty()
    }

    /// A target that joins, and for which a gap was noted after all: by one that did
    /// not know.
    pub fn too_early(&self) -> Option<TargetId> {
        let missed = self.joining.iter().find(|(_, j)| j.missed && !planted(Bug::OnlineTooEarly));
        missed.map(|(target, _)| *target)
    }

    /// Those among all targets that are online from now on: they have all that
    /// they missed. `is_held`: not yet, whatever is heard.
    pub fn complete(
        &mut self,
        all: &[(ServerId, TargetRecord)],
        is_held: impl Fn(TargetId) -> bool,
    ) -> Vec<TargetId> {
        let nobody = all.iter().all(|(_, record)| record.state != TargetState::Online);
        let mut done: Vec<&TargetRecord> = Vec::new();
        for (_, record) in all.iter().filter(|(_, r)| r.state == TargetState::Syncing) {
            // Where nobody serves there is nobody to be spared.
            let free = nobody || !is_held(record.target);
            if self.rounds_are_over(record, all)
                && free
                && self.accusers(record.target, all).is_empty()
            {
                done.push(record);
            }
        }
        let is_doubtful = |record: &&&TargetRecord| self.doubtful.contains(&record.target);
        let certain = done.iter().filter(|record| !is_doubtful(record));
        let certain: Vec<TargetId> = certain.map(|record| record.target).collect();
        if !certain.is_empty() {
            return certain;
        }
        // The others may have to take over from it what they cannot vouch for.
        let latest = done.iter().max_by_key(|r| (r.since, Reverse(r.target)));
        latest.map(|record| record.target).into_iter().collect()
    }

    /// Whether all who may have noted gaps for a target that is syncing, and itself,
    /// have said often enough that there is none.
    fn rounds_are_over(&mut self, record: &TargetRecord, all: &[(ServerId, TargetRecord)]) -> bool {
        let Some(rounds) = self.syncing.get_mut(&record.target) else { return false };
        let asked = |other: &TargetRecord| {
            other.target == record.target || may_have_noted(other, record.target, record.since)
        };
        let mut asked = all.iter().filter(|(_, other)| asked(other));
        if rounds.done < ROUNDS && asked.all(|(_, other)| rounds.heard.contains(&other.target)) {
            rounds.done += 1;
            rounds.heard.clear();
        }
        rounds.done == ROUNDS
    }

    /// Whether the answer to somebody who waits to be online hangs on the next
    /// reports.
    pub fn is_counting(&self) -> bool {
        self.syncing.values().any(|rounds| rounds.done > 0 && rounds.done < ROUNDS)
    }
}

/// Whether a target was there at some time while another was away, since then.
pub(super) fn may_have_noted(other: &TargetRecord, away: TargetId, since: Epoch) -> bool {
    other.target != away && (other.state == TargetState::Online || other.since > since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use TargetState::{Offline, Online, OutOfService, Syncing};
    use weir_types::FsUsage;

    fn record(target: u32, state: TargetState, since: u64) -> TargetRecord {
        let (target, since, joins) = (TargetId(target), Epoch(since), None);
        TargetRecord { target, state, since, draining: false, joins }
    }

    const WELL: Said = Said { in_trouble: false, lost_its_place: false };
    const ILL: Said = Said { in_trouble: true, lost_its_place: false };
    const BEHIND: Said = Said { in_trouble: false, lost_its_place: true };

    fn around(next: u64) -> Around {
        Around { mirrored: true, others_serve: true, next: Epoch(next) }
    }

    fn report(target: u32, gaps: &[(u32, u64)], unreachable: &[u32]) -> TargetReport {
        TargetReport {
            target: TargetId(target),
            usage: FsUsage::default(),
            trouble: String::new(),
            removed: Vec::new(),
            gaps: gaps.iter().map(|(t, n)| (TargetId(*t), *n)).collect(),
            filled: Vec::new(),
            unreachable: unreachable.iter().map(|t| TargetId(*t)).collect(),
        }
    }

    /// Target n is on server n.
    fn placed(records: &[TargetRecord]) -> Vec<(ServerId, TargetRecord)> {
        records.iter().map(|r| (ServerId(r.target.0), *r)).collect()
    }

    /// All act under the epoch, and say these gaps.
    fn heard(records: &[TargetRecord], epoch: u64, gaps: &[(u32, &[(u32, u64)])]) -> Hearsay {
        let mut hearsay = Hearsay::new(Epoch(1));
        hearsay.changed(&placed(records), Epoch(epoch));
        for record in records {
            hearsay.acts(ServerId(record.target.0), Epoch(epoch));
        }
        say(&mut hearsay, records, gaps);
        hearsay
    }

    fn say(hearsay: &mut Hearsay, records: &[TargetRecord], gaps: &[(u32, &[(u32, u64)])]) {
        for record in records {
            let gaps = gaps.iter().find(|(t, _)| *t == record.target.0).map_or(&[][..], |g| g.1);
            let word = report(record.target.0, gaps, &[]);
            hearsay.said(ServerId(record.target.0), record, &word, false);
        }
    }

    /// Who is online after some rounds in which those that are not offline say that
    /// there are no gaps but these.
    fn complete(
        hearsay: &mut Hearsay,
        records: &[TargetRecord],
        gaps: &[(u32, &[(u32, u64)])],
    ) -> Vec<u32> {
        let heard = records.iter().filter(|r| r.state != Offline);
        let heard: Vec<TargetRecord> = heard.copied().collect();
        let mut done = Vec::new();
        for _ in 0..ROUNDS {
            assert_eq!(done, [], "not before all rounds are over");
            say(hearsay, &heard, gaps);
            done = hearsay.complete(&placed(records), |_| false);
        }
        done.iter().map(|t| t.0).collect()
    }

    #[test]
    fn a_target_that_was_away_is_behind_until_it_has_been_brought_up_to_date() {
        let online = record(1, Online, 3);
        let away = after_silence(online, Epoch(6), Epoch(7));
        assert_eq!(away, record(1, Offline, 7));
        assert_eq!(after_silence(away, Epoch(8), Epoch(9)), away, "since the first time");
        let back = after_report(away, WELL, around(10));
        assert_eq!(back, record(1, Syncing, 7));
        assert_eq!(after_report(back, ILL, around(11)), record(1, OutOfService, 7));
        let alone = Around { mirrored: false, ..around(10) };
        assert_eq!(after_report(away, WELL, alone), record(1, Online, 10));
        assert_eq!(after_report(online, WELL, around(10)), online);
        assert_eq!(after_report(online, ILL, around(10)), record(1, OutOfService, 10));
    }

    #[test]
    fn who_went_and_was_not_told_of_it_has_noted_nothing_under_it() {
        let died_with_the_first = after_silence(record(2, Online, 1), Epoch(6), Epoch(9));
        assert_eq!(died_with_the_first, record(2, Offline, 7));
        assert!(!may_have_noted(&died_with_the_first, TargetId(1), Epoch(7)));
        let died_later = after_silence(record(2, Online, 1), Epoch(7), Epoch(9));
        assert!(may_have_noted(&died_later, TargetId(1), Epoch(7)));
    }

    #[test]
    fn who_lost_its_place_gives_way_to_another_copy_if_there_is_one() {
        let online = record(1, Online, 3);
        assert_eq!(after_report(online, BEHIND, around(9)), record(1, Syncing, 9));
        let last = Around { others_serve: false, ..around(9) };
        // It may have lost what was not synced, and stays all the same.
        assert_eq!(after_report(online, BEHIND, last), record(1, Online, 9));
        let alone = Around { mirrored: false, ..around(9) };
        assert_eq!(after_report(online, BEHIND, alone), online);
    }

    #[test]
    fn who_was_there_meanwhile_has_to_say_that_nothing_is_missing() {
        let back = record(1, Syncing, 7);
        // The third went before it, and did not come back since.
        let all = [back, record(2, Online, 1), record(3, Offline, 6), record(4, Offline, 7)];
        let mut hearsay = heard(&all, 10, &[]);
        assert_eq!(complete(&mut hearsay, &all, &[]), [1]);
        let mut old = heard(&all, 10, &[]);
        old.acts(ServerId(2), Epoch(9));
        old.changed(&placed(&all), Epoch(10));
        assert_eq!(complete(&mut old, &all, &[]), [], "it may note another one yet");
        let mut behind = heard(&all, 10, &[]);
        assert_eq!(complete(&mut behind, &all, &[(2, &[(1, 5), (9, 1)])]), []);
        assert_eq!(behind.gaps_for(TargetId(1)), 5);
        assert_eq!(complete(&mut behind, &all, &[(2, &[(1, 0), (9, 4)])]), [1]);
        // One that went after it may have noted something, and has to come back.
        let later = [back, record(5, Offline, 8)];
        let mut hearsay = heard(&later, 10, &[]);
        hearsay.changed(&placed(&later), Epoch(10));
        assert_eq!(complete(&mut hearsay, &later, &[]), []);
        let returned = [back, record(5, Syncing, 8)];
        hearsay.changed(&placed(&returned), Epoch(10));
        assert_eq!(complete(&mut hearsay, &returned, &[(5, &[(1, 1)])]), [5], "it waits for none");
        let held = hearsay.complete(&placed(&all), |target| target == TargetId(1));
        assert_eq!(held, []);
    }

    #[test]
    fn a_gap_that_is_handed_from_one_to_another_meanwhile_is_not_missed() {
        let all = [record(1, Syncing, 7), record(2, Online, 1), record(3, Online, 1)];
        let gap: [(u32, &[(u32, u64)]); 1] = [(3, &[(1, 1)])];
        // The second has none yet; the third hands it over before it reports.
        let mut hearsay = heard(&all, 10, &[]);
        assert_eq!(hearsay.complete(&placed(&all), |_| false), []);
        // The second made this report before it got the gap.
        say(&mut hearsay, &all, &[]);
        assert_eq!(hearsay.complete(&placed(&all), |_| false), []);
        say(&mut hearsay, &all, &[(2, &[(1, 1)])]);
        assert_eq!(hearsay.complete(&placed(&all), |_| false), []);
        assert_eq!(complete(&mut hearsay, &all, &gap), []);
        assert_eq!(complete(&mut hearsay, &all, &[]), [1]);
    }

    #[test]
    fn who_has_own_gaps_waits_for_whoever_is_online_to_take_them_over() {
        let all = [record(1, Syncing, 7), record(2, Online, 5)];
        let mut hearsay = heard(&all, 10, &[]);
        assert_eq!(complete(&mut hearsay, &all, &[(1, &[(1, 2)])]), []);
        assert_eq!(complete(&mut hearsay, &all, &[]), [1]);
        // That there is nobody, it has to say knowing who is online.
        let newer = [all[0], record(2, Online, 11)];
        hearsay.changed(&placed(&newer), Epoch(11));
        hearsay.acts(ServerId(2), Epoch(11));
        assert_eq!(complete(&mut hearsay, &newer, &[]), []);
        hearsay.acts(ServerId(1), Epoch(11));
        assert_eq!(complete(&mut hearsay, &newer, &[]), [1]);
    }

    #[test]
    fn of_those_with_own_gaps_one_comes_at_a_time_and_then_its_word_does_not_count() {
        let all = [record(1, Syncing, 7), record(2, Syncing, 7), record(3, Syncing, 7)];
        let own: [(u32, &[(u32, u64)]); 2] = [(1, &[(1, 2)]), (2, &[(2, 2)])];
        let mut hearsay = heard(&all, 10, &[]);
        assert_eq!(complete(&mut hearsay, &all, &own), [3], "it has none");
        let two = [all[0], all[1]];
        assert_eq!(complete(&mut hearsay, &two, &[]), [1]);
        let two = [record(1, Online, 11), all[1]];
        hearsay.changed(&placed(&two), Epoch(11));
        hearsay.acts(ServerId(2), Epoch(11));
        assert_eq!(complete(&mut hearsay, &two, &[]), [], "the first may note gaps for it yet");
        hearsay.acts(ServerId(1), Epoch(11));
        assert_eq!(complete(&mut hearsay, &two, &[(1, &[(1, 2)])]), [], "still");
        assert_eq!(complete(&mut hearsay, &two, &[(1, &[(2, 3)])]), []);
        assert_eq!(complete(&mut hearsay, &two, &[]), [2]);
    }

    #[test]
    fn a_gap_noted_by_one_that_did_not_know_takes_a_target_back() {
        let joined = joins(record(1, Syncing, 4), Epoch(9));
        assert_eq!(joined, TargetRecord { joins: Some(Epoch(4)), ..record(1, Online, 9) });
        let all = [joined, record(2, Online, 1)];
        let mut hearsay = heard(&all, 9, &[(1, &[(2, 1), (1, 1)])]);
        assert_eq!(hearsay.too_early(), None);
        // Whoever has noted it may have gone meanwhile.
        say(&mut hearsay, &all, &[(2, &[(1, 1)])]);
        hearsay.changed(&placed(&all), Epoch(10));
        assert_eq!(hearsay.too_early(), Some(TargetId(1)));
        // So does one that went before it knew.
        let gone = [joined, record(2, Offline, 10)];
        let mut hearsay = heard(&all, 9, &[]);
        hearsay.changed(&placed(&gone), Epoch(10));
        assert_eq!(hearsay.too_early(), None, "it knew, and had none");
        hearsay.acts(ServerId(2), Epoch(8));
        hearsay.changed(&placed(&gone), Epoch(10));
        assert_eq!(hearsay.too_early(), Some(TargetId(1)));
        // It waits for the same as before.
        assert_eq!(steps_back(joined, Epoch(11)), record(1, Syncing, 4));
        assert_eq!(after_silence(joined, Epoch(8), Epoch(11)), record(1, Offline, 4));
        assert_eq!(after_report(joined, ILL, around(11)), record(1, OutOfService, 4));
        assert_eq!(after_report(joined, BEHIND, around(11)), record(1, Syncing, 4));
    }

    #[test]
    fn who_cannot_be_reached_goes_one_at_a_time_and_never_the_last() {
        let mut all = [record(1, Online, 1), record(2, Online, 1), record(3, Online, 1)];
        let mut hearsay = heard(&all, 5, &[]);
        let accuse = |hearsay: &mut Hearsay, of: &TargetRecord, whom: &[u32]| {
            let word = report(of.target.0, &[], whom);
            hearsay.said(ServerId(of.target.0), of, &word, false);
        };
        assert!(hearsay.is_settled());
        accuse(&mut hearsay, &all[1], &[1, 3]);
        accuse(&mut hearsay, &all[2], &[2]);
        accuse(&mut hearsay, &all[0], &[2]);
        assert_eq!(hearsay.cut_off(&placed(&all)), Some(TargetId(2)), "two say so");
        all[1] = steps_back(all[1], Epoch(6));
        hearsay.changed(&placed(&all), Epoch(6));
        assert_eq!(hearsay.cut_off(&placed(&all)), None, "its word is void");
        [1, 2, 3].into_iter().for_each(|server| hearsay.acts(ServerId(server), Epoch(6)));
        let say = |hearsay: &mut Hearsay, first: &[u32], third: &[u32]| {
            let mut done = Vec::new();
            for _ in 0..ROUNDS {
                accuse(hearsay, &all[0], first);
                accuse(hearsay, &all[1], &[]);
                accuse(hearsay, &all[2], third);
                done = hearsay.complete(&placed(&all), |_| false);
            }
            done
        };
        assert_eq!(say(&mut hearsay, &[2], &[2]), []);
        assert_eq!(say(&mut hearsay, &[], &[2]), [], "one cannot reach it still");
        assert_eq!(say(&mut hearsay, &[], &[]), [TargetId(2)]);
        // Of two that cannot reach each other one stays.
        let two = [record(1, Online, 1), record(2, Online, 1)];
        let mut hearsay = heard(&two, 5, &[]);
        accuse(&mut hearsay, &two[0], &[2]);
        accuse(&mut hearsay, &two[1], &[1]);
        assert_eq!(hearsay.cut_off(&placed(&two)), Some(TargetId(2)));
        assert_eq!(hearsay.cut_off(&placed(&[two[0], record(2, Offline, 1)])), None);
        // What a server says of its own targets is its own affair.
        let same = [(ServerId(1), two[0]), (ServerId(1), two[1])];
        assert_eq!(hearsay.cut_off(&same), None);
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
