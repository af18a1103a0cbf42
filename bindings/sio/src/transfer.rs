//! Transfers bytes between a program's memory and a file, batch by batch.

use crate::backend::OpenFile;
use crate::core::codes::{Code, Result};
use crate::core::hint::Pattern;
use crate::core::list::{Batch, Batches, Direction, Piece, Span};
use std::sync::atomic::{AtomicBool, Ordering};

/// A transfer. The program must keep the memory until it has ended, as the interface demands.
pub struct Transfer {
    /// The direction.
    pub direction: Direction,
    /// The pieces, in order.
    pub pieces: Vec<Piece>,
}

impl Transfer {
    /// Runs the transfer. Returns the number of bytes, and what ended it early. A read ends at the
    /// end of the file. `cancel` ends the transfer between two batches.
    ///
    /// # Safety
    /// The memory of all pieces is valid, and nobody else uses it meanwhile (for a write: changes
    /// it).
    pub unsafe fn run(
        &self,
        file: &dyn OpenFile,
        pattern_at: impl Fn(u64) -> Pattern,
        cancel: &AtomicBool,
    ) -> (u64, Result<()>) {
        let (mut done, mut buffer) = (0, Vec::new());
        for batch in Batches::new(&self.pieces) {
            if cancel.load(Ordering::Relaxed) {
                return (done, Err(Code::IoCanceled.into()));
            }
            let moved = match self.direction {
                Direction::Read => {
                    let pattern = pattern_at(batch.file[0].start);
                    // SAFETY: by the contract of this function.
                    unsafe { read(file, &batch, pattern, &mut buffer) }
                }
                // SAFETY: by the contract of this function.
                Direction::Write => unsafe { write(file, &batch, &mut buffer) },
            };
            match moved {
                Ok(bytes) => done += bytes,
                Err(failure) => return (done, Err(failure)),
            }
            if moved != Ok(batch.bytes) {
                break;
            }
        }
        (done, Ok(()))
    }
}

/// # Safety
/// See [`Transfer::run`].
unsafe fn read(
    file: &dyn OpenFile,
    batch: &Batch,
    pattern: Pattern,
    buffer: &mut Vec<u8>,
) -> Result<u64> {
    if let [one] = batch.memory[..] {
        // SAFETY: one piece of memory, lent by the contract of this function.
        let memory = unsafe { std::slice::from_raw_parts_mut(pointer(one), one.len as usize) };
        return file.read(&batch.file, memory, pattern);
    }
    buffer.resize(batch.bytes as usize, 0);
    let bytes = file.read(&batch.file, buffer, pattern)?;
    let mut rest = &buffer[..bytes as usize];
    for span in &batch.memory {
        let (here, later) = rest.split_at(rest.len().min(span.len as usize));
        // SAFETY: the span has at least `here.len()` bytes, and `buffer` is separate memory.
        unsafe { std::ptr::copy_nonoverlapping(here.as_ptr(), pointer(*span), here.len()) };
        rest = later;
    }
    Ok(bytes)
}

/// # Safety
/// See [`Transfer::run`].
unsafe fn write(file: &dyn OpenFile, batch: &Batch, buffer: &mut Vec<u8>) -> Result<u64> {
    let bytes = |span: &Span| {
        // SAFETY: a piece of memory, lent by the contract of this function.
        unsafe { std::slice::from_raw_parts(pointer(*span).cast_const(), span.len as usize) }
    };
    if let [one] = &batch.memory[..] {
        file.write(&batch.file, bytes(one))?;
        return Ok(batch.bytes);
    }
    buffer.clear();
    for span in &batch.memory {
        buffer.extend_from_slice(bytes(span));
    }
    file.write(&batch.file, buffer)?;
    Ok(batch.bytes)
}

fn pointer(span: Span) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(span.start as usize)
}
