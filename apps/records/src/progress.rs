//! Progress of long work, shown on standard error if that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Interval of updates.
const EVERY: Duration = Duration::from_millis(300);

/// A line that is rewritten in place.
pub struct Progress {
    is_shown: bool,
    what: String,
    last: Instant,
    is_written: bool,
}

impl Default for Progress {
    /// Shows nothing if standard error is not a terminal.
    fn default() -> Self {
        let is_shown = io::stderr().is_terminal();
        Self { is_shown, what: String::new(), last: Instant::now(), is_written: false }
    }
}

impl Progress {
    /// Begins a piece of work.
    pub fn name(&mut self, what: String) {
        self.end();
        self.what = what;
        self.last = Instant::now();
    }

    /// Shows how much of the work is done.
    pub fn at(&mut self, done: u64, of: u64) {
        if self.is_shown && self.last.elapsed() >= EVERY {
            self.last = Instant::now();
            self.is_written = true;
            let percent = 100 * done.min(of) / of.max(1);
            // If the terminal is gone, the work goes on.
            let _ = write!(io::stderr(), "\r{}: {percent} %\x1b[K", self.what);
        }
    }

    /// Clears the line.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_written) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
