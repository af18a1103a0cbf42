//! The choice of the copy to read, from the speeds of targets: the shell of
//! [`crate::core::choices`] and [`crate::core::pace`].

use super::{DataConn, Servers};
use crate::core::choices::{
    Asked, Candidate, Choice, Choices, Chosen, ColumnKey, Patience, Turn, Wanted, goes_by_speed,
};
use crate::core::copies::copies_of;
use crate::core::pace::{Paces, Report, Who, who};
use crate::file::OpenState;
use crate::job::JobReader;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_net::{Arrival, Wait};
use weir_policy::Micros;
use weir_types::{CopyIndex, ObjectId, Segment, TargetId};
use weir_wire::Header;
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

/// An unanswered read of a target. It counts until this is dropped.
#[derive(Debug)]
pub(super) struct Asking {
    paces: Arc<Mutex<Paces>>,
    target: TargetId,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.paces.lock().ended(self.target);
    }
}

/// Whether a read may wait for a copy with space.
#[derive(Clone, Copy)]
pub(crate) enum Waits<'a> {
    /// The read is a read-ahead.
    Ahead,
    /// It does not wait here: parts sent before it are waited for.
    No,
    /// It may wait this long.
    May(&'a Wait),
    /// It does not wait here: parts of the same column sent before it are waited for meanwhile.
    Elsewhere,
}

/// Why no copy of a column was chosen.
pub(crate) enum Choosable {
    Copy(Read),
    /// The copies to be read have no space. The read waits with this slot if it did not wait
    /// before.
    Later(Option<Slot>),
    /// No copy is ready.
    None,
}

/// The chosen copy of a column.
pub(crate) struct Read {
    pub(crate) copy: CopyIndex,
    pub(crate) target: TargetId,
    /// Predicted time until its reply, microseconds; 0 if unknown.
    pub(crate) answer_us: f64,
    /// `None` for a read-ahead.
    pub(crate) slot: Option<Slot>,
}

/// The choices of a file's readers, some of which wait.
#[derive(Debug, Default)]
pub(crate) struct Choosing {
    choices: Mutex<Choices>,
    changed: Condvar,
}

/// A read that counts as outstanding at a copy, or as waiting, until this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    choosing: Arc<Choosing>,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Waits(Turn),
    At(Asked),
}

impl Slot {
    /// Its place in the queue, if it waits.
    pub(crate) fn turn(&self) -> Option<Turn> {
        match self.place {
            Place::Waits(turn) => Some(turn),
            Place::At(_) => None,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut choices = self.choosing.choices.lock();
        let others_wait = match &self.place {
            Place::At(asked) => choices.answered(asked, now()),
            Place::Waits(turn) => choices.leave(*turn),
        };
        if others_wait {
            self.choosing.changed.notify_all();
        }
    }
}

impl DataConn {
    /// Records that a caller waits for the reply to a read.
    pub(crate) fn is_waited_for(&self) {
        if let Some(Asking { paces, target }) = &self.asking {
            paces.lock().waits(*target, now());
        }
    }

    /// Records the server's report of its target in the reply to a read.
    pub(crate) fn heard_of_pace(&self, reply: &Header, reader: Option<&JobReader>) {
        if let Some(Asking { paces, target }) = &self.asking {
            let mut paces = paces.lock();
            paces.heard(*target, report(reply, who(reader)), now());
            if let Some(Arrival { bytes, began, ended }) = self.conn.arrival() {
                let us = |at: Duration| at.as_micros() as Micros;
                paces.came(*target, bytes, (us(began), us(ended)));
            }
        }
    }
}

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
        file: &OpenState,
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
        let choosing = &file.choosing;
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
                self.questions.wake();
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
            self.questions.wake();
        }
    }

    /// Time that a MiB takes at a target, as its server has told this client of late.
    pub(crate) fn us_per_mib(&self, target: TargetId) -> Option<f64> {
        self.paces.lock().us_per_mib(target, now())
    }

    /// Records that a read of one of several copies is about to be sent on a connection.
    pub(crate) fn asks_for_pace(&self, conn: &mut DataConn, target: TargetId) {
        self.paces.lock().sent(target);
        conn.asking = Some(Asking { paces: self.paces.clone(), target });
    }

    /// Records that a copy has failed to return bytes.
    pub(crate) fn copy_failed(&self, file: &OpenState, segment: &Segment, object: ObjectId) {
        let column: ColumnKey = (segment.index, object.column);
        let at = copies_of(segment, object.column).position(|(copy, _)| copy == object.copy);
        if let Some(at) = at {
            file.choosing.choices.lock().refused(column, at, now());
        }
    }
}

/// The report of a target in a reply.
pub(super) fn report(reply: &Header, who: Who) -> Report {
    let behind = (reply.work > 0).then_some(reply.work);
    Report { us_per_mib: reply.progress, in_flight: reply.in_flight, who, behind }
}

pub(super) fn now() -> Micros {
    clock::uptime().as_micros() as Micros
}
