//! Fencing a file: nothing that an earlier writer sent, and that is still on its
//! way, may surface once the next one has begun.

use crate::context::Context;
use crate::control::{Control, ask_objects};
use crate::core::plan::columns;
use crate::drive::Call;
use crate::file::{File, OpenState};
use std::collections::BTreeMap;
use weir_layout::file_len;
use weir_types::{ColumnIndex, Error, ErrorKind, Generation, Result, SegmentIndex};

/// What a fence found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// How far the objects reach: the size, bytes, if nobody said another one.
    pub size: u64,
    /// The highest fence of an object: above the one that was asked for if
    /// somebody has fenced or truncated the file since.
    pub newest: Generation,
}

impl OpenState {
    /// Sees to it that every object of the layout, also one that does not exist
    /// yet, refuses writes of generations below this one, also after a power
    /// cut. Done again, it finds what it found before, and newer writes.
    ///
    /// The layout must be whole, and a truncation that is pending carried out
    /// before ([`OpenState::finish_truncate`]): one of the same generation counts
    /// as done afterwards. Segments that are granted later are not fenced: who
    /// has only the layout of before cannot write there.
    pub(crate) fn fence_objects(&self, call: Call<'_>, generation: Generation) -> Result<Fenced> {
        let layout = self.layout();
        let list: Vec<_> = columns(self.id, &layout, 0)
            .into_iter()
            .map(|(place, _)| (place, Control::Fence(generation)))
            .collect();
        let places: Vec<_> = list.iter().map(|(place, _)| place.object).collect();
        let answers = ask_objects(call, list)?;
        let mut newest = generation;
        let mut lens: BTreeMap<(SegmentIndex, ColumnIndex), u64> = BTreeMap::new();
        for (object, answer) in places.iter().zip(answers) {
            let stat = answer.stat.ok_or_else(|| {
                Error::new(ErrorKind::Internal, format!("no answer for object {object}"))
            })?;
            newest = newest.max(stat.generation);
            lens.insert((object.segment, object.column), stat.len);
        }
        let of = |position: usize, column| {
            let segment = layout.segments.get(position).map(|segment| segment.index);
            segment.and_then(|index| lens.get(&(index, column)).copied()).unwrap_or(0)
        };
        let size = file_len(&layout, of).ok_or_else(|| {
            let what = format!(
                "file {}: an object reaches beyond the largest file; run `weir fsck`",
                self.id
            );
            Error::new(ErrorKind::Corrupt, what)
        })?;
        Ok(Fenced { size, newest })
    }
}

impl File {
    /// Sees to it that no write of a generation below this one reaches any
    /// object of the file from now on, whoever sent it, and finds how far the
    /// objects reach. The file must be open for writing.
    ///
    /// Errors: those of waiting for every server of the file.
    pub fn fence(&self, ctx: &Context, generation: Generation) -> Result<Fenced> {
        self.state.fence_objects(self.call(ctx), generation)
    }
}
