//! The block device below a directory: how busy it is, and how long a read takes. For code that
//! needs the device's speed while it has no data of its own to read.
//!
//! A simulated machine has no such device.

use crate::{clock, fs, simulated};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result, retry_on_intr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the file for test reads.
const NAME: &str = "probe";
/// Length of that file.
const FILE_BYTES: usize = 1 << 20;
/// Bytes of one test read.
const PIECE_BYTES: usize = 256 << 10;
/// A measurement ends after this time.
const ENOUGH: Duration = Duration::from_millis(20);
/// A measurement ends after this many bytes. A throttled disk lets some MiB pass at once.
const MOST_BYTES: usize = 4 << 20;
/// Direct reads need addresses, positions and lengths that are multiples of this.
const ALIGN: usize = 4096;

/// The device below a directory.
#[derive(Debug)]
pub struct Device {
    /// The kernel's file with the counters of the device. `None`: there is none, as below file
    /// systems on several devices.
    stat: Option<PathBuf>,
    file: OwnedFd,
    buf: Vec<u8>,
    at: usize,
}

impl Device {
    /// Opens the device below a directory, and makes a file of 1 MiB there for test reads.
    ///
    /// # Errors
    /// `OPNOTSUPP` on a simulated machine; `INVAL` where nothing can be read around the page
    /// cache; whatever making the file meets.
    pub fn of(directory: &Path) -> Result<Self> {
        if simulated::current().is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        let path = directory.join(NAME);
        let stat = stat_of(directory)?;
        let is_whole = rustix::fs::stat(&path).is_ok_and(|of| of.st_size == FILE_BYTES as i64);
        if !is_whole && let Err(e) = write(&path) {
            // On a full disk this leaves no file behind.
            rustix::fs::unlink(&path).or_else(|e| match e {
                Errno::NOENT => Ok(()),
                e => Err(e),
            })?;
            return Err(e);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty()))?;
        Ok(Self { stat, file, buf: vec![0; PIECE_BYTES + ALIGN], at: 0 })
    }

    /// Sectors that all processes have read and written. `None`: unknown.
    pub fn used_sectors(&self) -> Option<u64> {
        let text = fs::read_file(self.stat.as_ref()?, 4096).ok()?;
        sectors(&String::from_utf8(text).ok()?)
    }

    /// Reads the test file to measure the device; ends early if `is_wanted` says that other work
    /// needs it. Returns the bytes and the time. Waits as long as the device takes.
    pub fn read(&mut self, is_wanted: impl Fn() -> bool) -> Result<(u64, Duration)> {
        let begin = clock::uptime();
        let mut bytes = 0;
        while bytes < MOST_BYTES {
            let piece = aligned(&self.buf);
            let at = self.at as u64;
            let read =
                retry_on_intr(|| rustix::io::pread(&self.file, &mut self.buf[piece.clone()], at))?;
            if read < PIECE_BYTES {
                // Another process has truncated the file.
                return Err(Errno::IO);
            }
            self.at = (self.at + PIECE_BYTES) % FILE_BYTES;
            bytes += PIECE_BYTES;
            if clock::uptime() - begin >= ENOUGH || is_wanted() {
                break;
            }
        }
        Ok((bytes as u64, clock::uptime() - begin))
    }
}

/// The kernel's counters of the device below a directory, for all of its users.
#[derive(Debug)]
pub struct Counts {
    stat: Option<PathBuf>,
    /// If the device is a partition: the counters of the whole device, which alone count flushes.
    whole: Option<PathBuf>,
    is_simulated: bool,
}

/// Requests that a device has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Completed reads.
    pub reads: u64,
    /// Completed writes and flushes.
    pub writes: u64,
}

