//! The end of an application: its output and exit code.

use std::io::{self, Write};
use std::process::ExitCode;

/// Prints the result to standard output, or the error, after the program's name, to standard error.
pub fn end(program: &str, done: Result<String, String>) -> ExitCode {
    let done = done.and_then(|text| match io::stdout().write_all(text.as_bytes()) {
        // The reader of the output has stopped reading.
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
