//! The state of targets over time. Pure.
//!
//! A target that was away may have missed writes; the targets that were online have noted which
//! ([gap](weir_wire::peer::TargetReport::gaps)). It is online again when no target has a gap for it
//! left.
//!
//! Its own gaps are bytes that it cannot vouch for: changes that were under way at an unclean stop.
//! While another copy is online they are handed to that copy. Otherwise they are no reason to wait:
//! the target does not report them, and they become gaps for the others once it is online.
//!
//! Invariants
//! - A target is declared away only when its lease to serve has run out, or its server has said
//!   itself that it is out of service, or given up, or has just started.
//! - It is online again only when every target that may have noted a gap for it has said, knowing
//!   that it takes writes again, that there is none; and that [`ROUNDS`] times in turn, since gaps
//!   are handed from one to another. If a gap is noted for it before all servers know that it is
//!   online, it is not online after all: until then nothing is read from it.
//! - A target that cannot be reached by those whose changes it should take does not delay them: it
//!   is syncing until it is reached.
//! - Unreachability takes away no target that may have the last current copy of something: one that
//!   may share a column with another that is not online.
//! - Own gaps take away no target that is the last online one. But a target whose machine
//!   restarted, and that was already away when another went that has kept its memory, waits for
//!   that one.
//! - No circular waits: a target waits for online targets, for those that went later, and, if its
//!   machine restarted since, for those that went with it and kept their memory. Of targets with
//!   own gaps one comes online at a time.

use crate::schema::{Past, TargetRecord};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use weir_host::plant::{Bug, planted};
use weir_types::{Epoch, ServerId, TargetId};
use weir_wire::map::{Online, TargetState};
use weir_wire::peer::TargetReport;

/// Part of the target timeout during which its server may serve without a reply: the rest is for
/// clocks that run unevenly.
const SERVE_SHARE: (u64, u64) = (4, 5);

/// Length of a data server's lease, milliseconds.
pub fn serve_ms(target_timeout_ms: u64) -> u32 {
    u32::try_from(target_timeout_ms / SERVE_SHARE.1 * SERVE_SHARE.0).unwrap_or(u32::MAX)
}

/// Number of rounds in which all targets have to report no gaps. A gap may be handed from a target
/// that has not reported yet to one that has, and so be missed in the first round. A report of the
/// third round was made after the reply to one of the second, so after all of the first: the target
/// that got the gap reports it then.
const ROUNDS: u8 = 3;

/// A server's report of its own target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Whether it is out of service.
    pub in_trouble: bool,
    /// Set if it cannot vouch for all its data and its server has just started, so that nothing is
    /// served under an earlier state: the last epoch that it was told.
    pub lost_its_place: Option<Epoch>,
}

/// Circumstances of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    /// Whether there are files with several copies.
    pub mirrored: bool,
    /// Whether another target serves.
    pub others_serve: bool,
    /// Whether this target's machine restarted while another target that is not online, and went
    /// with it or later, may have kept what this one has lost.
    pub another_kept_it: bool,
    /// The epoch of a change.
    pub next: Epoch,
}

/// The record of a target after a report of its server.
pub fn after_report(record: TargetRecord, said: Said, around: Around) -> TargetRecord {
    let was_online = record.state == TargetState::Online;
    let can_go = around.others_serve || around.another_kept_it || planted(Bug::MarkLastCopy);
    let state = match (said.in_trouble, was_online, around.mirrored) {
        (true, ..) => TargetState::OutOfService,
        (false, true, true) if said.lost_its_place.is_some() && can_go => TargetState::Syncing,
        (false, true, _) | (false, false, false) => TargetState::Online,
        (false, false, true) => TargetState::Syncing,
    };
    // What a disk had accepted that fails now may be gone.
    let anew = if said.in_trouble && was_online { around.next } else { record.anew };
    let record = TargetRecord { anew, ..record };
    match (was_online, state == TargetState::Online) {
        (true, false) => {
            // Under later epochs it has noted nothing.
            let told = said.lost_its_place.filter(|_| !said.in_trouble);
            let since = told.map_or(around.next, |told| around.next.min(Epoch(told.0 + 1)));
            leaves(record, state, since)
        }
        (false, true) => TargetRecord { state, since: around.next, ..record },
        // It has nobody to take its place, and may have lost what was not synced:
        // clients go by the epoch since when it has been there.
        (true, true) if said.lost_its_place.is_some() && around.mirrored => {
            TargetRecord { state, since: around.next, past: past(&record, around.next), ..record }
        }
        _ => TargetRecord { state, ..record },
    }
}

