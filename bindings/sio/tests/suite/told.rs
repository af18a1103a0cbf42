//! The functions of the interface, which note the codes that they return. What `docs/sio.md` says
//! that each may return is compared with that.

use super::*;
use std::collections::BTreeSet;
use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};

/// A function or a control, and a code without `SIO_ERR_`.
pub type Told = (String, String);

static TOLD: Mutex<BTreeSet<Told>> = Mutex::new(BTreeSet::new());

/// The controls by their numbers, from 1 on, as `docs/sio.md` names them.
pub const CONTROLS: [&str; 16] = [
    "GetSize",
    "SetSize",
    "GetAllocation",
    "GetPreallocation",
    "SetPreallocation",
    "GetCachingMode",
    "SetCachingMode",
    "Propagate",
    "Refresh",
    "Sync",
    "GetLayout",
    "SetLayout",
    "GetLabel",
    "SetLabel",
    "GetConsistencyUnit",
    "FastCopy",
];

fn tell(who: &str, number: i32) -> i32 {
    if let Some((_, name)) = Code::ALL.iter().find(|(code, _)| *code as i32 == number) {
        let name = name.trim_start_matches("SIO_ERR_").trim_start_matches("SIO_").to_string();
        TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert((who.to_string(), name));
    }
    number
}

/// # Safety
/// The list is NULL or has the stated length.
unsafe fn tell_controls(ops: *const sio_control_t, nops: u32) {
    if ops.is_null() {
        return;
    }
    // SAFETY: by the contract of this function.
    for op in unsafe { std::slice::from_raw_parts(ops, nops as usize) } {
        let name = (op.op_code as usize).checked_sub(1).and_then(|at| CONTROLS.get(at));
        tell(name.unwrap_or(&"unknown"), op.result);
    }
}

/// All that was returned so far in this process.
pub fn so_far() -> BTreeSet<Told> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

macro_rules! told {
    ($($name:ident($($arg:ident: $kind:ty),*);)*) => {
        $(
            /// # Safety
            /// That of the function of this name.
            pub unsafe fn $name($($arg: $kind),*) -> i32 {
                // SAFETY: by the contract of this function.
                tell(stringify!($name), unsafe { sio::$name($($arg),*) })
            }
        )*
    };
}

told! {
    sio_attach(files: *const c_char);
    sio_unlink(name: *const c_char);
    sio_rename(old: *const c_char, new: *const c_char);
    sio_hint(fd: i32, class: u32, hints: *const sio_hint_t, len: u32);
    sio_hint_by_name(name: *const c_char, class: u32, hints: *const sio_hint_t, len: u32);
    sio_sg_read(fd: i32, file: *const sio_file_io_list_t, file_len: u32,
        memory: *const sio_mem_io_list_t, memory_len: u32, total: *mut u64);
    sio_sg_write(fd: i32, file: *const sio_file_io_list_t, file_len: u32,
        memory: *const sio_mem_io_list_t, memory_len: u32, total: *mut u64);
    sio_async_sg_read(fd: i32, file: *const sio_file_io_list_t, file_len: u32,
        memory: *const sio_mem_io_list_t, memory_len: u32, handle: *mut sio_async_handle_t);
    sio_async_sg_write(fd: i32, file: *const sio_file_io_list_t, file_len: u32,
        memory: *const sio_mem_io_list_t, memory_len: u32, handle: *mut sio_async_handle_t);
    sio_async_status_any(list: *mut sio_async_handle_t, len: u32, index: *mut u32,
        status: *mut sio_async_status_t, flags: u32);
    sio_async_cancel_all(list: *mut sio_async_handle_t, len: u32);
    sio_coll_define(fd: i32, direction: u32, participants: u32, to: *mut sio_coll_handle_t);
    sio_coll_join(of: sio_coll_handle_t, participant: u32, file: *const sio_file_io_list_t,
        file_len: u32, memory: *const sio_mem_io_list_t, memory_len: u32,
        to: *mut sio_async_handle_t);
}

/// # Safety
/// That of the function of this name.
pub unsafe fn sio_open(
    fd: *mut i32,
    name: *const c_char,
    mode: u32,
    ops: *mut sio_control_t,
    nops: u32,
) -> i32 {
    // SAFETY: by the contract of this function.
    let number = unsafe { sio::sio_open(fd, name, mode, ops, nops) };
    // SAFETY: as above.
    unsafe { tell_controls(ops, nops) };
    tell("sio_open", number)
}

/// # Safety
/// That of the function of this name.
pub unsafe fn sio_test(name: *const c_char, mode: u32, ops: *mut sio_control_t, nops: u32) -> i32 {
    // SAFETY: by the contract of this function.
    let number = unsafe { sio::sio_test(name, mode, ops, nops) };
    // SAFETY: as above.
    unsafe { tell_controls(ops, nops) };
    tell("sio_test", number)
}

/// # Safety
/// That of the function of this name.
pub unsafe fn sio_control(fd: i32, ops: *mut sio_control_t, nops: u32) -> i32 {
    // SAFETY: by the contract of this function.
    let number = unsafe { sio::sio_control(fd, ops, nops) };
    // SAFETY: as above.
    unsafe { tell_controls(ops, nops) };
    tell("sio_control", number)
}

pub fn sio_close(fd: i32) -> i32 {
    tell("sio_close", sio::sio_close(fd))
}

pub fn sio_detach() -> i32 {
    tell("sio_detach", sio::sio_detach())
}

pub fn sio_query_extension(id: u32) -> i32 {
    tell("sio_query_extension", sio::sio_query_extension(id))
}

pub fn sio_coll_free(of: sio_coll_handle_t) -> i32 {
    tell("sio_coll_free", sio::sio_coll_free(of))
}