impl Counts {
    /// Finds the counters of the device below a directory. Sends nothing to the device.
    pub fn of(directory: &Path) -> Self {
        let is_simulated = simulated::current().is_some();
        let stat = match is_simulated {
            true => None,
            false => stat_of(directory).ok().flatten(),
        };
        let part = stat.as_ref().and_then(|stat| stat.parent());
        let is_part = |part: &&Path| part.join("partition").exists();
        let whole = part.filter(is_part).map(|part| part.join("../stat"));
        Self { stat, whole, is_simulated }
    }

    /// Whether these counters exist: for a real device that the kernel counts, and for every
    /// simulated one.
    pub fn are_known(&self) -> bool {
        self.is_simulated || self.ended().is_some()
    }

    /// Completed requests. `None`: the kernel does not count them.
    pub fn ended(&self) -> Option<Ended> {
        let read = |path: &Path| String::from_utf8(fs::read_file(path, 4096).ok()?).ok();
        let own = ended(&read(self.stat.as_ref()?)?)?;
        let flushes = self.whole.as_ref().and_then(|whole| Some(flushes(&read(whole)?)));
        Some(Ended { writes: own.writes + flushes.unwrap_or(0), ..own })
    }
}

/// Field 16 of a line of counters, if it has so many: completed flushes.
fn flushes(stat: &str) -> u64 {
    stat.split_ascii_whitespace().nth(15).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn stat_of(directory: &Path) -> Result<Option<PathBuf>> {
    let device = rustix::fs::stat(directory)?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    Ok(stat.exists().then_some(stat))
}

/// Completed reads are field 1, completed writes field 5.
fn ended(stat: &str) -> Option<Ended> {
    let words: Vec<u64> = stat.split_ascii_whitespace().map_while(|w| w.parse().ok()).collect();
    Some(Ended { reads: *words.first()?, writes: words.get(4)? + flushes(stat) })
}

/// The part of a buffer that is aligned for direct reads.
fn aligned(buf: &[u8]) -> Range<usize> {
    let start = buf.as_ptr().align_offset(ALIGN);
    start..start + PIECE_BYTES
}

/// The fields are completed reads, merged reads, sectors, time; then the same for writes.
fn sectors(stat: &str) -> Option<u64> {
    let mut words = stat.split_ascii_whitespace();
    let read: u64 = words.nth(2)?.parse().ok()?;
    let written: u64 = words.nth(3)?.parse().ok()?;
    Some(read + written)
}

/// Writes the test file with bytes that no file system can compress. The file need not be durable:
/// an incomplete one is written again.
fn write(path: &Path) -> Result<()> {
    let mut bytes = vec![0; FILE_BYTES];
    crate::fill_random(&mut bytes).map_err(|_| Errno::IO)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = retry_on_intr(|| rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)))?;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let count = retry_on_intr(|| rustix::io::write(&file, rest))?;
        rest = &rest[count..];
    }
    // A read reaches the device only if the bytes are there and not just in memory.
    rustix::fs::fdatasync(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_reads_and_writes_are_use() {
        let stat = "  11 2 300 4 50 6 7000 8 0 9 10 0 0 0 0\n";
        assert_eq!(sectors(stat), Some(7300));
        assert_eq!(sectors("1 2"), None);
    }

    #[test]
    fn flushes_are_writes() {
        let stat = "1 2 3 4 50 6 7 8 9 10 11 12 13 14 15 600 17";
        assert_eq!(ended(stat), Some(Ended { reads: 1, writes: 650 }));
        assert_eq!(ended("1 2 3 4 5"), Some(Ended { reads: 1, writes: 5 }));
        assert_eq!(ended("1 2 3 4"), None);
    }

    #[test]
    fn a_directory_is_read_from() {
        let dir = tempfile::tempdir().unwrap();
        match Device::of(dir.path()) {
            Ok(mut device) => {
                let (bytes, took) = device.read(|| false).unwrap();
                assert!(bytes >= PIECE_BYTES as u64 && took > Duration::ZERO);
                assert!(Device::of(dir.path()).is_ok(), "the file is there already");
            }
            Err(e) => eprintln!("skipped: needs direct reads in {}: {e}", dir.path().display()),
        }
    }
}
