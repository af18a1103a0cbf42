//! Errors of the mechanisms, as failures of a command.

use crate::failure::Failure;

/// Converts an error of a mechanism. Its text names the subject.
pub fn failed(error: std::io::Error) -> Failure {
    Failure::new(error.to_string())
}
