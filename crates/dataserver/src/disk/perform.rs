//! Operations on the store of a target.

use super::reads::{check_gap, read, seek};
use super::{inspect, notes, reserve};
use crate::machine::{Outcome, Work};
use crate::queue::tasks::Data;
use weir_store::Target;
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{Generation, Result};
use weir_wire::data::ObjectStat;

/// Carries out an operation, however long the disk takes.
pub(super) fn perform(store: &Target, work: Work, data: &mut Data) -> Result<Outcome> {
    match work {
        Work::Read(work) => read(store, &work, data),
        Work::Write { object, pieces, generation, sync } => {
            let object = store.object_or_create(object)?;
            let payload = data.buf.as_deref().unwrap_or_default();
            let object_len = object.write_pieces(&pieces, payload, &data.checks, generation)?;
            if sync {
                object.sync()?;
            }
            Ok(Outcome::Written { object_len })
        }
        Work::Sync { object } => {
            if let Some(object) = store.object(object)? {
                object.sync()?;
            }
            Ok(Outcome::Synced)
        }
        Work::Truncate { object, len, generation } => {
            let object = store.object_or_create(object)?;
            let object_len = object.cut(len, generation)?;
            // The metadata server is told that it has been done, and forgets it.
            object.sync()?;
            Ok(Outcome::Truncated { object_len })
        }
        Work::Punch { object, offset, len, generation } => {
            let object_len = match store.object(object)? {
                Some(object) => object.punch(offset, len, generation)?,
                None => 0,
            };
            Ok(Outcome::Reshaped { object_len })
        }
        Work::Allocate { object, offset, len, generation } => {
            let object = store.object_or_create(object)?;
            let object_len =
                reserve::allocate(store, &object, offset..offset.saturating_add(len), generation)?;
            Ok(Outcome::Reshaped { object_len })
        }
        Work::Seek { object, offset, hole, generation, of_copies } => {
            let generation = of_copies.then_some(generation);
            let check = || match of_copies {
                true => check_gap(store, object, 0..MAX_FILE_BYTES),
                false => Ok(()),
            };
            check()?;
            let found = seek(store, object, offset, hole, generation)?;
            check()?;
            Ok(found)
        }
        Work::Fence { object, generation } => {
            let object = store.object_or_create(object)?;
            let (len, generation) = object.fence(generation)?;
            // Whoever asked goes on as if no older write could come any more.
            object.sync()?;
            Ok(Outcome::Stat(ObjectStat { exists: true, len, generation, allocated: 0 }))
        }
        Work::Align { object: id, len, generation } => {
            let object = match len == 0 && generation == Generation(0) {
                true => store.object(id)?,
                false => Some(store.object_or_create(id)?),
            };
            let object_len = object.map_or(Ok(0), |object| object.align(len, generation))?;
            Ok(Outcome::Reshaped { object_len })
        }
        work @ Work::NoteGap { .. } => notes::note(store, work),
        Work::ListLacking { from, max } => Ok(Outcome::Lacking(inspect::lacking(store, from, max))),
        Work::AcceptLoss { object, bytes } => {
            store.gaps().accept(object, &(bytes.0..bytes.1))?;
            tracing::warn!(
                "{}: an administrator has accepted that bytes {} to {} of object {object}, as \
                 another copy had them, are lost: what is here is served",
                store.name(),
                bytes.0,
                bytes.1
            );
            Ok(Outcome::Noted)
        }
        Work::Stat { object: id, of_copies, .. } => {
            let object = store.object(id)?;
            if of_copies {
                check_gap(store, id, 0..MAX_FILE_BYTES)?;
            }
            let (len, generation) =
                object.as_ref().map_or((0, Generation(0)), |o| (o.len(), o.generation()));
            let (exists, allocated) = (object.is_some(), object.map_or(Ok(0), |o| o.allocated())?);
            Ok(Outcome::Stat(ObjectStat { exists, len, generation, allocated }))
        }
        Work::List { after, max } => inspect::list(store, after, max).map(Outcome::Listed),
        Work::Scrub { cursor, budget_bytes } => {
            inspect::scrub(store, cursor, budget_bytes).map(Outcome::Scrubbed)
        }
        Work::Remove { objects } => {
            for &object in &objects {
                store.remove(object)?;
            }
            store.sync_removals()?;
            Ok(Outcome::Removed { count: objects.len() as u64 })
        }
    }
}
