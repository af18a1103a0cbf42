//! Fencing a file: no write that an earlier writer has sent and that is still on its way may take
//! effect after the next writer has begun.

use super::control::{Control, ask_objects};
use crate::core::plan::{Place, columns};
use crate::state::{Call, OpenState};
use std::collections::BTreeMap;
use weir_layout::file_len;
use weir_types::{ColumnIndex, Error, ErrorKind, FileLayout, Generation, Result, SegmentIndex};

/// Result of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// Size that follows from the lengths of the objects, bytes. It is the file's size unless
    /// another one was set.
    pub size: u64,
    /// The highest fence of any object. It is above the requested one if the file was fenced or
    /// truncated since.
    pub newest: Generation,
}

impl OpenState {
    /// Makes every object of the layout refuse writes of generations below this one, also objects
    /// that do not exist yet, and also after a power cut. A repeated fence finds what it found
    /// before, and newer writes.
    ///
    /// The layout must be complete, and a pending truncation carried out before
    /// ([`OpenState::finish_truncate`]): a truncation of the same generation counts as done
    /// afterwards. Segments that are granted later are not fenced: a writer with the old layout
    /// cannot write there.
    pub(crate) fn fence_objects(&self, call: Call<'_>, generation: Generation) -> Result<Fenced> {
        let layout = self.layout();
        let list: Vec<_> = columns(self.id, &layout, 0)
            .into_iter()
            .map(|(place, _)| (place, Control::Fence(generation)))
            .collect();
        let (size, newest) = self.ask_all(call, &layout, list)?;
        Ok(Fenced { size, newest: newest.max(generation) })
    }

    /// How far the objects of the layout reach, as their servers say now: the size, bytes, if
    /// nobody said another one.
    pub(crate) fn reach(&self, call: Call<'_>) -> Result<u64> {
        let layout = self.layout();
        let all = columns(self.id, &layout, 0).into_iter();
        let list = all.map(|(place, _)| (place, Control::Stat)).collect();
        self.ask_all(call, &layout, list).map(|(size, _)| size)
    }

    /// Asks all columns something; how far they reach, and the highest fence of any.
    fn ask_all(
        &self,
        call: Call<'_>,
        layout: &FileLayout,
        list: Vec<(Place, Control)>,
    ) -> Result<(u64, Generation)> {
        let places: Vec<_> = list.iter().map(|(place, _)| place.object).collect();
        let answers = ask_objects(call, list)?;
        let mut newest = Generation(0);
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
        let size = file_len(layout, of).ok_or_else(|| {
            let what = format!(
                "file {}: an object reaches beyond the largest file; run `weir fsck`",
                self.id
            );
            Error::new(ErrorKind::Corrupt, what)
        })?;
        Ok((size, newest))
    }
}