/// The record of a target that is not online any more. If not all servers knew that it was online,
/// it never counted as online.
fn leaves(record: TargetRecord, state: TargetState, since: Epoch) -> TargetRecord {
    match record.joins {
        Some(since) => TargetRecord { state, since, joins: None, ..record },
        None => TargetRecord { state, since, past: past(&record, since), ..record },
    }
}

/// The periods in which it was online, if one ends or changes at this epoch.
fn past(record: &TargetRecord, until: Epoch) -> Past {
    record.past.and(Online { from: record.since, until })
}

/// Whether a target that was told of no epoch after `told`, and has lost its memory since, may have
/// lost what another has: one that is not online, and went while this one was already away.
pub fn has_kept(other: &TargetRecord, told: Epoch) -> bool {
    other.state != TargetState::Online && went(other) > (Epoch(told.0.saturating_add(1)), false)
}

/// The record of a target that has received everything it missed.
pub fn joins(record: TargetRecord, next: Epoch) -> TargetRecord {
    let (state, joins) = (TargetState::Online, Some(record.since));
    TargetRecord { state, since: next, joins, ..record }
}

/// The record of a target that was silent for too long, or that its server has given up. It was
/// told of no epoch after `told`, so it has noted nothing under later ones.
pub fn after_silence(record: TargetRecord, told: Epoch, next: Epoch) -> TargetRecord {
    match record.state {
        TargetState::Online => leaves(record, TargetState::Offline, next.min(Epoch(told.0 + 1))),
        _ => TargetRecord { state: TargetState::Offline, ..record },
    }
}

/// The record of a target that others cannot reach, or that came online too early.
pub fn steps_back(record: TargetRecord, next: Epoch) -> TargetRecord {
    leaves(record, TargetState::Syncing, next)
}

/// The last report of a target.
#[derive(Clone, Debug, Default)]
struct Word {
    /// Gaps that it has noted.
    gaps: Vec<(TargetId, u64)>,
    /// Targets that it cannot reach.
    unreachable: Vec<TargetId>,
}

/// The servers' reports of gaps, and their epochs.
#[derive(Debug, Default)]
pub struct Hearsay {
    /// By target, and not by server: a server does not report targets that it has given up.
    acting: BTreeMap<TargetId, Epoch>,
    told: BTreeMap<TargetId, Epoch>,
    words: BTreeMap<TargetId, Word>,
    /// Targets that cannot reach another one.
    accusing: BTreeSet<TargetId>,
    /// Targets that had own gaps when they came back, and may still have some that become gaps for
    /// others.
    doubtful: BTreeSet<TargetId>,
    /// Syncing targets, and how often all have reported no gaps for them.
    syncing: BTreeMap<TargetId, Rounds>,
    /// Targets that are joining.
    joining: BTreeMap<TargetId, Joining>,
    epoch: Epoch,
    /// Epoch that servers were told before this process began.
    began_at: Epoch,
}

/// Progress of the rounds for a syncing target.
#[derive(Clone, Debug, Default)]
struct Rounds {
    /// When the target went.
    went: Went,
    done: u8,
    /// Targets that have reported in this round.
    heard: BTreeSet<TargetId>,
    /// Whether the missing reports are those of serving targets without known gaps.
    is_near: bool,
}

