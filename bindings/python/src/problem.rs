//! Python exceptions: `OSError` with errno and filename for errors of a cluster, `ValueError` for
//! invalid arguments.

use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use weir_connect::Problem;
use weir_types::Error;

/// An error about a file. By its errno, Python makes it a `FileNotFoundError` or similar.
pub(crate) fn about(path: &[u8]) -> impl Fn(Error) -> PyErr + '_ {
    move |error| raise(error.into(), Some(path))
}

/// An error that concerns no particular file.
pub(crate) fn plain(error: Error) -> PyErr {
    raise(error.into(), None)
}

/// An error of finding or reaching a cluster.
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

/// The error for an invalid argument.
pub(crate) fn value(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}
