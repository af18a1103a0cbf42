//! What a reader knows of a disk by its replies, and how disks come to it: as clients and data
//! servers do it (`client/src/core/pace.rs`, `dataserver/src/disk/meter.rs`; their shells are in the way
//! of using those here).

use weir_policy::{CopyView, Micros, Progress, RUN_BYTES};

const MIB: f64 = 1_048_576.0;
/// A disk spends on every request what it would on so many bytes,
const REQUEST_BYTES: f64 = 65_536.0;
/// and on turning to another place what it would on so many.
const TURN_BYTES: f64 = MIB;
/// What others have outstanding is taken as its mean over about so long.
const MEAN_US: f64 = 300_000.0;
/// Who was not heard of for so long is asked.
const TICK_US: Micros = 100_000;

/// A disk, as it says of itself in each reply.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Time that it takes for a MiB.
    pub us_per_mib: f64,
    /// Requests that it has not answered.
    pub in_flight: u32,
}

/// How a disk comes to it.
#[derive(Debug, Default)]
pub struct Meter {
    busy_us: f64,
    bytes: f64,
    us_per_mib: f64,
}

impl Meter {
    /// It has served something.
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

    /// For a reply, while others wait.
    pub fn report(&self, waiting: usize) -> Report {
        Report { us_per_mib: self.us_per_mib, in_flight: waiting as u32 }
    }
}

/// One disk in the eyes of one reader.
#[derive(Clone, Debug)]
pub struct Sight {
    /// It has not refused anything.
    pub is_usable: bool,
    /// Requests of this reader that it has not answered.
    pub in_flight: u32,
    /// Of its own reader.
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

    /// A reply came, which is not counted as outstanding any more, or an answer to a question.
    pub fn heard(&mut self, report: Report, now: Micros) {
        let others = f64::from(report.in_flight.saturating_sub(self.in_flight));
        let since = self.heard.map_or(f64::INFINITY, |at| (now - at) as f64);
        self.others += (others - self.others) * (1.0 - (-since / MEAN_US).exp());
        self.us_per_mib = report.us_per_mib;
        self.heard = Some(now);
    }

    /// Whether a reply came since then.
    pub fn is_heard_since(&self, then: Micros) -> bool {
        self.heard.is_some_and(|at| at >= then)
    }

    /// Whether it is asked what it is like, without a read; it counts as asked then.
    pub fn asks(&mut self, now: Micros) -> bool {
        let is_old = |at: Option<Micros>| at.is_none_or(|at| now - at > TICK_US);
        let asks = self.is_usable && is_old(self.heard) && is_old(self.asked);
        if asks {
            self.asked = Some(now);
        }
        asks
    }
}

/// What is known of all copies for a request of so many bytes. One of which nothing is known
/// counts as any other.
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
