//! Worker processes that wait for a start signal, so that many begin at once, and end on another
//! signal.
//!
//! ```text
//! worker   starter
//! ready →            it is where it is to begin
//!        ← go
//! words →            what it has to say, until it ends
//!        ← (end)     for those that go on until they are told
//! ```

use std::io::{BufRead, BufReader, Error, Read, Result, Write, stdin, stdout};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const READY: &str = "ready";
const GO: &str = "go";

/// A started worker. Dropping it kills it.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or ends at once. Its own messages go to standard error.
    pub fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let none = || Error::other("no pipe");
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or_else(none)?);
        let mut worker = Self { child, input, output: BufReader::new(output) };
        let mut line = String::new();
        worker.output.read_line(&mut line)?;
        if line.trim() != READY {
            return Err(Error::other(format!("{command:?} is not ready")));
        }
        Ok(worker)
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends the start signal.
    ///
    /// # Errors
    /// The worker has ended.
    pub fn go(&mut self) -> Result<()> {
        let gone = || Error::other("no worker");
        self.input.as_mut().ok_or_else(gone)?.write_all(format!("{GO}\n").as_bytes())
    }

    /// Sends the end signal, waits for the end, and returns the worker's output.
    ///
    /// # Errors
    /// The worker has failed.
    pub fn end(mut self) -> Result<String> {
        self.input = None;
        let mut words = String::new();
        self.output.read_to_string(&mut words)?;
        let status = self.child.wait()?;
        if status.success() { Ok(words) } else { Err(Error::other(format!("worker: {status}"))) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the worker: reports that it is ready.
///
/// # Errors
/// The starter is gone.
pub fn say_ready() -> Result<()> {
    println!("{READY}");
    stdout().flush()
}

/// In the worker: reports that it is ready, and waits for the start signal.
///
/// # Errors
/// The starter is gone.
pub fn wait_for_go() -> Result<()> {
    say_ready()?;
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    if line.trim() == GO { Ok(()) } else { Err(Error::other("nobody said go")) }
}

/// In the worker: waits for the end signal, or until the starter is gone.
pub fn wait_for_end() {
    // An error counts as the end.
    let _ = stdin().read_to_end(&mut Vec::new());
}
