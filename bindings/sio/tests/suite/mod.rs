//! The tests of every function of the interface, called as from C, for any file system. A program
//! attaches one file system and runs all of them.
#![allow(dead_code, clippy::unwrap_used)] // Each test program uses its part of it.

mod asynchronous;
mod collective;
mod controls;
pub mod files;
pub mod hints;
mod lists;
pub mod promised;
mod refusals;
pub mod told;

use sio::constants::*;
use sio::core::codes::Code;
use sio::*;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
// In the place of those of `sio`.
use told::{
    sio_async_cancel_all, sio_async_sg_read, sio_async_sg_write, sio_async_status_any, sio_attach,
    sio_close, sio_coll_define, sio_coll_free, sio_coll_join, sio_control, sio_detach, sio_hint,
    sio_hint_by_name, sio_open, sio_query_extension, sio_rename, sio_sg_read, sio_sg_write,
    sio_test, sio_unlink,
};

/// Properties of the file system under test.
#[derive(Clone, Copy)]
pub struct Over {
    /// The argument of `sio_attach`.
    pub files: &'static str,
    /// Number of servers over which a file may be striped; 0: layouts cannot be set.
    pub servers: u32,
}

pub type Case = (&'static str, fn(Over));

/// Attaches, runs all tests, and detaches.
pub fn run(over: Over) {
    refusals::nothing_works_before_a_file_system_is_attached();
    assert_eq!(attach("elsewhere:/"), Code::InvalidArgument);
    // SAFETY: the interface accepts NULL.
    assert_eq!(code(unsafe { sio_attach(std::ptr::null()) }), Code::InvalidArgument);
    attached(over, || run_attached(over));
}

fn run_attached(over: Over) {
    let all = [files::CASES, controls::CASES, lists::CASES, asynchronous::CASES];
    for (name, case) in
        all.into_iter().chain([collective::CASES, hints::CASES, refusals::CASES]).flatten()
    {
        println!("case {name}");
        case(over);
    }
}

pub fn attach(files: &str) -> Code {
    let files = CString::new(files).unwrap();
    // SAFETY: a string.
    code(unsafe { sio_attach(files.as_ptr()) })
}

/// Attaches, runs `then`, and detaches.
pub fn attached(over: Over, then: impl FnOnce()) {
    assert_eq!(attach(over.files), Code::Success, "{}", last_error());
    then();
    assert_eq!(code(sio_detach()), Code::Success, "something is left: {}", last_error());
}

pub fn code(number: i32) -> Code {
    Code::from_number(number).unwrap()
}

pub fn last_error() -> String {
    // SAFETY: it is a string until the next call.
    unsafe { CStr::from_ptr(sio_last_error()) }.to_string_lossy().into_owned()
}

pub fn done(number: i32) {
    assert_eq!(code(number), Code::Success, "{}", last_error());
}

/// A control with its data.
pub fn op<T>(op_code: u32, data: &mut T) -> sio_control_t {
    sio_control_t { flags: 0, op_code, op_data: std::ptr::from_mut(data).cast(), result: -1 }
}

pub fn mandatory(control: sio_control_t) -> sio_control_t {
    sio_control_t { flags: CONTROL_MANDATORY, ..control }
}

/// A control without data.
pub fn bare(op_code: u32) -> sio_control_t {
    sio_control_t { flags: 0, op_code, op_data: null_mut(), result: -1 }
}

pub fn results(ops: &[sio_control_t]) -> Vec<Code> {
    ops.iter().map(|op| code(op.result)).collect()
}

pub fn control(fd: i32, ops: &mut [sio_control_t]) -> Code {
    // SAFETY: the list is as long as it says, and its data was made by `op`.
    code(unsafe { sio_control(fd, ops.as_mut_ptr(), ops.len() as u32) })
}

/// Carries out one control, which must succeed and return bytes.
pub fn ask(fd: i32, op_code: u32) -> u64 {
    let mut bytes = u64::MAX;
    let mut ops = [mandatory(op(op_code, &mut bytes))];
    assert_eq!(control(fd, &mut ops), Code::Success, "{}", last_error());
    bytes
}

pub fn open(name: &str, mode: u32) -> i32 {
    files::opened(name, mode, &mut [])
        .unwrap_or_else(|code| panic!("{name}: {code:?} {}", last_error()))
}

/// A new file, open for reading and writing.
pub fn create(name: &str) -> i32 {
    open(name, MODE_READ | MODE_WRITE | MODE_CREATE)
}

pub fn close(fd: i32) {
    done(sio_close(fd));
}

pub fn unlink(name: &str) -> Code {
    let name = CString::new(name).unwrap();
    // SAFETY: a string.
    code(unsafe { sio_unlink(name.as_ptr()) })
}

/// Closes and removes a file.
pub fn drop_file(fd: i32, name: &str) {
    close(fd);
    assert_eq!(unlink(name), Code::Success, "{}", last_error());
}

pub fn in_file(offset: u64, size: u64, stride: u64, element_cnt: u32) -> sio_file_io_list_t {
    sio_file_io_list_t { offset, size, stride, element_cnt }
}

pub fn in_memory(at: *mut u8, size: u64, stride: u64, element_cnt: u32) -> sio_mem_io_list_t {
    sio_mem_io_list_t { addr: at.cast::<c_void>(), size, stride, element_cnt }
}

pub fn all_of(buffer: &mut [u8]) -> [sio_mem_io_list_t; 1] {
    [in_memory(buffer.as_mut_ptr(), buffer.len() as u64, 0, 1)]
}

/// Reads or writes with lists.
pub fn transfer(
    write: bool,
    fd: i32,
    file: &[sio_file_io_list_t],
    memory: &[sio_mem_io_list_t],
) -> (Code, u64) {
    let mut total = u64::MAX;
    let call = if write { sio_sg_write } else { sio_sg_read };
    let (n, m) = (file.len() as u32, memory.len() as u32);
    // SAFETY: the lists have the stated lengths, and the memory belongs to the test.
    let number = unsafe { call(fd, file.as_ptr(), n, memory.as_ptr(), m, &mut total) };
    (code(number), total)
}

pub fn write(fd: i32, offset: u64, data: &[u8]) {
    let mut copy = data.to_vec();
    let bytes = data.len() as u64;
    let ended = transfer(true, fd, &[in_file(offset, bytes, 0, 1)], &all_of(&mut copy));
    assert_eq!(ended, (Code::Success, bytes), "{}", last_error());
}

/// Reads up to `len` bytes.
pub fn read(fd: i32, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0xaa; len];
    let memory = all_of(&mut buffer);
    let (code, total) = transfer(false, fd, &[in_file(offset, len as u64, 0, 1)], &memory);
    assert_eq!(code, Code::Success, "{}", last_error());
    buffer.truncate(total as usize);
    buffer
}

/// Bytes without repetition.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
