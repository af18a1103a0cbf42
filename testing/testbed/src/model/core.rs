//! A model of a disk with a head: computes when requests complete. Pure: requests and times go in,
//! times come out.
//!
//! The drive serves requests in order of arrival. A request at the head's position costs its
//! transfer; any other one costs a seek first. After a read the drive reads ahead into its memory
//! until the next request or until it has enough, so a sequential reader gets the full rate,
//! however late the next request comes. It remembers only few streams, and loses the read-ahead of
//! others when it turns to more of them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The properties of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// Transfer rate on the outermost track.
    pub bytes_per_s: u64,
    /// Time of a seek and half a rotation.
    pub positioning_us: u64,
    /// Time to accept and answer a request, during which nothing else is answered.
    pub overhead_us: u64,
    /// Number of remembered read streams. With one, turning to another stream loses the first.
    pub streams: usize,
    /// Bytes of read-ahead and of kept data for each stream.
    pub prefetch_bytes: u64,
    /// How the rate falls towards the innermost track; `None`: it does not.
    pub zones: Option<Zones>,
}

/// Zones: outer tracks are longer, so more bytes pass below the head per rotation. The rate falls
/// linearly from the first byte of a disk to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zones {
    /// Rate on the innermost track.
    pub inner_bytes_per_s: u64,
    /// Capacity of the disk, bytes.
    pub disk_bytes: u64,
    /// First byte of the part that is used as a drive.
    pub begin: u64,
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads bytes from the disk or its memory.
    Read,
    /// Writes bytes to the disk; complete when they are there.
    Write,
}

/// The position of a drive's head, and the contents of its memory.
#[derive(Debug)]
pub struct Head {
    drive: Drive,
    /// Position of the head after all requests so far.
    at: u64,
    /// Time at which the head has served all requests so far.
    free: Duration,
    /// Time of the last answer.
    answered: Duration,
    /// Whether the head reads ahead for the last stream.
    reads_ahead: bool,
    /// The remembered streams; the one used last is at the end.
    streams: Vec<Stream>,
}

/// A range in the drive's memory.
#[derive(Clone, Copy, Debug)]
struct Stream {
    start: u64,
    end: u64,
    /// End of the requested bytes.
    asked: u64,
}

impl Drive {
    /// Rate at a position. It counts for the whole request, because requests are short compared
    /// with zones.
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
    /// The state of a new drive.
    pub fn new(drive: Drive) -> Self {
        let none = Duration::ZERO;
        Self { drive, at: 0, free: none, answered: none, reads_ahead: false, streams: Vec::new() }
    }

    /// Completion time of a request that arrives at `now`. Times are relative to any fixed moment,
    /// and must not decrease.
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

    /// Read-ahead during idle time.
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

    /// Time for the head's work on a read; zero if all bytes are in memory.
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

    /// Time until a position is below the head. A position shortly ahead is reached by rotation.
    fn reach(&self, place: u64) -> Duration {
        let positioning = Duration::from_micros(self.drive.positioning_us);
        let ahead = place.checked_sub(self.at).map(|gap| self.drive.time(self.at, gap));
        ahead.map_or(positioning, |passing| passing.min(positioning))
    }
}

impl Stream {
    /// Drops streams down to the memory's limit.
    fn forget(&mut self, most: u64) {
        self.start = self.start.max(self.end.saturating_sub(most));
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
