//! The structures of the header, and reading them.
#![allow(missing_docs, non_camel_case_types)] // They are named as in C, and explained there.

use super::constants::{HINT_CLASS_ORDERED, HINT_CLASS_UNORDERED};
use crate::core::codes::{Code, Failure, Result};
use crate::core::hint::{Class, Hint, bits};
use crate::core::limits::{MAX_COUNT, MAX_HINTS, MAX_NAME_LEN};
use crate::core::list::{Entry, Span, file_spans, memory_spans};
use std::ffi::{c_char, c_int, c_void};

pub type sio_return_t = i32;
pub type sio_async_handle_t = *mut c_void;
pub type sio_coll_handle_t = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sio_file_io_list_t {
    pub offset: u64,
    pub size: u64,
    pub stride: u64,
    pub element_cnt: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sio_mem_io_list_t {
    pub addr: *mut c_void,
    pub size: u64,
    pub stride: u64,
    pub element_cnt: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct sio_async_status_t {
    pub count: u64,
    pub status: sio_return_t,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sio_control_t {
    pub flags: u32,
    pub op_code: u32,
    pub op_data: *mut c_void,
    pub result: sio_return_t,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sio_hint_t {
    pub flags: u32,
    pub io_list: *mut sio_file_io_list_t,
    pub list_len: u32,
    pub arg: *mut c_void,
    pub arg_len: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sio_label_t {
    pub size: u64,
    pub data: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sio_layout_t {
    pub flags: u32,
    pub stripe_width: u32,
    pub stripe_depth: u64,
    pub algorithm: u32,
    pub algorithm_data: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sio_file_ranges_t {
    pub list: *const sio_file_io_list_t,
    pub list_len: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sio_fast_copy_t {
    pub source: c_int,
    pub source_offset: u64,
    pub offset: u64,
    pub size: u64,
    pub copied: u64,
}

/// A list of the program.
///
/// # Safety
/// `list` is NULL or has `len` entries, which nobody changes meanwhile.
pub(super) unsafe fn list<'a, T>(
    list: *const T,
    len: u32,
    most: u32,
    code: Code,
) -> Result<&'a [T]> {
    if len > most {
        return Err(Failure::new(code, format!("a list of {len} entries, the most is {most}")));
    }
    if len == 0 {
        return Ok(&[]);
    }
    if list.is_null() || !list.is_aligned() {
        return Err(Failure::new(code, "a list is NULL, or not aligned"));
    }
    // SAFETY: not NULL, aligned, and of this length by the contract of this function.
    Ok(unsafe { std::slice::from_raw_parts(list, len as usize) })
}

/// The target of a pointer.
///
/// # Safety
/// `pointer` is NULL or points to a `T` that nobody else uses meanwhile.
pub(super) unsafe fn target<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T> {
    if pointer.is_null() || !pointer.is_aligned() {
        let what = format!("{what} is NULL, or not aligned");
        return Err(Failure::new(Code::InvalidArgument, what));
    }
    // SAFETY: not NULL, aligned, and exclusive by the contract of this function.
    Ok(unsafe { &mut *pointer })
}

/// The bytes of a name. A name that is too long is cut just above the limit, so that it is refused.
///
/// # Safety
/// `name` is NULL or points to a string with a NUL at its end.
pub(super) unsafe fn name<'a>(name: *const c_char) -> Result<&'a [u8]> {
    if name.is_null() {
        return Err(Failure::new(Code::InvalidFilename, "the name is NULL"));
    }
    // SAFETY: no byte beyond the NUL is read.
    let is_end = |at: &usize| unsafe { *name.add(*at) == 0 };
    let len = (0..=MAX_NAME_LEN).find(is_end).unwrap_or(MAX_NAME_LEN + 1);
    // SAFETY: that many bytes precede the NUL.
    Ok(unsafe { std::slice::from_raw_parts(name.cast(), len) })
}

/// # Safety
/// See [`list`].
pub(super) unsafe fn file_list(entries: *const sio_file_io_list_t, len: u32) -> Result<Vec<Span>> {
    // SAFETY: by the contract of this function.
    let entries = unsafe { list(entries, len, MAX_COUNT, Code::InvalidFileList) }?;
    let entry = |e: &sio_file_io_list_t| Entry {
        start: e.offset,
        size: e.size,
        stride: e.stride,
        count: e.element_cnt,
    };
    file_spans(&entries.iter().map(entry).collect::<Vec<_>>())
}

/// # Safety
/// See [`list`].
pub(super) unsafe fn memory_list(entries: *const sio_mem_io_list_t, len: u32) -> Result<Vec<Span>> {
    // SAFETY: by the contract of this function.
    let entries = unsafe { list(entries, len, MAX_COUNT, Code::InvalidMemoryList) }?;
    let entry = |e: &sio_mem_io_list_t| Entry {
        start: e.addr.expose_provenance() as u64,
        size: e.size,
        stride: e.stride,
        count: e.element_cnt,
    };
    memory_spans(&entries.iter().map(entry).collect::<Vec<_>>())
}

/// The bytes of a record that a hint specifies; `None` without one.
///
/// # Safety
/// `hint.arg` is NULL or points to `hint.arg_len` bytes.
unsafe fn record_bytes(hint: &sio_hint_t) -> Option<u64> {
    let is_size = !hint.arg.is_null() && hint.arg_len == size_of::<u64>() as u64;
    if !is_size || hint.flags & bits::RECORDS == 0 {
        return None;
    }
    // SAFETY: not NULL, and as long as a size; it need not be aligned.
    Some(unsafe { hint.arg.cast::<u64>().read_unaligned() })
}

/// # Safety
/// See [`list`], also of the list and of the argument of each hint.
pub(super) unsafe fn hint_list(
    class: u32,
    hints: *const sio_hint_t,
    len: u32,
) -> Result<(Class, Vec<Hint>)> {
    let class = match class {
        HINT_CLASS_ORDERED => Class::Ordered,
        HINT_CLASS_UNORDERED => Class::Unordered,
        other => return Err(Failure::new(Code::InvalidClass, format!("class {other}"))),
    };
    // SAFETY: by the contract of this function.
    let hints = unsafe { list(hints, len, MAX_HINTS as u32, Code::InvalidArgument) }?;
    let read = |hint: &sio_hint_t| {
        if hint.arg.is_null() && hint.arg_len > 0 {
            return Err(Failure::new(Code::InvalidArgument, "the argument of a hint is NULL"));
        }
        // SAFETY: by the contract of this function.
        let (spans, record_bytes) =
            unsafe { (file_list(hint.io_list, hint.list_len)?, record_bytes(hint)) };
        Hint::new(hint.flags, spans, record_bytes)
    };
    Ok((class, hints.iter().map(read).collect::<Result<_>>()?))
}
