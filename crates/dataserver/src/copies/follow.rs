//! The follower's part: applies a change that another copy has ordered.

use super::awaited::Awaited;
use super::chain;
use super::lacking::{note_missing, require_all};
use crate::counters::add;
use crate::disk::Disk;
use crate::machine::change::{Asked, Change};
use crate::machine::{Outcome, Work};
use crate::peers::lines::{Line, says_nothing};
use crate::queue::tasks::Data;
use crate::standing::roles::not_current;
use crate::standing::unreachable::PATIENCE;
use crate::state::Shared;
use std::cell::RefCell;
use weir_host::clock;
use weir_store::ELSEWHERE;
use weir_types::{CopyIndex, Epoch, Error, ErrorKind, Result, TargetId};
use weir_wire::data::{CopyAccess, Relay};

/// Timeout for the copies after this one, milliseconds. It is less than the previous copy waits.
const FOLLOW_MS: u64 = 20_000;
/// Length of one step of the wait for another server, milliseconds. The map is checked between
/// steps.
const STEP_MS: u64 = 100;

/// Whether a change is not passed on beyond the disk of `own`.
pub(crate) fn ends_here(change: &Change, own: TargetId) -> bool {
    let relay: Option<&Relay> = change.access.relay.as_ref();
    relay.is_some_and(|relay| chain::next(&change.access.copies, own, relay).is_none())
}

/// Applies a change, and passes it on if other copies come after this one.
pub(super) fn follow(
    shared: &Shared,
    disk: &Disk,
    change: &Change,
    relay: &Relay,
    data: &mut Data,
) -> Result<Outcome> {
    let (own, copies) = (disk.served.id, &shared.copies);
    let all = &change.access.copies;
    let Some(to) = chain::next(all, own, relay) else {
        return apply(shared, disk, change, relay, data);
    };
    let via = chain::before(all, own, relay);
    let may = || may_follow(shared, own, change, (relay, &via));
    let mut under_way = copies.begun.begin(own, copies.standings.acting());
    under_way.go_on(may()?);
    let pledge = match change.range() {
        Some(_) => Some(disk.pledge(change.access.object, &change.pieces())?),
        None => None,
    };
    let wait = copies.lines.wait(FOLLOW_MS);
    // Longer than that only with a look at the map.
    let patience = copies.lines.wait(PATIENCE.as_millis() as u64);
    let silent = copies.standings.is_done_without(all[to].target)
        && copies.lines.misses(own, all[to].target);
    let send = |staged: bool, data: &Data| -> Result<Line<'_>> {
        if silent {
            return Err(Error::new(ErrorKind::Unreachable, "it does not answer"));
        }
        let payload = match staged && change.is_staged(to) {
            true => &[],
            false => data.buf.as_deref().unwrap_or_default(),
        };
        let mut line = copies.lines.take(all[to].target, &patience)?;
        let patience = copies.lines.wait(PATIENCE.as_millis() as u64);
        line.send(&patience, (payload, &data.checks), |parcel| change.send(to, relay, parcel))?;
        Ok(line)
    };
    let begun = clock::now();
    let sent = send(true, data);
    let last = chain::next(all, all[to].target, relay).is_none();
    // Who cannot be connected to is told of as one that does not answer.
    let out_of_reach = last || copies.lines.is_out_of_reach(all[to].target);
    if out_of_reach && !silent && sent.is_err() && clock::elapsed(begun) >= PATIENCE {
        copies.cannot_reach(own, all[to].target);
    }
    let applied = apply(shared, disk, change, relay, data);
    let awaited = Awaited { own, target: all[to].target, last, begun: clock::now() };
    let under_way = RefCell::new(under_way);
    let look = || {
        under_way.borrow_mut().go_on(may()?);
        wait.check()?;
        // Who ordered it asks again, without that one.
        match copies.standings.is_done_without(all[to].target) {
            true => Err(Error::new(ErrorKind::TimedOut, "no answer")),
            false => Ok(()),
        }
    };
    let answer = |line: Line<'_>| {
        while !line.is_ready(STEP_MS)? {
            awaited.look(copies, &line, &look)?;
        }
        // Who has begun to answer may be cut off before the end of it.
        change.receive(line, &copies.lines.wait(PATIENCE.as_millis() as u64))
    };
    let answered = match sent.and_then(&answer) {
        // With the bytes then.
        Err(error) if change.wants_bytes(to, &error) => {
            add(&shared.counters.staged_in_vain, 1);
            send(false, data).and_then(&answer)
        }
        answered => answered,
    };
    // It may have been cut off in the middle of its answer.
    let nothing = |e: &Error| matches!(e.kind, ErrorKind::TimedOut | ErrorKind::Unreachable);
    if answered.as_ref().is_err_and(nothing) && !silent {
        awaited.gave_up(copies);
    }
    match answered {
        Ok(()) => {
            copies.unreachable.answered(own, all[to].target);
            // Those behind have what this one has not: should it order next, before the one
            // that orders now says what counts, it has to bring them all to one.
            if let (Err(refusal), Some(range)) = (&applied, change.range())
                && !change.leaves_bytes(refusal.kind)
            {
                let object = change.access.object;
                if let Err(failed) = disk.store.gaps().note(object, own, object.copy, &range) {
                    std::mem::forget(pledge);
                    return Err(failed);
                }
            }
            applied
        }
        Err(error) => {
            // Should the first one be lost now, this one knows that they differ.
            if let Some(range) = change.range().filter(|_| !change.leaves_bytes(error.kind)) {
                let copy = CopyIndex(to as u8);
                let noted =
                    disk.store.gaps().note(change.access.object, all[to].target, copy, &range);
                if let Err(failed) = noted {
                    std::mem::forget(pledge);
                    return Err(failed);
                }
            }
            applied?;
            let what = format!("target {}: {error}", all[to].target);
            Err(match error.kind {
                // Its map, or that of one behind it, is another.
                ErrorKind::NotCurrent => not_current(own, &what),
                // It could not be asked: who ordered it may do without.
                _ if says_nothing(&error) => Error::new(ErrorKind::Unreachable, what),
                _ => Error { message: what, ..error },
            })
        }
    }
}

