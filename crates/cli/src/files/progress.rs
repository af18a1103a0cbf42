//! The progress bar of a copy, shown only on a terminal.

use crate::text::plain;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// The numbers of bytes and files, done and in total.
pub struct Progress {
    bar: ProgressBar,
}

const TEMPLATE: &str =
    "{bar:30} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta} {wide_msg}";

impl Progress {
    /// A bar on standard error, if that is a terminal and `quiet` is not set.
    pub fn start(quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// Counts a file that is to be copied.
    pub fn found(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Shows which file is being copied.
    pub fn at(&self, name: String) {
        if !self.bar.is_hidden() {
            self.bar.set_message(plain(&name));
        }
    }

    /// Counts copied bytes.
    pub fn done(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Prints something above the bar.
    pub fn suspend<T>(&self, say: impl FnOnce() -> T) -> T {
        self.bar.suspend(say)
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
