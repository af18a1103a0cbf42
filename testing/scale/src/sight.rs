//! A reader's knowledge of a disk, and a disk's reports about itself. It repeats the logic of
//! clients and data servers (`client/src/core/pace.rs`, `dataserver/src/disk/meter.rs`), whose shells
//! cannot be used here.

use weir_policy::{CopyView, Micros, Progress, RUN_BYTES};

const MIB: f64 = 1_048_576.0;
/// Each request costs a disk as much time as this many bytes.
const REQUEST_BYTES: f64 = 65_536.0;
/// Each seek costs a disk as much time as this many bytes.
const TURN_BYTES: f64 = MIB;
/// Time constant of the mean of other readers' outstanding requests.
const MEAN_US: f64 = 300_000.0;
/// A disk that was not heard from for this long is asked.
const TICK_US: Micros = 100_000;

/// A disk's report about itself, sent with each reply.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Time per MiB.
    pub us_per_mib: f64,
    /// Unanswered requests.
    pub in_flight: u32,
}

/// A disk's measurement of itself.
#[derive(Debug, Default)]
pub struct Meter {
    busy_us: f64,
    bytes: f64,
    us_per_mib: f64,
}

impl Meter {
    /// Notes served bytes.
    pub fn served(&mut self, us: f64, bytes: f64) {
        self.busy_us += us;
        self.bytes += bytes + REQUEST_BYTES;
        if self.bytes < 2.0 * MIB && self.busy_us < 100_000.0 {
            return;
        }
        let new = self.busy_us * MIB / self.bytes;
        let is_first = self.us_per_mib == 0.0;
        self.us_per_mib = if is_first { new } else { f64::midpoint(self.us_per_mib, new) };
        (self.busy_us, self.bytes) = (0.0, 0.0);
    }

    /// The report for a reply.
    pub fn report(&self, waiting: usize) -> Report {
        Report { us_per_mib: self.us_per_mib, in_flight: waiting as u32 }
    }
}

/// A reader's knowledge of one disk.
#[derive(Clone, Debug)]
pub struct Sight {
    /// Whether the disk has refused nothing.
    pub is_usable: bool,
    /// Outstanding requests of this reader.
    pub in_flight: u32,
    /// Progress of the disk's own reader.
    pub peer: Option<Progress>,
    us_per_mib: f64,
    others: f64,
    heard: Option<Micros>,
    asked: Option<Micros>,
}

impl Sight {
    /// Nothing is known.
    pub fn new() -> Self {
        Self {
            is_usable: true,
            in_flight: 0,
            peer: None,
            us_per_mib: 0.0,
            others: 0.0,
            heard: None,
            asked: None,
        }
    }

    /// Notes a reply, after it was removed from the outstanding requests, or an answer to a
    /// question.
    pub fn heard(&mut self, report: Report, now: Micros) {
        let others = f64::from(report.in_flight.saturating_sub(self.in_flight));
        let since = self.heard.map_or(f64::INFINITY, |at| (now - at) as f64);
        self.others += (others - self.others) * (1.0 - (-since / MEAN_US).exp());
        self.us_per_mib = report.us_per_mib;
        self.heard = Some(now);
    }

    /// Whether a reply has come since then.
    pub fn is_heard_since(&self, then: Micros) -> bool {
        self.heard.is_some_and(|at| at >= then)
    }

    /// Whether to ask the disk for its state without a read. If so, it counts as asked.
    pub fn asks(&mut self, now: Micros) -> bool {
        let is_old = |at: Option<Micros>| at.is_none_or(|at| now - at > TICK_US);
        let asks = self.is_usable && is_old(self.heard) && is_old(self.asked);
        if asks {
            self.asked = Some(now);
        }
        asks
    }
}

/// The views of all copies for a request of this size. An unknown copy counts as average.
pub fn views(sights: &[Sight], len_bytes: u64, views: &mut Vec<CopyView>) {
    let known = |sight: &&Sight| sight.is_usable && sight.us_per_mib > 0.0;
    let usual = sights.iter().find(known).map_or(0.0, |sight| sight.us_per_mib);
    let first = sights.iter().position(|sight| sight.is_usable);
    let rest = RUN_BYTES.saturating_sub(len_bytes) as f64;
    views.clear();
    views.extend(sights.iter().enumerate().map(|(n, sight)| {
        let us_per_mib = if sight.us_per_mib > 0.0 { sight.us_per_mib } else { usual };
        let turn = if Some(n) == first { 0.0 } else { TURN_BYTES };
        CopyView {
            is_usable: sight.is_usable,
            is_full: false,
            has_enough: false,
            in_flight: sight.in_flight,
            queued: sight.others.round() as u32,
            to_come: 0,
            is_idle: false,
            service_us: us_per_mib * (len_bytes as f64 + REQUEST_BYTES) / MIB,
            rest_us: us_per_mib * rest / MIB,
            turn_us: us_per_mib * turn / MIB,
            peer: sight.peer,
            may_be_owned: false,
            is_mine: false,
            keeps_up: false,
        }
    }));
}
