//! One daemon's log, read line by line while it grows.

use crate::failure::{Done, Failure};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

/// A longer line is shown as several.
const MAX_LINE_BYTES: u64 = 64 << 10;
const LEVELS: [&str; 5] = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// When, UTC. A line without a time (of a panic) has that of the one before.
    pub time: String,
    /// Whose.
    pub daemon: String,
    /// How grave; nothing for a line without a time.
    pub level: Option<String>,
    /// What.
    pub message: String,
}

/// The log of a daemon.
pub struct LogFile {
    daemon: String,
    path: PathBuf,
    file: BufReader<File>,
    /// What has been read of a line whose end is not written yet.
    begun: Vec<u8>,
    time: String,
    /// The line that is next.
    next: Option<Line>,
}

impl LogFile {
    /// Opens it at its beginning.
    pub fn open(daemon: &str, path: &Path) -> Done<Self> {
        let file = File::open(path).map_err(|e| Failure::file(path, e))?;
        Ok(Self {
            daemon: daemon.to_owned(),
            path: path.to_owned(),
            file: BufReader::new(file),
            begun: Vec::new(),
            time: String::new(),
            next: None,
        })
    }

    /// Whose it is.
    pub fn daemon(&self) -> &str {
        &self.daemon
    }

    /// The line that [`LogFile::take`] is going to return; nothing if there is none yet.
    pub fn peek(&mut self) -> Done<Option<&Line>> {
        if self.next.is_none() {
            self.next = self.read().map_err(|e| Failure::file(&self.path, e))?;
        }
        Ok(self.next.as_ref())
    }

    /// The line that was peeked at.
    pub fn take(&mut self) -> Option<Line> {
        self.next.take()
    }

    fn read(&mut self) -> io::Result<Option<Line>> {
        let is_at_end = self.read_begun()? == 0;
        // Somebody has emptied it, as logrotate does: begin anew.
        if is_at_end && self.file.get_ref().metadata()?.len() < self.file.stream_position()? {
            self.file.rewind()?;
            self.begun.clear();
            self.read_begun()?;
        }
        if !self.begun.ends_with(b"\n") && (self.begun.len() as u64) < MAX_LINE_BYTES {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned();
        Ok(Some(self.parse(line.trim_end())))
    }

    /// Reads what there is of the line that was begun; the number of bytes.
    fn read_begun(&mut self) -> io::Result<usize> {
        let most = MAX_LINE_BYTES.saturating_sub(self.begun.len() as u64);
        (&mut self.file).take(most).read_until(b'\n', &mut self.begun)
    }

    /// `2026-11-26T14:30:00.123456Z  INFO weir::serve: data server 1 serves on ...`
    fn parse(&mut self, line: &str) -> Line {
        let dated = line.split_once('Z').and_then(|(time, rest)| {
            let (level, message) = rest.trim_start().split_once(' ')?;
            (LEVELS.contains(&level) && time.contains('T')).then_some((time, level, message))
        });
        let (level, message) = match dated {
            Some((time, level, message)) => {
                self.time = format!("{time}Z");
                (Some(level.to_owned()), message)
            }
            None => (None, line),
        };
        Line {
            time: self.time.clone(),
            daemon: self.daemon.clone(),
            level,
            message: message.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn rest(log: &mut LogFile) -> Vec<String> {
        std::iter::from_fn(|| {
            log.peek().unwrap()?;
            log.take().map(|line| format!("{} {:?} {}", line.time, line.level, line.message))
        })
        .collect()
    }

    #[test]
    fn a_log_is_read_while_it_grows_and_after_it_was_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.log");
        let mut file = File::options().create(true).append(true).open(&path).unwrap();
        let mut log = LogFile::open("meta", &path).unwrap();
        assert!(rest(&mut log).is_empty());
        write!(file, "1970-01-01T00:00:00.5Z  WARN a: Zero\nthread panicked\n1970-01-0").unwrap();
        assert_eq!(
            rest(&mut log),
            [
                "1970-01-01T00:00:00.5Z Some(\"WARN\") a: Zero",
                "1970-01-01T00:00:00.5Z None thread panicked"
            ]
        );
        writeln!(file, "2T00:00:00Z ERROR b").unwrap();
        assert_eq!(rest(&mut log), ["1970-01-02T00:00:00Z Some(\"ERROR\") b"]);
        file.set_len(0).unwrap();
        writeln!(file, "1970-01-03T00:00:00Z  INFO c").unwrap();
        assert_eq!(rest(&mut log), ["1970-01-03T00:00:00Z Some(\"INFO\") c"]);
        writeln!(file, "{}", "x".repeat(100_000)).unwrap();
        assert_eq!(rest(&mut log).len(), 2, "no line is longer than what is kept");
    }
}
