//! How often a disk is said to have become slow that has not, and how soon one that has: the rule
//! of `weir_policy::slow` itself, with what servers would say of their disks twice a second.
//!
//! ```text
//! cargo run --release -p weir-scale --example alarms
//! ```
//! Disks differ by 5 %; each heartbeat's time for a MiB by what is read there just then: nothing
//! (no word of it), one stream, several streams (up to 1.6 times as long), or small pieces (three
//! to nine times as long on a disk with a head; or any size, 1.2 to nine times). Servers also say
//! how large pieces are, 25 % too much or too little; and, to see what that is good for, all say
//! of all that they are large. What all disks of a job do at the same time is one thing, what each
//! does by itself another. Fail-slow as in `docs/figures-scale.md`: 0.2 % of the time, from a
//! second to a day, two to twenty times as slow.
#![allow(clippy::print_stdout)] // It is what it is for.

use fastrand::Rng;
use weir_policy::SlowDisks;

const HEARTBEAT_US: u64 = 500_000;
const DAY_US: u64 = 86_400_000_000;
/// A disk that is slow for a shorter time is not missed by anybody.
const LASTS_US: u64 = 60_000_000;
const SLOW_SHARE: f64 = 0.002;
/// What a stream is said to be read in, and all where nobody says it.
const STREAM_KIB: f64 = 32_768.0;
/// A disk spends on a turn what it would on so much,
const TURN_KIB: f64 = 1_024.0;
/// and servers count a request as so much more.
const REQUEST_COST_KIB: f64 = 64.0;

/// How disks are used.
#[derive(Clone, Copy)]
struct Uses {
    /// Share of all time with small pieces,
    small_share: f64,
    /// and the least and the most times as long as that which a MiB takes then.
    small_times: (f64, f64),
    together: bool,
    /// Servers say how large pieces are.
    sizes: bool,
}

/// What a disk does for a while; how much longer a MiB takes then.
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

/// The pieces of which a MiB takes so many times as long as of a stream.
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
    /// When the present illness was said, if it was.
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

    /// When it becomes slow next, for how long, and by how much.
    fn next_illness(&mut self, rng: &mut Rng, now: u64) {
        let lasts = 1e6 * (DAY_US as f64 / 1e6).powf(rng.f64());
        // The mean of such times decides how often, so that it is for that share of all time.
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
    // The sizes that are said change nothing else.
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
