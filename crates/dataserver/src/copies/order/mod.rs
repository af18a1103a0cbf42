//! The primary's part: a client's change goes to all copies.

mod answer;
mod bring;
mod later;
mod refused;

use super::chain;
use super::lacking::{refuse_elsewhere, require_all, require_known};
use super::mend::before_change;
use super::push::tell_gap;
use crate::counters::add;
use crate::disk::Disk;
use crate::machine::change::{Change, copy_of};
use crate::machine::{Outcome, Work};
use crate::peers::lines::{Line, Parcel, says_nothing};
use crate::queue::tasks::Data;
use crate::standing::Standings;
use crate::standing::roles::Orders;
use crate::standing::turns::UnderWay;
use crate::standing::unreachable::PATIENCE;
use crate::state::Shared;
use bring::{bring_all, to_bring};
use std::ops::Range;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::plant::{Bug, planted};
use weir_store::ELSEWHERE;
use weir_types::{CopyIndex, Epoch, Error, ErrorKind, Result, TargetId};
use weir_wire::data::{CopyAccess, Relay};

/// Timeout of a change on all copies, milliseconds. It is less than clients wait for a reply.
pub(super) const ORDER_MS: u64 = 25_000;
/// Length of one step of the wait for another server, milliseconds. The map is checked between
/// steps.
pub(super) const STEP_MS: u64 = 100;
/// Pause between attempts to reach a copy.
const PAUSE: Duration = Duration::from_millis(20);

/// A change that this server orders.
pub(super) struct Order<'a> {
    pub(super) shared: &'a Shared,
    pub(super) disk: &'a Disk,
    pub(super) change: &'a Change,
    data: &'a mut Data,
    pub(super) own: TargetId,
    pub(super) range: Option<Range<u64>>,
    pub(super) under_way: UnderWay<'a>,
    /// Whether copies with staged bytes are sent none.
    pub(super) staged: bool,
    /// Targets that get the change after it was acknowledged.
    pub(super) later: Vec<TargetId>,
    /// Result of applying it here.
    pub(super) applied: Option<Result<Outcome>>,
    /// Whether other copies may have it.
    sent: bool,
    /// The targets to which it was last sent, in the order of the chain.
    path: Vec<TargetId>,
    /// Whether all others have a gap for it, or no bytes are changed.
    pub(super) settled: bool,
    /// Whether a copy has refused it, and that was logged.
    pub(super) refused: bool,
    /// Whether it replaces bytes that this copy lacks.
    replaces: bool,
    pub(super) since: Instant,
    /// The first other copy that did not confirm it, and since when.
    waits: Option<(TargetId, Instant)>,
}

/// Result of the change on the other copies.
pub(super) enum Others {
    /// All copies that take changes have it.
    Have,
    /// A copy has refused it. All others have a gap now, unless it changes no bytes.
    Refused(Error),
    /// The outcome on the first of them is unknown.
    Unknown,
}

/// Carries a change out on all copies. `early` is called with the result if the other copies get
/// the change only afterwards. `asked_since` is the epoch at which the change's connection was
/// made; `None` if no client has sent it.
///
/// # Errors
/// `NotCurrent` if this is not the copy that orders; those of the change.
pub(super) fn order(
    shared: &Shared,
    disk: &Disk,
    change: (&Change, Option<Epoch>),
    data: &mut Data,
    early: impl FnOnce(&Outcome),
) -> Result<Outcome> {
    let (begun, mut early, mut rotten) = (clock::now(), Some(early), false);
    let is_late = || clock::elapsed(begun) > Duration::from_millis(ORDER_MS);
    let is_sync = change.0.range().is_none();
    loop {
        before_change(shared, disk, change.0)?;
        let early = |outcome: &Outcome| early.take().into_iter().for_each(|early| early(outcome));
        match order_once(shared, disk, change, data, early) {
            // What others have written meanwhile, and was put off, is brought first.
            Err(error) if error.kind == ErrorKind::Busy && is_sync => {
                if is_late() {
                    return Err(Error { kind: ErrorKind::TimedOut, ..error });
                }
                shared.copies.lines.wait(STEP_MS).sleep(PAUSE)?;
            }
            // It has rotted since that was looked at, which may be seconds ago: it is made good
            // first, or refused for good.
            Err(error) if error.kind == ErrorKind::Corrupt && !rotten && !is_sync => rotten = true,
            result => return result,
        }
    }
}

