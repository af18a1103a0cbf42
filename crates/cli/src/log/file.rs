//! Reads the log of one daemon line by line while it grows.

use crate::failure::{Done, Failure};
use crate::logging;
use crate::text::utc_time;
use serde::Serialize;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_types::Timestamp;

/// The longest line, in bytes. A longer one is split.
const MAX_LINE_BYTES: u64 = 64 << 10;
const LEVELS: [&str; 5] = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The time in UTC. A line without a time (as of a panic) has that of the line before. The
    /// first lines have that of the next one with a time.
    pub time: String,
    /// The name of the daemon.
    pub daemon: String,
    /// The level; `None` for a line without a time.
    pub level: Option<String>,
    /// The text.
    pub message: String,
}

/// Whether both are the same file, under whatever names.
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// The log of a daemon.
pub struct LogFile {
    daemon: String,
    path: PathBuf,
    file: BufReader<File>,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
    /// Whether the file may grow. Then a line without an end is not shown yet.
    follows: bool,
    /// Whether another file has this file's name, so that this one gets no more lines.
    is_over: bool,
    /// Whether another file had the name when this one was opened.
    is_older: bool,
    time: String,
    /// The next line to return.
    next: Option<Line>,
}

impl LogFile {
    /// Opens the log at its beginning. An older log is read first, if there is one.
    pub fn open(daemon: &str, path: &Path, follows: bool) -> Done<Self> {
        Self::open_after(None, daemon, path, follows)
    }

    /// Opens the file that follows another one.
    fn open_after(
        shown: Option<&Metadata>,
        daemon: &str,
        path: &Path,
        follows: bool,
    ) -> Done<Self> {
        let older = logging::older(path);
        let is_next = |there: Metadata| {
            shown.is_none_or(|shown| {
                let is_newer =
                    (there.mtime(), there.mtime_nsec()) > (shown.mtime(), shown.mtime_nsec());
                is_newer && !is_same(&there, shown)
            })
        };
        let before = File::open(&older).ok().filter(|file| file.metadata().is_ok_and(is_next));
        let is_older = before.is_some();
        let failed = |e| Failure::file(if is_older { &older } else { path }, e);
        let file = before.map_or_else(|| File::open(path), Ok).map_err(failed)?;
        let time = first_time(&file).map_err(failed)?;
        Ok(Self {
            daemon: daemon.to_owned(),
            path: path.to_owned(),
            file: BufReader::new(file),
            begun: Vec::new(),
            follows,
            is_over: is_older,
            is_older,
            time,
            next: None,
        })
    }

    /// Checks whether the log was renamed. If so, the new file is read after the rest of the old
    /// one.
    pub fn see_renamed(&mut self) -> Done {
        if self.is_over {
            // An older log is continued by itself when it has been read.
            return if self.is_older { Ok(()) } else { self.go_on().map(drop) };
        }
        let failed = |e| Failure::file(&self.path, e);
        let named = match std::fs::metadata(&self.path) {
            // The new file does not exist yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            named => named.map_err(failed)?,
        };
        let open = self.file.get_ref().metadata().map_err(failed)?;
        // The rest of the renamed file is read first.
        self.is_over = !is_same(&named, &open);
        Ok(())
    }

    /// Continues with the next file if everything in this one was shown.
    fn go_on(&mut self) -> Done<bool> {
        if self.next.is_some() || !self.begun.is_empty() {
            return Ok(false);
        }
        let shown = self.file.get_ref().metadata().map_err(|e| Failure::file(&self.path, e))?;
        match Self::open_after(Some(&shown), &self.daemon, &self.path, self.follows) {
            // The file was renamed as well; there will be another one.
            Err(_) if !self.path.exists() => return Ok(false),
            opened => *self = opened?,
        }
        Ok(true)
    }

    /// The name of the daemon.
    pub fn daemon(&self) -> &str {
        &self.daemon
    }

    /// The line that [`LogFile::take`] will return; `None` if there is none yet.
    pub fn peek(&mut self) -> Done<Option<&Line>> {
        while self.next.is_none() {
            self.next = self.read().map_err(|e| Failure::file(&self.path, e))?;
            if self.next.is_some() || !self.is_older || !self.go_on()? {
                break;
            }
        }
        Ok(self.next.as_ref())
    }

