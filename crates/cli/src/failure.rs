//! The failure of a command: what happened and what to do about it.

use crate::text::plain_lines;
use crate::{journal, logging};
use std::fmt;
use std::path::Path;
use weir_connect::Problem;
use weir_types::Error;

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    /// What happened. It names the file, server or address.
    pub message: String,
    /// What to do, printed on lines of its own.
    pub hint: Option<String>,
    /// The exit code; 1 unless the command defines others.
    pub code: u8,
}

/// Calls `action` for each of several things, as cp and rm do. Prints a failure, continues with the
/// next thing, and fails at the end.
pub fn for_each<T>(things: &[T], mut action: impl FnMut(&T) -> Done) -> Done {
    let mut failures = Failures::default();
    for thing in things {
        failures.keep(action(thing));
    }
    failures.end()
}

/// Failures that did not end the command. Each is printed at once and counted.
#[derive(Debug, Default)]
pub struct Failures {
    count: usize,
}

impl Failures {
    /// Prints a failure; returns the value of a success.
    pub fn keep<T>(&mut self, result: Done<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(failure) => {
                failure.say();
                self.count += 1;
                None
            }
        }
    }

    /// Fails without a message if there was a failure.
    pub fn end(self) -> Done {
        match self.count {
            0 => Ok(()),
            _ => Err(Failure::new("")),
        }
    }
}

/// The result of a command.
pub type Done<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, code: 1 }
    }

    /// Sets the exit code.
    #[must_use]
    pub fn code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Adds what to do about the failure.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts a subject before the message: `subject: message`.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        self.message = format!("{subject}: {}", self.message);
        self
    }

    /// Prints the failure unless it was printed already.
    pub fn say(&self) {
        if self.message.is_empty() {
            return;
        }
        // File names may contain any characters.
        let text = plain_lines(&format!("weir: {self}"));
        logging::say(&journal::failure(&text));
    }

    /// An error of the operating system about a file.
    pub fn file(path: &Path, error: impl Into<std::io::Error>) -> Self {
        Problem::file(path, error).into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {}", hint.replace('\n', "\n  ")),
            None => Ok(()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Problem::from(error).into()
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { hint: problem.hint, ..Self::new(problem.message) }
    }
}
