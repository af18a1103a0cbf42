//! Orders of the metadata server for a target's disk: to remove objects, and to note objects that
//! it must not serve. One thread for each target takes them from here.
//!
//! Invariants
//! - One batch at a time. Orders that arrive while a batch is under way, or before its report was
//!   answered, are ignored: the metadata server repeats them.
//! - What is reported as done is durable, because the metadata server then forgets it.

use weir_host::sync::{Condvar, Mutex};
use weir_types::{ObjectId, TargetId};
use weir_wire::peer::HeartbeatReply;

/// The most objects of each kind in a batch. The metadata server repeats the others.
const MAX_BATCH: usize = 1024;

/// Objects to be treated, or that were treated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Objects to remove.
    pub(crate) removed: Vec<ObjectId>,
    /// Copies that may lack bytes of which no remaining target knows: another copy has, or had,
    /// other bytes.
    pub(crate) distrusted: Vec<ObjectId>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.removed.len() + self.distrusted.len()
    }
}

/// Stage of a batch.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Wanted(Batch),
    UnderWay,
    /// Carried out, and to be reported.
    Done(Batch),
    /// Reported, perhaps without success.
    Said(Batch),
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// Whether to check the disk's state.
    look: bool,
    stop: bool,
}

/// The next task of the thread.
pub(crate) enum Chore {
    Look,
    Batch(Batch),
}

/// The orders of one target; see the top of the file.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    state: Mutex<State>,
    changed: Condvar,
}

impl Chores {
    /// The objects to report: those reported before without a reply, or those done since. At most
    /// `room` objects, which is reduced by their number.
    pub(crate) fn say(&self, room: &mut usize) -> Batch {
        let mut state = self.state.lock();
        if let Stage::Done(done) = &mut state.stage
            && done.len() <= *room
        {
            state.stage = Stage::Said(std::mem::take(done));
        }
        let Stage::Said(said) = &state.stage else { return Batch::default() };
        *room = room.saturating_sub(said.len());
        said.clone()
    }

    /// Handles the reply to a report: the report was received, and the reply has new orders for a
    /// target.
    pub(crate) fn answered(&self, own: TargetId, reply: &HeartbeatReply) {
        let mine = |all: &[(_, ObjectId)]| {
            let of_it = all.iter().filter(|(target, _)| *target == own);
            of_it.map(|(_, object)| *object).take(MAX_BATCH).collect()
        };
        let wanted = Batch { removed: mine(&reply.remove), distrusted: mine(&reply.distrust) };
        self.heard(wanted);
    }

    fn heard(&self, wanted: Batch) {
        let mut state = self.state.lock();
        if matches!(state.stage, Stage::Said(_)) {
            state.stage = Stage::Idle;
        }
        if matches!(state.stage, Stage::Idle) && !wanted.is_empty() {
            state.stage = Stage::Wanted(wanted);
            self.changed.notify_one();
        }
    }

    /// Makes the thread check the disk's state.
    pub(crate) fn look(&self) {
        self.state.lock().look = true;
        self.changed.notify_one();
    }

    /// Ends the thread. The metadata server repeats unfinished orders to the next one.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Whether the thread is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().stop
    }

    /// Waits for a task. Returns `None` at the end.
    pub(crate) fn next(&self) -> Option<Chore> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            // First: looks are asked for with every heartbeat, and batches when the last was
            // answered. So neither keeps the other from its turn, however slow the disk is.
            if let Stage::Wanted(batch) = &mut state.stage {
                let batch = std::mem::take(batch);
                state.stage = Stage::UnderWay;
                return Some(Chore::Batch(batch));
            }
            if std::mem::take(&mut state.look) {
                return Some(Chore::Look);
            }
            state = self.changed.wait(state);
        }
    }

    /// Records what was done of a batch.
    pub(crate) fn done(&self, done: Batch) {
        self.state.lock().stage = match done.is_empty() {
            true => Stage::Idle,
            false => Stage::Done(done),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    fn object(file: u64) -> ObjectId {
        let (segment, column, copy) = (SegmentIndex(0), ColumnIndex(0), CopyIndex(0));
        ObjectId { file: FileId(file), segment, column, copy }
    }

    fn removal(file: u64) -> Batch {
        Batch { removed: vec![object(file)], distrusted: Vec::new() }
    }

    /// What the thread is given; `None`: nothing.
    fn given(chores: &Chores) -> Option<Batch> {
        // It would wait.
        if !matches!(chores.state.lock().stage, Stage::Wanted(_)) {
            return None;
        }
        match chores.next() {
            Some(Chore::Batch(batch)) => Some(batch),
            _ => None,
        }
    }

    #[test]
    fn what_is_done_is_said_until_it_is_answered_and_nothing_is_taken_before() {
        let (chores, mut room) = (Chores::default(), usize::MAX);
        chores.heard(removal(1));
        chores.heard(removal(2));
        assert_eq!(given(&chores), Some(removal(1)));
        // Named again while it is under way, and when nobody was told yet that it is done.
        chores.heard(removal(1));
        assert_eq!(chores.say(&mut room), Batch::default());
        chores.done(removal(1));
        chores.heard(removal(1));
        assert_eq!(given(&chores), None);
        // The first report gets no answer.
        for _ in 0..2 {
            assert_eq!(chores.say(&mut room), removal(1));
        }
        chores.heard(removal(2));
        assert_eq!(chores.say(&mut room), Batch::default());
        assert_eq!(given(&chores), Some(removal(2)));
        // It could not be removed: it is taken again at once.
        chores.done(Batch::default());
        chores.heard(removal(2));
        assert_eq!(given(&chores), Some(removal(2)));
    }

    #[test]
    fn what_there_is_no_room_for_is_said_in_the_next_report() {
        let (first, second) = (Chores::default(), Chores::default());
        for chores in [&first, &second] {
            chores.heard(removal(1));
            given(chores);
            chores.done(removal(1));
        }
        let mut room = 1;
        assert_eq!(first.say(&mut room), removal(1));
        assert_eq!(second.say(&mut room), Batch::default());
        first.heard(Batch::default());
        second.heard(removal(2));
        let mut room = 1;
        assert_eq!(first.say(&mut room), Batch::default());
        assert_eq!(second.say(&mut room), removal(1));
    }

    #[test]
    fn a_disk_that_is_always_looked_at_is_worked_on_too() {
        let chores = Chores::default();
        chores.heard(removal(1));
        chores.look();
        assert!(matches!(chores.next(), Some(Chore::Batch(_))));
        assert!(matches!(chores.next(), Some(Chore::Look)));
    }

    #[test]
    fn who_stops_takes_nothing_up_any_more() {
        let chores = Chores::default();
        chores.heard(removal(1));
        chores.look();
        chores.stop();
        assert!(chores.next().is_none());
    }
}