/// Reports since a target joined.
#[derive(Clone, Debug)]
struct Joining {
    /// Epoch at which it went away.
    since: Epoch,
    /// Targets that were away when it joined, and have been since. They had reported no gaps for
    /// it.
    away: BTreeSet<TargetId>,
    /// Whether a gap was noted for it.
    missed: bool,
}

impl Hearsay {
    /// Starts without reports, with the map at this epoch.
    pub fn new(began_at: Epoch) -> Self {
        Self { began_at, epoch: began_at, ..Self::default() }
    }

    /// Records that the server of a target acts under this epoch, with no change of an older one
    /// under way.
    pub fn acts(&mut self, target: TargetId, epoch: Epoch) {
        self.acting.insert(target, epoch);
    }

    /// Records that the server of a target is told of this epoch.
    pub fn tell(&mut self, target: TargetId, epoch: Epoch) {
        self.told.insert(target, epoch);
    }

    /// The last epoch under which a target may have noted anything.
    pub fn told(&self, target: TargetId) -> Epoch {
        self.told.get(&target).copied().unwrap_or(self.began_at)
    }

    /// Records a report of a target. `started` says that its server has just started.
    pub fn said(&mut self, record: &TargetRecord, report: &TargetReport, started: bool) {
        let gaps: Vec<_> = report.gaps.iter().filter(|(_, count)| *count > 0).copied().collect();
        let own = gaps.iter().any(|(behind, _)| *behind == record.target);
        let online = record.state == TargetState::Online;
        if own && (started || !online) {
            self.doubtful.insert(record.target);
        } else if !own && online && self.acts_under(record.target, record.since) {
            self.doubtful.remove(&record.target);
        }
        let unreachable = report.unreachable.clone();
        match unreachable.is_empty() {
            true => self.accusing.remove(&record.target),
            false => self.accusing.insert(record.target),
        };
        self.count(record, &gaps);
        self.words.insert(record.target, Word { gaps, unreachable });
    }

    /// Counts a target's report about syncing targets.
    fn count(&mut self, record: &TargetRecord, gaps: &[(TargetId, u64)]) {
        let online = record.state == TargetState::Online;
        let is_all = !(online && self.doubtful.contains(&record.target));
        let counts = is_all && self.acts_under(record.target, self.epoch);
        for (target, rounds) in &mut self.syncing {
            let none = !is_behind(gaps, *target);
            if !(record.target == *target || may_have_noted(record, *target, rounds.went)) {
                continue;
            }
            if !none && !planted(Bug::OnlineTooEarly) {
                *rounds = Rounds { went: rounds.went, ..Rounds::default() };
            } else if counts {
                rounds.heard.insert(record.target);
            }
        }
        for (target, joining) in &mut self.joining {
            let behind = is_behind(gaps, *target);
            joining.missed |= behind && may_have_noted(record, *target, (joining.since, true));
        }
    }

    fn acts_under(&self, target: TargetId, epoch: Epoch) -> bool {
        self.acting.get(&target).is_some_and(|acting| *acting >= epoch)
    }