/// Applies a change as the last copy of the chain.
pub(crate) fn follow_at_the_end(
    shared: &Shared,
    disk: &Disk,
    change: &Change,
    data: &mut Data,
) -> Result<Outcome> {
    let relay = change.access.relay.as_ref().ok_or(ErrorKind::Internal)?;
    apply(shared, disk, change, relay, data)
}

/// Checks that a change may be applied here now which another copy has ordered and the targets
/// `via` have passed on. Returns the epoch.
fn may_follow(
    shared: &Shared,
    own: TargetId,
    change: &Change,
    (relay, via): (&Relay, &[TargetId]),
) -> Result<Epoch> {
    let (standings, ordered) = (&shared.copies.standings, (relay.by, relay.epoch));
    let epoch = standings.follows(own, ordered, via, &change.access.copies)?;
    shared.copies.ways.check(own, relay.by, relay.way, via.is_empty())?;
    Ok(epoch)
}

/// Applies a change under the present epoch.
fn apply(
    shared: &Shared,
    disk: &Disk,
    change: &Change,
    relay: &Relay,
    data: &mut Data,
) -> Result<Outcome> {
    let (own, copies) = (disk.served.id, &shared.copies);
    let all = &change.access.copies;
    let via = chain::before(all, own, relay);
    disk.store.gaps().keep()?;
    if change.asked == Asked::Sync && !relay.alone && copies.standings.may_read(own).is_ok() {
        // The copy that orders may be one that never had them.
        require_all(disk, change)?;
    }
    let may = || may_follow(shared, own, change, (relay, &via));
    copies.turns.apply(own, may, || {
        if !relay.alone {
            let range = change.lacked();
            for away in &relay.lacking {
                let at = chain::position(all, *away).ok_or(ErrorKind::Protocol)?;
                let copy = CopyIndex(at as u8);
                disk.store.gaps().note(change.access.object, *away, copy, &range)?;
            }
        }
        if relay.alone {
            require_place(shared, disk, change)?;
        }
        note_missing(disk, change)?;
        let outcome = disk.perform(change.work.clone(), data)?;
        match (relay.vouched, relay.alone) {
            (true, true) => got(disk, change)?,
            (true, false) => replaced(disk, change)?,
            _ => {}
        }
        Ok(outcome)
    })
}

/// Refuses a change by an old layout if the copy here, or the file, was removed since: the change
/// would make the object again, and nothing would remove it. A copy that is being made is in a
/// present layout.
fn require_place(shared: &Shared, disk: &Disk, change: &Change) -> Result<()> {
    let (own, access) = (disk.served.id, &change.access);
    let is_made = |copy: &CopyAccess| copy.target == own && copy.filling;
    match access.copies.iter().any(is_made) {
        true => Ok(()),
        false => shared.copies.removed.look(disk, access.object).map(drop),
    }
}

/// Clears gaps that the change replaces: the ordering copy lacked the earlier bytes, and perhaps so
/// did this one.
fn replaced(disk: &Disk, change: &Change) -> Result<()> {
    let Work::Write { pieces, .. } = &change.work else { return Ok(()) };
    let clear = |&(start, len): &(u64, u64)| {
        disk.store.gaps().clear(change.access.object, ELSEWHERE, &(start..start + len))
    };
    pieces.iter().try_for_each(clear)
}

/// Clears gaps that the change fills, because it comes from a current copy.
fn got(disk: &Disk, change: &Change) -> Result<()> {
    let range = match &change.asked {
        Asked::Align { len } => Some(*len..u64::MAX),
        _ => change.range(),
    };
    let own = disk.served.id;
    let (Some(range), object) = (range, change.access.object) else { return Ok(()) };
    disk.store.gaps().clear(object, own, &range)?;
    disk.store.gaps().clear(object, ELSEWHERE, &range)
}
