//! How a program of the applications ends.

use std::io::{self, Write};
use std::process::ExitCode;

/// Prints what came of it to standard output, or what went wrong, after the program's name, to
/// standard error.
pub fn end(program: &str, done: Result<String, String>) -> ExitCode {
    let done = done.and_then(|text| match io::stdout().write_all(text.as_bytes()) {
        // Who reads has heard enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| format!("standard output: {error}")),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(io::stderr(), "{program}: {message}");
            ExitCode::FAILURE
        }
    }
}
