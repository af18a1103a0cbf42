//! What other servers tell a target of the gaps of copies, or ask it about them.

use crate::machine::{Outcome, Work};
use crate::standing::roles::not_current;
use weir_store::{ELSEWHERE, Target, UNHEARD};
use weir_types::{Error, ErrorKind, Result};

const LOST: &str = "it has lost its own notes";

/// Carries out [`Work::NoteGap`].
///
/// # Errors
/// `NotCurrent`: it lacks the bytes itself, or has noted otherwise; `Busy`: it cannot say now.
pub(crate) fn note(store: &Target, work: Work) -> Result<Outcome> {
    match work {
        // It is only asked what it has noted.
        Work::NoteGap { object, behind, bytes, filled: true, .. } if behind != store.id() => {
            let gaps = store.gaps();
            if gaps.lost_others() {
                return Err(Error::new(ErrorKind::Busy, LOST));
            }
            // What it had noted is gone, and may have been anything.
            if gaps.of(object, UNHEARD).is_some() {
                return Err(not_current(store.id(), LOST));
            }
            match gaps.lacks(object, behind, &(bytes.0..bytes.1)) {
                true => Err(not_current(store.id(), "it has noted that the other one lacks it")),
                false => Ok(Outcome::Noted),
            }
        }
        Work::NoteGap { object, bytes, filled: true, .. } => {
            store.gaps().clear(object, ELSEWHERE, &(bytes.0..bytes.1))?;
            Ok(Outcome::Noted)
        }
        Work::NoteGap { object, behind, copy, bytes, told, first, .. } => {
            let (gaps, bytes) = (store.gaps(), bytes.0..bytes.1);
            if first && gaps.lacks(object, behind, &bytes) {
                let what = "it lacks some of that already, for another reason";
                return Err(Error::new(ErrorKind::Busy, what));
            }
            // Of parts that it lacks itself it could tell nobody any more, who may not know.
            if first && gaps.knows_of_others(object, &bytes) {
                let what = "it knows that another one lacks some of that";
                return Err(Error::new(ErrorKind::Busy, what));
            }
            // Else what it is in doubt about would count there.
            let is_unheard = gaps.lost_others() || gaps.of(object, UNHEARD).is_some();
            if behind != store.id() && is_unheard {
                let what = "it has lost its own notes, and does not know yet what it lacks";
                return Err(Error::new(ErrorKind::Busy, what));
            }
            // It could not fill that.
            if behind != store.id() && gaps.lacks(object, ELSEWHERE, &bytes) {
                return Err(not_current(store.id(), "it lacks that itself"));
            }
            match behind == store.id() {
                true => {
                    if !gaps.is_noted(object, ELSEWHERE, &bytes) {
                        gaps.note(object, ELSEWHERE, copy, &bytes)?;
                    }
                    // Whether it had what others have is not in doubt any more.
                    gaps.clear(object, behind, &bytes)?;
                }
                // It would be noted as whole parts, and brought over again.
                false if told && gaps.is_told(object, behind, &bytes) => {}
                false if told => gaps.note_said(object, behind, copy, &bytes)?,
                false => gaps.note(object, behind, copy, &bytes)?,
            }
            Ok(Outcome::Noted)
        }
        _ => Err(ErrorKind::Internal.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::TargetIdentity;
    use weir_types::{ColumnIndex, CopyIndex, Epoch, FileId, ObjectId, SegmentIndex};
    use weir_types::{ServerId, TargetId};

    const OTHER: TargetId = TargetId(2);

    fn object() -> ObjectId {
        let (segment, column) = (SegmentIndex(0), ColumnIndex(0));
        ObjectId { file: FileId(5), segment, column, copy: CopyIndex(0) }
    }

    fn ask(store: &Target, filled: bool) -> Option<ErrorKind> {
        let (copy, bytes, told, first) = (CopyIndex(1), (0, 1 << 20), true, false);
        let (object, behind, epoch) = (object(), OTHER, Epoch(1));
        let work = Work::NoteGap { object, behind, copy, bytes, told, first, filled, epoch };
        note(store, work).err().map(|error| error.kind)
    }

    #[test]
    fn who_has_lost_its_own_notes_says_of_no_other_that_it_lacks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let identity =
            TargetIdentity { cluster: [1; 16], target: TargetId(1), server: ServerId(1) };
        Target::create(dir.path(), identity).unwrap();
        let store = Target::open(dir.path()).unwrap();
        store.gaps().note(object(), OTHER, CopyIndex(1), &(0..1)).unwrap();
        assert_eq!(ask(&store, true), Some(ErrorKind::NotCurrent));
        drop(store);
        std::fs::remove_file(dir.path().join("gaps")).unwrap();
        let store = Target::open(dir.path()).unwrap();
        let both = || [ask(&store, true), ask(&store, false)];
        assert_eq!(both(), [Some(ErrorKind::Busy); 2], "it is not known what it knew");
        store.gaps().note(object(), UNHEARD, CopyIndex(0), &(0..1)).unwrap();
        store.gaps().found().unwrap();
        assert_eq!(both(), [Some(ErrorKind::NotCurrent), Some(ErrorKind::Busy)]);
        store.gaps().heard(object()).unwrap();
        assert_eq!(ask(&store, true), None);
    }
}
