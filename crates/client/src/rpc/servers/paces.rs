//! The choice of the copy to read, from the speeds of targets: the shell of
//! [`crate::core::choices`] and [`crate::core::pace`].

use super::Servers;
use super::asking::{Asking, now};
use super::choosing::{Choosable, Choosing, Place, Read, Slot, Waits};
use super::pool::DataConn;
use crate::core::around::Seen;
use crate::core::choices::{
    Asked, Candidate, Choice, Chosen, ColumnKey, Patience, Turn, Wanted, goes_by_speed,
};
use crate::core::copies::copies_of;
use crate::core::pace::who;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_net::Wait;
use weir_policy::Micros;
use weir_types::{ObjectId, Segment, TargetId};
use weir_wire::meta::TargetLoad;

/// Poll interval of a read that waits for a copy, for other readers' progress.
const LOOK: Duration = Duration::from_millis(10);
/// Poll interval of a read that waits behind other reads.
const LOOK_BEHIND: Duration = Duration::from_millis(100);
/// A read no longer queues when its queue has not advanced for this long, microseconds: something
/// is wrong then. Passing earlier reads makes the disk seek there and back. On a disk of 5 MiB/s
/// the last MiB of what the kernel requests at once (two windows of 4 MiB) is due after 1.4 s.
const MAX_STILL_US: Micros = 1_000_000;
/// Longest time in the queue, microseconds, however it advances.
const MAX_WAIT_US: Micros = 8_000_000;

impl Servers {
    /// Whether this many bytes of a target come from its disk, as far as is known, and not from
    /// memory.
    pub(crate) fn takes_time(&self, target: TargetId, len_bytes: u64) -> bool {
        !self.paces.lock().has_at_once(target, len_bytes, now())
    }

