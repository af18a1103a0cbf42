//! When a disk with a head is done with what it is asked for. Pure: requests and times go in,
//! times come out.
//!
//! The drive serves requests in the order in which they come. One that begins where the head is
//! costs its transfer, any other one moves the head first. After a read the drive goes on reading
//! by itself, into its memory, until it is asked for something else or has enough; so whoever reads
//! from end to end gets the full rate, however late the next request comes. It remembers so few
//! streams that it loses that as soon as it turns to more of them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a drive can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// Rate at which bytes pass below the head, on the outermost track.
    pub bytes_per_s: u64,
    /// To go to another place: seek and half a turn.
    pub positioning_us: u64,
    /// To take a request and answer it; nothing else is answered meanwhile.
    pub overhead_us: u64,
    /// So many streams of reads are remembered; with one, turning to another loses the first.
    pub streams: usize,
    /// So much is read ahead of a stream, and kept of it.
    pub prefetch_bytes: u64,
    /// How the rate falls towards the innermost track; `None`: it does not.
    pub zones: Option<Zones>,
}

/// Tracks are longer outside than inside, so more bytes pass below the head there in each turn. The
/// rate falls evenly from the first byte of a disk to its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zones {
    /// The rate on the innermost track.
    pub inner_bytes_per_s: u64,
    /// All that the disk holds.
    pub disk_bytes: u64,
    /// Where on it the part begins that is used as a drive.
    pub begin: u64,
}

/// What a drive is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes from the disk, or from its memory.
    Read,
    /// Bytes to the disk; done when they are there.
    Write,
}

/// Where the head of a drive is, and what the drive has in memory.
#[derive(Debug)]
pub struct Head {
    drive: Drive,
    /// The place below the head when all that was asked for is done.
    at: u64,
    /// When the head has done all that was asked for.
    free: Duration,
    /// When the last request was answered.
    answered: Duration,
    /// The head goes on reading for the last stream.
    reads_ahead: bool,
    /// Those that are remembered; the one used last is at the end.
    streams: Vec<Stream>,
}

/// A range that is in the drive's memory.
#[derive(Clone, Copy, Debug)]
struct Stream {
    start: u64,
    end: u64,
    /// What was asked for ends here.
    asked: u64,
}

impl Drive {
    /// Bytes a second at a place: requests are short beside zones, so it counts for all of one.
    fn rate(&self, place: u64) -> u64 {
        let Some(zones) = self.zones else { return self.bytes_per_s.max(1) };
        let bytes = zones.disk_bytes.max(1);
        let place = zones.begin.saturating_add(place).min(bytes);
        let less = u128::from(self.bytes_per_s.saturating_sub(zones.inner_bytes_per_s));
        let less = less * u128::from(place) / u128::from(bytes);
        self.bytes_per_s.saturating_sub(less as u64).max(1)
    }

    fn time(&self, place: u64, bytes: u64) -> Duration {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate(place));
        Duration::from_nanos(ns as u64)
    }

    fn bytes(&self, place: u64, time: Duration) -> u64 {
        (u128::from(self.rate(place)) * time.as_nanos() / 1_000_000_000) as u64
    }
}

impl Head {
    /// Of a drive that has not been asked for anything.
    pub fn new(drive: Drive) -> Self {
        let none = Duration::ZERO;
        Self { drive, at: 0, free: none, answered: none, reads_ahead: false, streams: Vec::new() }
    }

    /// When a request that comes now is done. Times are those since some beginning, and never go
    /// back.
    pub fn done(&mut self, kind: Kind, offset: u64, length: u64, now: Duration) -> Duration {
        let begin = now.max(self.free);
        self.read_ahead(begin - self.free);
        let end = offset.saturating_add(length);
        let work = match kind {
            Kind::Read => self.read(offset, end),
            Kind::Write => self.write(offset, end),
        };
        self.free = begin + work;
        let taken = now.max(self.answered) + Duration::from_micros(self.drive.overhead_us);
        self.answered = taken.max(self.free);
        self.answered
    }

    /// What the head does while nobody asks for anything.
    fn read_ahead(&mut self, idle: Duration) {
        let (bytes, most) = (self.drive.bytes(self.at, idle), self.drive.prefetch_bytes);
        if !self.reads_ahead || bytes == 0 {
            return;
        }
        if let Some(stream) = self.streams.last_mut() {
            stream.end = stream.end.saturating_add(bytes).min(stream.asked.saturating_add(most));
            self.at = stream.end;
            stream.forget(most);
        }
    }

    /// What the head has to do for a read: nothing if all is in memory.
    fn read(&mut self, offset: u64, end: u64) -> Duration {
        let known = |stream: &Stream| (stream.start..=stream.end).contains(&offset);
        let (from, mut stream) = match self.streams.iter().rposition(known) {
            Some(n) if end <= self.streams[n].end => {
                self.streams[n].asked = self.streams[n].asked.max(end);
                return Duration::ZERO;
            }
            Some(n) => (self.streams[n].end, self.streams.remove(n)),
            None => (offset, Stream { start: offset, end, asked: end }),
        };
        let work = self.reach(from) + self.drive.time(from, end - from);
        (stream.end, stream.asked) = (end, end);
        stream.forget(self.drive.prefetch_bytes);
        self.streams.push(stream);
        if self.streams.len() > self.drive.streams.max(1) {
            self.streams.remove(0);
        }
        (self.at, self.reads_ahead) = (end, true);
        work
    }

    fn write(&mut self, offset: u64, end: u64) -> Duration {
        let work = self.reach(offset) + self.drive.time(offset, end - offset);
        self.streams.retain(|stream| stream.end <= offset || end <= stream.start);
        (self.at, self.reads_ahead) = (end, false);
        work
    }

    /// What it takes until a place is below the head: what is not far ahead comes by itself.
    fn reach(&self, place: u64) -> Duration {
        let positioning = Duration::from_micros(self.drive.positioning_us);
        let ahead = place.checked_sub(self.at).map(|gap| self.drive.time(self.at, gap));
        ahead.map_or(positioning, |passing| passing.min(positioning))
    }
}

impl Stream {
    /// No more is kept than there is memory for.
    fn forget(&mut self, most: u64) {
        self.start = self.start.max(self.end.saturating_sub(most));
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
