//! The benchmark's side of a worker: starts it, sends orders, ends it.

use crate::accounting::{Accounting, Group};
use crate::failure::{Done, Failure};
use crate::order::{Answer, Order, Work};
use crate::stop;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Maximum duration of an order.
const ORDER_TIMEOUT: Duration = Duration::from_secs(120);
/// A worker without work must end within this time, or is killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A running worker. Dropping it ends it.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl WorkerProcess {
    /// Starts a worker in a group.
    pub fn start(accounting: &mut Accounting, group: Group) -> Done<Self> {
        let this =
            std::env::current_exe().map_err(|e| Failure::system("finding this program", e))?;
        let mut command = accounting.command(group, &this)?;
        command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| Failure::system("starting a worker", e))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| Failure::other("no pipe to a worker"))?;
        let (sender, answers) = sync_channel(4);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        accounting.adopt(group, child.id())?;
        Ok(Self { child, input, answers })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it prepare an order; returns the port where it listens, if any.
    pub fn prepare(&mut self, order: &Order) -> Done<Option<u16>> {
        let line = serde_json::to_string(order).map_err(|e| Failure::other(e.to_string()))?;
        self.say(&line)?;
        match self.answer()? {
            Answer::Ready { port } => Ok(port),
            Answer::Failed(why) => Err(Failure::Other(why)),
            Answer::Finished(_) => Err(Failure::other("a worker is out of step")),
        }
    }

    /// Lets it begin the prepared order.
    pub fn go(&mut self) -> Done {
        self.say("go")
    }

    /// Waits until the order is done.
    pub fn finish(&mut self) -> Done<Work> {
        match self.answer()? {
            Answer::Finished(work) => Ok(work),
            Answer::Failed(why) => Err(Failure::Other(why)),
            Answer::Ready { .. } => Err(Failure::other("a worker is out of step")),
        }
    }

    fn say(&mut self, line: &str) -> Done {
        let input = self.input.as_mut().ok_or_else(|| Failure::other("no pipe to a worker"))?;
        writeln!(input, "{line}").map_err(|e| Failure::system("a worker has ended", e))
    }

    fn answer(&mut self) -> Done<Answer> {
        let begin = Instant::now();
        loop {
            stop::check()?;
            match self.answers.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => {
                    return serde_json::from_str(&line).map_err(|e| Failure::other(e.to_string()));
                }
                Err(RecvTimeoutError::Timeout) if begin.elapsed() < ORDER_TIMEOUT => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Failure::other("a worker does not finish"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::other("a worker has ended"));
                }
            }
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // A worker ends at the end of its input, unless it is stuck in a call.
        drop(self.input.take());
        end(&mut self.child, END_TIMEOUT);
    }
}

/// Waits for the end of a child; kills it if that takes too long.
pub fn end(child: &mut Child, patience: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < patience {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // It may just have ended by itself; then nothing is lost.
    let _ = child.kill();
    let _ = child.wait();
}
