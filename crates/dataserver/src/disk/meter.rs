//! How fast a target serves reads, for clients that choose among copies: the time in which it had
//! reads, divided by their bytes. Reads from the page cache count at a fixed small price, so that a
//! target with data in memory is known to be quick.
//!
//! Other users of the disk, or of its bandwidth, show in the result, since their time is time in
//! which reads wait. Test reads measure a disk without readers ([`crate::disk::probe`]).

use super::pieces::Pieces;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_types::ObjectId;
use weir_wire::frame::REQUEST_COST_BYTES;

/// A time in microseconds.
type Micros = u64;

const MIB: u64 = 1 << 20;
/// Assumed time for a MiB from the page cache.
const CACHED_US_PER_MIB: u64 = 100;
/// A sample ends after this many bytes.
const SAMPLE_BYTES: u64 = 2 << 20;
/// A sample ends after this much time with reads.
const SAMPLE_US: Micros = 100_000;
/// Length of the first sample after a test read or a pause, bytes.
const FIRST_SAMPLE_BYTES: u64 = 512 << 10;
/// After a pause of this length earlier samples do not count.
const PAUSE_US: Micros = 1_000_000;
/// A result is reported for this long without reads; the speed may change meanwhile.
const SAID_FOR_US: Micros = 10_000_000;
/// Larger values are implausible and not reported.
const MAX_US_PER_MIB: u64 = 1 << 30;

#[derive(Debug, Default)]
struct Sample {
    /// Number of reads under way.
    reads: u32,
    /// Time of the last report.
    said: Micros,
    /// Whether the last report came from a test read.
    is_probed: bool,
    /// Time up to which reading time was counted.
    counted: Micros,
    busy_us: Micros,
    bytes: u64,
}

impl Sample {
    fn begin(&mut self, now: Micros) {
        self.count(now);
        self.reads += 1;
    }

    /// Ends a read of `bytes`. A failed read has none, and its time does not count.
    fn end(&mut self, now: Micros, bytes: Option<u64>) {
        self.count(now);
        self.reads = self.reads.saturating_sub(1);
        match bytes {
            Some(bytes) => self.bytes += bytes + REQUEST_COST_BYTES,
            None if self.reads == 0 && self.bytes == 0 => self.busy_us = 0,
            None => {}
        }
    }

    fn cached(&mut self, now: Micros, bytes: u64) {
        self.count(now);
        self.bytes += bytes + REQUEST_COST_BYTES;
        self.busy_us += (bytes + REQUEST_COST_BYTES) * CACHED_US_PER_MIB / MIB;
    }

    fn count(&mut self, now: Micros) {
        if self.reads > 0 {
            self.busy_us += now.saturating_sub(self.counted);
        }
        self.counted = now;
    }

    /// Whether the last report has expired.
    fn is_old(&self, now: Micros) -> bool {
        self.reads == 0 && now.saturating_sub(self.said) > SAID_FOR_US
    }

    /// Whether the last report may be of another load, so that it is not averaged.
    fn begins_anew(&self) -> bool {
        // What has kept it busy meanwhile is no pause.
        let since = self.counted.saturating_sub(self.said).saturating_sub(self.busy_us);
        self.is_probed || since > PAUSE_US
    }

    /// The result of the sample if it has enough bytes, at least `least_bytes`. The next sample
    /// then begins.
    fn take(&mut self, least_bytes: u64) -> Option<u64> {
        let enough = self.bytes >= least_bytes || self.busy_us >= SAMPLE_US;
        if !enough || self.bytes == 0 {
            return None;
        }
        let us = (self.busy_us.max(1) * MIB).div_ceil(self.bytes);
        (self.busy_us, self.bytes, self.said) = (0, 0, self.counted);
        self.is_probed = false;
        Some(us.min(MAX_US_PER_MIB))
    }
}

/// Speed of the disk alone, for the detection of slow disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfDisk {
    /// Time per MiB, microseconds; 0 if too little was read.
    pub(crate) us_per_mib: u32,
    /// Mean size of its reads, KiB.
    pub(crate) piece_kib: u32,
}

/// Reads from the disk and from the page cache.
#[derive(Debug, Default)]
struct Reads {
    sample: Sample,
    /// Their pieces on the disk.
    pieces: Pieces,
}

/// The measurement of one target.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    reads: Mutex<Reads>,
    /// The disk alone, since the last report.
    disk: Mutex<Sample>,
    /// Time of the last begin or end of a read.
    read_at: AtomicU64,
}

