//! Scatter-gather, asynchronous and collective operations.

use super::attach::{enter, library, remember};
use super::constants::{ASYNC_BLOCKING, ASYNC_NONBLOCKING, COLL_READ, COLL_WRITE};
use super::types::{
    file_list, list, memory_list, sio_async_handle_t, sio_async_status_t, sio_coll_handle_t,
    sio_file_io_list_t, sio_mem_io_list_t, sio_return_t, target,
};
use crate::core::codes::{Code, Failure, Result};
use crate::core::limits::MAX_COUNT;
use crate::core::list::{Direction, Piece, pieces};
use std::ffi::{c_int, c_void};

/// Bit that distinguishes handles of collectives.
const COLLECTIVE: u32 = 1 << 31;

fn handle(number: u32) -> *mut c_void {
    std::ptr::without_provenance_mut(number as usize)
}

fn number(handle: *mut c_void) -> u32 {
    // A value that is not one of this library's numbers is invalid.
    u32::try_from(handle.addr()).unwrap_or(u32::MAX)
}

/// Both lists of a call.
#[derive(Clone, Copy)]
struct Lists {
    file: *const sio_file_io_list_t,
    file_len: u32,
    memory: *const sio_mem_io_list_t,
    memory_len: u32,
}

impl Lists {
    /// # Safety
    /// The lists are NULL, or as long as they say.
    unsafe fn pieces(self, direction: Direction) -> Result<Vec<Piece>> {
        // SAFETY: by the contract of this function.
        let file = unsafe { file_list(self.file, self.file_len) }?;
        // SAFETY: as above.
        let memory = unsafe { memory_list(self.memory, self.memory_len) }?;
        pieces(&file, &memory, direction)
    }
}

/// # Safety
/// As the header says.
unsafe fn transfer(fd: c_int, direction: Direction, lists: Lists, total: *mut u64) -> sio_return_t {
    enter(|| {
        // SAFETY: by the contract of this function.
        let total = unsafe { target(total, "total") }?;
        *total = 0;
        // SAFETY: as above.
        let pieces = unsafe { lists.pieces(direction) }?;
        // SAFETY: as above.
        let (bytes, result) = unsafe { library()?.transfer(fd, direction, pieces) };
        *total = bytes;
        result
    })
}

