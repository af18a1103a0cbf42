//! False alarms and detection delay of `weir_policy::slow`: how often the rule reports a disk that
//! has not become slow, and how soon one that has. Its input is what servers would report about
//! their disks twice a second.
//!
//! ```text
//! cargo run --release -p weir-scale --example alarms
//! ```
//! Disks differ by 5 %. The time per MiB of each heartbeat depends on what is read just then:
//! nothing (no report), one stream, several streams (up to 1.6 times as long), or small pieces
//! (three to nine times as long on a disk with a head; or any size, 1.2 to nine times). Servers
//! also report the size of pieces, with an error of 25 % either way. To show the benefit of that,
//! one variant reports large pieces for all disks. Either all disks of a job have the same load at
//! the same time, or each has its own. Fail-slow disks are as in `docs/figures-scale.md`: 0.2 % of
//! the time, from a second to a day, two to twenty times as slow.
#![allow(clippy::print_stdout)] // It is what it is for.

use fastrand::Rng;
use weir_policy::SlowDisks;

const HEARTBEAT_US: u64 = 500_000;
const DAY_US: u64 = 86_400_000_000;
/// A disk that is slow for a shorter time need not be reported.
const LASTS_US: u64 = 60_000_000;
const SLOW_SHARE: f64 = 0.002;
/// Reported piece size of a stream, and of all loads if sizes are not reported.
const STREAM_KIB: f64 = 32_768.0;
/// A seek costs as much time as reading this much.
const TURN_KIB: f64 = 1_024.0;
/// Servers count each request as this much larger.
const REQUEST_COST_KIB: f64 = 64.0;

/// The load of the disks.
#[derive(Clone, Copy)]
struct Uses {
    /// Share of the time with small pieces.
    small_share: f64,
    /// Range of the factor by which a MiB takes longer in small pieces.
    small_times: (f64, f64),
    together: bool,
    /// Whether servers report the size of pieces.
    sizes: bool,
}

/// The load of a disk for a while, as the factor by which a MiB takes longer.
struct Work {
    until: u64,
    times: Option<f64>,
}

impl Work {
    fn next(rng: &mut Rng, now: u64, uses: Uses) -> Self {
        let mean_us = 30e6;
        let until = now + (-rng.f64().max(1e-9).ln() * mean_us) as u64 + 1;
        let (small_share, (least, most)) = (uses.small_share, uses.small_times);
        let times = match rng.f64() {
            at if at < small_share => Some(least + (most - least) * rng.f64()),
            at if at < small_share + 0.2 => None,
            at if at < small_share + 0.5 => Some(1.2 + 0.4 * rng.f64()),
            _ => Some(1.0),
        };
        Self { until, times }
    }
}

/// The piece size with which a MiB takes `times` as long as in a stream.
fn piece_kib(times: f64) -> f64 {
    match times {
        times if times > 1.0 => (TURN_KIB - times * REQUEST_COST_KIB) / (times - 1.0),
        _ => STREAM_KIB,
    }
}

struct Disk {
    base_us: f64,
    work: Work,
    ill_from: u64,
    ill_until: u64,
    ill_times: f64,
    is_said: bool,
    /// When the present slow period was reported, if it was.
    told: Option<u64>,
}

impl Disk {
    fn new(rng: &mut Rng) -> Self {
        let base_us = 8_000.0 * (0.95 + 0.1 * rng.f64());
        let work = Work { until: 0, times: None };
        let mut disk = Self {
            base_us,
            work,
            ill_from: 0,
            ill_until: 0,
            ill_times: 1.0,
            is_said: false,
            told: None,
        };
        disk.next_illness(rng, 0);
        disk
    }

    /// Draws the next slow period: its start, duration and factor.
    fn next_illness(&mut self, rng: &mut Rng, now: u64) {
        let lasts = 1e6 * (DAY_US as f64 / 1e6).powf(rng.f64());
        // The mean duration determines the frequency, so that the share of all time is as given.
        let mean = (DAY_US as f64 - 1e6) / (DAY_US as f64 / 1e6).ln();
        let gap = -rng.f64().max(1e-9).ln() * mean * (1.0 - SLOW_SHARE) / SLOW_SHARE;
        self.ill_from = now + gap as u64;
        self.ill_until = self.ill_from + lasts as u64;
        self.ill_times = 2.0 * 10f64.powf(rng.f64());
        self.told = None;
    }

