//! How far long work is, on the standard error, if that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// So often something is shown.
const EVERY: Duration = Duration::from_millis(300);

/// A line that is written again and again.
pub struct Progress {
    is_shown: bool,
    what: String,
    last: Instant,
    is_written: bool,
}

impl Default for Progress {
    /// Nothing is shown where nobody looks.
    fn default() -> Self {
        let is_shown = io::stderr().is_terminal();
        Self { is_shown, what: String::new(), last: Instant::now(), is_written: false }
    }
}

impl Progress {
    /// Something begins.
    pub fn name(&mut self, what: String) {
        self.end();
        self.what = what;
        self.last = Instant::now();
    }

    /// So much of it is done.
    pub fn at(&mut self, done: u64, of: u64) {
        if self.is_shown && self.last.elapsed() >= EVERY {
            self.last = Instant::now();
            self.is_written = true;
            let percent = 100 * done.min(of) / of.max(1);
            // A terminal that is gone is no reason to end.
            let _ = write!(io::stderr(), "\r{}: {percent} %\x1b[K", self.what);
        }
    }

    /// Nothing of it is left on the screen.
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