/// # Safety
/// As the header says.
unsafe fn start(
    fd: c_int,
    direction: Direction,
    lists: Lists,
    to: *mut sio_async_handle_t,
) -> sio_return_t {
    enter(|| {
        // SAFETY: by the contract of this function.
        let to = unsafe { target(to, "handle") }?;
        // SAFETY: as above.
        let pieces = unsafe { lists.pieces(direction) }?;
        // SAFETY: as above.
        *to = handle(unsafe { library()?.start(fd, direction, pieces) }?);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or point to what the header says; the memory that the list names is lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_sg_read(
    fd: c_int,
    file: *const sio_file_io_list_t,
    file_len: u32,
    memory: *const sio_mem_io_list_t,
    memory_len: u32,
    total: *mut u64,
) -> sio_return_t {
    let lists = Lists { file, file_len, memory, memory_len };
    // SAFETY: by the contract of this function.
    unsafe { transfer(fd, Direction::Read, lists, total) }
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or point to what the header says; the memory that the list names is lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_sg_write(
    fd: c_int,
    file: *const sio_file_io_list_t,
    file_len: u32,
    memory: *const sio_mem_io_list_t,
    memory_len: u32,
    total: *mut u64,
) -> sio_return_t {
    let lists = Lists { file, file_len, memory, memory_len };
    // SAFETY: by the contract of this function.
    unsafe { transfer(fd, Direction::Write, lists, total) }
}

/// See the header.
///
/// # Safety
/// As [`sio_sg_read`], until the handle has been completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_async_sg_read(
    fd: c_int,
    file: *const sio_file_io_list_t,
    file_len: u32,
    memory: *const sio_mem_io_list_t,
    memory_len: u32,
    handle: *mut sio_async_handle_t,
) -> sio_return_t {
    let lists = Lists { file, file_len, memory, memory_len };
    // SAFETY: by the contract of this function.
    unsafe { start(fd, Direction::Read, lists, handle) }
}

/// See the header.
///
/// # Safety
/// As [`sio_sg_write`], until the handle has been completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_async_sg_write(
    fd: c_int,
    file: *const sio_file_io_list_t,
    file_len: u32,
    memory: *const sio_mem_io_list_t,
    memory_len: u32,
    handle: *mut sio_async_handle_t,
) -> sio_return_t {
    let lists = Lists { file, file_len, memory, memory_len };
    // SAFETY: by the contract of this function.
    unsafe { start(fd, Direction::Write, lists, handle) }
}

/// # Safety
/// See [`list`].
unsafe fn handles(handles: *mut sio_async_handle_t, len: u32) -> Result<Vec<Option<u32>>> {
    // SAFETY: by the contract of this function.
    let all = unsafe { list(handles.cast_const(), len, MAX_COUNT, Code::InvalidHandle) }?;
    Ok(all.iter().map(|handle| (!handle.is_null()).then(|| number(*handle))).collect())
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or point to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_async_status_any(
    list: *mut sio_async_handle_t,
    len: u32,
    index: *mut u32,
    status: *mut sio_async_status_t,
    flags: u32,
) -> sio_return_t {
    enter(|| {
        let waits = match flags {
            ASYNC_BLOCKING => true,
            ASYNC_NONBLOCKING => false,
            _ => {
                let what = "flags are neither BLOCKING nor NONBLOCKING";
                return Err(Failure::new(Code::InvalidArgument, what));
            }
        };
        // SAFETY: by the contract of this function.
        let (index, status) = unsafe { (target(index, "index")?, target(status, "status")?) };
        // SAFETY: as above.
        let (at, ended) = library()?.any_done(&unsafe { handles(list, len) }?, waits)?;
        *index = at as u32;
        let code = ended.result.as_ref().map_or_else(|failure| failure.code, |()| Code::Success);
        *status = sio_async_status_t { count: ended.count, status: code as i32 };
        if let Err(failure) = &ended.result {
            remember(failure);
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `list` is NULL or has `len` handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_async_cancel_all(
    list: *mut sio_async_handle_t,
    len: u32,
) -> sio_return_t {
    // SAFETY: by the contract of this function.
    enter(|| library()?.cancel(&unsafe { handles(list, len) }?))
}

/// See the header.
///
/// # Safety
/// `to` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_coll_define(
    fd: c_int,
    direction: u32,
    participants: u32,
    to: *mut sio_coll_handle_t,
) -> sio_return_t {
    enter(|| {
        // SAFETY: by the contract of this function.
        let to = unsafe { target(to, "collective") }?;
        let direction = match direction {
            COLL_READ => Direction::Read,
            COLL_WRITE => Direction::Write,
            _ => return Err(Failure::new(Code::InvalidArgument, "no such direction")),
        };
        *to = handle(library()?.define(fd, direction, participants)? | COLLECTIVE);
        Ok(())
    })
}

fn collective(handle: sio_coll_handle_t) -> Result<u32> {
    match number(handle) {
        number if number & COLLECTIVE != 0 => Ok(number & !COLLECTIVE),
        _ => Err(Failure::new(Code::InvalidHandle, "no handle of a collective")),
    }
}

/// See the header.
///
/// # Safety
/// As [`sio_async_sg_read`] or [`sio_async_sg_write`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_coll_join(
    of: sio_coll_handle_t,
    participant: u32,
    file: *const sio_file_io_list_t,
    file_len: u32,
    memory: *const sio_mem_io_list_t,
    memory_len: u32,
    to: *mut sio_async_handle_t,
) -> sio_return_t {
    enter(|| {
        // SAFETY: by the contract of this function.
        let to = unsafe { target(to, "handle") }?;
        let (of, library) = (collective(of)?, library()?);
        let lists = Lists { file, file_len, memory, memory_len };
        // SAFETY: as above.
        let pieces = unsafe { lists.pieces(library.direction(of)?) }?;
        // SAFETY: as above.
        *to = handle(unsafe { library.join(of, participant, pieces) }?);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn sio_coll_free(of: sio_coll_handle_t) -> sio_return_t {
    enter(|| library()?.free(collective(of)?))
}