    /// Handles changed records: under a new epoch all reports are needed anew.
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
                let fresh = Rounds { went: went(record), ..Rounds::default() };
                let rounds = counted.remove(&record.target).unwrap_or(fresh);
                self.syncing.insert(record.target, rounds);
            }
            if let Some(since) = record.joins {
                let joining = self.joining(&joined, (record, since), all);
                self.joining.insert(record.target, joining);
            }
        }
        self.words.retain(|target, _| known.contains(target));
        self.acting.retain(|target, _| known.contains(target));
        self.told.retain(|target, _| known.contains(target));
        self.doubtful.retain(|target| known.contains(target));
        self.accusing.retain(|target| known.contains(target));
    }

    /// The state of a joining target that was away since `since`, after records have changed.
    fn joining(
        &self,
        before: &BTreeMap<TargetId, Joining>,
        (record, since): (&TargetRecord, Epoch),
        all: &[(ServerId, TargetRecord)],
    ) -> Joining {
        let gone = |other: &TargetRecord| {
            matches!(other.state, TargetState::Offline | TargetState::OutOfService)
        };
        let before = before.get(&record.target);
        // Of what was before this process began nothing is known.
        let joins_now = before.is_none() && record.since > self.began_at;
        let was_away = |target: &TargetId| before.is_some_and(|b| b.away.contains(target));
        let away = all.iter().filter(|(_, other)| gone(other)).map(|(_, other)| other.target);
        let away: BTreeSet<TargetId> = away.filter(|t| joins_now || was_away(t)).collect();
        // Who goes before it has said, knowing of it, what it noted until then, may have
        // noted something for it.
        let went_untold = |(_, other): &(ServerId, TargetRecord)| {
            gone(other)
                && !away.contains(&other.target)
                && may_have_noted(other, record.target, (since, true))
                && !self.acts_under(other.target, record.since)
        };
        let missed = before.is_some_and(|b| b.missed) || all.iter().any(went_untold);
        Joining { since, away, missed }
    }

    /// Number of gaps noted for a target, by all.
    pub fn gaps_for(&self, target: TargetId) -> u64 {
        let of = |word: &Word| {
            word.gaps.iter().find(|(t, _)| *t == target).map_or(0, |(_, count)| *count)
        };
        self.words.values().map(of).fold(0, u64::saturating_add)
    }

    /// Serving targets of other servers that cannot reach a target.
    fn accusers(
        &self,
        target: TargetId,
        all: &[(ServerId, TargetRecord)],
    ) -> Vec<(ServerId, TargetId)> {
        if self.accusing.is_empty() {
            return Vec::new();
        }
        let own = all.iter().find(|(_, r)| r.target == target).map(|(server, _)| *server);
        let accuses = |(server, record): &&(ServerId, TargetRecord)| {
            record.serves()
                && Some(*server) != own
                && self.accusing.contains(&record.target)
                && self.words.get(&record.target).is_some_and(|w| w.unreachable.contains(&target))
        };
        all.iter().filter(accuses).map(|(server, record)| (*server, record.target)).collect()
    }

    /// Online targets that others with changes for them cannot reach. Those come first that most
    /// servers cannot reach.
    pub fn accused(&self, all: &[(ServerId, TargetRecord)]) -> Vec<Accused> {
        if self.accusing.is_empty() {
            return Vec::new();
        }
        let online = all.iter().filter(|(_, r)| r.state == TargetState::Online);
        let mut accused: Vec<Accused> = Vec::new();
        for (_, record) in online {
            let by = self.accusers(record.target, all);
            if !by.is_empty() {
                accused.push(Accused { target: record.target, by });
            }
        }
        accused.sort_by_key(|one| Reverse((one.servers(), one.target)));
        accused
    }

    /// The epoch under which, or a later one, the servers of all serving targets act.
    pub fn in_effect(&self, serving: impl Iterator<Item = TargetId>, now: Epoch) -> Epoch {
        let acting = |target| self.acting.get(&target).copied().unwrap_or_default();
        serving.map(acting).min().unwrap_or(now).min(now)
    }

    /// Whether there is nothing to decide.
    pub fn is_settled(&self) -> bool {
        self.syncing.is_empty() && self.accusing.is_empty() && self.joining.is_empty()
    }

    /// A joining target for which a gap was noted after all, by a target that did not know of it.
    pub fn too_early(&self) -> Option<TargetId> {
        let missed = self.joining.iter().find(|(_, j)| j.missed && !planted(Bug::OnlineTooEarly));
        missed.map(|(target, _)| *target)
    }

    /// The targets that come online now, because they have received everything they missed.
    /// `is_held` excludes targets that are held back.
    pub fn complete(
        &mut self,
        all: &[(ServerId, TargetRecord)],
        is_held: impl Fn(TargetId) -> bool,
    ) -> Vec<TargetId> {
        let mut done: Vec<&TargetRecord> = Vec::new();
        for (_, record) in all.iter().filter(|(_, r)| r.state == TargetState::Syncing) {
            let free = !is_held(record.target);
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
        let latest = done.iter().max_by_key(|r| (went(r), Reverse(r.target)));
        latest.map(|record| record.target).into_iter().collect()
    }

    /// Whether all targets that may have noted gaps for a syncing one, and itself, have reported
    /// often enough that there is none.
    fn rounds_are_over(&mut self, record: &TargetRecord, all: &[(ServerId, TargetRecord)]) -> bool {
        let Self { syncing, words, doubtful, .. } = self;
        let Some(rounds) = syncing.get_mut(&record.target) else { return false };
        let asked = |other: &TargetRecord| {
            other.target == record.target || may_have_noted(other, record.target, went(record))
        };
        let mut asked = all.iter().filter(|(_, other)| asked(other));
        if rounds.done < ROUNDS && asked.all(|(_, other)| rounds.heard.contains(&other.target)) {
            rounds.done += 1;
            rounds.heard.clear();
        }
        let has_none = |other: &TargetRecord| {
            let word = words.get(&other.target);
            (other.target == record.target || other.serves())
                && !doubtful.contains(&other.target)
                && !word.is_some_and(|word| is_behind(&word.gaps, record.target))
        };
        let mut missing = all.iter().filter(|(_, other)| {
            (other.target == record.target || may_have_noted(other, record.target, went(record)))
                && !rounds.heard.contains(&other.target)
        });
        rounds.is_near = missing.all(|(_, other)| has_none(other));
        rounds.done == ROUNDS
    }

    /// Whether a target that waits to be online depends on the next reports.
    pub fn is_counting(&self) -> bool {
        let is_open = |rounds: &Rounds| rounds.done < ROUNDS && (rounds.done > 0 || rounds.is_near);
        self.syncing.values().any(is_open)
    }
}

