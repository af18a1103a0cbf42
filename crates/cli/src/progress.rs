//! How far something long has come: nothing unless a person is watching.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Read};
use std::time::Duration;

/// A line on standard error.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar that is full at `whole`; 0: nobody knows when.
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

    /// Whether somebody sees it instead of what a command prints for programs.
    pub fn is_watched(&self) -> bool {
        !self.bar.is_hidden() && std::io::stdout().is_terminal()
    }

    /// So much more is done.
    pub fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// So much is left, which may also have become more.
    pub fn left(&self, left: u64) {
        let whole = self.bar.length().unwrap_or(0).max(left);
        self.bar.set_length(whole);
        self.bar.set_position(whole - left);
    }

    /// What is being done.
    pub fn say(&self, what: impl FnOnce() -> String) {
        if !self.bar.is_hidden() {
            self.bar.set_message(what());
        }
    }

    /// Says something above the line.
    pub fn suspend<T>(&self, say: impl FnOnce() -> T) -> T {
        self.bar.suspend(say)
    }

    /// What is read moves the bar on.
    pub fn of_reading<R: Read>(&self, from: R) -> impl Read + use<R> {
        self.bar.wrap_read(from)
    }

    /// Takes the line away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
