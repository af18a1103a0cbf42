//! Errors as Python sees them: `OSError` with errno and filename for what a cluster says,
//! `ValueError` for what makes no sense.

use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use weir_connect::Problem;
use weir_types::Error;

/// An error about a file. Python makes a `FileNotFoundError` and the like of it by its number.
pub(crate) fn about(path: &[u8]) -> impl Fn(Error) -> PyErr + '_ {
    move |error| raise(error.into(), Some(path))
}

/// An error about no file in particular.
pub(crate) fn plain(error: Error) -> PyErr {
    raise(error.into(), None)
}

/// An error while a cluster is looked for.
pub(crate) fn not_connected(problem: Problem) -> PyErr {
    raise(problem, None)
}

fn raise(problem: Problem, path: Option<&[u8]>) -> PyErr {
    let errno = problem.kind.errno();
    let message = match &problem.hint {
        Some(hint) => Cow::from(format!("{}; {hint}", problem.message)),
        None => Cow::from(problem.message),
    };
    match path {
        Some(path) => {
            let name = OsStr::from_bytes(path).to_owned();
            PyOSError::new_err((errno, message.into_owned(), name))
        }
        None => PyOSError::new_err((errno, message.into_owned())),
    }
}

/// What the program has said makes no sense.
pub(crate) fn value(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}
