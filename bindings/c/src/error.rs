//! Errors of the C interface: a negative number, and a text for this thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_types::{Error, ErrorKind, Result};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call of the C interface: errors and panics become negative numbers.
pub(crate) fn guard(run: impl FnOnce() -> Result<i64>) -> i64 {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => told(&error),
        Err(_) => told(&Error::new(ErrorKind::Internal, "libweir: a call panicked; report this")),
    }
}

/// As [`guard`], for calls that return 0 or an error.
pub(crate) fn status(run: impl FnOnce() -> Result<()>) -> c_int {
    guard(|| run().map(|()| 0)) as c_int
}

fn told(error: &Error) -> i64 {
    let text = error.to_string().replace('\0', "?");
    // The text has no zero bytes.
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending has no text.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    -i64::from(error.kind.errno())
}

/// The text of the last error of this thread: what happened, to which file, server or target, and
/// what to do. Valid until the next error of this thread. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn weir_errmsg() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

pub(crate) fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guard(|| Ok(7)), 7);
        assert_eq!(guard(|| Err(ErrorKind::NotFound.into())), -2);
        assert_eq!(status(|| panic!("as planned")), -5);
        // SAFETY: the text belongs to this thread, and no call has failed since.
        let text = unsafe { CStr::from_ptr(weir_errmsg()) };
        assert!(text.to_str().unwrap().contains("panicked"));
    }
}