fn order_once(
    shared: &Shared,
    disk: &Disk,
    (change, asked_since): (&Change, Option<Epoch>),
    data: &mut Data,
    early: impl FnOnce(&Outcome),
) -> Result<Outcome> {
    let own = disk.served.id;
    let copies = &shared.copies;
    let range = change.range();
    let all = &change.access.copies;
    if range.is_none() {
        // As long as that takes: no epoch waits for it.
        bring_all(shared, disk, change, &copies.standings.orders(own, all)?)?;
    }
    let _lock = range.clone().map(|r| copies.locks.lock(own, change.access.object, r));
    let mut under_way = copies.begun.begin(own, copies.standings.acting());
    let orders = copies.standings.orders(own, all)?;
    // From now on it is not away and back before this has ended.
    asked_since.map_or(Ok(()), |since| copies.standings.has_stayed(own, since))?;
    under_way.go_on(orders.epoch);
    copies.removed.require_place(disk, change.access.object)?;
    require_known(disk, change)?;
    refuse_elsewhere(disk, change, range.as_ref())?;
    if range.is_none() {
        require_all(disk, change)?;
    }
    let pledge = match range {
        Some(_) => Some(disk.pledge(change.access.object, &change.pieces())?),
        None => None,
    };
    let since = clock::now();
    let (applied, sent, settled, refused) = (None, false, false, false);
    let (staged, later) = (change.is_staged_anywhere(), Vec::new());
    // Meanwhile nothing is put off in the same parts.
    let gaps = disk.store.gaps();
    let replaces = range.as_ref().is_some_and(|r| !gaps.may_put_off(change.access.object, r));
    let mut order = Order {
        shared,
        disk,
        change,
        data,
        own,
        range,
        under_way,
        staged,
        later,
        applied,
        sent,
        path: Vec::new(),
        settled,
        refused,
        replaces,
        since,
        waits: None,
    };
    let done = order.carry_out(orders).and_then(|()| order.replaced());
    match done {
        Ok(()) => {
            let outcome =
                order.applied.take().unwrap_or_else(|| Err(ErrorKind::Internal.into()))?;
            if !order.later.is_empty() {
                // Here it is for certain.
                drop(pledge);
                early(&outcome);
                order.hand_on_later();
            }
            Ok(outcome)
        }
        Err(error) => {
            if order.sent {
                shared.copies.ways.leave();
            }
            if let Err(failed) = order.doubt() {
                // The intent log says it then, as long as this server runs.
                std::mem::forget(pledge);
                tracing::error!("{}: {failed}", disk.store.name());
            }
            Err(error)
        }
    }
}

/// The present orders about the other copies. If another copy has come back meanwhile, and orders
/// from now on, this change is ended first: if it were given up, it would be lacking there, and
/// that copy would not be back after all. The wait for that is short.
pub(super) fn orders_of(
    standings: &Standings,
    own: TargetId,
    all: &[CopyAccess],
    under_way: &UnderWay<'_>,
    since: Instant,
) -> Result<Orders> {
    match standings.orders(own, all) {
        Err(error) if error.kind == ErrorKind::NotCurrent && clock::elapsed(since) < PATIENCE => {
            standings.orders_under(under_way.epoch(), own, all).map_err(|_| error)
        }
        orders => orders,
    }
}

impl<'a> Order<'a> {
    fn carry_out(&mut self, mut orders: Orders) -> Result<()> {
        loop {
            for away in orders.lacking.clone() {
                self.note_gap(away)?;
            }
            if self.change.is_later() {
                self.put_off(&mut orders)?;
            }
            let settled = match self.once(&orders)? {
                Others::Refused(error) if error.kind == ErrorKind::NoSpace => return Err(error),
                Others::Have | Others::Refused(_) => self.settle_own(&orders)?,
                Others::Unknown => false,
            };
            if settled {
                return Ok(());
            }
            if clock::elapsed(self.since) > Duration::from_millis(ORDER_MS) {
                let what = "not all copies confirmed the change in time: its outcome is unknown";
                return Err(Error::new(ErrorKind::TimedOut, what));
            }
            self.shared.copies.lines.wait(STEP_MS).sleep(PAUSE)?;
            orders = self.orders()?;
            if self.range.is_none() && to_bring(self.disk, self.change, &orders).next().is_some() {
                return Err(Error::new(ErrorKind::Busy, "more was put off since"));
            }
            self.under_way.go_on(orders.epoch);
        }
    }

