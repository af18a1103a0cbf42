//! Checks of arguments from C programs: pointers, texts, ranges.

use crate::error::invalid;
use std::ffi::{c_char, c_void};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{Error, ErrorKind, Result};

/// Longest path, without the final zero byte.
const MAX_PATH_BYTES: usize = 4096;

/// A text, as bytes.
///
/// # Safety
/// `text` is NULL or ends with a zero byte, or has at least [`MAX_PATH_BYTES`] + 1 bytes.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(invalid(format!("{what} is NULL")));
    }
    // SAFETY: by the contract of this function.
    let len = unsafe { libc::strnlen(text, MAX_PATH_BYTES + 1) };
    if len > MAX_PATH_BYTES {
        return Err(Error::new(ErrorKind::NameTooLong, format!("{what} is too long")));
    }
    // SAFETY: `strnlen` has found that many bytes.
    Ok(unsafe { std::slice::from_raw_parts(text.cast(), len) })
}

/// Bytes to read from. NULL is allowed if `len` is 0.
///
/// # Safety
/// `data` is NULL or has `len` bytes, which stay for as long as they are used.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize, what: &str) -> Result<&'a [u8]> {
    check(data.is_null(), len, 1, what)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL, and by the contract of this function.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// Bytes to write to. NULL is allowed if `len` is 0.
///
/// # Safety
/// `data` is NULL or has `len` bytes that nobody else uses.
pub(crate) unsafe fn bytes_mut<'a>(
    data: *mut c_void,
    len: usize,
    what: &str,
) -> Result<&'a mut [u8]> {
    check(data.is_null(), len, 1, what)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: not NULL, and by the contract of this function.
    Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), len) })
}

/// A list to read. NULL is allowed if `count` is 0.
///
/// # Safety
/// `list` is NULL or has `count` elements.
pub(crate) unsafe fn list<'a, T>(list: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    check(list.is_null(), count, size_of::<T>(), what)?;
    if !list.is_null() && !list.is_aligned() {
        return Err(invalid(format!("{what} is not aligned")));
    }
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL, aligned, and by the contract of this function.
    Ok(unsafe { std::slice::from_raw_parts(list, count) })
}

fn check(is_null: bool, count: usize, size: usize, what: &str) -> Result<()> {
    if is_null && count > 0 {
        return Err(invalid(format!("{what} is NULL")));
    }
    match count.checked_mul(size).is_some_and(|bytes| isize::try_from(bytes).is_ok()) {
        true => Ok(()),
        false => Err(invalid(format!("{what} is longer than memory can be"))),
    }
}

/// Writes a result to the place that the caller has passed.
///
/// # Safety
/// `place` is NULL or has room for a value.
pub(crate) unsafe fn put<T>(place: *mut T, value: T, what: &str) -> Result<()> {
    check_place(place, what)?;
    // SAFETY: not NULL, aligned, and by the contract of this function.
    unsafe { place.write(value) };
    Ok(())
}

/// Checks the place of a result before anything is done.
pub(crate) fn check_place<T>(place: *mut T, what: &str) -> Result<()> {
    if place.is_null() || !place.is_aligned() {
        return Err(invalid(format!("{what} is NULL or not aligned")));
    }
    Ok(())
}

/// Checks a range of a file.
pub(crate) fn range(offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len).is_some_and(|end| end <= MAX_FILE_BYTES) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::FileTooLarge,
            format!("{len} bytes at {offset} reach beyond the largest file (2^62 bytes)"),
        )),
    }
}

/// Copies a text into a C array, truncated if necessary.
pub(crate) fn copy_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    let mut len = text.len().min(N - 1);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    for (to, from) in out.iter_mut().zip(&text.as_bytes()[..len]) {
        *to = *from as c_char;
    }
    out
}
