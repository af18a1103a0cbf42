//! The thread that writes log lines.

use super::file::LogFile;
use super::queue::{self, Queue};
use crate::journal;
use crate::log::since::now_in_logs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::time::Duration;
use tracing::Level;

/// The interval of attempts to log that lines were dropped.
const RETRY: Duration = Duration::from_secs(5);

/// A destination of lines.
pub trait Sink {
    /// Called before `bytes` are written, and with 0 before the first line of a batch.
    fn prepare(&mut self, _bytes: usize) {}

    /// Writes a part of the bytes. It may block.
    ///
    /// # Errors
    /// The bytes cannot be written and have to be dropped.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

/// Standard error, perhaps a log file that this process keeps short.
pub struct Standard {
    file: Option<LogFile>,
}

impl Standard {
    /// `file` is set if standard error is a log file that this process keeps short.
    pub fn new(file: Option<LogFile>) -> Self {
        Self { file }
    }
}

impl Sink for Standard {
    fn prepare(&mut self, bytes: usize) {
        if let Some(file) = &mut self.file {
            file.tend(bytes);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(rustix::stdio::stderr(), bytes) {
                Err(Errno::INTR) => {}
                // Another process that shares the file has made it non-blocking.
                Err(Errno::AGAIN) => {
                    let stderr = rustix::stdio::stderr();
                    poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None)?;
                }
                written => return Ok(written?),
            }
        }
    }
}

/// Writes lines. Lines that cannot be written are counted, and the count is logged as soon as that
/// is possible.
pub struct Writer<S> {
    sink: S,
    for_journal: bool,
    /// The number of dropped lines that the log mentions.
    told: u64,
    /// The error of the last failed write.
    reason: Option<String>,
    /// Whether the last line was written only in part.
    is_mid_line: bool,
}

impl<S: Sink> Writer<S> {
    /// A writer with nothing dropped yet.
    pub fn new(sink: S, for_journal: bool) -> Self {
        Self { sink, for_journal, told: 0, reason: None, is_mid_line: false }
    }

    /// Writes lines until the process ends.
    pub fn run(mut self, queue: &Queue) {
        loop {
            self.write(queue.take(RETRY));
        }
    }

    fn write(&mut self, lines: impl IntoIterator<Item = Vec<u8>>) {
        self.sink.prepare(0);
        for line in lines {
            if !(self.tell() && self.line(&line)) {
                queue::lose(1);
            }
        }
        self.tell();
    }

    /// Logs how many lines were dropped since the last such message. Returns whether the log is
    /// complete now.
    fn tell(&mut self) -> bool {
        let lost = queue::lost();
        if lost == self.told {
            return true;
        }
        let count = lost - self.told;
        let reason = self.reason.as_deref().unwrap_or("they came faster than they were written");
        let text = format!("weir::logging: {count} lines of this log were dropped: {reason}");
        let line = match self.for_journal {
            true => journal::graded(&text, &Level::WARN),
            false => format!("{}Z  WARN {text}", now_in_logs()),
        };
        let done = self.line(format!("{line}\n").as_bytes());
        if done {
            (self.told, self.reason) = (lost, None);
        }
        done
    }

    fn line(&mut self, line: &[u8]) -> bool {
        let whole = match self.is_mid_line {
            true => [b"\n", line].concat(),
            false => line.to_vec(),
        };
        // A log may get a whole queue at once, and reach its limit in the middle.
        self.sink.prepare(whole.len());
        let mut left = whole.as_slice();
        while !left.is_empty() {
            let failed = match self.sink.write(left) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(written) => {
                    left = left.get(written..).unwrap_or_default();
                    self.is_mid_line = !left.is_empty();
                    continue;
                }
                Err(error) => error,
            };
            self.reason = Some(failed.to_string());
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::file::{hold, older};
    use crate::text::ByteSize;
    use std::cell::Cell;
    use std::fs::File;
    use std::io::Write;
    use std::rc::Rc;

    /// A disk with room for a limited number of bytes.
    struct Disk {
        room: Rc<Cell<usize>>,
        has: Rc<Cell<Vec<u8>>>,
    }

    impl Sink for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.room.get().min(bytes.len());
            if room == 0 {
                return Err(Errno::NOSPC.into());
            }
            self.room.set(self.room.get() - room);
            self.has.set([self.has.take(), bytes[..room].to_vec()].concat());
            Ok(room)
        }
    }

    #[test]
    fn what_was_dropped_is_said_when_there_is_room_again() {
        let (room, has) = (Rc::new(Cell::new(8)), Rc::new(Cell::default()));
        let mut writer = Writer::new(Disk { room: room.clone(), has: has.clone() }, true);
        writer.told = queue::lost();
        let line = |text: &str| text.as_bytes().to_vec();
        writer.write([line("one\n"), line("two two\n"), line("three\n")]);
        room.set(1000);
        writer.write([line("four\n")]);
        let text = String::from_utf8(has.take()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        // Other tests of this process may lose lines as well.
        assert_eq!((lines[0], lines[1], lines[3]), ("one", "two ", "four"), "{text}");
        assert!(lines[2].starts_with("<4>weir::logging: ") && lines[2].contains("No space left"));
        assert_eq!(lines.len(), 4, "{text}");
    }

    struct Kept {
        log: LogFile,
        file: File,
    }

    impl Sink for Kept {
        fn prepare(&mut self, bytes: usize) {
            if let Some(file) = self.log.successor(&self.file, bytes) {
                self.file = file;
            }
        }

        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.file.write(bytes)
        }
    }

    #[test]
    fn a_log_keeps_within_its_share_however_much_is_written_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.log");
        let limit = 200 << 10;
        let log = LogFile::alone(&path, ByteSize(limit));
        let mut writer = Writer::new(Kept { log, file: hold(&path).unwrap() }, true);
        writer.told = queue::lost();
        let line = [&[b'a'; 999][..], b"\n"].concat();
        writer.write(vec![line; 1000]);
        let bytes = |path| std::fs::metadata(path).unwrap().len();
        let (now, before) = (bytes(path.clone()), bytes(older(&path)));
        assert!(now <= limit / 2 && before <= limit / 2, "{now} {before}");
        assert!(before > limit / 2 - 2000, "it was renamed when it had its share: {before}");
    }
}