    fn orders(&self) -> Result<Orders> {
        let all = &self.change.access.copies;
        orders_of(&self.shared.copies.standings, self.own, all, &self.under_way, self.since)
    }

    /// Applies the change here if that was not done, and passes it on.
    fn once(&mut self, orders: &Orders) -> Result<Others> {
        let mut relay = Relay {
            by: self.own,
            epoch: orders.epoch,
            lacking: orders.lacking.clone(),
            alone: false,
            vouched: self.replaces,
            way: 0,
        };
        let all = &self.change.access.copies;
        let silent = |target: &&TargetId| {
            !orders.lacking.contains(target) && self.shared.copies.lines.misses(self.own, **target)
        };
        let silent: Vec<TargetId> = orders.dispensable.iter().filter(silent).copied().collect();
        self.go_on_without(&silent, &mut relay)?;
        loop {
            let begun = clock::now();
            self.choose_way(&mut relay);
            let to = chain::next(all, self.own, &relay);
            self.sent |= to.is_some();
            let line = to.map(|to| self.send(to, &relay));
            self.apply()?;
            let (Some(to), Some(line)) = (to, line) else { return Ok(Others::Have) };
            if planted(Bug::AckBeforePartner) {
                return Ok(Others::Have);
            }
            let answer = line.and_then(|line| self.answer(line, all[to].target, &relay));
            let error = match answer {
                Ok(()) => {
                    self.shared.copies.unreachable.answered(self.own, all[to].target);
                    return Ok(Others::Have);
                }
                Err(error) if error.kind == ErrorKind::Interrupted => return Err(error),
                // With the bytes then.
                Err(error) if self.staged && self.change.wants_bytes(to, &error) => {
                    add(&self.shared.counters.staged_in_vain, 1);
                    self.staged = false;
                    continue;
                }
                Err(error) => error,
            };
            // What the client had left there may have been used.
            self.staged = false;
            if error.kind == ErrorKind::NoSpace {
                // Room is lacking where a copy is being made, maybe: that concerns nobody else.
                let made = being_made(all, &relay);
                if !made.is_empty() {
                    self.go_on_without(&made, &mut relay)?;
                    continue;
                }
            }
            if !says_nothing(&error) {
                return self.refused(orders, error);
            }
            let target = all[to].target;
            tracing::debug!("target {target} does not confirm a change: {error}");
            let spared = spared(all, target, &relay, orders, error.kind);
            if !spared.is_empty() {
                self.go_on_without(&spared, &mut relay)?;
                continue;
            }
            // Who waits for others after it is not the one that is away.
            let last = chain::next(all, target, &relay).is_none();
            let answers = self.range.is_none() && error.kind == ErrorKind::NotCurrent;
            let lines = &self.shared.copies.lines;
            if !last && error.kind == ErrorKind::TimedOut {
                // It may have been cut off in the middle of its answer.
                lines.probe(target, &|| Ok(()));
            }
            let out_of_reach = last || lines.is_out_of_reach(target);
            if out_of_reach && !answers && self.waits_for(target, begun) > PATIENCE {
                self.shared.copies.cannot_reach(self.own, target);
            }
            return Ok(Others::Unknown);
        }
    }

    /// Chooses the route. If the change was sent on another route without a reply, it may be
    /// anywhere there.
    fn choose_way(&mut self, relay: &mut Relay) {
        let (ways, path) =
            (&self.shared.copies.ways, chain::after(&self.change.access.copies, self.own, relay));
        if self.sent && path != self.path {
            ways.leave();
        }
        (self.path, relay.way) = (path, ways.now());
    }

    /// For how long one target has not confirmed it. Another target may have been waited for
    /// before.
    fn waits_for(&mut self, target: TargetId, begun: Instant) -> Duration {
        let (_, since) = *self.waits.insert(match self.waits {
            Some((of, since)) if of == target => (of, since),
            _ => (target, begun),
        });
        clock::elapsed(since)
    }

    /// Goes on without these targets, which get the change later.
    fn go_on_without(&self, targets: &[TargetId], relay: &mut Relay) -> Result<()> {
        for &target in targets {
            self.note_lacking(target)?;
            relay.lacking.push(target);
        }
        Ok(())
    }

    /// Notes durably that a copy lacks the change which no client reads. The copy is not told: it
    /// comes online, and may order changes, only when it has everything.
    pub(super) fn note_lacking(&self, target: TargetId) -> Result<()> {
        let copies = &self.change.access.copies;
        // One that is being made is not read before it is whole, wherever its target stands.
        match copies.iter().any(|copy| copy.target == target && copy.filling) {
            true => self.note_told(target),
            false => self.note_gap(target),
        }
    }