impl Meter {
    /// Measures a read from the disk. The result is stored in `said`.
    pub(crate) fn on<T>(
        &self,
        said: &AtomicU32,
        read: impl FnOnce() -> T,
        bytes: impl FnOnce(&T) -> Option<u64>,
    ) -> T {
        let begin = now();
        self.reads.lock().sample.begin(begin);
        self.disk.lock().begin(begin);
        let result = read();
        let (end, bytes) = (now(), bytes(&result));
        self.disk.lock().end(end, bytes);
        let sample = &mut self.reads.lock().sample;
        self.read_at.store(end, Relaxed);
        sample.end(end, bytes);
        say(sample, said);
        result
    }

    /// Records parts of an object that are about to be read from the disk.
    pub(crate) fn asked(&self, object: ObjectId, parts: &[(u64, u64)]) {
        let pieces = &mut self.reads.lock().pieces;
        parts.iter().for_each(|(offset, len)| pieces.asked(object, *offset, *len));
    }

    /// Time since the last read.
    pub(crate) fn unread_us(&self) -> Micros {
        match self.reads.lock().sample.reads {
            0 => now().saturating_sub(self.read_at.load(Relaxed)),
            _ => 0,
        }
    }

    /// Stores the result of a test read that began at `began`, unless there were reads since.
    pub(crate) fn probed(&self, us_per_mib: u32, began: Micros, said: &AtomicU32) {
        let sample = &mut self.reads.lock().sample;
        if sample.reads == 0 && self.read_at.load(Relaxed) < began {
            // What is left of an older sample is no part of what is read next.
            *sample = Sample { said: now(), is_probed: true, ..Sample::default() };
            said.store(us_per_mib, Relaxed);
        }
    }

    /// Speed of the disk since the last call that had enough bytes.
    pub(crate) fn of_disk(&self) -> OfDisk {
        let mut disk = self.disk.lock();
        disk.count(now());
        let said = |us| OfDisk {
            us_per_mib: us as u32,
            piece_kib: self.reads.lock().pieces.take_mean_kib(),
        };
        disk.take(SAMPLE_BYTES).map(said).unwrap_or_default()
    }

    /// Counts a read of `bytes` from the page cache.
    pub(crate) fn cached(
        &self,
        (object, parts): (ObjectId, &[(u64, u64)]),
        bytes: u64,
        said: &AtomicU32,
    ) {
        let Reads { sample, pieces } = &mut *self.reads.lock();
        parts.iter().for_each(|(offset, len)| pieces.was_in_memory(object, *offset, *len));
        let now = now();
        self.read_at.store(now, Relaxed);
        sample.cached(now, bytes);
        say(sample, said);
    }

    /// Removes an expired result.
    pub(crate) fn forget_old(&self, said: &AtomicU32) {
        if self.reads.lock().sample.is_old(now()) {
            said.store(0, Relaxed);
        }
    }
}

/// Stores the mean of the old result and the new sample, unless the old one does not count.
fn say(sample: &mut Sample, said: &AtomicU32) {
    let is_first = sample.begins_anew();
    if let Some(new) = sample.take(if is_first { FIRST_SAMPLE_BYTES } else { SAMPLE_BYTES }) {
        let mean = match u64::from(said.load(Relaxed)) {
            old if old > 0 && !is_first => (old + new).div_ceil(2),
            _ => new,
        };
        said.store(mean as u32, Relaxed);
    }
}

