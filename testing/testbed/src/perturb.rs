//! Load on a disk.
//!
//! A process that reads without pause would get a share of a throttled disk in proportion to its
//! waiting bytes: little beside a server with a long queue, most of the disk beside one with a
//! short queue. So the load has a set pace. Several threads wait in the disk's queue together, and
//! each read is issued earlier by the mean latency, so that the completed reads have the set pace.

use rustix::fs::OFlags;
use std::fs::File;
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

const READ_BYTES: usize = 256 << 10;
const ALIGN: usize = 4096;
/// Maximum number of reads in the disk's queue: more bytes than a server has there.
const READERS: usize = 64;
/// Maximum backlog. Reads that are later than this are not made up for.
const MAX_BEHIND: Duration = Duration::from_millis(500);

/// Maximum sleep, so that a request to stop is noticed.
const MAX_NAP: Duration = Duration::from_millis(50);

/// The load.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// Bytes per second while it reads.
    pub bytes_per_s: u64,
    /// Length of alternating reads and pauses; zero: no pauses.
    pub turn: Duration,
}

/// Reads a file repeatedly, bypassing the page cache, until `stopped`. Returns the bytes; `had`
/// counts them as they arrive.
///
/// # Errors
/// Those of the system; the file is shorter than one read.
pub fn read_around(
    path: &Path,
    reads: Reads,
    had: &AtomicU64,
    stopped: &AtomicBool,
) -> Result<u64> {
    let file = File::options().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)?;
    let places = file.metadata()?.len() / READ_BYTES as u64;
    if places == 0 {
        return Err(Error::other(format!("{} is too short", path.display())));
    }
    let (next, latency_us) = (AtomicU64::new(0), AtomicU64::new(0));
    let pace = Pace { reads, begin: Instant::now(), next, latency_us };
    let one = || -> Result<()> {
        let mut memory = vec![0; READ_BYTES + ALIGN];
        let skip = memory.as_ptr().align_offset(ALIGN);
        let buffer = &mut memory[skip..skip + READ_BYTES];
        while let Some(number) = pace.wait(stopped) {
            let begin = Instant::now();
            let bytes = file.read_at(buffer, number % places * READ_BYTES as u64)?;
            had.fetch_add(bytes as u64, Relaxed);
            pace.took(begin.elapsed());
        }
        Ok(())
    };
    scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(one)).collect();
        let failed = |_| Error::other("a reader has failed");
        readers.into_iter().try_for_each(|reader| reader.join().map_err(failed)?)
    })?;
    Ok(had.load(Relaxed))
}

struct Pace {
    reads: Reads,
    begin: Instant,
    /// Time of the next read, microseconds since the beginning.
    next: AtomicU64,
    /// Mean duration of recent reads.
    latency_us: AtomicU64,
}

impl Pace {
    /// Waits until a read is due, and returns its number.
    fn wait(&self, stopped: &AtomicBool) -> Option<u64> {
        let step_us = (READ_BYTES as u64 * 1_000_000 / self.reads.bytes_per_s.max(1)).max(1);
        while !stopped.load(Relaxed) {
            let now = self.begin.elapsed();
            if self.pauses(now) {
                sleep(MAX_NAP);
                continue;
            }
            if let Some(number) = self.next(now, step_us, stopped) {
                return Some(number);
            }
        }
        None
    }

    /// Takes the next time and waits for it; `None`: not in this turn. Reads that fall into a pause
    /// are skipped; otherwise the next turn would begin with all of them.
    fn next(&self, now: Duration, step_us: u64, stopped: &AtomicBool) -> Option<u64> {
        let turn_us = self.turn_began(now).as_micros() as u64;
        let behind_us = (now.as_micros() as u64).saturating_sub(MAX_BEHIND.as_micros() as u64);
        self.next.fetch_max(behind_us.max(turn_us), Relaxed);
        let due_us = self.next.fetch_add(step_us, Relaxed);
        while !stopped.load(Relaxed) {
            let ahead_us = self.latency_us.load(Relaxed);
            let due = Duration::from_micros(due_us.saturating_sub(ahead_us));
            let now = self.begin.elapsed();
            if self.pauses(now) {
                return None;
            }
            if now >= due {
                return Some(due_us / step_us);
            }
            sleep(due.saturating_sub(now).clamp(Duration::from_millis(1), MAX_NAP));
        }
        None
    }

    /// When the present turn began.
    fn turn_began(&self, now: Duration) -> Duration {
        let turn = self.reads.turn.as_micros();
        let began = now.as_micros().checked_div(turn).map_or(0, |turns| turns * turn);
        Duration::from_micros(began as u64)
    }

    fn took(&self, time: Duration) {
        // If two threads update it at once, one update may be lost: it is only a mean.
        let mean_us = (3 * self.latency_us.load(Relaxed) + time.as_micros() as u64) / 4;
        self.latency_us.store(mean_us, Relaxed);
    }

    fn pauses(&self, now: Duration) -> bool {
        let turn = self.reads.turn.as_micros();
        turn > 0 && now.as_micros() / turn % 2 == 1
    }
}

/// Overwrites the beginning of a file with `bytes`, bypassing the page cache, and syncs, repeatedly
/// until `stopped`. Returns all bytes. `bytes` must be a multiple of 4 KiB.
///
/// # Errors
/// Those of the system.
pub fn write_again(path: &Path, bytes: usize, stopped: &AtomicBool) -> Result<u64> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).custom_flags(OFlags::DIRECT.bits() as i32);
    let file = options.open(path)?;
    let memory = vec![0x5a; bytes + ALIGN];
    let skip = memory.as_ptr().align_offset(ALIGN);
    let mut written = 0;
    while !stopped.load(Relaxed) {
        file.write_all_at(&memory[skip..skip + bytes], 0)?;
        file.sync_data()?;
        written += bytes as u64;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_begins_with_nothing_that_was_to_be_read_in_the_pause() {
        let (bytes_per_s, turn) = (READ_BYTES as u64 * 100, Duration::from_secs(2));
        let (next, latency_us) = (AtomicU64::new(0), AtomicU64::new(0));
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        // In its third turn, after a pause.
        let begin = ago(9).expect("a clock that has run for a while");
        let pace = Pace { reads: Reads { bytes_per_s, turn }, begin, next, latency_us };
        let stopped = AtomicBool::new(false);
        let first = pace.wait(&stopped).expect("it goes on");
        // It makes up for half a second, and not for the pause from 6 to 8 s.
        assert!((850..860).contains(&first), "{first}");
        assert!(!pace.pauses(Duration::from_secs(9)) && pace.pauses(Duration::from_secs(11)));
        assert_eq!(pace.turn_began(Duration::from_secs(9)), Duration::from_secs(8));
    }
}
