//! The thread of a target that carries out the orders of the metadata server ([`crate::disk::chores`])
//! and checks the disk's state, so that heartbeats never wait for a disk.

use crate::counters::add;
use crate::disk::Disk;
use crate::disk::chores::{Batch, Chore};
use crate::state::Shared;
use weir_store::{ELSEWHERE, Note};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{Error, ObjectId};

/// Carries out tasks until the end. The body of the thread.
pub(crate) fn work_off(shared: &Shared, disk: &Disk) {
    let chores = &disk.chores;
    while let Some(chore) = chores.next() {
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
                let removed = remove(shared, disk, removed);
                chores.done(Batch { removed, distrusted });
            }
        }
    }
}

/// Removes objects, and makes all removals durable together. Returns the objects whose removal
/// is durable.
fn remove(shared: &Shared, disk: &Disk, mut objects: Vec<ObjectId>) -> Vec<ObjectId> {
    let chores = &disk.chores;
    objects.retain(|object| !chores.is_stopping() && unlink(shared, disk, *object));
    if objects.is_empty() || chores.is_stopping() {
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

/// Notes that copies may lack bytes that another copy has, or had. Returns the copies for which
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
