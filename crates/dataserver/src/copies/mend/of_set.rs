//! Repairs bytes that have rotted in a column or parity, in all copies of it, from the rest of its
//! set.
//!
//! Nobody writes a segment while its parities count. Somebody may begin to while a repair is under
//! way: then nothing is replaced that was written since.
//!
//! Invariants
//! - Bytes were read from a set that was the same before and after, as the metadata server says.
//! - A block is replaced only if it does not match its checksum at that moment.

use super::{Mend, Mender, together};
use crate::copies::set::Set;
use std::ops::Range;
use std::sync::Arc;
use weir_erasure::Code;
use weir_store::Object;
use weir_types::limits::BLOCK_BYTES;
use weir_types::{CopyIndex, Error, ErrorKind, ObjectId, Result};
use weir_wire::peer::{Build, Copies as Column};

impl Mender<'_> {
    /// Replaces the damaged blocks of a range by what others of the set say.
    ///
    /// # Errors
    /// `Corrupt`: a block is still damaged; `Stale`: the set is another one by now; otherwise why too
    /// few others can be read now.
    pub(super) fn blocks_of_set(
        &self,
        column: &Column,
        object: &Arc<Object>,
        range: &Range<u64>,
    ) -> Result<Mend> {
        let found = object.damaged(range);
        let mut done = 0;
        for part in together(&found) {
            let bytes = self.compute(column, &part)?;
            self.is_same(column)?;
            self.shared.copies.standings.is_kept(self.own())?;
            for (block, bytes) in (part.start..).step_by(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES))
            {
                done += u64::from(object.replace_damaged(block, bytes)?);
            }
        }
        match object.damaged(range).first() {
            Some(block) => {
                let what = format!("block at offset {} is still damaged", block.start);
                Err(Error::new(ErrorKind::Corrupt, what).at(block.start))
            }
            None if done > 0 => Ok(Mend::Blocks(done)),
            None => Ok(Mend::Sound),
        }
    }

    /// Gives a header back to an object that cannot be opened. Nobody has written the segment since
    /// it got its parities, so the file's generation is not too low, and it is not too high: no
    /// truncation may be pending.
    pub(super) fn header_of_set(&self, column: &Column) -> Result<Mend> {
        self.shared.copies.standings.is_kept(self.own())?;
        self.disk.store.restore_header(self.object, column.generation).map(|()| Mend::Header)
    }

    fn compute(&self, column: &Column, range: &Range<u64>) -> Result<Vec<u8>> {
        let (columns, parities) = (column.columns, column.parities);
        let (object, to) = (ObjectId { copy: CopyIndex(0), ..self.object }, self.own());
        let (generation, len) = (column.generation, range.end);
        let order = Build { object, to, generation, columns, parities, coded: true, len };
        let code = Code::new(usize::from(columns), usize::from(parities));
        let code = code.map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
        let set = Set { shared: self.shared, order: &order };
        let mut sources = set.sources(code.blocks())?;
        let wanted = usize::from(object.column.0);
        let step = range.end - range.start;
        loop {
            let present: Vec<bool> = sources.iter().map(Option::is_some).collect();
            let repair = code.repair(&present, &[wanted]);
            let repair = repair.map_err(|e| Error::new(ErrorKind::NotCurrent, e.to_string()))?;
            let read = |number: &usize| {
                let source = sources[*number].as_ref().ok_or(ErrorKind::Internal);
                let bytes =
                    source.map_err(Error::from).and_then(|s| set.read(s, range.start, step));
                bytes.map_err(|error| (*number, error))
            };
            let read: Result<Vec<Vec<u8>>, _> = repair.sources().iter().map(read).collect();
            match read {
                Ok(read) => {
                    let parts: Vec<&[u8]> = read.iter().map(Vec::as_slice).collect();
                    let mut bytes = vec![0; step as usize];
                    let run = repair.run(&parts, &mut [&mut bytes]);
                    run.map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
                    return Ok(bytes);
                }
                // Perhaps others do.
                Err((number, error)) => {
                    tracing::debug!("{}: without part {number}: {error}", self.object);
                    sources[number] = None;
                }
            }
        }
    }

    fn is_same(&self, before: &Column) -> Result<()> {
        let set = |column: &Column| (column.generation, column.columns, column.parities);
        match self.find()? {
            Some(now) if set(&now) == set(before) => Ok(()),
            _ => Err(Error::new(ErrorKind::Stale, "the segment is another one by now")),
        }
    }
}