fn now() -> Micros {
    clock::uptime().as_micros() as Micros
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::FileId;

    const OBJECT: ObjectId = ObjectId { file: FileId(1), ..ObjectId::FIRST };

    /// What it says when `readers` read `bytes` at a time, each in `us` of the disk's time.
    fn said(readers: u64, bytes: u64, us: u64) -> u64 {
        let (mut sample, said) = (Sample::default(), AtomicU32::new(0));
        let mut now = 0;
        (0..readers).for_each(|_| sample.begin(now));
        for _ in 0..400 {
            now += us;
            sample.end(now, Some(bytes));
            say(&mut sample, &said);
            sample.begin(now);
        }
        said.load(Relaxed).into()
    }

    #[test]
    fn it_is_the_disk_that_counts_and_not_how_many_wait_for_it() {
        let (one, eight) = (said(1, MIB, 20_000), said(8, MIB, 20_000));
        assert_eq!(one, eight);
        assert!((18_000..20_000).contains(&one), "{one}");
        // 64 KiB at the same speed, each with a seek that costs as much as its bytes.
        let small = said(1, 64 << 10, 2_500);
        assert!((18_000..=20_000).contains(&small), "{small}");
    }

    #[test]
    fn time_without_reads_does_not_count_and_what_is_in_memory_is_quick() {
        let (mut sample, said) = (Sample::default(), AtomicU32::new(0));
        for n in 0..10 {
            sample.begin(n * 1_000_000);
            sample.end(n * 1_000_000 + 10_000, Some(MIB));
            say(&mut sample, &said);
        }
        let known = said.load(Relaxed);
        assert!((9_000..10_000).contains(&known), "{known}");
        for _ in 0..100 {
            sample.cached(10_000_000, MIB);
            say(&mut sample, &said);
        }
        assert!(said.load(Relaxed) <= 110, "{said:?}");
    }

    #[test]
    fn what_was_found_long_ago_is_not_said() {
        let mut sample = Sample::default();
        sample.begin(1_000);
        sample.end(200_000, Some(MIB));
        assert!(sample.take(SAMPLE_BYTES).is_some());
        assert!(!sample.is_old(200_000 + SAID_FOR_US));
        assert!(sample.is_old(200_001 + SAID_FOR_US));
        sample.begin(300_000);
        assert!(!sample.is_old(300_000 + 2 * SAID_FOR_US), "it is being found out");
    }

    #[test]
    fn who_fails_at_once_is_not_quick() {
        let (mut sample, said) = (Sample::default(), AtomicU32::new(0));
        for n in 0..100 {
            sample.begin(n * 1_000);
            sample.end(n * 1_000 + 10, None);
            say(&mut sample, &said);
        }
        assert_eq!(said.load(Relaxed), 0);
    }

    #[test]
    fn a_probe_counts_unless_somebody_has_read_since_it_began() {
        let (meter, said) = (Meter::default(), AtomicU32::new(0));
        // Too little to say anything.
        meter.on(&said, || (), |()| Some(4096));
        meter.cached((OBJECT, &[(0, 4096)]), 4096, &said);
        let read = meter.read_at.load(Relaxed);
        meter.probed(7_000, read, &said);
        assert_eq!(said.load(Relaxed), 0, "it was read when the probe began");
        meter.probed(7_000, read + 1, &said);
        assert_eq!(said.load(Relaxed), 7_000);
        meter.on(&said, || meter.probed(9_000, read + 2, &said), |()| Some(4096));
        assert_eq!(said.load(Relaxed), 7_000, "it is being read");
    }

    #[test]
    fn a_disk_is_said_with_the_pieces_in_which_it_was_read() {
        let (meter, said) = (Meter::default(), AtomicU32::new(0));
        assert_eq!(meter.of_disk(), OfDisk::default(), "nothing was read");
        let read = |offset| {
            meter.asked(OBJECT, &[(offset, MIB)]);
            meter.on(&said, || (), |()| Some(MIB));
        };
        read(0);
        assert_eq!(meter.of_disk(), OfDisk::default(), "too little was read");
        read(10 * MIB);
        read(11 * MIB);
        let OfDisk { us_per_mib, piece_kib } = meter.of_disk();
        assert_eq!((us_per_mib > 0, piece_kib), (true, 3 * 1024 / 2));
    }

    #[test]
    fn what_a_probe_found_among_writes_is_no_part_of_what_is_read_after_it() {
        let said = AtomicU32::new(2_000_000);
        let mut sample = Sample { is_probed: true, ..Sample::default() };
        sample.begin(0);
        sample.end(25_000, Some(MIB / 2));
        say(&mut sample, &said);
        let first = said.load(Relaxed);
        assert!((40_000..=50_000).contains(&first), "{first}");
        sample.begin(25_000);
        sample.end(75_000, Some(MIB / 2));
        say(&mut sample, &said);
        assert_eq!(said.load(Relaxed), first, "so little is part of something else from now on");
        // Nor what was found before a pause.
        sample.begin(3_000_000);
        sample.end(3_100_000, Some(MIB));
        say(&mut sample, &said);
        assert!(said.load(Relaxed) > 85_000, "{said:?}");
    }

    #[test]
    fn a_disk_that_has_become_slow_is_known_to_be_after_one_read() {
        let (mut sample, said) = (Sample::default(), AtomicU32::new(1_000));
        sample.begin(0);
        sample.end(400_000, Some(64 << 10));
        say(&mut sample, &said);
        assert!(said.load(Relaxed) > 1_000_000, "{said:?}");
    }
}