    /// Chooses the copy of a column where any may be read. `turn` is the read's place in the queue,
    /// if it waits already.
    pub(crate) fn copy_to_read(
        &self,
        choosing: &Arc<Choosing>,
        segment: &Segment,
        wanted: &Wanted,
        (wait, kept): (Waits<'_>, Option<Turn>),
    ) -> Choosable {
        let (_, column) = wanted.column;
        let all: Vec<_> = copies_of(segment, column).collect();
        let candidates = || {
            let known = self.known.read();
            let is_usable = |copy, target| {
                let is_ready = known.of(target).is_some_and(|k| k.state.is_online() && !k.doubtful);
                is_ready && !segment.is_filling(column, copy)
            };
            let candidate =
                |&(copy, target)| Candidate { target, is_usable: is_usable(copy, target) };
            all.iter().map(candidate).collect::<Vec<_>>()
        };
        self.chooses.store(true, Relaxed);
        let begun = now();
        let mut turn = kept;
        let chosen = loop {
            let candidates = candidates();
            let mut choices = choosing.choices.lock();
            let now = now();
            let moved = choices.moved(wanted).clamp(begun, now);
            let may_wait = now - moved < MAX_STILL_US && now - begun < MAX_WAIT_US;
            let waits = |wait: &Wait| may_wait && (turn.is_none() || wait.check().is_ok());
            let patience = match wait {
                Waits::Ahead => Patience::Ahead,
                Waits::May(wait) if waits(wait) => Patience::Turn(turn),
                Waits::Elsewhere => Patience::Turn(turn),
                _ => Patience::None,
            };
            let (choice, is_new) = {
                let (policy, mut paces) = (self.config.read_policy, self.paces.lock());
                choices.choose(policy, wanted, &candidates, &mut paces, (now, patience))
            };
            if is_new {
                self.bell.wake();
            }
            let look = if choice == Choice::Behind { LOOK_BEHIND } else { LOOK };
            if let (Choice::Later | Choice::Behind, Patience::Turn(_)) = (choice, patience) {
                if matches!(wait, Waits::Elsewhere) {
                    let slot =
                        |turn| Slot { choosing: choosing.clone(), place: Place::Waits(turn) };
                    return Choosable::Later(match turn {
                        Some(_) => None,
                        None => Some(slot(choices.wait(wanted))),
                    });
                }
                turn.get_or_insert_with(|| choices.wait(wanted));
                drop(choosing.changed.wait_timeout(choices, look));
                continue;
            }
            // One that it had before is left by who keeps it.
            if let (Some(turn), None) = (turn, kept)
                && choices.leave(turn)
            {
                choosing.changed.notify_all();
            }
            let Choice::Copy(chosen) = choice else { return Choosable::None };
            let place = Asked {
                column: wanted.column,
                who: who(wanted.reader.as_deref()),
                copy: chosen.at,
                len_bytes: wanted.len_bytes,
                waited: matches!(wait, Waits::May(_) | Waits::Elsewhere),
            };
            // What is fetched ahead is outstanding until somebody comes for it, who would wait for
            // himself.
            if matches!(wait, Waits::Ahead) {
                break (chosen, None);
            }
            choices.asked(&place, now);
            break (chosen, Some(Slot { choosing: choosing.clone(), place: Place::At(place) }));
        };
        let (Chosen { at, answer_us, .. }, slot) = chosen;
        let (copy, target) = all[at];
        Choosable::Copy(Read { copy, target, answer_us, slot })
    }

    /// Records the metadata server's report of the speeds of an opened file's targets.
    pub(crate) fn told_loads(&self, loads: &[TargetLoad]) {
        if loads.is_empty() {
            return;
        }
        let mut asks = false;
        {
            let (mut paces, now) = (self.paces.lock(), now());
            loads.iter().for_each(|load| asks |= paces.told(load, now));
        }
        if asks && goes_by_speed(self.config.read_policy) {
            self.bell.wake();
        }
    }

    /// Time that a MiB takes at a target, as its server has told this client of late.
    pub(crate) fn us_per_mib(&self, target: TargetId) -> Option<f64> {
        self.paces.lock().us_per_mib(target, now())
    }

    /// Whether a MiB takes so many times as long at a target as at most others.
    pub(crate) fn is_slower(&self, target: TargetId, times: f64) -> bool {
        let (paces, now) = (self.paces.lock(), now());
        let both = paces.us_per_mib(target, now).zip(paces.middle_us_per_mib(now));
        both.is_some_and(|(own, middle)| own > times * middle)
    }

    /// What is known of the targets of so many columns, and of parities behind them, for reads of so
    /// many bytes; `None` for those that are not to be read. A silent target of a column is tried now
    /// and then.
    pub(crate) fn seen(
        &self,
        targets: &[Option<TargetId>],
        columns: usize,
        len_bytes: u64,
    ) -> Vec<Option<Seen>> {
        let (known, mut paces, now) = (self.known.read(), self.paces.lock(), now());
        let is_ready = |target: &TargetId| {
            known.of(*target).is_some_and(|known| known.state.is_online() && !known.doubtful)
        };
        let mut seen = |(number, target): (usize, TargetId)| {
            let is_out = match number < columns {
                true => paces.is_left_alone(target, now),
                false => paces.is_silent(target),
            };
            if is_out {
                return None;
            }
            let view = paces.view(target, true, (len_bytes, None), now);
            let (service_us, own, others) = (view.service_us, view.in_flight, view.queued);
            Some(Seen { service_us, own, others })
        };
        let all: Vec<Option<Seen>> = targets
            .iter()
            .enumerate()
            .map(|(number, target)| seen((number, target.filter(is_ready)?)))
            .collect();
        if all.contains(&None) {
            // So that it is heard of when it is back.
            self.chooses.store(true, Relaxed);
        }
        all
    }

    /// Records that a read of one of several copies is about to be sent on a connection.
    pub(crate) fn asks_for_pace(&self, conn: &mut DataConn, target: TargetId) {
        conn.asking = Some(Asking::new(self.paces.clone(), target));
    }

    /// Records that a copy has failed to return bytes.
    pub(crate) fn copy_failed(&self, choosing: &Choosing, segment: &Segment, object: ObjectId) {
        let column: ColumnKey = (segment.index, object.column);
        let at = copies_of(segment, object.column).position(|(copy, _)| copy == object.copy);
        if let Some(at) = at {
            choosing.choices.lock().refused(column, at, now());
        }
    }
}