    /// Takes the line that [`LogFile::peek`] has shown.
    pub fn take(&mut self) -> Option<Line> {
        self.next.take()
    }

    fn read(&mut self) -> io::Result<Option<Line>> {
        let is_at_end = self.read_begun()? == 0;
        // The file was truncated, as by logrotate: read it from its beginning.
        if is_at_end && self.file.get_ref().metadata()?.len() < self.file.stream_position()? {
            self.file.rewind()?;
            self.begun.clear();
            self.read_begun()?;
        }
        let is_whole = self.begun.ends_with(b"\n") || self.begun.len() as u64 >= MAX_LINE_BYTES;
        let is_last = (!self.follows || self.is_over) && !self.begun.is_empty();
        if !(is_whole || is_last) {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned();
        Ok(Some(self.parse(line.trim_end())))
    }

    /// Reads more of the unfinished line. Returns the number of bytes.
    fn read_begun(&mut self) -> io::Result<usize> {
        let most = MAX_LINE_BYTES.saturating_sub(self.begun.len() as u64);
        (&mut self.file).take(most).read_until(b'\n', &mut self.begun)
    }

    fn parse(&mut self, line: &str) -> Line {
        let (level, message) = match dated(line) {
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

/// Splits a line such as `2026-11-26T14:30:00.123456Z  INFO weir::serve: data server 1 serves on
/// ...` into time, level and message.
fn dated(line: &str) -> Option<(&str, &str, &str)> {
    let (time, rest) = line.split_once('Z')?;
    let (level, message) = rest.trim_start().split_once(' ')?;
    (LEVELS.contains(&level) && time.contains('T')).then_some((time, level, message))
}

/// The time for first lines that have none: that of the first line with a time, or else of the
/// file's last change.
fn first_time(mut file: &File) -> io::Result<String> {
    let mut begin = Vec::new();
    file.take(MAX_LINE_BYTES).read_to_end(&mut begin)?;
    file.rewind()?;
    let begin = String::from_utf8_lossy(&begin);
    if let Some((time, ..)) = begin.lines().find_map(dated) {
        return Ok(format!("{time}Z"));
    }
    let written = file.metadata()?;
    let written = utc_time(Timestamp::new(written.mtime(), 0));
    Ok(written.replace(' ', "T"))
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
        let mut log = LogFile::open("meta", &path, true).unwrap();
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

    #[test]
    fn lines_without_end_or_time_and_a_renamed_log_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.log");
        let text = "panicked early\n1970-01-01T00:00:00Z  WARN a\n1970-01-01T00:00:01Z  INFO b";
        std::fs::write(&path, text).unwrap();
        let shown = [
            "1970-01-01T00:00:00Z None panicked early",
            "1970-01-01T00:00:00Z Some(\"WARN\") a",
            "1970-01-01T00:00:01Z Some(\"INFO\") b",
        ];
        assert_eq!(rest(&mut LogFile::open("meta", &path, false).unwrap()), shown);

        let mut log = LogFile::open("meta", &path, true).unwrap();
        assert_eq!(rest(&mut log), shown[..2]);
        std::fs::rename(&path, dir.path().join("meta.log.1")).unwrap();
        log.see_renamed().unwrap();
        assert!(rest(&mut log).is_empty(), "it may yet be written to");
        std::fs::write(&path, "1970-01-02T00:00:00Z  INFO new\n").unwrap();
        log.see_renamed().unwrap();
        assert_eq!(rest(&mut log), shown[2..]);
        log.see_renamed().unwrap();
        assert_eq!(rest(&mut log), ["1970-01-02T00:00:00Z Some(\"INFO\") new"]);

        let undated = dir.path().join("data-1.log");
        std::fs::write(&undated, "killed\n").unwrap();
        let lines = rest(&mut LogFile::open("data-1", &undated, false).unwrap());
        assert!(lines[0].starts_with("20") && lines[0].ends_with("Z None killed"), "{lines:?}");

        let older = dir.path().join("data-1.log.1");
        std::fs::write(&older, "1970-01-01T00:00:00Z  INFO a\nb").unwrap();
        let mut log = LogFile::open("data-1", &undated, true).unwrap();
        log.see_renamed().unwrap();
        let both = rest(&mut log);
        assert_eq!(both.len(), 3, "{both:?}");
        assert!(both[1].ends_with(" None b") && both[2] == lines[0], "{both:?}");
    }
}
