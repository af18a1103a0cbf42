//! What is known of one disk: how long a MiB takes there now, and did before, by the pieces in
//! which it is read.

use super::STALE;
use crate::Micros;

/// What was measured is taken as a mean over this,
const MEAN_US: f64 = 5_000_000.0;
/// and the past as one over this.
const PAST_US: f64 = 600_000_000.0;
/// A disk of which less is known has no past that it could be compared with.
const PAST: Micros = 60_000_000;

/// Pieces differ by a factor of about 1.4 from one class to the next, and no more than twice
/// from one that is like it.
const CLASSES_PER_DOUBLING: f64 = 2.0;
/// Pieces of the first class, or smaller: most of the time is for turns of the head.
const SMALLEST_KIB: f64 = 16.0;
/// Classes of pieces; those of the last one are so large that turns of the head hardly matter.
pub(super) const CLASSES: usize = 17;

const KIB_PER_MIB: f64 = 1024.0;
/// Servers count a request as so much more than it has (`REQUEST_COST_BYTES` of `weir-wire`).
const PIECE_COST_MIB: f64 = 1.0 / 16.0;

/// How a disk was read, or a mean of that.
///
/// Both are for a MiB of what was read, so that turns of the head add the same to the time for
/// each piece: a mean of some samples is what all of them would be as one, and a disk that
/// goes over from small pieces to large ones is at all times like one that is read in both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The time, without anything taken off for pieces.
    us: f64,
    pieces: f64,
}

impl Sample {
    /// `us_per_mib`: as servers say it.
    pub(super) fn new(us_per_mib: u32, piece_kib: u32) -> Self {
        let pieces = KIB_PER_MIB / f64::from(piece_kib.max(1));
        Self { us: f64::from(us_per_mib) * (1.0 + pieces * PIECE_COST_MIB), pieces }
    }

    /// What servers would say of it.
    pub(super) fn us_per_mib(&self) -> f64 {
        self.us / (1.0 + self.pieces * PIECE_COST_MIB)
    }

    #[cfg(test)]
    pub(super) fn pieces_per_mib(&self) -> f64 {
        self.pieces
    }

    /// Disks whose classes differ by more than one are not compared.
    pub(super) fn class(&self) -> usize {
        let piece_kib = KIB_PER_MIB / self.pieces;
        let class = CLASSES_PER_DOUBLING * (piece_kib / SMALLEST_KIB).log2();
        class.round().clamp(0.0, (CLASSES - 1) as f64) as usize
    }

    /// Goes on to a new one, by some share.
    fn approach(&mut self, new: Self, share: f64) {
        self.us += (new.us - self.us) * share;
        self.pieces += (new.pieces - self.pieces) * share;
    }
}

/// What a MiB took before in pieces of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    us_per_mib: f64,
    /// For so long it was seen.
    seen: Micros,
}

/// What is known of one disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// When it was heard of last,
    pub(super) last: Micros,
    /// and compared with others.
    pub(super) compared: Micros,
    pub(super) mean: Sample,
    past: [Past; CLASSES],
    /// Since when it seems to be otherwise than what is said of it.
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
            // What was not measured in between is not known to have been so.
            let since = since.min(MEAN_US as Micros);
            let share = 1.0 - (-(since as f64) / PAST_US).exp();
            past.us_per_mib += (new.us_per_mib() - past.us_per_mib) * share;
            past.seen = past.seen.saturating_add(since);
        }
        self.last = now;
    }

    /// It cannot be compared now, so that this time is none in which samples agree; nor do those
    /// of long ago count with what comes.
    pub(super) fn wait(&mut self, since_last: Micros, now: Micros) {
        let is_soon = now.saturating_sub(self.compared) <= STALE;
        let otherwise = self.otherwise.filter(|_| is_soon);
        self.otherwise = otherwise.map(|since| since.saturating_add(since_last));
    }

    /// How many times as long a MiB takes as it did before in such pieces; `None`: too little is
    /// known of that.
    pub(super) fn times_its_past(&self) -> Option<f64> {
        let past = &self.past[self.mean.class()];
        (past.seen >= PAST).then(|| self.mean.us_per_mib() / past.us_per_mib.max(1.0))
    }
}
