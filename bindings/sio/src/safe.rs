//! The interface for programs in Rust: the same calls without pointers.

use crate::c::constants::{
    CACHING_NONE, CONTROL_MANDATORY, CTL_GET_SIZE, CTL_SET_CACHING_MODE, CTL_SYNC,
    HINT_CLASS_UNORDERED, MODE_CREATE, MODE_READ, MODE_WRITE,
};
use crate::c::{
    sio_attach, sio_close, sio_control, sio_control_t, sio_detach, sio_file_io_list_t, sio_hint,
    sio_hint_t, sio_last_error, sio_mem_io_list_t, sio_open, sio_return_t, sio_sg_read,
    sio_sg_write, sio_unlink,
};
use crate::core::codes::Code;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::ptr::null_mut;

/// Why a call has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The code that C programs see.
    pub code: Code,
    /// The text of `sio_last_error`.
    pub text: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

fn check(number: sio_return_t) -> Result<()> {
    match Code::from_number(number).unwrap_or(Code::IoFailed) {
        Code::Success => Ok(()),
        code => {
            // SAFETY: a string of this thread, valid until its next call.
            let text = unsafe { CStr::from_ptr(sio_last_error()) };
            Err(Error { code, text: text.to_string_lossy().into_owned() })
        }
    }
}

fn text(of: &str, code: Code) -> Result<CString> {
    CString::new(of).map_err(|_| Error { code, text: format!("{of:?} has a NUL") })
}

/// Attaches a file system: `plain:DIRECTORY` or `weir:CLUSTER`.
///
/// # Errors
/// Those of `sio_attach`.
pub fn attach(files: &str) -> Result<()> {
    let files = text(files, Code::InvalidArgument)?;
    // SAFETY: a string.
    check(unsafe { sio_attach(files.as_ptr()) })
}

/// Detaches the file system.
///
/// # Errors
/// Those of `sio_detach`.
pub fn detach() -> Result<()> {
    check(sio_detach())
}

/// Removes a file that this process does not have open.
///
/// # Errors
/// Those of `sio_unlink`.
pub fn unlink(name: &str) -> Result<()> {
    let name = text(name, Code::InvalidFilename)?;
    // SAFETY: a string.
    check(unsafe { sio_unlink(name.as_ptr()) })
}

/// A range of a file: offset and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
}

impl Range {
    fn entry(&self) -> sio_file_io_list_t {
        sio_file_io_list_t { offset: self.offset, size: self.len, stride: 0, element_cnt: 1 }
    }
}

/// An open file. Threads may share it.
#[derive(Debug)]
pub struct File {
    descriptor: i32,
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// Those of `sio_open`.
    pub fn open(name: &str) -> Result<Self> {
        Self::with(name, MODE_READ, &mut [])
    }

    /// Opens a file for reading without a cache: every call goes to the servers.
    ///
    /// # Errors
    /// Those of `sio_open`.
    pub fn open_uncached(name: &str) -> Result<Self> {
        let mut mode = CACHING_NONE;
        let mode = std::ptr::from_mut(&mut mode).cast();
        Self::with(name, MODE_READ, &mut [mandatory(CTL_SET_CACHING_MODE, mode)])
    }

    /// Creates a file, which must not exist, and opens it for reading and writing.
    ///
    /// # Errors
    /// Those of `sio_open`.
    pub fn create(name: &str) -> Result<Self> {
        Self::with(name, MODE_READ | MODE_WRITE | MODE_CREATE, &mut [])
    }

    /// Opens a file with controls, whose data must have the types that their codes require.
    fn with(name: &str, mode: u32, controls: &mut [sio_control_t]) -> Result<Self> {
        let (name, mut descriptor) = (text(name, Code::InvalidFilename)?, -1);
        let (list, len) = (controls.as_mut_ptr(), entries(controls.len()));
        // SAFETY: a place for the descriptor, a string, and a list of that many controls.
        check(unsafe { sio_open(&mut descriptor, name.as_ptr(), mode, list, len) })?;
        Ok(Self { descriptor })
    }

