//! Processes of this program that work together. Each is a child, controlled through its standard
//! input and output. A child on another machine is started by a command such as `ssh node2`.

use std::io::{self, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A child that stops answering must end within this time; otherwise the reason stays unknown.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A child.
pub struct Member {
    /// Its name in messages.
    pub name: String,
    /// The child's standard input.
    pub input: Option<ChildStdin>,
    /// The child's standard output.
    pub output: BufReader<ChildStdout>,
    child: Child,
}

impl Member {
    /// Starts a child with these arguments. `via` is a command that starts it on another machine,
    /// with words separated by spaces; empty for a child on this machine. On another machine the
    /// program is found by its name.
    ///
    /// # Errors
    /// The command that could not be started.
    pub fn start(name: String, via: &str, arguments: &[&str]) -> Result<Self, String> {
        let mut words = via.split_whitespace();
        let mut command = match words.next() {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(own_name());
                command
            }
            None => Command::new(std::env::current_exe().map_err(|e| e.to_string())?),
        };
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let started = command.spawn();
        let mut child = started.map_err(|e| format!("{name} cannot be started ({via}): {e}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| format!("{name} has no output"))?;
        Ok(Self { name, input, output: BufReader::new(output), child })
    }

    /// Closes the child's input and waits for its end.
    ///
    /// # Errors
    /// How it has ended, if it failed.
    pub fn end(mut self) -> Result<(), String> {
        drop(self.input.take());
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{} has ended with {status}", self.name)),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }

    /// Describes an error of reading from or writing to the child. Mostly the child has ended.
    pub fn lost(&mut self, error: &io::Error) -> String {
        drop(self.input.take());
        // The child's output ends shortly before its process.
        let begin = Instant::now();
        while begin.elapsed() < ENDS_WITHIN {
            if let Ok(Some(status)) = self.child.try_wait() {
                return format!("{} has ended with {status}", self.name);
            }
            sleep(LOOK_EVERY);
        }
        format!("{}: {error}", self.name)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Has no effect on a child that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn own_name() -> std::ffi::OsString {
    let file = std::env::current_exe().ok();
    file.and_then(|file| file.file_name().map(ToOwned::to_owned)).unwrap_or_default()
}
