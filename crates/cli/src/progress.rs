//! The progress of a long operation, shown only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Read};
use std::time::Duration;

/// A line on standard error.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar that is full at `whole`. 0: the end is unknown.
    pub fn start(quiet: bool, whole: u64) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let (bar, template) = match whole {
            0 => (ProgressBar::new_spinner(), "{spinner} {wide_msg}"),
            whole => (ProgressBar::new(whole), "{bar:30} {percent}% {eta} {wide_msg}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// Whether the line is shown, in place of output for programs.
    pub fn is_watched(&self) -> bool {
        !self.bar.is_hidden() && std::io::stdout().is_terminal()
    }

    /// Adds to what is done.
    pub fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// Sets how much is left. It may also have grown.
    pub fn left(&self, left: u64) {
        let whole = self.bar.length().unwrap_or(0).max(left);
        self.bar.set_length(whole);
        self.bar.set_position(whole - left);
    }

    /// Shows what is being done.
    pub fn say(&self, what: impl FnOnce() -> String) {
        if !self.bar.is_hidden() {
            self.bar.set_message(what());
        }
    }

    /// Prints something above the line.
    pub fn suspend<T>(&self, say: impl FnOnce() -> T) -> T {
        self.bar.suspend(say)
    }

    /// Wraps a reader so that reading advances the bar.
    pub fn of_reading<R: Read>(&self, from: R) -> impl Read + use<R> {
        self.bar.wrap_read(from)
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
