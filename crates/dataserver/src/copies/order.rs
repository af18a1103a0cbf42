//! The primary's part: a change of a client goes to all copies.

use super::chain;
use super::change::{Change, copy_of, others};
use super::follow::PATIENCE;
use super::lines::{Line, Parcel, says_nothing};
use super::push::Push;
use super::repair::before_change;
use super::roles::{Orders, not_current};
use super::turns::UnderWay;
use crate::disk::{Data, Disk, perform};
use crate::machine::{Outcome, Work};
use crate::service::Shared;
use std::ops::Range;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::plant::{Bug, planted};
use weir_store::ELSEWHERE;
use weir_types::limits::BLOCK_BYTES;
use weir_types::{CopyIndex, Epoch, Error, ErrorKind, Result, TargetId};
use weir_wire::data::{NoteGapRequest, Relay};
use weir_wire::peer::Copies as Column;

/// How long a change may take on all copies: less than clients wait for an answer.
const ORDER_MS: u64 = 25_000;
/// One step of the wait for another server; in between the map is looked at.
const STEP_MS: u64 = 100;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Between attempts to reach one.
const PAUSE: Duration = Duration::from_millis(20);

/// A change that this server orders.
struct Order<'a> {
    shared: &'a Shared,
    disk: &'a Disk,
    change: &'a Change,
    data: &'a mut Data,
    own: TargetId,
    range: Option<Range<u64>>,
    under_way: UnderWay<'a>,
    /// What came of it here.
    applied: Option<Result<Outcome>>,
    /// Others may have it.
    sent: bool,
    /// All others have a gap for it.
    settled: bool,
    /// One has refused it, which was logged.
    refused: bool,
    since: Instant,
}

/// What came of the other copies.
enum Others {
    /// They have it, or nobody takes them to.
    Have,
    /// One refuses it; all of them have a gap now.
    Refused(Error),
    /// Nothing is known of the first of them.
    Unknown,
}

/// Carries a change out on all copies.
///
/// # Errors
/// `NotCurrent` if this is not the copy that orders; those of the change.
pub(super) fn order(
    shared: &Shared,
    disk: &Disk,
    change: &Change,
    data: &mut Data,
) -> Result<Outcome> {
    let own = disk.served.id;
    let copies = &shared.copies;
    let range = change.range();
    let all = &change.access.copies;
    before_change(shared, disk, change)?;
    let _lock = range.clone().map(|r| copies.locks.lock(own, change.access.object, r));
    let mut under_way = copies.begun.begin(own, copies.standings.acting());
    let orders = copies.standings.orders(own, all)?;
    under_way.go_on(orders.epoch);
    refuse_elsewhere(disk, change, range.as_ref())?;
    if range.is_none() {
        bring_all(shared, disk, change, &orders)?;
    }
    let pledge = match range {
        Some(_) => Some(disk.store.pledge(change.access.object, &change.pieces())?),
        None => None,
    };
    let since = clock::now();
    let (applied, sent, settled, refused) = (None, false, false, false);
    let mut order = Order {
        shared,
        disk,
        change,
        data,
        own,
        range,
        under_way,
        applied,
        sent,
        settled,
        refused,
        since,
    };
    let done = order.carry_out(orders);
    copies.unreachable.lock().retain(|(of, _)| *of != own);
    match done {
        Ok(()) => order.applied.unwrap_or_else(|| Err(ErrorKind::Internal.into())),
        Err(error) => {
            if let Err(failed) = order.doubt() {
                // The intent log says it then, as long as this server runs.
                std::mem::forget(pledge);
                tracing::error!("{}: {failed}", disk.store.name());
            }
            Err(error)
        }
    }
}

