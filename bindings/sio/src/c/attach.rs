//! The file system attached in this process, and the entry of each call.

use super::constants::{EXT_COLLECTIVE, EXT_FAST_COPY};
use super::types::{name, sio_return_t};
use crate::backend::Backend;
use crate::core::codes::{Code, Failure, Result};
use crate::library::Library;
use crate::plain::Plain;
use crate::weir::Weir;
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The environment variable that names the file system to attach at the first use.
const VARIABLE: &str = "SIO_FILES";

static ATTACHED: RwLock<Option<Arc<Library>>> = RwLock::new(None);
/// The process that has attached the file system; 0: none.
static OWNER: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Refuses calls in a child of `fork`. The child lacks its parent's threads, and may have locks
/// that are never unlocked, so this comes before any lock.
fn check_process() -> Result<()> {
    match OWNER.load(Ordering::Acquire) {
        owner if owner == 0 || owner == std::process::id() => Ok(()),
        owner => {
            let what = format!("process {owner} has attached it before it forked this one");
            Err(Failure::new(Code::NotAttached, what))
        }
    }
}

/// The text after the colon is the location.
fn backend_of(files: &[u8]) -> Result<Box<dyn Backend>> {
    let at = files.iter().position(|byte| *byte == b':').unwrap_or(files.len());
    let place = OsStr::from_bytes(files.get(at + 1..).unwrap_or_default());
    match &files[..at] {
        b"weir" if at < files.len() => Ok(Box::new(Weir::new(place)?)),
        b"plain" if !place.is_empty() => Ok(Box::new(Plain::new(Path::new(place))?)),
        _ => {
            let shown = String::from_utf8_lossy(files);
            let what = format!("{shown:?} is neither plain:DIRECTORY nor weir:CLUSTER");
            Err(Failure::new(Code::InvalidArgument, what))
        }
    }
}

/// Refuses to detach while a call, a file or a handle is in use. The write lock keeps calls from
/// beginning.
fn check_unused(library: &Arc<Library>) -> Result<()> {
    if Arc::strong_count(library) > 1 {
        return Err(Failure::new(Code::FileOpen, "another thread is in a call"));
    }
    library.check_unused()
}

/// Attaches a file system in place of the present one.
fn attach(files: &[u8]) -> Result<()> {
    let library = Arc::new(Library::new(backend_of(files)?));
    let mut attached = ATTACHED.write().unwrap_or_else(PoisonError::into_inner);
    attached.as_ref().map_or(Ok(()), check_unused)?;
    OWNER.store(std::process::id(), Ordering::Release);
    *attached = Some(library);
    Ok(())
}

/// The attached file system.
pub(super) fn library() -> Result<Arc<Library>> {
    check_process()?;
    let attached = ATTACHED.read().unwrap_or_else(PoisonError::into_inner).clone();
    match attached {
        Some(library) => Ok(library),
        None => from_environment(),
    }
}

/// Attaches the file system of the environment variable, unless another thread has done so.
fn from_environment() -> Result<Arc<Library>> {
    let Some(files) = std::env::var_os(VARIABLE) else { return Err(Code::NotAttached.into()) };
    let library = Arc::new(Library::new(backend_of(files.as_bytes())?));
    let mut attached = ATTACHED.write().unwrap_or_else(PoisonError::into_inner);
    OWNER.store(std::process::id(), Ordering::Release);
    Ok(attached.get_or_insert(library).clone())
}

/// Runs a call. A failure or panic is stored for [`sio_last_error`].
pub(super) fn enter(call: impl FnOnce() -> Result<()>) -> sio_return_t {
    let panicked = |_| Err(Failure::new(Code::IoFailed, "internal error: a panic"));
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked);
    match result {
        Ok(()) => Code::Success as i32,
        Err(failure) => {
            remember(&failure);
            failure.code as i32
        }
    }
}

/// Stores the text for [`sio_last_error`].
pub(super) fn remember(failure: &Failure) {
    let text: Vec<u8> = failure.to_string().bytes().filter(|byte| *byte != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending has no text.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
}

/// See the header.
///
/// # Safety
/// `files` is NULL or points to a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_attach(files: *const c_char) -> sio_return_t {
    enter(|| {
        check_process()?;
        // SAFETY: by the contract of this function.
        let files = unsafe { name(files) };
        let files = files.map_err(|f| Failure::new(Code::InvalidArgument, f.reason))?;
        attach(files)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn sio_detach() -> sio_return_t {
    enter(|| {
        check_process()?;
        let mut attached = ATTACHED.write().unwrap_or_else(PoisonError::into_inner);
        match &*attached {
            None => return Err(Code::NotAttached.into()),
            Some(library) => check_unused(library)?,
        }
        let library = attached.take();
        OWNER.store(0, Ordering::Release);
        drop(attached);
        drop(library);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn sio_last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn sio_error_string(code: sio_return_t) -> *const c_char {
    const UNKNOWN: &CStr = c"no such code";
    Code::from_number(code).map_or(UNKNOWN, Code::text).as_ptr()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn sio_query_extension(id: u32) -> sio_return_t {
    enter(|| match id {
        EXT_FAST_COPY | EXT_COLLECTIVE => Ok(()),
        _ => Err(Failure::new(Code::InvalidExtension, format!("extension {id}"))),
    })
}
