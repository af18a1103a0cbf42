//! What the metadata server wants of a target's disk: that it removes objects, and notes
//! which it does not serve. A thread for each target does that, and looks how the disk
//! is, so that heartbeats never wait for one.
//!
//! Invariants
//! - One batch at a time. What is named while one is under way, or before it was answered
//!   what came of the last one, is not taken: it is named again.
//! - What is said to be done is durable: the metadata server forgets it.

use crate::counters::add;
use crate::disk::Disk;
use crate::service::Shared;
use weir_host::sync::{Condvar, Mutex};
use weir_store::{ELSEWHERE, Note};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{Error, ObjectId};
use weir_wire::peer::HeartbeatReply;

/// The most objects of each kind that are taken at a time; the others are named again.
const MAX_BATCH: usize = 1024;

/// What is to be done, or has been.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Objects to be removed.
    pub(crate) removed: Vec<ObjectId>,
    /// Nobody is left who knows what these copies may lack: another has other bytes, or had.
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

/// How far a batch is.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Wanted(Batch),
    UnderWay,
    /// What has been done of it, and is to be said.
    Done(Batch),
    /// It was said, maybe to nobody.
    Said(Batch),
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// How the disk is should be looked at.
    look: bool,
    stop: bool,
}

/// What the thread does next.
enum Chore {
    Look,
    Batch(Batch),
}

/// See the top of the file.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    state: Mutex<State>,
    changed: Condvar,
}

impl Chores {
    /// What is to be reported: what was said before and not answered, or what has been done
    /// since. No more than `room` objects, which it takes from that.
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

    /// What was said has been heard, and this is wanted now of a target.
    pub(crate) fn answered(&self, disk: &Disk, reply: &HeartbeatReply) {
        let mine = |all: &[(_, ObjectId)]| {
            let of_it = all.iter().filter(|(target, _)| *target == disk.served.id);
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

    /// Has the thread look how the disk is, when it comes to it.
    pub(crate) fn look(&self) {
        self.state.lock().look = true;
        self.changed.notify_one();
    }

    /// Ends the thread; what it is at is named again to the next one.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    fn is_stopping(&self) -> bool {
        self.state.lock().stop
    }

    /// Waits for something to do; `None` at the end.
    fn next(&self) -> Option<Chore> {
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

    fn done(&self, done: Batch) {
        self.state.lock().stage = match done.is_empty() {
            true => Stage::Idle,
            false => Stage::Done(done),
        };
    }

    /// The life of the thread.
    pub(crate) fn work_off(&self, shared: &Shared, disk: &Disk) {
        while let Some(chore) = self.next() {
            match chore {
                Chore::Look => {
                    disk.look();
                    if shared.copies.standings.is_kept(disk.served.id).is_err() {
                        disk.try_out();
                    }
                }
                Chore::Batch(Batch { removed, distrusted }) => {
                    // First: who removes it forgets what was noted of it.
                    let distrusted = distrust(disk, distrusted);
                    let removed = self.remove(shared, disk, removed);
                    self.done(Batch { removed, distrusted });
                }
            }
        }
    }

    /// Removes objects, and makes that durable, all together; returns those of which it is.
    fn remove(&self, shared: &Shared, disk: &Disk, mut objects: Vec<ObjectId>) -> Vec<ObjectId> {
        objects.retain(|object| !self.is_stopping() && unlink(shared, disk, *object));
        if objects.is_empty() || self.is_stopping() {
            return Vec::new();
        }
        match disk.at_work.on_several(|ended| disk.store.sync_removals_in_steps(ended)) {
            Ok(()) => {
                add(&shared.counters.objects_removed, objects.len() as u64);
                objects
            }
            Err(e) => {
                tracing::warn!("removals are not durable: {e}");
                Vec::new()
            }
        }
    }
}

/// Removes an object, not yet durably.
fn unlink(shared: &Shared, disk: &Disk, object: ObjectId) -> bool {
    shared.copies.removed.add(disk.served.id, object);
    let result = disk.at_work.on(|| disk.store.remove(object));
    // Of a disk that has failed it was said already.
    let told = !disk.health().trouble.is_empty();
    let say = |e: &Error| match told {
        true => tracing::debug!("cannot remove object {object}: {e}"),
        false => tracing::warn!("cannot remove object {object}: {e}"),
    };
    result.inspect_err(say).is_ok()
}

/// Notes of copies that another has other bytes of them, or had; returns those of which
/// that is noted durably.
fn distrust(disk: &Disk, copies: Vec<ObjectId>) -> Vec<ObjectId> {
    let note = |&object: &ObjectId| {
        let (behind, copy, bytes) = (ELSEWHERE, object.copy, 0..MAX_FILE_BYTES);
        Note { object, behind, copy, bytes }
    };
    let notes: Vec<Note> = copies.iter().map(note).collect();
    match disk.at_work.on(|| disk.store.gaps().note_all(&notes)) {
        Ok(()) => copies,
        Err(error) => {
            tracing::warn!("{}: {error}", disk.store.name());
            Vec::new()
        }
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
