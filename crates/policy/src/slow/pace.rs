//! The measurements of one disk: its time per MiB now and in the past, by size of pieces.

use super::STALE;
use crate::Micros;

/// Time constant of the present mean, microseconds.
const MEAN_US: f64 = 5_000_000.0;
/// Time constant of the past mean, microseconds.
const PAST_US: f64 = 600_000_000.0;
/// A disk that was measured for a shorter time has no past to compare with.
const PAST: Micros = 60_000_000;

/// Sizes of pieces differ by a factor of about 1.4 from one class to the next. Compared disks
/// differ by at most a factor of two.
const CLASSES_PER_DOUBLING: f64 = 2.0;
/// Piece size of the first class, which also has all smaller pieces: most of the time is for seeks.
const SMALLEST_KIB: f64 = 16.0;
/// Number of classes of pieces. In the last class seeks hardly matter.
pub(super) const CLASSES: usize = 17;

const KIB_PER_MIB: f64 = 1024.0;
/// Servers count each request as this much larger than it is (`REQUEST_COST_BYTES` of `weir-wire`).
const PIECE_COST_MIB: f64 = 1.0 / 16.0;

/// One measurement of a disk, or a mean of several.
///
/// Both values are per MiB, so that each piece adds the same time for a seek. The mean of samples
/// then equals one sample over all of them, and a disk that changes from small to large pieces
/// always looks like one that is read in both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Time per MiB, microseconds, with the extra size of pieces not subtracted.
    us: f64,
    pieces: f64,
}

impl Sample {
    /// Converts a server's measurement `us_per_mib`.
    pub(super) fn new(us_per_mib: u32, piece_kib: u32) -> Self {
        let pieces = KIB_PER_MIB / f64::from(piece_kib.max(1));
        Self { us: f64::from(us_per_mib) * (1.0 + pieces * PIECE_COST_MIB), pieces }
    }

    /// The value in a server's terms.
    pub(super) fn us_per_mib(&self) -> f64 {
        self.us / (1.0 + self.pieces * PIECE_COST_MIB)
    }

    #[cfg(test)]
    pub(super) fn pieces_per_mib(&self) -> f64 {
        self.pieces
    }

    /// Class of the piece size. Disks whose classes differ by more than one are not compared.
    pub(super) fn class(&self) -> usize {
        let piece_kib = KIB_PER_MIB / self.pieces;
        let class = CLASSES_PER_DOUBLING * (piece_kib / SMALLEST_KIB).log2();
        class.round().clamp(0.0, (CLASSES - 1) as f64) as usize
    }

    /// Moves the mean towards a new sample, by a share.
    fn approach(&mut self, new: Self, share: f64) {
        self.us += (new.us - self.us) * share;
        self.pieces += (new.pieces - self.pieces) * share;
    }
}

/// Past time per MiB in pieces of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    us_per_mib: f64,
    /// Total time of measurements.
    seen: Micros,
}

/// The measurements of one disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Time of the last sample.
    pub(super) last: Micros,
    /// Time of the last comparison with other disks.
    pub(super) compared: Micros,
    pub(super) mean: Sample,
    past: [Past; CLASSES],
    /// Since when the impression differs from the judgement.
    pub(super) otherwise: Option<Micros>,
    pub(super) is_slow: bool,
}

impl Pace {
    pub(super) fn new(first: Sample, now: Micros) -> Self {
        Self {
            last: now,
            compared: now,
            mean: first,
            past: [Past::default(); CLASSES],
            otherwise: None,
            is_slow: false,
        }
    }

    pub(super) fn add(&mut self, new: Sample, now: Micros) {
        let since = now.saturating_sub(self.last);
        self.mean.approach(new, 1.0 - (-(since as f64) / MEAN_US).exp());
        if !self.is_slow && self.otherwise.is_none() {
            let past = &mut self.past[new.class()];
            if past.seen == 0 {
                past.us_per_mib = new.us_per_mib();
            }
            // The time without samples does not count.
            let since = since.min(MEAN_US as Micros);
            let share = 1.0 - (-(since as f64) / PAST_US).exp();
            past.us_per_mib += (new.us_per_mib() - past.us_per_mib) * share;
            past.seen = past.seen.saturating_add(since);
        }
        self.last = now;
    }

    /// Postpones the judgement, because the disk cannot be compared now. The pause does not count
    /// as agreement of samples, and after a long pause earlier samples do not count either.
    pub(super) fn wait(&mut self, since_last: Micros, now: Micros) {
        let is_soon = now.saturating_sub(self.compared) <= STALE;
        let otherwise = self.otherwise.filter(|_| is_soon);
        self.otherwise = otherwise.map(|since| since.saturating_add(since_last));
    }

    /// Present time per MiB as a multiple of the past one in pieces of this size. `None` if too
    /// little of the past is known.
    pub(super) fn times_its_past(&self) -> Option<f64> {
        let past = &self.past[self.mean.class()];
        (past.seen >= PAST).then(|| self.mean.us_per_mib() / past.us_per_mib.max(1.0))
    }
}
