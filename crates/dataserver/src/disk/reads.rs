//! Reads of a target's store: of bytes, and of where data and holes are.
//!
//! Invariant: no byte is read that this copy has noted as missing, unless it is read as it is.

use crate::machine::{Outcome, ReadWork};
use crate::queue::tasks::Data;
use crate::standing::roles::not_current;
use std::ops::Range;
use weir_store::{ELSEWHERE, Object, ReadMode, ReadOutcome, Target};
use weir_types::{Error, ErrorKind, Generation, ObjectId, Result};

/// Reads from the page cache. Returns `None` if the read would have to wait for the disk. Never
/// waits, so the event loop may call it. `mode` is one that does not wait.
///
/// Data is copied from the page cache into a warm buffer and sent from there. On loopback that
/// costs 0.23 CPU s/GB, and `sendfile` 0.32; `sendfile` would also prevent a check of the data
/// before it leaves.
pub(crate) fn read_cached(
    store: &Target,
    work: &ReadWork,
    data: &mut Data,
    mode: ReadMode,
) -> Option<Result<Outcome>> {
    let object = store.open_object(work.object)?;
    if let Err(error) = check_gaps(store, work) {
        return Some(Err(error));
    }
    if work.of_copies
        && let Err(error) = check_generation(&object, work.generation)
    {
        return Some(Err(error));
    }
    let buf = data.buf.as_deref_mut().unwrap_or_default();
    data.checks.clear();
    match object.read_pieces(&work.pieces, buf, &mut data.checks, mode) {
        Ok(ReadOutcome::WouldBlock) => None,
        Ok(ReadOutcome::Done { bytes, object_bytes }) => {
            let current = check_gaps(store, work);
            Some(current.map(|()| finish_read(work, data, bytes, object_bytes)))
        }
        Err(e) => Some(Err(e)),
    }
}

/// Refuses a layout from before a copy was moved: it leads to a copy that is not updated any more.
fn check_generation(object: &Object, generation: Generation) -> Result<()> {
    if generation < object.generation() {
        let what = format!("object {}: read with generation {generation}", object.id());
        return Err(Error::new(ErrorKind::Stale, what));
    }
    Ok(())
}

/// Checks that this copy has the bytes of a read. It is called before the read, since missing bytes
/// may arrive, and their gap may be cleared, during it. It is called again after the read: a change
/// here or elsewhere has noted its gap by then, or waits for no reader.
fn check_gaps(store: &Target, work: &ReadWork) -> Result<()> {
    let start = work.pieces.iter().map(|piece| piece.0).min().unwrap_or_default();
    let end = work.pieces.iter().map(|piece| piece.0 + piece.1).max().unwrap_or_default();
    match work.of_copies {
        true => check_gap(store, work.object, start..end),
        false if work.as_is => Ok(()),
        // The others have gone since, and it is lost.
        false if store.gaps().lacks(work.object, ELSEWHERE, &(start..end)) => {
            Err(lacks_what_is_elsewhere(store))
        }
        false => Ok(()),
    }
}

/// Checks that this copy has a range, as [`check_gaps`].
pub(super) fn check_gap(store: &Target, object: ObjectId, range: Range<u64>) -> Result<()> {
    match store.gaps().lacks(object, store.id(), &range) {
        true if store.gaps().lacks(object, ELSEWHERE, &range) => {
            Err(lacks_what_is_elsewhere(store))
        }
        true => Err(lacks(store)),
        false => Ok(()),
    }
}

fn lacks(store: &Target) -> Error {
    not_current(store.id(), "it does not have the last changes of these bytes")
}

/// The error for missing bytes, with what to do about it.
fn lacks_what_is_elsewhere(store: &Target) -> Error {
    let what = "it does not have the last changes of these bytes: bring the other copies back, or \
                accept the loss (`weir accept-loss`)";
    not_current(store.id(), what)
}

fn finish_read(work: &ReadWork, data: &mut Data, bytes: usize, object_len: u64) -> Outcome {
    if let Some(buf) = &mut data.buf {
        buf.set_len(bytes);
    }
    if work.unchecked {
        data.checks.clear();
    }
    Outcome::Read { bytes: bytes as u64, object_len }
}

/// Finds data or a hole. Bytes behind the end of an object, or of an object that was never made,
/// count as a hole.
pub(super) fn seek(
    store: &Target,
    object: ObjectId,
    offset: u64,
    hole: bool,
    generation: Option<Generation>,
) -> Result<Outcome> {
    let object = store.object(object)?;
    if let (Some(object), Some(generation)) = (&object, generation) {
        check_generation(object, generation)?;
    }
    let found = match (&object, hole) {
        (Some(object), true) => Some(object.next_hole(offset)?.max(offset)),
        (Some(object), false) => object.next_data(offset)?,
        (None, true) => Some(offset),
        (None, false) => None,
    };
    Ok(Outcome::Found(found))
}

/// Reads, however long the disk takes.
pub(super) fn read(store: &Target, work: &ReadWork, data: &mut Data) -> Result<Outcome> {
    data.checks.clear();
    check_gaps(store, work)?;
    let Some(object) = store.object(work.object)? else {
        check_gaps(store, work)?;
        return Ok(finish_read(work, data, 0, 0));
    };
    if work.of_copies {
        check_generation(&object, work.generation)?;
    }
    let mode = match (work.locked, work.of_copies) {
        (true, _) => ReadMode::Locked,
        (false, true) => ReadMode::Exact,
        (false, false) => ReadMode::Blocking,
    };
    let buf = data.buf.as_deref_mut().unwrap_or_default();
    match object.read_pieces(&work.pieces, buf, &mut data.checks, mode)? {
        ReadOutcome::Done { bytes, object_bytes } => {
            check_gaps(store, work)?;
            Ok(finish_read(work, data, bytes, object_bytes))
        }
        ReadOutcome::WouldBlock => {
            Err(Error::new(ErrorKind::Internal, "a blocking read did not block"))
        }
    }
}
