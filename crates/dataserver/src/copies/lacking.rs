//! What a copy may order and take although it lacks something, or does not know what it lacks.
//!
//! Invariants
//! - Nothing is ordered while it is not noted what a lost gap log may have said: see `resync/lost.rs`.
//! - Whether there was an object is noted before a change that another copy has ordered makes it.

use crate::disk::Disk;
use crate::machine::Work;
use crate::machine::change::Change;
use crate::standing::roles::not_current;
use std::ops::Range;
use weir_store::{ELSEWHERE, Note, UNHEARD};
use weir_types::limits::{BLOCK, MAX_FILE_BYTES};
use weir_types::{ObjectId, Result};

/// All of an object.
pub(super) const WHOLE: Range<u64> = 0..MAX_FILE_BYTES;
/// What is noted under [`UNHEARD`] instead, if there was no object when the log was lost.
pub(super) const FIRST: Range<u64> = 0..1;

/// Refuses a change by a copy that orders, until what it may lack is noted. If the others were not
/// heard of it yet, all that it is in doubt about is elsewhere from now on.
pub(super) fn require_known(disk: &Disk, change: &Change) -> Result<()> {
    refuse_unknown(disk, change)?;
    let (gaps, object) = (disk.store.gaps(), change.access.object);
    match gaps.of(object, UNHEARD).is_some() && !gaps.is_held(object) {
        true => disk.at_work.on(|| gaps.hold(object, object.copy)),
        false => Ok(()),
    }
}

fn refuse_unknown(disk: &Disk, change: &Change) -> Result<()> {
    match disk.store.gaps().is_unknown(change.access.object) {
        true => {
            let what = "it has lost its own notes, and is still looking for what it may lack";
            Err(not_current(disk.served.id, what))
        }
        false => Ok(()),
    }
}

/// Notes that there was no object when the gap log was lost, before a change that another copy has
/// ordered makes one.
pub(super) fn note_missing(disk: &Disk, change: &Change) -> Result<()> {
    let (gaps, object) = (disk.store.gaps(), change.access.object);
    if !gaps.lost_others() || disk.store.object(object)?.is_some() {
        return Ok(());
    }
    let note = |behind, bytes| Note { object, behind, copy: object.copy, bytes };
    gaps.note_all(&[note(disk.served.id, WHOLE), note(UNHEARD, FIRST)])
}

/// Refuses a change of bytes that another copy has and this one lacks, unless it replaces whole
/// blocks. That lasts until the bytes have arrived or an administrator has accepted the loss.
pub(super) fn refuse_elsewhere(
    disk: &Disk,
    change: &Change,
    range: Option<&Range<u64>>,
) -> Result<()> {
    let (Some(range), object) = (range, change.access.object) else { return Ok(()) };
    if !disk.store.gaps().lacks(object, ELSEWHERE, range) {
        return Ok(());
    }
    let whole = |(start, len): &(u64, u64)| start % BLOCK == 0 && len % BLOCK == 0;
    match &change.work {
        Work::Write { pieces, .. } if pieces.iter().all(whole) && fits(disk, object, pieces) => {
            Ok(())
        }
        _ => {
            let what = "its last changes are on a copy that is away: bring that one back, or \
                        accept the loss";
            Err(not_current(disk.served.id, what))
        }
    }
}

/// Whether it can be noted that these bytes are not elsewhere any more: only so many parts are noted.
fn fits(disk: &Disk, object: ObjectId, pieces: &[(u64, u64)]) -> bool {
    let Some(mut left) = disk.store.gaps().of(object, ELSEWHERE) else { return true };
    let mut all = pieces.iter().map(|&(start, len)| start..start + len);
    all.all(|range| {
        left.remove(&range);
        !left.touches(&range)
    })
}

/// Refuses to promise durability of bytes that only another copy has, or of a copy of which it is not
/// known what it lacks.
pub(super) fn require_all(disk: &Disk, change: &Change) -> Result<()> {
    refuse_unknown(disk, change)?;
    let everything = 0..MAX_FILE_BYTES;
    match disk.store.gaps().of(change.access.object, ELSEWHERE) {
        Some(lacking) if lacking.touches(&everything) => {
            let what = "it does not have the last changes: another copy has, and brings them when \
                        it can be reached";
            Err(not_current(disk.served.id, what))
        }
        _ => Ok(()),
    }
}
