//! The choice of the copy to which a part of a call goes.

use super::parts::Parts;
use crate::core::copies::{is_computable, is_hopeless, is_mirrored};
use crate::core::plan::Place;
use crate::core::transfer::Transfer;
use crate::rpc::servers::{Choosable, MAP_WAIT_MS, Slot, Waits};
use crate::state::Call;
use weir_net::Wait;
use weir_types::{Error, ObjectId, Result, Segment};

/// Result of choosing a copy for a part.
pub(super) enum Chosen {
    /// A copy was chosen.
    Copy,
    /// No copy has space for the request now.
    Later,
}

/// No copy can be asked now.
pub(super) struct Missing {
    pub(super) error: Error,
    /// Whether no copy will become available either.
    pub(super) hopeless: bool,
    /// Whether it can be computed from others of its segment.
    pub(super) computable: bool,
}

/// Chooses the copy that a part goes to.
pub(super) fn choose(
    call: Call<'_>,
    transfer: &mut Transfer,
    parts: &mut impl Parts,
    part: usize,
    wait: &Wait,
) -> Result<Chosen, Missing> {
    let object = parts.place(part).object;
    let (servers, purpose) = (&call.inner.servers, parts.purpose(part));
    let has_others =
        |segment: &Segment| is_mirrored(segment, object.column) || is_computable(purpose, segment);
    let may =
        parts.place(part).mirrored || call.file.with_segment(object, has_others) == Some(true);
    if !transfer.may_choose(part, may) {
        return Ok(Chosen::Copy);
    }
    for newest in [transfer.doubts_primary(part), true] {
        if newest && let Err(error) = servers.refresh_map(&call.inner.session, false, MAP_WAIT_MS) {
            tracing::debug!("cluster map not refreshed: {error}");
        }
        // Who has been asked in vain is not asked by its speed.
        let by_speed = transfer.told(part).is_empty() && parts.may_read_any_copy();
        let preferred = if by_speed { parts.preferred() } else { None };
        let wanted = if by_speed { parts.wanted(part) } else { None };
        let waits = (waits(transfer, parts, part, wait), parts.kept(part).and_then(Slot::turn));
        let chosen = call.file.with_segment(object, |segment| {
            let mirrored = is_mirrored(segment, object.column);
            let named = |target| servers.ready_copy(segment, object.column, target);
            if let Some(copy) = preferred.filter(|_| mirrored).and_then(named) {
                return Some(Ok((copy, mirrored, 0.0, None)));
            }
            if by_speed
                && mirrored
                && let Some(copy) = servers.near_copy(segment, object.column)
            {
                return Some(Ok((copy, mirrored, 0.0, None)));
            }
            let fastest = wanted
                .filter(|_| mirrored)
                .map(|wanted| servers.copy_to_read(&call.file.choosing, segment, &wanted, waits));
            match fastest {
                Some(Choosable::Copy(read)) => {
                    let copy = (read.copy, read.target);
                    return Some(Ok((copy, mirrored, read.answer_us, read.slot)));
                }
                Some(Choosable::Later(slot)) => return Some(Err(slot)),
                Some(Choosable::None) | None => {}
            }
            let tried = transfer.tried(part);
            let copy = servers.next_copy(purpose, segment, object.column, tried)?;
            Some(Ok((copy, mirrored, 0.0, None)))
        });
        // The segment is gone: its server says so.
        let Some(chosen) = chosen else {
            parts.keep(part, None);
            return Ok(Chosen::Copy);
        };
        let Some(chosen) = chosen else { continue };
        let ((copy, target), mirrored, answer_us, slot) = match chosen {
            Ok(chosen) => chosen,
            Err(slot) => {
                if slot.is_some() {
                    parts.keep(part, slot);
                }
                return Ok(Chosen::Later);
            }
        };
        parts.keep(part, slot);
        transfer.expect(part, (answer_us / 1_000.0) as u64);
        *parts.place(part) = Place { object: ObjectId { copy, ..object }, target, mirrored };
        let has_others = mirrored || call.file.with_segment(object, has_others) == Some(true);
        transfer.chosen(part, has_others.then_some((copy, purpose)));
        return Ok(Chosen::Copy);
    }
    parts.keep(part, None);
    let told = transfer.told(part);
    let missing = call.file.with_segment(object, |segment| Missing {
        error: servers.no_current_copy(object, segment, told),
        hopeless: is_hopeless(segment, object.column, told),
        computable: is_computable(purpose, segment),
    });
    missing.map_or(Ok(Chosen::Copy), Err)
}

/// Whether a part may wait for a copy with space. While it waits, its call has no outstanding
/// replies that others wait for.
fn waits<'a>(
    transfer: &Transfer,
    parts: &mut impl Parts,
    part: usize,
    wait: &'a Wait,
) -> Waits<'a> {
    if parts.is_ahead() {
        return Waits::Ahead;
    }
    let column = parts.place(part).column();
    let mut waits = Waits::May(wait);
    for other in transfer.others_in_flight(part) {
        if parts.is_cut() && parts.place(other).column() == column {
            return Waits::Elsewhere;
        }
        waits = Waits::No;
    }
    waits
}
