//! The reads of a file that are outstanding at copies of it, or wait for one that has space.

use super::asking::now;
use crate::core::choices::{Asked, Choices, Turn};
use std::sync::Arc;
use weir_host::sync::{Condvar, Mutex};
use weir_net::Wait;
use weir_types::{CopyIndex, TargetId};

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
    pub(super) choices: Mutex<Choices>,
    pub(super) changed: Condvar,
}

/// A read that counts as outstanding at a copy, or as waiting, until this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(super) choosing: Arc<Choosing>,
    pub(super) place: Place,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
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
