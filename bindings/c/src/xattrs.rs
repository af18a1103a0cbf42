//! Extended attributes by path.

use crate::args::{bytes, bytes_mut, text};
use crate::error::{guard, invalid, status};
use crate::handles::weir_fs_t;
use crate::names::{Named, fill, with_path};
use std::ffi::{c_char, c_int, c_void};
use weir_wire::meta::XattrMode;

/// Stores the value of an attribute and returns its length. With a `len` of 0, only returns the
/// length. `-ERANGE` if it does not fit, `-ENODATA` if there is no such attribute.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_getxattr(
    fs: weir_fs_t,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    len: usize,
) -> i64 {
    guard(|| {
        // SAFETY: by the contract of this function.
        let name = unsafe { text(name, "name") }?;
        let run = |named: &Named<'_>| {
            let file = named.attr(true)?.file;
            named.client.get_xattr(&named.connection.context, file, name)
        };
        // SAFETY: by the contract of this function.
        let found = unsafe { with_path(fs, path, run) }?;
        // SAFETY: as above.
        fill(&found, unsafe { bytes_mut(value, len, "value") }?)
    })
}

/// Sets an attribute. `flags`: 0, XATTR_CREATE or XATTR_REPLACE.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_setxattr(
    fs: weir_fs_t,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    len: usize,
    flags: c_int,
) -> c_int {
    status(|| {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            other => return Err(invalid(format!("setxattr: flags {other:#x} are not known"))),
        };
        // SAFETY: by the contract of this function.
        let (name, value) = unsafe { (text(name, "name")?, bytes(value, len, "value")?) };
        let run = |named: &Named<'_>| {
            let file = named.attr(true)?.file;
            named.client.set_xattr(&named.connection.context, file, name, value, mode)
        };
        // SAFETY: by the contract of this function.
        unsafe { with_path(fs, path, run) }
    })
}

/// Stores the names of all attributes, each followed by a zero byte, and returns their total
/// length. With a `len` of 0, only returns the length.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_listxattr(
    fs: weir_fs_t,
    path: *const c_char,
    names: *mut c_char,
    len: usize,
) -> i64 {
    let run = |named: &Named<'_>| {
        let file = named.attr(true)?.file;
        named.client.list_xattr(&named.connection.context, file)
    };
    guard(|| {
        // SAFETY: by the contract of this function.
        let found = unsafe { with_path(fs, path, run) }?;
        let all: Vec<u8> = found.iter().flat_map(|name| [&name[..], &[0]].concat()).collect();
        // SAFETY: as above.
        fill(&all, unsafe { bytes_mut(names.cast(), len, "names") }?)
    })
}

/// Removes an attribute.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_removexattr(
    fs: weir_fs_t,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: by the contract of this function.
        let name = unsafe { text(name, "name") }?;
        let run = |named: &Named<'_>| {
            let file = named.attr(true)?.file;
            named.client.remove_xattr(&named.connection.context, file, name)
        };
        // SAFETY: by the contract of this function.
        unsafe { with_path(fs, path, run) }
    })
}