    pub(super) fn send(&self, to: usize, relay: &Relay) -> Result<Line<'a>> {
        let copies = &self.shared.copies;
        let target = self.change.access.copies[to].target;
        let connecting = copies.lines.wait(PATIENCE.as_millis() as u64);
        let mut line = copies.lines.take(target, &connecting)?;
        let wait = copies.lines.wait(PATIENCE.as_millis() as u64);
        let payload = match self.staged && self.change.is_staged(to) {
            true => &[],
            false => self.data.buf.as_deref().unwrap_or_default(),
        };
        line.send(&wait, (payload, &self.data.checks), |parcel: &mut Parcel<'_>| {
            self.change.send(to, relay, parcel)
        })?;
        Ok(line)
    }

    /// Applies the change here, once.
    fn apply(&mut self) -> Result<()> {
        if self.applied.is_some() {
            return Ok(());
        }
        let (copies, all) = (&self.shared.copies, &self.change.access.copies);
        let (own, since, under_way) = (self.own, self.since, &self.under_way);
        let orders = || orders_of(&copies.standings, own, all, under_way, since);
        let may = || orders().map(|orders| orders.epoch);
        let (disk, data, work) = (self.disk, &mut *self.data, self.change.work.clone());
        let result = copies.turns.apply(self.own, may, || disk.perform(work, data));
        match result {
            // It has lost its place.
            Err(error) if error.kind == ErrorKind::NotCurrent => Err(error),
            other => {
                self.applied = Some(other);
                Ok(())
            }
        }
    }

    /// Settles this copy after the others have the change, or a gap: if it has failed here, copies
    /// may differ. Returns false if one of them cannot be told now that it lacks bytes which are
    /// here.
    fn settle_own(&mut self, orders: &Orders) -> Result<bool> {
        // Whether or not it was sent to some of them afterwards.
        let was_left = self.change.is_staged_anywhere();
        let failed = match &self.applied {
            // The others may have had the bytes from elsewhere.
            Some(Err(error)) if error.kind == ErrorKind::ChecksumMismatch && was_left => {
                error.clone()
            }
            Some(Err(error)) if self.change.leaves_bytes(error.kind) => return Ok(true),
            Some(Err(error)) if !is_harmless(error.kind) && self.range.is_some() => error.clone(),
            _ => return Ok(true),
        };
        // A disk that is full has what it had, or new bytes in front of the old end. One whose
        // bytes were damaged on the way here has what it had. Of one that has failed nothing is
        // known: others count then.
        match failed.kind {
            // Refused before they know, it would be read there, and taken back afterwards.
            ErrorKind::NoSpace | ErrorKind::ChecksumMismatch => self.make_gaps(orders),
            _ => Err(failed),
        }
    }

    /// Lets another copy note that it lacks these bytes, as long as it acts under the epoch of
    /// these orders: a copy that takes over later has changes of its own.
    pub(super) fn tell_gap(&self, at: usize, target: TargetId, epoch: Epoch) -> Result<()> {
        self.range.as_ref().map_or(Ok(()), |range| self.tell(at, target, range, (epoch, false)))
    }

    /// As [`Order::tell_gap`], but the other copy refuses if it lacked any of the bytes before.
    pub(super) fn tell_first_gap(
        &self,
        at: usize,
        target: TargetId,
        range: &Range<u64>,
        epoch: Epoch,
    ) -> Result<()> {
        self.tell(at, target, range, (epoch, true))
    }

    fn tell(
        &self,
        at: usize,
        target: TargetId,
        range: &Range<u64>,
        how: (Epoch, bool),
    ) -> Result<()> {
        let object = copy_of(self.change.access.object, at);
        let lines = &self.shared.copies.lines;
        let wait = lines.wait(PATIENCE.as_millis() as u64);
        tell_gap(lines, &wait, object, target, range, how)
    }

    /// Notes durably that another copy lacks the change.
    pub(super) fn note_gap(&self, behind: TargetId) -> Result<()> {
        let at = chain::position(&self.change.access.copies, behind).unwrap_or_default();
        let (object, range) = (self.change.access.object, self.change.lacked());
        let note = || self.disk.store.gaps().note(object, behind, CopyIndex(at as u8), &range);
        self.disk.at_work.on(note)
    }

    /// As [`Order::note_gap`], for a copy that knows it.
    pub(super) fn note_told(&self, behind: TargetId) -> Result<()> {
        let at = chain::position(&self.change.access.copies, behind).unwrap_or_default();
        let (object, range) = (self.change.access.object, self.change.lacked());
        let note = || self.disk.store.gaps().note_told(object, behind, CopyIndex(at as u8), &range);
        self.disk.at_work.on(note)
    }

    /// Clears gaps of this copy that the change has replaced, when all copies have it.
    fn replaced(&self) -> Result<()> {
        match (&self.change.work, self.replaces, &self.applied) {
            (Work::Write { pieces, .. }, true, Some(Ok(_))) => {
                let clear = |&(start, len): &(u64, u64)| {
                    let (gaps, object) = (self.disk.store.gaps(), self.change.access.object);
                    gaps.clear(object, ELSEWHERE, &(start..start + len))?;
                    // Others may have taken the last room for parts meanwhile.
                    match gaps.lacks(object, ELSEWHERE, &(start..start + len)) {
                        true => Err(ErrorKind::NotCurrent.into()),
                        false => Ok(()),
                    }
                };
                pieces.iter().try_for_each(clear)
            }
            _ => Ok(()),
        }
    }

    /// Handles an unknown outcome: this copy or another may have bytes that no other has. This copy
    /// is to receive the bytes of the copy that orders then.
    fn doubt(&self) -> Result<()> {
        let anywhere = (self.sent || self.applied.is_some()) && !self.settled;
        let (true, Some(range)) = (anywhere, &self.range) else { return Ok(()) };
        let object = self.change.access.object;
        self.disk.store.gaps().note(object, self.own, object.copy, range)
    }
}