impl<'a> Order<'a> {
    fn carry_out(&mut self, mut orders: Orders) -> Result<()> {
        let all = &self.change.access.copies;
        loop {
            for away in orders.lacking.clone() {
                self.note_gap(away)?;
            }
            if self.change.is_later() {
                self.put_off(&mut orders)?;
            }
            match self.once(&orders)? {
                Others::Have => return self.settle_own(&orders),
                Others::Refused(error) if error.kind == ErrorKind::NoSpace => return Err(error),
                Others::Refused(_) => return self.settle_own(&orders),
                Others::Unknown => {}
            }
            if clock::elapsed(self.since) > Duration::from_millis(ORDER_MS) {
                let what = "not all copies have taken it in time: whether it was done is not known";
                return Err(Error::new(ErrorKind::TimedOut, what));
            }
            self.shared.copies.lines.wait(STEP_MS).sleep(PAUSE)?;
            orders = self.shared.copies.standings.orders(self.own, all)?;
            self.under_way.go_on(orders.epoch);
        }
    }

    /// Applies it here if that has not been done, and hands it on.
    fn once(&mut self, orders: &Orders) -> Result<Others> {
        let mut relay =
            Relay { by: self.own, lacking: orders.lacking.clone(), alone: false, vouched: false };
        let all = &self.change.access.copies;
        loop {
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
                Ok(()) => return Ok(Others::Have),
                Err(error) if error.kind == ErrorKind::Interrupted => return Err(error),
                Err(error) => error,
            };
            if !says_nothing(&error) {
                return self.refused(orders, error);
            }
            let target = all[to].target;
            tracing::debug!("target {target} does not confirm a change: {error}");
            // Nobody reads it: it gets what it lacks later. Unless it knows better.
            if orders.dispensable.contains(&target) && error.kind != ErrorKind::NotCurrent {
                // One that is being made is not read before it is whole.
                match all[to].filling {
                    true => self.note_told(target)?,
                    false => self.note_gap(target)?,
                }
                relay.lacking.push(target);
                continue;
            }
            // Who waits for others after it is not the one that is away.
            let last = chain::next(all, target, &relay).is_none();
            if last && clock::elapsed(self.since) > PATIENCE {
                self.shared.copies.unreachable.lock().insert((self.own, target));
            }
            return Ok(Others::Unknown);
        }
    }

    fn send(&self, to: usize, relay: &Relay) -> Result<Line<'a>> {
        let copies = &self.shared.copies;
        let target = self.change.access.copies[to].target;
        let connecting = copies.lines.wait(PATIENCE.as_millis() as u64);
        let mut line = copies.lines.take(target, &connecting)?;
        let wait = copies.lines.wait(PATIENCE.as_millis() as u64);
        let payload = self.data.buf.as_deref().unwrap_or_default();
        line.send(&wait, (payload, &self.data.checks), |parcel: &mut Parcel<'_>| {
            self.change.send(to, relay, parcel)
        })?;
        Ok(line)
    }

    /// Waits for an answer as long as it is wanted.
    fn answer(&mut self, line: Line<'_>, target: TargetId, relay: &Relay) -> Result<()> {
        let copies = &self.shared.copies;
        let last = chain::next(&self.change.access.copies, target, relay).is_none();
        let begun = clock::now();
        while !line.is_ready(STEP_MS)? {
            let orders = copies.standings.orders(self.own, &self.change.access.copies)?;
            // Else the epoch in which the other one is done without never comes.
            self.under_way.go_on(orders.epoch);
            if orders.lacking.contains(&target)
                || clock::elapsed(begun) > Duration::from_millis(ORDER_MS)
            {
                return Err(Error::new(ErrorKind::TimedOut, "no answer"));
            }
            let dispensable = orders.dispensable.contains(&target);
            if clock::elapsed(begun) > PATIENCE {
                if dispensable {
                    return Err(Error::new(ErrorKind::TimedOut, "no answer"));
                }
                if last {
                    copies.unreachable.lock().insert((self.own, target));
                }
            }
        }
        self.change.receive(line, &copies.lines.wait(ORDER_MS))
    }

    /// Applies it here, once.
    fn apply(&mut self) -> Result<()> {
        if self.applied.is_some() {
            return Ok(());
        }
        let (copies, all) = (&self.shared.copies, &self.change.access.copies);
        let may = || copies.standings.orders(self.own, all).map(|orders| orders.epoch);
        let (disk, data, work) = (self.disk, &mut *self.data, self.change.work.clone());
        let (change, range) = (self.change, self.range.as_ref());
        let result = copies.turns.apply(self.own, may, || {
            let outcome = perform(&disk.store, work, data)?;
            replaced(disk, change, range)?;
            Ok(outcome)
        });
        match result {
            // It has lost its place.
            Err(error) if error.kind == ErrorKind::NotCurrent => Err(error),
            other => {
                self.applied = Some(other);
                Ok(())
            }
        }
    }

    /// Others have it, or a gap; if this one has failed, they may differ.
    fn settle_own(&mut self, orders: &Orders) -> Result<()> {
        let failed = match &self.applied {
            Some(Err(error)) if !is_harmless(error.kind) && self.range.is_some() => error.clone(),
            _ => return Ok(()),
        };
        // A disk that is full has what it had. Of one that has failed nothing is known:
        // others count then.
        match failed.kind == ErrorKind::NoSpace && self.make_gaps(orders)? {
            true => Ok(()),
            false => Err(failed),
        }
    }

    /// Another copy does not take it. If it does not exist here either, nothing has
    /// happened; else all others are to get what is here.
    fn refused(&mut self, orders: &Orders, error: Error) -> Result<Others> {
        if let Some(Err(own)) = &self.applied
            && own.kind == error.kind
            && is_harmless(own.kind)
        {
            return Ok(Others::Have);
        }
        if !std::mem::replace(&mut self.refused, true) {
            let object = self.change.access.object;
            tracing::warn!("object {object}: another copy refuses a change: {error}");
        }
        if self.range.is_none() {
            // What could not be made durable there is not promised.
            return match error.kind {
                ErrorKind::Io | ErrorKind::ReadOnly => Ok(Others::Unknown),
                _ => Err(error),
            };
        }
        match self.make_gaps(orders)? {
            true => Ok(Others::Refused(error)),
            false => Ok(Others::Unknown),
        }
    }

    /// All others that take changes serve the range no more until they have got it
    /// from here; false if one of them cannot be told now.
    fn make_gaps(&mut self, orders: &Orders) -> Result<bool> {
        let all = self.change.access.copies.clone();
        for (at, target) in others(&all, self.own, &orders.lacking) {
            // First, so that somebody knows who has it.
            self.note_gap(target)?;
            if let Err(error) = self.tell_gap(at, target) {
                tracing::debug!("target {target} cannot be told of a gap: {error}");
                return match error.kind {
                    ErrorKind::Interrupted => Err(error),
                    _ => Ok(false),
                };
            }
            self.note_told(target)?;
        }
        self.settled = true;
        Ok(true)
    }

    /// `later`: the others note that they lack it, and get it afterwards.
    fn put_off(&mut self, orders: &mut Orders) -> Result<()> {
        let all = &self.change.access.copies;
        let (object, range) = (self.change.access.object, self.range.clone());
        let Some(range) = range else { return Ok(()) };
        for (at, target) in others(all, self.own, &orders.lacking).collect::<Vec<_>>() {
            // Known to both already.
            if self.disk.store.gaps().is_told(object, target, &range) {
                orders.lacking.push(target);
                continue;
            }
            self.note_gap(target)?;
            if self.tell_gap(at, target).is_ok() {
                self.note_told(target)?;
                orders.lacking.push(target);
            }
            // Else it gets it now, or is found to be away.
        }
        Ok(())
    }

    fn tell_gap(&self, at: usize, target: TargetId) -> Result<()> {
        let Some(range) = &self.range else { return Ok(()) };
        let object = copy_of(self.change.access.object, at);
        let note = NoteGapRequest {
            target,
            object,
            behind: target,
            copy: object.copy,
            start: range.start,
            end: range.end,
            told: true,
            // It notes it in any case.
            epoch: Epoch(0),
        };
        let lines = &self.shared.copies.lines;
        let wait = lines.wait(PATIENCE.as_millis() as u64);
        lines.take(target, &wait)?.ask(&wait, (&[], &[]), |parcel| parcel.send(&note))
    }

    /// Notes durably that another copy lacks it.
    fn note_gap(&self, behind: TargetId) -> Result<()> {
        let Some(range) = &self.range else { return Ok(()) };
        let at = chain::position(&self.change.access.copies, behind).unwrap_or_default();
        let object = self.change.access.object;
        self.disk.store.gaps().note(object, behind, CopyIndex(at as u8), range)
    }

    /// As above, of one that knows it.
    fn note_told(&self, behind: TargetId) -> Result<()> {
        let Some(range) = &self.range else { return Ok(()) };
        let at = chain::position(&self.change.access.copies, behind).unwrap_or_default();
        let object = self.change.access.object;
        self.disk.store.gaps().note_told(object, behind, CopyIndex(at as u8), range)
    }

    /// Nobody knows who has it. This copy, or another, may have what no other has:
    /// this one is to be brought to what the one has that orders then.
    fn doubt(&self) -> Result<()> {
        let anywhere = (self.sent || self.applied.is_some()) && !self.settled;
        let (true, Some(range)) = (anywhere, &self.range) else { return Ok(()) };
        let object = self.change.access.object;
        self.disk.store.gaps().note(object, self.own, object.copy, range)
    }
}

