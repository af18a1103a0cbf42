//! What this process says on standard error: events of `tracing`, failures, panics.
//!
//! Invariant: nobody fails because a log cannot be written, and nobody waits for one for longer
//! than [`PATIENCE`]. What a daemon says goes through a queue of a bounded size to a thread of its
//! own; what finds no room there, or cannot be written, is dropped and counted.

mod file;
mod queue;
mod writer;

use crate::args::{Command, Detach, Testbed};
use crate::journal::{self, ForJournal};
use crate::signals::all_held_back;
use file::LogFile;
use queue::Queue;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use writer::{Standard, Writer};

pub use file::{hold, older};

/// The longest that a process which ends, or a thread which panics, waits for its log.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a daemon says waits here. A command has none: it writes at once.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// Daemons log what they do, commands only what goes wrong beside their own
/// message; `WEIR_LOG` (as in `debug` or `weir_client=trace`) says otherwise.
pub fn start(command: &Command) {
    let detach = match command {
        Command::Data(daemon) => Some(&daemon.detach),
        Command::Testbed(Testbed::Disk(disk)) => Some(&disk.detach),
        Command::Meta(meta) if meta.command.is_none() => Some(&meta.detach),
        Command::Mount(mount) if mount.foreground => Some(&mount.detach),
        _ => None,
    };
    if let Some(detach) = detach {
        start_queue(detach);
    }
    let usual = match (command, detach) {
        // What simulated servers complain of is what is done to them.
        (Command::Sim(_), _) => "off",
        (_, Some(_)) => "info",
        (_, None) => "error",
    };
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would say so on standard error, and panic if it cannot.
        .log_internal_errors(false)
        .with_writer(|| Line);
    match journal::is_stderr() {
        true => log.event_format(ForJournal::new()).init(),
        false => log.with_ansi(false).with_target(detach.is_some()).init(),
    }
}

/// Without a thread for it everything is written at once, as commands do.
fn start_queue(detach: &Detach) {
    // Only a program of ours puts logs where all are Weir's.
    let new = if detach.detached { LogFile::among_daemons } else { LogFile::alone };
    let file = detach.log.as_ref().map(|path| new(path, detach.log_limit));
    let queue = Arc::new(Queue::default());
    let writer = Writer::new(Standard::new(file), journal::is_stderr());
    let written = Arc::clone(&queue);
    let thread = thread::Builder::new().name("weir-log".into());
    // What ends the process is for other threads.
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

/// Says something to whoever reads standard error, in lines of its own.
pub fn say(text: &str) {
    put(format!("{text}\n").into_bytes());
}

/// Says something on standard error just as it is.
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

/// Waits until everything is written, but not for ever: to be called when the process ends.
pub fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.await_written(PATIENCE);
    }
}

/// Lines that were dropped since the process began.
pub fn lost() -> u64 {
    queue::lost()
}

/// Takes one event, formatted, with each call.
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