/// The targets to do without when `target` does not confirm a change. That is `target` itself, if
/// it is not read, unless its error says otherwise; or unread targets behind it, because it may
/// wait for one of them which it cannot do without by itself. There are none if `target` follows
/// another map, because one of them may be read by now.
fn spared(
    copies: &[CopyAccess],
    target: TargetId,
    relay: &Relay,
    orders: &Orders,
    error: ErrorKind,
) -> Vec<TargetId> {
    let is_dispensable = |target: &TargetId| orders.dispensable.contains(target);
    match (is_dispensable(&target), error) {
        (_, ErrorKind::NotCurrent) => Vec::new(),
        (true, _) => vec![target],
        (false, ErrorKind::Unreachable) => {
            chain::after(copies, target, relay).into_iter().filter(is_dispensable).collect()
        }
        (false, _) => Vec::new(),
    }
}

/// Copies without readers, among those that get a change.
fn being_made(copies: &[CopyAccess], relay: &Relay) -> Vec<TargetId> {
    let gets = |copy: &&CopyAccess| copy.filling && !relay.lacking.contains(&copy.target);
    let made = copies.iter().filter(gets).map(|copy| copy.target);
    made.filter(|target| ![relay.by, TargetId::NONE].contains(target)).collect()
}

/// Whether an error of this kind means that nothing was changed.
pub(super) fn is_harmless(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Stale
            | ErrorKind::ChecksumMismatch
            | ErrorKind::InvalidArgument
            | ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::{NotCurrent, TimedOut, Unreachable};
    use weir_wire::Mac;

    #[test]
    fn who_is_not_read_is_done_without_but_not_by_who_has_an_old_map() {
        let copy = |t| CopyAccess { target: TargetId(t), mac: Mac([0; 16]), filling: false };
        let copies: Vec<CopyAccess> = (1..=3).map(copy).collect();
        let relay = Relay {
            by: TargetId(1),
            lacking: vec![],
            alone: false,
            vouched: false,
            way: 0,
            epoch: Epoch(0),
        };
        let spared = |target, dispensable: &[u32], error| {
            let dispensable = dispensable.iter().map(|t| TargetId(*t)).collect();
            let orders = Orders { dispensable, ..Orders::default() };
            let all = spared(&copies, TargetId(target), &relay, &orders, error);
            all.into_iter().map(|target| target.0).collect::<Vec<_>>()
        };
        assert_eq!(spared(2, &[2], TimedOut), [2]);
        assert_eq!(spared(2, &[3], Unreachable), [3], "it waits for that one");
        assert_eq!(spared(2, &[], Unreachable), []);
        // The third may be read under the map of the second.
        assert_eq!(spared(2, &[3], NotCurrent), []);
        assert_eq!(spared(2, &[2, 3], NotCurrent), []);
    }
}
