//! The progress bar of a copy: nothing unless a person is watching.

use crate::output::plain;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Bytes and files done and to do.
pub struct Progress {
    bar: ProgressBar,
}

const TEMPLATE: &str =
    "{bar:30} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta} {wide_msg}";

impl Progress {
    /// A bar on standard error, if that is a terminal and `quiet` is not asked for.
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

    /// A file was found that is to be copied.
    pub fn found(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// A file is being copied.
    pub fn at(&self, name: String) {
        if !self.bar.is_hidden() {
            self.bar.set_message(plain(&name));
        }
    }

    /// Bytes were copied.
    pub fn done(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Says something above the bar.
    pub fn suspend<T>(&self, say: impl FnOnce() -> T) -> T {
        self.bar.suspend(say)
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