    /// The present size.
    ///
    /// # Errors
    /// Those of `sio_control`.
    pub fn size(&self) -> Result<u64> {
        let mut size = 0u64;
        self.control(CTL_GET_SIZE, Some(&mut size))?;
        Ok(size)
    }

    /// Makes all writes durable.
    ///
    /// # Errors
    /// Those of `sio_control`.
    pub fn sync(&self) -> Result<()> {
        self.control(CTL_SYNC, None)
    }

    fn control(&self, op_code: u32, data: Option<&mut u64>) -> Result<()> {
        let data = data.map_or(null_mut(), |data| std::ptr::from_mut(data).cast());
        let mut control = mandatory(op_code, data);
        // SAFETY: one control, whose data is a number of this function or none, as its code
        // requires.
        check(unsafe { sio_control(self.descriptor, &mut control, 1) })
    }

    /// Reads at an offset. Returns the number of bytes before the end of the file.
    ///
    /// # Errors
    /// Those of `sio_sg_read`.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let len = buffer.len() as u64;
        self.read_list(&[Range { offset, len }], buffer)
    }

    /// Reads ranges, one after another, into a buffer of their total length. Returns the number of
    /// bytes before the first one beyond the end of the file.
    ///
    /// # Errors
    /// Those of `sio_sg_read`.
    pub fn read_list(&self, ranges: &[Range], buffer: &mut [u8]) -> Result<usize> {
        let file: Vec<sio_file_io_list_t> = ranges.iter().map(Range::entry).collect();
        let memory = memory(buffer.as_mut_ptr(), buffer.len());
        let mut total = 0;
        let len = entries(file.len());
        // SAFETY: the lists have that many entries, and the memory is that of the buffer, which
        // nobody else uses meanwhile.
        check(unsafe { sio_sg_read(self.descriptor, file.as_ptr(), len, &memory, 1, &mut total) })?;
        Ok(total as usize)
    }

    /// Writes at an offset.
    ///
    /// # Errors
    /// Those of `sio_sg_write`.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let file = Range { offset, len: data.len() as u64 }.entry();
        let memory = memory(data.as_ptr().cast_mut(), data.len());
        let mut total = 0;
        // SAFETY: lists of one entry, and memory that a write only reads.
        check(unsafe { sio_sg_write(self.descriptor, &file, 1, &memory, 1, &mut total) })
    }

    /// Gives a hint on ranges, or on the whole file if there are none. `flags` are those of
    /// `sio_fs.h`.
    ///
    /// # Errors
    /// Those of `sio_hint`.
    pub fn hint(&self, flags: u32, ranges: &[Range]) -> Result<()> {
        let mut list: Vec<sio_file_io_list_t> = ranges.iter().map(Range::entry).collect();
        let hint = sio_hint_t {
            flags,
            io_list: if list.is_empty() { null_mut() } else { list.as_mut_ptr() },
            list_len: entries(list.len()),
            arg: null_mut(),
            arg_len: 0,
        };
        // SAFETY: one hint, whose list has the stated length.
        check(unsafe { sio_hint(self.descriptor, HINT_CLASS_UNORDERED, &hint, 1) })
    }

    /// Closes the file, and reports whether an earlier write has failed. A file that is dropped is
    /// closed without a report.
    ///
    /// # Errors
    /// Those of `sio_close`.
    pub fn close(mut self) -> Result<()> {
        let descriptor = std::mem::replace(&mut self.descriptor, -1);
        check(sio_close(descriptor))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.descriptor >= 0 {
            // An error has no receiver here.
            let _ = sio_close(self.descriptor);
        }
    }
}

fn mandatory(op_code: u32, op_data: *mut c_void) -> sio_control_t {
    sio_control_t { flags: CONTROL_MANDATORY, op_code, op_data, result: 0 }
}

fn memory(addr: *mut u8, len: usize) -> sio_mem_io_list_t {
    sio_mem_io_list_t { addr: addr.cast(), size: len as u64, stride: 0, element_cnt: 1 }
}

/// A list that is too long for the type is also too long for the library.
fn entries(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