    fn is_ill(&self, now: u64) -> bool {
        (self.ill_from..self.ill_until).contains(&now)
    }
}

#[derive(Default)]
struct Count {
    disk_days: f64,
    false_alarms: u32,
    ill: u32,
    told: u32,
    delay_s: f64,
}

fn run(disks: usize, days: u64, uses: Uses, seed: u64) -> Count {
    // A separate generator for sizes, so that they change nothing else.
    let (mut rng, mut size_rng) = (Rng::with_seed(seed), Rng::with_seed(seed + 1));
    let mut all: Vec<Disk> = (0..disks).map(|_| Disk::new(&mut rng)).collect();
    let (mut slow, mut count) = (SlowDisks::default(), Count::default());
    let mut common = Work { until: 0, times: None };
    for now in (0..days * DAY_US).step_by(HEARTBEAT_US as usize) {
        if now >= common.until {
            common = Work::next(&mut rng, now, uses);
        }
        for (n, disk) in all.iter_mut().enumerate() {
            if now >= disk.ill_until {
                if disk.ill_until - disk.ill_from >= LASTS_US {
                    count.ill += 1;
                    if let Some(at) = disk.told {
                        count.told += 1;
                        count.delay_s += (at - disk.ill_from) as f64 / 1e6;
                    }
                }
                disk.next_illness(&mut rng, now);
            }
            if now >= disk.work.until {
                disk.work = Work::next(&mut rng, now, uses);
            }
            let work = if uses.together { &common } else { &disk.work };
            let Some(times) = work.times else { continue };
            let ill = if disk.is_ill(now) { disk.ill_times } else { 1.0 };
            let us = disk.base_us * times * ill * (0.85 + 0.3 * rng.f64());
            let said = if uses.sizes { piece_kib(times) } else { STREAM_KIB };
            let said = said * (0.75 + 0.5 * size_rng.f64());
            slow.measured(n, us as u32, said as u32, now + 1);
        }
        for verdict in slow.judge(now + 1) {
            let disk = &mut all[verdict.disk];
            if verdict.is_slow && !disk.is_said {
                match disk.is_ill(now) {
                    true => disk.told = disk.told.or(Some(now)),
                    false => count.false_alarms += 1,
                }
            }
            disk.is_said = verdict.is_slow;
        }
    }
    count.disk_days = disks as f64 * days as f64;
    count
}

fn main() {
    println!(
        "disks, days, small pieces (times as long), work, sizes: false alarms (for a disk and \
         year); slow for a minute or more, of these said, after"
    );
    let none = Uses { small_share: 0.0, small_times: (1.0, 1.0), together: false, sizes: true };
    let small = Uses { small_share: 0.05, small_times: (3.0, 9.0), ..none };
    let any = Uses { small_share: 0.3, small_times: (1.2, 9.0), ..none };
    let together = Uses { together: true, ..small };
    for (disks, days) in [(8, 60), (64, 14)] {
        for uses in [none, together, small, any] {
            for sizes in [false, true] {
                report(disks, days, Uses { sizes, ..uses });
            }
        }
    }
}

fn report(disks: usize, days: u64, uses: Uses) {
    let count = run(disks, days, uses, 7);
    let a_year = f64::from(count.false_alarms) / count.disk_days * 365.0;
    let (small, (least, most)) = (uses.small_share * 100.0, uses.small_times);
    let work = if uses.together { "all the same" } else { "each its own" };
    let sizes = if uses.sizes { "said" } else { "not said" };
    println!(
        "{disks}, {days}, {small:.0} % ({least} to {most}), {work}, {sizes}: {} ({a_year:.1}); {}, {}, {:.0} s",
        count.false_alarms,
        count.ill,
        count.told,
        count.delay_s / f64::from(count.told.max(1)),
    );
}
