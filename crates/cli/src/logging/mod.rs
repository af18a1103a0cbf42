//! The output of this process on standard error: events of `tracing`, failures and panics.
//!
//! Invariant: no operation fails because a log cannot be written, and none waits for a log longer
//! than [`PATIENCE`]. Lines of a daemon go through a bounded queue to a thread of their own. Lines
//! that do not fit into the queue, or cannot be written, are dropped and counted.

mod file;
mod queue;
mod writer;

use crate::held_back::all_held_back;
use crate::journal::{self, ForJournal};
use crate::text::ByteSize;
use file::LogFile;
use queue::Queue;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use writer::{Standard, Writer};

pub use file::{hold, older};

/// The longest that a process at its end, or a panicking thread, waits for its log.
const PATIENCE: Duration = Duration::from_secs(1);

/// The queue of a daemon's lines. A command has none and writes at once.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// What a process logs.
#[derive(Clone, Copy, Debug)]
pub enum Logs<'a> {
    /// A daemon logs its work.
    Daemon {
        /// Whether another Weir process has started it, and put its log beside those of other
        /// daemons.
        detached: bool,
        /// The log file; `None`: standard error alone.
        file: Option<&'a Path>,
        /// Maximum size of the file and the one before it.
        limit: ByteSize,
    },
    /// A command logs errors besides its own message.
    Command,
    /// A simulation logs nothing, because simulated servers complain only of injected faults.
    Nothing,
}

/// Sets up logging. `WEIR_LOG` (as in `debug` or `weir_client=trace`) selects another level.
pub fn start(logs: Logs<'_>) {
    let (usual, is_daemon) = match logs {
        Logs::Daemon { detached, file, limit } => {
            let new = if detached { LogFile::among_daemons } else { LogFile::alone };
            start_queue(file.map(|path| new(path, limit)));
            ("info", true)
        }
        Logs::Command => ("error", false),
        Logs::Nothing => ("off", false),
    };
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Internal errors would be printed on standard error, with a panic if that fails.
        .log_internal_errors(false)
        .with_writer(|| Line);
    match journal::is_stderr() {
        true => log.event_format(ForJournal::new()).init(),
        false => log.with_ansi(false).with_target(is_daemon).init(),
    }
}

/// Starts the queue and its thread. If the thread cannot be started, lines are written at once, as
/// in commands.
fn start_queue(file: Option<LogFile>) {
    let queue = Arc::new(Queue::default());
    let writer = Writer::new(Standard::new(file), journal::is_stderr());
    let written = Arc::clone(&queue);
    let thread = thread::Builder::new().name("weir-log".into());
    // Signals that end the process are for other threads.
    let started = all_held_back(|| thread.spawn(move || writer.run(&written)));
    if started.is_ok() {
        let _ = QUEUE.set(queue);
        std::panic::set_hook(Box::new(|panic| {
            let thread = thread::current();
            let mut text = format!("thread '{}' {panic}", thread.name().unwrap_or("<unnamed>"));
            let trace = Backtrace::capture();
            if trace.status() == BacktraceStatus::Captured {
                text += &format!("\n{trace}");
            }
            say(&journal::failure(&text));
        }));
    }
}

/// Prints text on standard error as lines of their own.
pub fn say(text: &str) {
    put(format!("{text}\n").into_bytes());
}

/// Prints text on standard error unchanged.
pub fn put(text: Vec<u8>) {
    let Some(queue) = QUEUE.get() else {
        if io::stderr().write_all(&text).is_err() {
            queue::lose(1);
        }
        return;
    };
    queue.push(text);
    // The process may be about to end.
    if thread::panicking() {
        queue.await_written(PATIENCE);
    }
}

/// Waits at the end of the process until everything is written, but at most [`PATIENCE`].
pub fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.await_written(PATIENCE);
    }
}

/// The number of lines dropped since the process began.
pub fn lost() -> u64 {
    queue::lost()
}

/// Writes one formatted event with each call.
struct Line;

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        put(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