/// What another copy has, and this one lacks, can be replaced in whole blocks only,
/// until it has come or an administrator has accepted the loss.
fn refuse_elsewhere(disk: &Disk, change: &Change, range: Option<&Range<u64>>) -> Result<()> {
    let (Some(range), object) = (range, change.access.object) else { return Ok(()) };
    if !disk.store.gaps().lacks(object, ELSEWHERE, range) {
        return Ok(());
    }
    let whole = |(start, len): &(u64, u64)| start % BLOCK == 0 && len % BLOCK == 0;
    match &change.work {
        Work::Write { pieces, .. } if pieces.iter().all(whole) => Ok(()),
        _ => {
            let what = "its last changes are on a copy that is away: bring that one back, or \
                        accept the loss";
            Err(not_current(disk.served.id, what))
        }
    }
}

/// What was lacking and has been replaced is lacking no more.
fn replaced(disk: &Disk, change: &Change, range: Option<&Range<u64>>) -> Result<()> {
    let (gaps, object) = (disk.store.gaps(), change.access.object);
    match (&change.work, range) {
        (Work::Write { pieces, .. }, Some(range)) if gaps.lacks(object, ELSEWHERE, range) => pieces
            .iter()
            .try_for_each(|&(start, len)| gaps.clear(object, ELSEWHERE, &(start..start + len))),
        _ => Ok(()),
    }
}

/// Before anything is promised to be durable, all copies get what was put off.
fn bring_all(shared: &Shared, disk: &Disk, change: &Change, orders: &Orders) -> Result<()> {
    let access = &change.access;
    let away: Vec<TargetId> = orders.lacking.iter().chain(&orders.dispensable).copied().collect();
    for (to, target) in others(&access.copies, disk.served.id, &away) {
        let Some(lacking) = disk.store.gaps().of(access.object, target) else { continue };
        let column = Column {
            copies: access.copies.clone(),
            generation: access.generation,
            capability: access.capability.clone(),
        };
        let (object, column) = (access.object, &column);
        let push = Push { shared, disk, object, column, to, vouched: true, pace: &|_| Ok(()) };
        push.bring(&lacking, &mut Vec::new())?;
    }
    Ok(())
}

/// Whether such an error says that nothing was changed.
fn is_harmless(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Stale
            | ErrorKind::ChecksumMismatch
            | ErrorKind::InvalidArgument
            | ErrorKind::FileTooLarge
    )
}