/// A target that others cannot reach, and those others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accused {
    target: TargetId,
    by: Vec<(ServerId, TargetId)>,
}

impl Accused {
    /// Number of servers that cannot reach it.
    fn servers(&self) -> usize {
        let servers: BTreeSet<ServerId> = self.by.iter().map(|(server, _)| *server).collect();
        servers.len()
    }
}

/// The target to step back among those that others cannot reach: the first that can. Its reports
/// about others are void from then on, so of two that cannot reach each other one stays. A target
/// that `is_needed` may have the last current copy of something, and stays in any case. If none can
/// step back, the accuser of one of them does, if it is the only one and can.
pub fn cut_off(
    accused: &[Accused],
    all: &[(ServerId, TargetRecord)],
    is_needed: impl Fn(TargetId) -> bool,
) -> Option<TargetId> {
    let can_go = |target: &TargetId| {
        let mut others = all.iter().filter(|(_, r)| r.target != *target);
        let others_serve = others.any(|(_, r)| r.serves());
        others_serve && (!is_needed(*target) || planted(Bug::MarkLastCopy))
    };
    let only = |one: &Accused| match one.by[..] {
        [(_, accuser)] => Some(accuser),
        _ => None,
    };
    let worst = accused.iter().map(|one| one.target).find(can_go);
    worst.or_else(|| accused.iter().filter_map(only).find(can_go))
}

/// Whether another's report means that a target has missed something, or may have, because that one
/// has lost its notes.
fn is_behind(gaps: &[(TargetId, u64)], target: TargetId) -> bool {
    gaps.iter().any(|(behind, _)| [target, TargetId::NONE].contains(behind))
}

/// When a target went, and whether it has kept its memory: of targets that went at the same time,
/// so that none was without the other, one that has kept it has more.
type Went = (Epoch, bool);

/// See [`Went`].
pub(super) fn went(record: &TargetRecord) -> Went {
    (record.since, !record.forgot())
}

/// Whether a target was online at some time while another was away that went then, or has kept what
/// that one has lost.
pub(super) fn may_have_noted(other: &TargetRecord, away: TargetId, gone: Went) -> bool {
    other.target != away && (other.state == TargetState::Online || went(other) > gone)
}

#[cfg(test)]
mod tests;
