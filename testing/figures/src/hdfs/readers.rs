//! The processes that search through Hadoop's interface: a JVM on each node, which is warm when it is measured.

use crate::hdfs::hadoop::{Files, Hadoop};
use crate::hdfs::process;
use crate::stop;
use std::io::{BufRead, BufReader, Error, Result, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(200);

/// One on each node. Dropped, they end.
pub struct Readers {
    children: Vec<Child>,
    inputs: Vec<ChildStdin>,
    /// The lines that they say; an error at the end of one.
    said: Receiver<Result<String>>,
}

impl Readers {
    pub fn start(
        hadoop: &Hadoop,
        nodes: u32,
        (text, tasks): (&str, u32),
        of: Files,
    ) -> Result<Self> {
        let (tell, said) = channel();
        let mut all = Self { children: Vec::new(), inputs: Vec::new(), said };
        for node in 1..=nodes {
            let mut grep = hadoop.grep(node, text, tasks, of);
            grep.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(hadoop.log_of(node, of)?);
            all.children.push(grep.spawn()?);
            let none = || Error::other("no pipe");
            let child = all.children.last_mut().ok_or_else(none)?;
            let (input, output) = (child.stdin.take(), child.stdout.take().ok_or_else(none)?);
            all.inputs.push(input.ok_or_else(none)?);
            let tell = tell.clone();
            // It ends with the process.
            thread::spawn(move || {
                let end = || Err(Error::other(format!("the process on node {node} ended")));
                let lines = BufReader::new(output).lines().chain([end()]);
                lines.for_each(|line| _ = tell.send(line));
            });
        }
        Ok(all)
    }

    /// Has all of them search a file, and returns what each has to say of it.
    pub fn search(&mut self, file: &str, claims: &Path, within: Duration) -> Result<Vec<String>> {
        for input in &mut self.inputs {
            writeln!(input, "/{file} {}", claims.display())?;
            input.flush()?;
        }
        let (begin, mut all) = (Instant::now(), Vec::new());
        while all.len() < self.children.len() {
            stop::check()?;
            match self.said.recv_timeout(LOOK) {
                Ok(line) => all.push(line?),
                Err(RecvTimeoutError::Timeout) if begin.elapsed() < within => {}
                Err(_) => return Err(Error::other(format!("not done within {within:?}"))),
            }
        }
        Ok(all)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        process::kill(&mut self.children);
    }
}
