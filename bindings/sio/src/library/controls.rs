//! Carries out controls.

use super::{Library, Open, done};
use crate::backend::{Attribute, OpenFile};
use crate::core::codes::{Code, Failure};
use crate::core::control::{Answer, Copy, Op, Outcome};
use crate::core::list::Span;

/// Whether a control is a query that any open file can answer.
pub(super) fn asks(op: &Op) -> bool {
    use Op::{GetAllocation, GetConsistencyUnit, GetLabel, GetLayout, GetPreallocation, GetSize};
    matches!(
        op,
        GetSize | GetAllocation | GetPreallocation | GetLayout | GetLabel | GetConsistencyUnit
    )
}

/// Answers a query.
pub(super) fn ask(file: &dyn OpenFile, op: &Op) -> Outcome {
    match op {
        Op::GetSize => file.size().map(Answer::Bytes),
        Op::GetAllocation => file.allocation().map(Answer::Bytes),
        Op::GetPreallocation => {
            let value = file.attribute(Attribute::Preallocation)?;
            let bytes = value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes);
            Ok(Answer::Bytes(bytes))
        }
        Op::GetLayout => file.layout().map(Answer::Layout),
        Op::GetLabel => {
            let label = file.attribute(Attribute::Label)?;
            Ok(Answer::Label(label.unwrap_or_default()))
        }
        Op::GetConsistencyUnit => Ok(Answer::Bytes(file.consistency_unit())),
        _ => Err(Code::OpUnsupported.into()),
    }
}

impl Library {
    /// Carries out a checked control.
    pub(super) fn control_one(&self, open: &Open, op: &Op) -> Outcome {
        let file = &*open.file;
        match op {
            Op::SetSize(size) => done(file.set_size(*size)),
            Op::SetPreallocation(bytes) => {
                file.preallocate(*bytes)?;
                done(file.set_attribute(Attribute::Preallocation, &bytes.to_le_bytes()))
            }
            Op::GetCachingMode => Ok(Answer::Caching(open.caching)),
            // Done by the open itself.
            Op::SetCachingMode(_) | Op::SetLayout(_) => Ok(Answer::Done),
            Op::Propagate(spans) => done(file.propagate(spans.as_deref())),
            Op::Refresh(spans) => done(file.refresh(spans.as_deref())),
            Op::Sync => done(file.sync()),
            Op::SetLabel(label) => done(file.set_attribute(Attribute::Label, label)),
            Op::FastCopy(copy) => self.fast_copy(open, *copy),
            Op::Refused(failure) => Err(failure.clone()),
            _ => ask(file, op),
        }
    }

    fn fast_copy(&self, open: &Open, copy: Copy) -> Outcome {
        let source = self.file(copy.source)?;
        let from = Span { start: copy.source_offset, len: copy.size };
        let to = Span { start: copy.offset, len: copy.size };
        let same = source.file.identity() == open.file.identity();
        if same && from.start < to.end() && to.start < from.end() {
            return Err(Failure::new(Code::InvalidFileList, "the ranges of the copy overlap"));
        }
        if copy.size == 0 {
            return Ok(Answer::Bytes(0));
        }
        open.file.copy_from(&*source.file, from, copy.offset).map(Answer::Bytes)
    }
}
