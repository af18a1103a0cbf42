//! Reading and writing at offsets.

use crate::args::{bytes, bytes_mut, check_place, put, range};
use crate::error::{guard, status};
use crate::files::{readable, writable};
use crate::handles::{self, weir_file_t};
use crate::session::{Open, OpenFile};
use std::ffi::{c_int, c_void};
use weir_client::Context;
use weir_types::Result;

/// Reads at an offset until the buffer is full or the file ends; returns the bytes read.
///
/// # Safety
/// `buffer` is NULL or has `len` bytes that nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_pread(
    file: weir_file_t,
    buffer: *mut c_void,
    len: usize,
    offset: u64,
) -> i64 {
    guard(|| {
        // SAFETY: by the contract of this function.
        let buffer = unsafe { bytes_mut(buffer, len, "buffer") }?;
        let handle = handles::get::<OpenFile>(file)?;
        let open = handle.open()?;
        read(&handle, &open, offset, buffer)
    })
}

/// Writes all of a buffer at an offset, or at the end if the file was opened with O_APPEND; returns
/// the bytes written. With write-behind, an error may be returned by a later write, `weir_fsync` or
/// `weir_close`.
///
/// # Safety
/// `data` is NULL or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_pwrite(
    file: weir_file_t,
    data: *const c_void,
    len: usize,
    offset: u64,
) -> i64 {
    guard(|| {
        // SAFETY: by the contract of this function.
        let data = unsafe { bytes(data, len, "data") }?;
        let handle = handles::get::<OpenFile>(file)?;
        let open = handle.open()?;
        write(&handle, &open, offset, data)
    })
}

/// Writes all of a buffer at the end of the file, atomically with other appends, and stores that
/// offset. `offset` may be NULL.
///
/// # Safety
/// `data` is NULL or has `len` bytes; `offset` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_append(
    file: weir_file_t,
    data: *const c_void,
    len: usize,
    offset: *mut u64,
) -> c_int {
    status(|| {
        // SAFETY: by the contract of this function.
        let data = unsafe { bytes(data, len, "data") }?;
        let handle = handles::get::<OpenFile>(file)?;
        writable(&handle)?;
        if !offset.is_null() {
            check_place(offset, "offset")?;
        }
        let at = handle.open()?.file.append(&context(&handle), data)?;
        match offset.is_null() {
            true => Ok(()),
            // SAFETY: by the contract of this function.
            false => unsafe { put(offset, at, "offset") },
        }
    })
}

/// The user, and the process of a job, on whose behalf a file is read and written.
pub(crate) fn context(handle: &OpenFile) -> Context {
    let reader = handle.reader();
    Context { reader, ..handle.connection.context.clone() }
}

pub(crate) fn read(handle: &OpenFile, open: &Open, offset: u64, buffer: &mut [u8]) -> Result<i64> {
    range(offset, buffer.len() as u64)?;
    readable(handle)?;
    let ctx = context(handle);
    // No layer above this library caches pages that would have to be dropped first.
    let n = open.file.read_entering(&ctx, offset, buffer, &|_| ())?;
    if let Some(reader) = &ctx.reader {
        reader.has_read(offset..offset + n as u64);
    }
    Ok(n as i64)
}

pub(crate) fn write(handle: &OpenFile, open: &Open, offset: u64, data: &[u8]) -> Result<i64> {
    range(offset, data.len() as u64)?;
    writable(handle)?;
    let ctx = context(handle);
    match (data.is_empty(), handle.appends) {
        (true, _) => {}
        (false, true) => drop(open.file.append(&ctx, data)?),
        (false, false) => open.file.write_at(&ctx, offset, data)?,
    }
    Ok(data.len() as i64)
}
