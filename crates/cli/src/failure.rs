//! What a command says when it fails: what happened, and what to do about it.

use crate::output::plain_lines;
use crate::{journal, logging};
use std::fmt;
use std::path::Path;
use weir_connect::Problem;
use weir_types::Error;

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    /// What happened, naming the file, server or address.
    pub message: String,
    /// What to do; shown on lines of its own.
    pub hint: Option<String>,
    /// The exit code: 1, where a command has no others.
    pub code: u8,
}

/// Does something for each of several things, as cp and rm do: says what fails,
/// goes on with the next, and fails in the end.
pub fn for_each<T>(things: &[T], mut action: impl FnMut(&T) -> Done) -> Done {
    let mut failures = Failures::default();
    for thing in things {
        failures.keep(action(thing));
    }
    failures.end()
}

/// Failures that did not end the command: said at once, counted.
#[derive(Debug, Default)]
pub struct Failures {
    count: usize,
}

impl Failures {
    /// Says a failure and goes on; hands on a success.
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

    /// Fails, silently, if anything did.
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

    /// Ends the command with this code.
    #[must_use]
    pub fn code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts a subject in front: `subject: message`.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        self.message = format!("{subject}: {}", self.message);
        self
    }

    /// Tells the user, unless that was done.
    pub fn say(&self) {
        if self.message.is_empty() {
            return;
        }
        // Names of files are anything.
        let text = plain_lines(&format!("weir: {self}"));
        logging::say(&journal::failure(&text));
    }

    /// An error of the operating system, with the file it is about.
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
