//! How far a check has come: nothing unless a person is watching.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
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

    /// So much more is done.
    pub fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// What is being done.
    pub fn say(&self, what: impl FnOnce() -> String) {
        if !self.bar.is_hidden() {
            self.bar.set_message(what());
        }
    }

    /// Takes the line away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
